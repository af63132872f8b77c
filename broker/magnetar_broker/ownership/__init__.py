"""Which broker serves which topics.

A namespace's topics fall into bundles by their hash (magnetar_wire.bundles), and a bundle is one broker's while that
one's ephemeral node stands. What is known here is a hint: it sends clients to one place, so that brokers don't take
topics from each other all the time. That two brokers never both write, or both take acknowledgements, is decided by the
ledgers' fences and the lives of topics and cursors (protocol.md).

    interface.py            what the rest of a broker asks, and what is asked of it
    bundle_ownership.py     whose a topic is, claims, unloads, splits: one metadata session's
    held_bundles.py         the bundles that this broker has, and one thing at a time that is done with each
    owner_nodes.py          the nodes that say so, made and deleted over lost answers
    splitting.py            cutting one in two
    assigning.py            giving one that nobody has to the least loaded of registered_brokers.py
    registration.py         being one of those, with what load.py tells
    predecessor.py          nodes that a former self has left behind
    refused_owners.py       nodes of a broker whose process is gone
    upkeep.py               looking now and then at whether all of that is still so
"""
