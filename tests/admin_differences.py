"""What differs from Pulsar in the answers to its admin client, and why.

    UNSUPPORTED     patterns of steps that are refused with 405, and what is missing for them
    DIFFERENCES     patterns of "step: path of the field", as `tests.admin_steps.compare` names it, and why it differs

A row that no difference needs any more fails the test, so that each feature that is added removes its rows. A row of
`UNSUPPORTED` explains no other status than 405.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DIFFERENCES", "UNSUPPORTED"]

_PERMISSIONS: Final = "authorization, and so permissions"
_OFFLOAD: Final = "offloading of ledgers to long-term storage"
_FILTERS: Final = "filtering entries"
_COMPACTION: Final = "compaction"
_JVM: Final = "reading the state of a JVM: brokers are no Java programs"
_RACKS: Final = "placing bookies in racks"

UNSUPPORTED: Final[dict[str, str]] = {
    "bookies.rack.delete.missing": _RACKS,
    "bookies.rack.missing": _RACKS,
    "bookies.rack.remove": _RACKS,
    "bookies.rack.set": _RACKS,
    "broker stats.allocator": _JVM,
    "broker stats.mbeans": _JVM,
    "broker stats.pending bookie ops": "counting operations on ledgers in flight",
    "clusters.failure domain*": "placing brokers in failure domains",
    "clusters.isolation polic*": "isolating namespaces on groups of brokers",
    "clusters.peers*": "geo-replication between clusters",
    "ending.compact": _COMPACTION,
    "ending.offload": _OFFLOAD,
    "missing.compact": _COMPACTION,
    "ns.anti-affinity.*": "anti-affinity of namespaces",
    "ns.bookie affinity": "affinity of bookies",
    "ns.entry filters.*": _FILTERS,
    "ns.offload lag.*": _OFFLOAD,
    "ns.offload policies": _OFFLOAD,
    "ns.offload seconds.*": _OFFLOAD,
    "ns.offload threshold.*": _OFFLOAD,
    "ns.permissions.*": _PERMISSIONS,
    "ns.resource group.*": "limiting resources by groups",
    "ns.subscription permissions": _PERMISSIONS,
    "subscriptions.replicated": "replication of subscriptions between clusters",
    "topic.applied.entry filters": _FILTERS,
    "topic.dispatch rate of subscription.*": "limiting the rate of a single subscription",
    "topic.entry filters.*": _FILTERS,
    "topics.permissions.*": _PERMISSIONS,
}

_ONE_NAME: Final = (
    "a topic without partitions and a partitioned one never share a name; Pulsar lets non-persistent topics do so"
)
_NOT_LOADED: Final = "404 for a non-persistent topic that is not loaded: Pulsar answers as if it had deleted one"
_AFTER_UNLOAD: Final = (
    "the id of the last message, where Pulsar names an entry -1 of the ledger that it created for the loaded topic, "
    "even if the topic has messages"
)
_NO_BACKLOG: Final = "a subscription without a backlog expires no messages; Pulsar answers 409, as if it were busy"
_NOT_CREATED: Final = "a missing subscription is not created: on Pulsar, to peek at it creates it for the steps after"
_ALL_PARTITIONS: Final = "it is done on all partitions of the topic: Pulsar needs the name of one"
_MERGED: Final = "clients that are merged keep what Pulsar drops: versions, properties, addresses, entries"
_CURSORS: Final = (
    "a cursor only counts and saves: it has no reads of its own, no times and counters of them, and is not saved at "
    "each acknowledgement"
)
_CHECKED: Final = "whether a schema is compatible: Pulsar answers 500 if it is not"
_NO_SCHEMA: Final = "a schema that is not valid is refused by all paths; Pulsar answers 500, or that it is not found"
_READ_POSITION: Final = "the entries after the mark-delete position; Pulsar adds the position that is read next"

DIFFERENCES: Final[dict[str, str]] = {
    "bookies.rack.get: value.group": "the step before, which sets a rack, is refused",
    "brokers.dynamic.not a number: *": "a value that is no number is refused; Pulsar stores it",
    "brokers.list.missing cluster: *": "404 for a cluster that is missing: Pulsar lists its own brokers for every name",
    "clusters.get: value.brokerClientSslFactoryPlugin": "a class of Pulsar's library for Java",
    "ending.compacted: value.status": "the step before is refused: there is no compaction",
    "ending.terminate: value.entryId": _AFTER_UNLOAD,
    "ending.terminate.again: value.entryId": _AFTER_UNLOAD,
    "ending.terminate.partitioned: value.?.entryId": _AFTER_UNLOAD,
    "lookups.bundle.missing namespace: *": "404 for a missing namespace: Pulsar answers with a bundle",
    "messages.examine.bad: *": "412 for a position that is neither earliest nor latest: Pulsar takes it for latest",
    "messages.id.beyond: *": "404 for an entry that does not exist: Pulsar fails",
    "namespaces.bundles.positions: value.*": "Pulsar answers 204 for a bundle with few topics, and leaves it whole",
    "np.partitioned.list: value": "a partition exists while it is used; Pulsar loads the first to read its properties",
    "np.partitioned.properties: *": "405 for calls that non-persistent topics do not have; Pulsar answers 406",
    "np.topics.create.partitioned: *": _ONE_NAME,
    "np.topics.delete partitions: *": _ONE_NAME,
    "np.topics.delete.again: *": _NOT_LOADED,
    "np.topics.delete.missing*: *": _NOT_LOADED,
    "np.topics.delete: *": _NOT_LOADED,
    "np.topics.partitions: value.partitions": _ONE_NAME,
    "np.topics.update partitions: *": _ONE_NAME,
    "ns.policies: value.bundles.*": "Pulsar forgets the bundles of a namespace when its anti-affinity group is set",
    "ns.policies: value.dispatcherPauseOnAckStatePersistentEnabled": "a removed policy is absent; Pulsar stores false",
    "ns.policies: value.offload_policies": "the steps before, which set it, are refused: there is no offloading",
    "parts.analyze: *": _ALL_PARTITIONS,
    "parts.expire: *": _NO_BACKLOG,
    "parts.expire all: *": _NO_BACKLOG,
    "parts.reset.id: *": "earliest is no message of one partition, so it is done on all: Pulsar needs the name of one",
    "schemas.*.check.*: *": _CHECKED,
    "schemas.check.incompatible: *": _CHECKED,
    "schemas.metadata.after force: value": "numbers of versions are not used again: the last one is kept, as deleted",
    "schemas.missing.delete: *": "404 for a topic that does not exist: Pulsar marks its schema as deleted",
    "schemas.type.BYTES.*: *": "the schema is found; Pulsar stores it as one without a type, and does not find it",
    "schemas.wrong.*: *": _NO_SCHEMA,
    "statistics.*: *.oldestBacklogMessage*": "known at once: Pulsar looks at backlogs once a minute",
    "statistics.p*internal*cursors.s.cursorLedger": _CURSORS,
    "statistics.p*internal*cursors.s.cursorLedgerLastEntry": _CURSORS,
    "statistics.p*internal*cursors.s.lastLedgerSwitchTimestamp": _CURSORS,
    "statistics.p*internal*cursors.s.messagesConsumedCounter": _CURSORS,
    "statistics.p*internal*cursors.s.numberOfEntriesSinceFirstNotAckedMessage": _READ_POSITION,
    "statistics.p*internal*cursors.s.state": _CURSORS,
    "statistics.p*internal*cursors.s.subscriptionHavePendingRead": _CURSORS,
    "statistics.p*internal*cursors.s.waitingReadOp": _CURSORS,
    "statistics.p*internal*lastLedgerCreatedTimestamp": "the time at which a ledger was created is not stored",
    "statistics.p*internal*waitingCursorsCount": _CURSORS,
    "statistics.parts.partitioned*: value.deduplicationStatus": "the same in all partitions; Pulsar leaves it out",
    "statistics.parts.partitioned*: value.publishers*": _MERGED,
    "statistics.parts.partitioned*: value.subscriptions.s.consumers*": _MERGED,
    "statistics.parts.partitioned.each: *.subscriptions.s.backlogSize": "always known; Pulsar measures it on demand",
    "subscriptions.expire all.none: *": _NO_BACKLOG,
    "subscriptions.missing.analyze: *": _NOT_CREATED,
    "subscriptions.missing.delete: *": _NOT_CREATED,
    "subscriptions.missing.peek: value": _NOT_CREATED,
    "subscriptions.missing.properties: *": _NOT_CREATED,
    "topic.applied.delayed delivery: value.active": "off by default: delayed delivery is not supported yet",
    "topic.applied.inactive topics: value.deleteWhileInactive": "off by default: broker_delete_inactive_topics_enabled",
}
