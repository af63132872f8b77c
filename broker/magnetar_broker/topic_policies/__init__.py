"""Policies of single topics, which override those of their namespace.

Theory of operation
-------------------
The policies of a namespace's topics are events in its system topic `__change_events`, and the broker that owns this
topic is their only writer: the log's owner epoch and fences ensure that, as for any topic.

**An event** has all policies of one topic, and replaces the topic's events before it; one without policies removes
them. Its key is the topic's name, so a compaction leaves the last event of each topic. It is stored as an entry of
Pulsar's public layout (policy_events.py).

**A change** names policies to set and to remove. The owner applies it to what the topic has, validates it, appends the
event, and applies it to its memory when it is persisted; then it answers (policy_log.py). Changes of a namespace are
made one at a time. If the result of an append is unknown, the owner loses the topic, as with any entry, and the next
owner reads from the log what was stored.

**Incarnations.** An event has the incarnation of its topic, which the owner reads afresh for each change. A topic that
was deleted and created again under the same name has another one, so it never gets the policies of the deleted one. The
deletion of a topic also removes its policies; if that fails, the next snapshot leaves them out.

A non-persistent topic exists while it is used, and keeps its policies when it vanishes. So all of them have one
incarnation, and only a deletion on request removes the policies. If that fails, they apply to a later topic of the
name. A partitioned one has an incarnation of its own, as any partitioned topic.

**Growth.** If the log has many more events than topics have policies, the owner writes a snapshot: it closes the
current ledger, appends the events of all topics that exist again, and deletes the ledgers before. After a crash at any
step the log has all old events, some of them twice, or the complete snapshot: reading it gives the same policies.

**Reading.** The owner has all policies of a namespace in memory. Other brokers fetch them when they open a topic, or
need them again, and cache them for `metadata_cache_ttl_seconds` (policy_cache.py). What was not changed since is not
sent again. If the owner can't be reached, the policies that were fetched last apply: a topic is opened in any case. A
topic that is being opened has them fetched while its log is recovered.

    policy_events.py    events, and the policies that follow from them
    policy_log.py       the events topic of one namespace, at its owner
    policy_logs.py      those of all namespaces that this broker owns
    policy_cache.py     the policies of any topic, at any broker

catalog/applied_policies.py combines them with those of the namespace and the brokers' settings.
"""
