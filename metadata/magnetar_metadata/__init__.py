"""The metadata store: one interface, and two stores that implement it. Import from the modules.

interface
    store.py              the interface and its theory of operation: begin here
    errors.py             the errors
    compare_and_set.py    how a node is changed depending on its value
    envelope.py           the format of such a value, and whether a change was made if its answer is lost
    undecodable_nodes.py  nodes whose values are damaged: ignored, or replaced
    location.py           a store's location in a configuration, and opening it
    settings.py           the settings of a process that uses a store
parts that the stores share
    session.py            a session's state and its listeners
    watch_flags.py        watches
    paths.py              valid paths, and relations of paths
    transaction_check.py  what is refused before anything is sent
    tree.py               the effect of a transaction on a tree (ZooKeeper has its own)
    node_table.py         the nodes of a tree, and changes that are not made yet
stores
    zookeeper/            ZooKeeper, for clusters
    embedded/             RocksDB in one process, for a standalone
    locked_folder/        locks a folder for one process; bookies use it, too

A third store, for tests and the simulation, is `magnetar_testing.metadata`. It has the tree in memory, and injects
faults.
"""
