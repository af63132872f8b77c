"""Leases on a namespace: topics that are created later are retained from their first message on, for Spark reads.

Theory of operation
-------------------
A reader that follows a pattern finds a new topic some time after its creation. By then all of its subscriptions may
have acknowledged its first messages, and a trim may have deleted them. So the reader takes a lease on the namespace
before it lists the topics, and each topic is created together with the leases that its namespace has for it: one
transaction writes them into the topic's node, on condition that the namespace's leases have not changed since they were
read.

    reader   takes the lease ──┬── lists the topics
    broker             creates a topic
                               │
    before the lease: the list has the topic      after it: the topic has a lease of the same id

There is no third case, and it does not depend on any clock: a lease counts as long as it is in the namespace's node.

A lease names a prefix, not a pattern: a broker must not run a client's regular expression, and each topic that a
pattern matches begins with the pattern's literal prefix, as do a topic's partitions. A topic that has the prefix and
does not match is retained until the lease on it lapses.

**Lapse.** Each renewal writes another random `renewal`. A broker that has seen the same one for `lease_ms` on its own
monotonic clock removes the lease, if the node still has that renewal then.

**The node.** A namespace's leases are in one node. It is created with the namespace's first topic or lease, stays
without leases, and is deleted in the transaction that deletes the namespace. So its version counts all changes since
the namespace was created, and the creation of a topic checks the version.

A namespace can be deleted and created again under the same name, and a new node has the same versions as the old one
had. So each transaction that creates or changes the leases' node, or checks its version, also checks that the node of
the namespace's incarnation exists (catalog/namespaces.py).

A node that can't be decoded counts as one without leases: a broker that creates a topic, or takes or ends a lease, logs
its bytes and replaces it at the version that was read. The readers' renewals restore their leases.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from magnetar_broker import paths
from magnetar_broker.managed_ledger.sweeps import run_sweeps
from magnetar_broker.system_topics import is_system_topic
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import LEAVE, UpdateAction
from magnetar_metadata.errors import ForeignValue, Refused
from magnetar_metadata.store import Change, Check, MetadataStore
from magnetar_metadata.undecodable_nodes import UndecodableNodes, decode_node, replace_undecodable
from magnetar_protos.catalog_pb2 import NamespaceNode
from magnetar_protos.managed_ledger_pb2 import LedgerLease, NamespaceLease, NamespaceLeases
from magnetar_wire.clock import Clock
from magnetar_wire.path_component import decode_path_component
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = [
    "LapseDetector",
    "NamespaceLeaseSweeper",
    "end_lease",
    "hold_lease",
    "leases_for_topic",
    "read_leases_for",
    "remove_lapsed",
]

_log = logging.getLogger(__name__)
_MS_PER_S: Final = 1000
# The maximum number of namespaces whose leases are read in one round. The next round continues behind them.
_READ_A_ROUND: Final = 1000


def hold_lease(node: NamespaceLeases, lease: NamespaceLease, max_leases: int) -> bool | None:
    """Add the lease to the node, or replace the one with its id. Return whether it was added; None: the node has
    `max_leases` others, and is not changed."""
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
    """Remove the leases that were not renewed since they were found lapsed. Return the number of removed leases."""
    before = len(node.leases)
    _keep(node, [lease for lease in node.leases if lease not in lapsed])
    return before - len(node.leases)


def leases_for_topic(node: NamespaceLeases, name: TopicName, now_ms: int) -> list[LedgerLease]:
    """Return the leases that a topic is created with."""
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
        """Return the lapsed leases. `node` was read at `now` (seconds, monotonic), or before."""
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


async def read_leases_for(
    name: TopicName, store: MetadataStore, clock: Clock, randomness: Randomness, along: Sequence[Change] = ()
) -> tuple[list[LedgerLease], Check]:
    """Return the leases that the topic is to be created with, and a check for the transaction that creates it.

    The leases are current if the caller has synced before. `along` are the other conditions of the creation. They are
    also checked if the leases' node is created or replaced here. Raises `MetadataError`: `Refused` with an index above
    0 if one of `along` is refused.
    """
    path = paths.namespace_leases(name.namespace_name)
    while True:
        try:
            stored = await compare_and_set.read(store, path) or await compare_and_set.change(
                store,
                path,
                lambda payload: b"" if payload is None else LEAVE,
                clock=clock,
                randomness=randomness,
                along=along,
            )
            assert stored is not None
            node = decode_node(NamespaceLeases, path, stored.payload)
            return leases_for_topic(node, name, clock.time_ms()), Check(path, stored.version)
        except ForeignValue:
            await replace_undecodable(NamespaceLeases, store, path, randomness, along)


class NamespaceLeaseSweeper:
    """Removes lapsed leases. Every broker has one."""

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        randomness: Randomness,
        interval_s: float,
        foreign: UndecodableNodes,
        count_lapsed: Callable[[int], object],
    ) -> None:
        self._store = store
        self._clock = clock
        self._randomness = randomness
        self._interval_s = interval_s
        self._foreign = foreign
        self._count_lapsed = count_lapsed
        # By the name of the namespace's node below NAMESPACE_LEASES.
        self._detectors: dict[str, LapseDetector] = {}
        # The name that was read last.
        self._last = ""

    async def run(self) -> None:
        """Sweep until cancelled."""
        swept = "The leases on namespaces"
        await run_sweeps(self.sweep, swept, self._clock, self._randomness, self._interval_s)

    async def sweep(self) -> None:
        """Do one round. Raises `MetadataError`."""
        names = await self._store.children(paths.NAMESPACE_LEASES)
        self._detectors = {name: self._detectors.get(name) or LapseDetector() for name in names}
        behind = bisect_right(names, self._last)
        for name in (names[behind:] + names[:behind])[:_READ_A_ROUND]:
            path = f"{paths.NAMESPACE_LEASES}/{name}"
            try:
                await self._sweep_namespace(name, path, self._detectors[name])
            except ForeignValue as error:
                self._foreign.log_once(path, error)
            self._last = name

    async def _sweep_namespace(self, name: str, path: str, detector: LapseDetector) -> None:
        stored = await compare_and_set.read(self._store, path)
        if stored is None:
            return
        lapsed = detector.lapsed(decode_node(NamespaceLeases, path, stored.payload), self._clock.monotonic())
        incarnation = await self._read_incarnation(name) if lapsed else None
        if incarnation is None:
            return
        removed = 0

        def without_lapsed(payload: bytes | None) -> bytes | UpdateAction:
            nonlocal removed
            if payload is None:
                return LEAVE
            node = decode_node(NamespaceLeases, path, payload)
            removed = remove_lapsed(node, lapsed)
            return node.SerializeToString() if removed else LEAVE

        try:
            # The node is read again: the one that was read before may be that of an earlier incarnation.
            await compare_and_set.change(
                self._store,
                path,
                without_lapsed,
                clock=self._clock,
                randomness=self._randomness,
                along=[Check(paths.namespace_incarnation(incarnation), 0)],
            )
        except Refused as error:
            if not error.index:
                raise
            return  # the namespace was deleted, and its leases with it
        if removed:
            self._count_lapsed(removed)
            _log.warning("Removed %d leases at %s, which were not renewed in time", removed, path)

    async def _read_incarnation(self, name: str) -> bytes | None:
        """Return the incarnation of the namespace whose leases' node has this name; None: there is none."""
        try:
            namespace = NamespaceName.parse(decode_path_component(name))
        except ValueError as error:
            raise ForeignValue(f"{name!r} is not a namespace: {error}") from None
        path = paths.namespace(namespace)
        stored = await compare_and_set.read(self._store, path)
        return decode_node(NamespaceNode, path, stored.payload).incarnation if stored is not None else None
