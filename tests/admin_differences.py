"""Fields of answers to Pulsar's admin client that differ from Pulsar's, and why.

A key is a pattern of "step: path of the field", as `tests.admin_steps.compare` names it. A row that no difference needs
any more fails the test, so that each feature that is added removes its rows.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DIFFERENCES"]

_GEO: Final = "there is no geo-replication: clusters are those of this deployment, and can't be changed"
_NON_PERSISTENT: Final = "there are no non-persistent topics: 405"
_TOPIC_POLICIES: Final = "there are no policies of topics"
_PERMISSIONS: Final = "there is no authorisation, so no permissions: 405"
_OFFLOAD: Final = "there is no offloading to other storage: 405"
_COMPACTION: Final = "there is no compaction: 405"
_BUNDLES: Final = "a namespace has a fixed number of bundles, which can't be chosen or split"
_FINER: Final = "the status code is more accurate than Pulsar's"
_PARTITIONS: Final = "it is done for all partitions, where Pulsar refuses or fails"
_TIMES_OUT: Final = "a fault to be fixed: internal statistics of a topic with clients time out in the Java client"
_MERGED: Final = "clients that are merged are shown with their versions and properties, and backlogs always with bytes"
_STATISTICS: Final = "the field is not filled as Pulsar fills it"
_BROKER_STATISTICS: Final = "there are no statistics of brokers over HTTP yet"

DIFFERENCES: Final[dict[str, str]] = {
    "bookies.rack.*": "racks of bookies can't be changed over HTTP",
    "broker stats.*": _BROKER_STATISTICS,
    "brokers.backlog quota check: *": "there is no call that checks backlog quotas at once",
    "brokers.dynamic*": "the dispatch rate, which the steps change, is no setting here that can change at runtime",
    "brokers.list.missing cluster: *": "Pulsar lists the brokers of its own cluster for every name",
    "clusters.*": _GEO,
    "ending.compact*": _COMPACTION,
    "missing.compact*": _COMPACTION,
    "ending.offload: *": _OFFLOAD,
    "ending.terminate*entryId": "a topic that was truncated reports its last message, not -1",
    "lookups.bundle.missing namespace: *": _FINER,
    "messages.examine.bad: *": _FINER,
    "messages.id.beyond: *": _FINER,
    "messages.*.properties.number": "properties of messages are not in the headers that the client reads",
    "namespaces.bundles*": _BUNDLES,
    "namespaces.create.no bundles: *": _BUNDLES,
    "namespaces.create.unknown cluster: *": "412 for an unknown cluster, where Pulsar answers 403",
    "namespaces.delete.*": _BUNDLES,
    "namespaces.list: *": _BUNDLES,
    "namespaces.split*": _BUNDLES,
    "namespaces.unload.*bundle: *": _BUNDLES,
    "np.*": _NON_PERSISTENT,
    "ns.anti-affinity*": "there are no anti-affinity groups: 405",
    "ns.bookie affinity: *": "there are no bookie affinity groups: 405",
    "ns.entry filters*": "there are no entry filters: 405",
    "ns.offload *": _OFFLOAD,
    "ns.permissions*": _PERMISSIONS,
    "ns.subscription permissions: *": _PERMISSIONS,
    "ns.policies: value.bundles*": _BUNDLES,
    "ns.policies: value.dispatcherPauseOnAckStatePersistentEnabled": _STATISTICS,
    "ns.policies: value.offload_policies": _OFFLOAD,
    "ns.resource group*": "there are no resource groups: 405",
    "parts.analyze: *": _PARTITIONS,
    "parts.expire*": _PARTITIONS,
    "parts.reset.id: *": _PARTITIONS,
    "statistics.*internal*: error": _TIMES_OUT,
    "statistics.*internal*: value": _TIMES_OUT,
    "statistics.*internal*: status": _TIMES_OUT,
    "statistics.parts.partitioned: *": _MERGED,
    "statistics.parts.partitioned.each: *": _MERGED,
    "statistics.parts.stats: *": _PARTITIONS,
    "subscriptions.expire all.none: *": "messages are expired at once: no second call finds the first one in progress",
    "subscriptions.missing.*": "404 for a missing subscription, where Pulsar answers 204 or an empty result",
    "subscriptions.replicated: *": _GEO,
    "topic.*": _TOPIC_POLICIES,
    "topics.permissions*": _PERMISSIONS,
}
