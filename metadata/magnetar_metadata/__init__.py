"""The metadata store: one interface, and the two stores that implement it.

Start with `store` (the interface and its theory of operation), then `errors`, then `compare_and_set` (how a node is
changed depending on its value). `core` has the rules: paths, transactions, the tree, the envelope of a value.
`zookeeper` and `embedded` are the stores; `session` and `watch_flags` have the sessions and watches that they share. A
third store, for tests and the simulation, is `magnetar_testing.metadata`: it keeps the tree in memory and injects
faults.
"""
