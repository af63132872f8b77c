"""Ownership of bundles: which broker serves which topics.

The topics of a namespace are divided into bundles by the hash of their names (magnetar_wire.bundles). A broker owns a
bundle while its ephemeral owner node exists. Ownership is only a hint: it directs all clients of a topic to one broker,
so that brokers don't take topics from each other all the time. That two brokers never both write to a topic, or both
accept its acknowledgements, is ensured by the fences of ledgers and by the versions of topics' and cursors' nodes
(protocol.md).

    interface.py             what other packages call, and what this one calls in other packages
    bundle_ownership.py      lookups, claims, unloads and splits in one metadata session
    held_bundles.py          the bundles that this broker owns, and one operation at a time on each
    bundle_map.py            those bundles by a topic's hash
    owner_nodes.py           the owner nodes: created and deleted despite lost answers
    namespace_bundles.py     rules: the bundles of a namespace, and where one is split
    bundle_split.py          the transaction of a split
    bundle_assigner.py       assigns a bundle without an owner to the least loaded of registered_brokers.py
    registration.py          the registration of this broker, with its load
    load_rules.py            rules: which broker is the least loaded, and when a load report is due
    dead_owners.py           detects owner nodes of stale sessions and of dead brokers
    ownership_verifier.py    checks at intervals whether this broker still owns its bundles
    advertised_addresses.py  the addresses at which clients and other brokers reach a broker
    store_errors.py          the metadata store's errors, as a broker reports them
"""
