"""The metadata store: one interface, and the two stores that implement it.

Read `store` (the interface and its theory), then `errors`, then `compare_and_set` (how a node is changed by what it
held). `core` has the rules: paths, transactions, the tree, the envelope of a value. `zookeeper` and `embedded` are the
stores; `session` and `flags` hold the sessions and watches that they share. A third store, for tests and the
simulation, is `magnetar_testing.metadata`: it keeps the tree in memory and injects faults.
"""
