"""The metadata store: one interface, three stores behind it.

Read `store` (the interface and its theory), then `errors`, then `compare_and_set` (how a node is changed by what it
held). `core` has the rules: paths, transactions, the tree, the envelope of a value. Each of `zookeeper`, `embedded` and
`memory` is a store; `session` and `flags` (sessions and watches) are what they share.
"""
