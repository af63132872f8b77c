"""The registry of schemas: the versions of each topic's schema, and whether a new one is compatible.

Theory of operation
-------------------
**Stored.** Each version has a ledger with a single entry, its `StoredSchema`, which never changes. The topic's schema
node lists the versions: number, ledger, fingerprint. For a new version the ledger is written and closed. Then one
transaction adds the version to the node and claims the ledger. After a crash before that the ledger has no owner, and
is deleted as any such ledger.

**Any broker** may add a version, since the transaction is a compare-and-set of the node: of two brokers that add one at
the same time, the second reads the node again, and checks its schema against the version of the first. The owner of a
topic adds those of its producers and consumers.

**The same schema again** has the same fingerprint, and gets the version that it has. So a producer that reopens needs
one read of the metadata store, and no bookie; and a registration whose answer was lost is repeated. The same holds for
a consumer with the schema of the last version, unless the strategy counts all of them.

**Partitions** share the schema of their topic: its node has the name without the partition.

**Deletion.** A deletion adds a version without a ledger, which marks those before it as deleted. By force it also
removes them: their ledgers are named for deletion in the node, deleted, then removed from the node. If that is
interrupted, the next change continues. Numbers of versions are not used again.

**With its topic.** The transaction that adds a version also checks that the topic's node has not changed since it was
read and is not marked for deletion. A deletion of the topic marks its node, then deletes the schema, then the node. So
no version is added to a topic that is being deleted, and a later topic of its name begins without a schema.

**Hostile definitions** come from any client. Their size, nesting, number of types, the length of their names and the
work of checking and comparing them are bounded, and a type is never expanded where it is only named. With a megabyte it
can still take a second or two: then it's done in a thread (`takes_long`), which the hosts of clients use in turn. Each
schema is checked and compared once, and what came of it is cached.

    work_budget.py                how much work may be done for one request
    bounded_json.py               the JSON of a definition, parsed within bounds
    avro_definitions.py           parses and checks Avro schemas
    avro_equality.py              describes them for fingerprints: equal schemas have the same description
    protobuf_definitions.py       descriptors of PROTOBUF_NATIVE
    key_value_definitions.py      the two parts of KEY_VALUE
    definitions.py                whether a definition is valid, and its fingerprint
    avro_resolution.py            whether one Avro schema can read what was written with another
    compatibility.py              the strategies: which versions are compared, and in which direction
    schema_rules.py               which of these rules a topic has, by settings and policies
    schema_node.py                the node of a topic's schema
    schema_deletion.py            deletes it with its topic
    definition_ledgers.py         the ledgers of definitions, and their cache
    large_work.py                 the thread for large definitions, and its turns
    bounded_cache.py              a cache that is bounded by its bytes
    shared_reads.py               fresh reads that concurrent callers share
    schema_judge.py               checks and compares schemas, each once
    schema_registry.py            versions: found, added, read and deleted
"""
