"""The leases on a namespace: which topics that are made later are retained from their first message on, and for whom.

A reader that follows a pattern finds a new topic some time after it was made. By then all of its subscriptions may have
acknowledged its first messages, and a trim may have deleted them. So the reader takes a lease on the namespace before
it lists the topics, and each topic is made together with the leases that its namespace has for it: one transaction
writes them into the topic's node, on condition that the namespace's leases are as they were read.

    reader   takes the lease ──┬── lists the topics
    broker                makes a topic
                               │
    before the lease: the list has the topic      after it: the topic has a lease of the same id

There is no third case, and no clock takes part: a lease counts as long as it is in the namespace's node.

A lease names a prefix, not a pattern: a broker must not run a stranger's regular expression, and each topic that a
pattern matches begins with the pattern's literal prefix, as do a topic's partitions. A topic that has the prefix and
does not match is retained until the lease on it lapses.

**Lapse.** Each renewal writes another random `renewal`. A broker that has seen the same one for `lease_ms` on its own
monotonic clock removes the lease, if the node still has that renewal then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar_broker.system_topics import is_system_topic
from magnetar_protos.managed_ledger_pb2 import LedgerLease, NamespaceLease, NamespaceLeases
from magnetar_wire.topic_name import TopicName

__all__ = ["LapseDetector", "end_lease", "hold_lease", "leases_for_topic", "remove_lapsed"]

_MS_PER_S: Final = 1000


def hold_lease(node: NamespaceLeases, lease: NamespaceLease, max_leases: int) -> bool | None:
    """Put the lease into the node, in the place of the one with its id. Return whether there was none; None: the node
    has `max_leases` others, and is left as it is."""
    for index, found in enumerate(node.leases):
        if found.lease_id == lease.lease_id:
            node.leases[index].CopyFrom(lease)
            return False
    if len(node.leases) >= max_leases:
        return None
    node.leases.append(lease)
    return True


def end_lease(node: NamespaceLeases, lease_id: bytes) -> None:
    _keep(node, [lease for lease in node.leases if lease.lease_id != lease_id])


def remove_lapsed(node: NamespaceLeases, lapsed: Sequence[NamespaceLease]) -> int:
    """Remove those that were not renewed since they were found lapsed. Return how many those are."""
    before = len(node.leases)
    _keep(node, [lease for lease in node.leases if lease not in lapsed])
    return before - len(node.leases)


def leases_for_topic(node: NamespaceLeases, name: TopicName, now_ms: int) -> list[LedgerLease]:
    """Return the leases that a topic is made with."""
    if is_system_topic(name):
        return []
    return [
        LedgerLease(
            lease_id=lease.lease_id, from_ledger_id=0, lease_ms=lease.lease_ms, holder=lease.holder, written_ms=now_ms
        )
        for lease in node.leases
        if name.local_name.startswith(lease.name_prefix)
    ]


def _keep(node: NamespaceLeases, leases: list[NamespaceLease]) -> None:
    if len(leases) < len(node.leases):
        del node.leases[:]
        node.leases.extend(leases)


class LapseDetector:
    """Finds the leases of one namespace that are not renewed any more."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        # By lease id: the renewal that was seen last, and when it was seen first.
        self._seen: dict[bytes, tuple[bytes, float]] = {}

    def lapsed(self, node: NamespaceLeases, now: float) -> list[NamespaceLease]:
        """`node` as it is read at `now` (seconds, monotonic), or older."""
        seen, found = self._seen, []
        self._seen = {}
        for lease in node.leases:
            renewal, since = seen.get(lease.lease_id, (lease.renewal, now))
            if renewal != lease.renewal:
                since = now
            self._seen[lease.lease_id] = lease.renewal, since
            if now - since >= lease.lease_ms / _MS_PER_S:
                found.append(lease)
        return found
