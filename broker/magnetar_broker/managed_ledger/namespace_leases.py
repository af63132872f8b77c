"""Reads a namespace's leases for the making of a topic, and removes those that have lapsed. The rules are in
managed_ledger/namespace_lease_rules.py.

A namespace's leases stand in one node. It is made with the namespace's first topic or lease, stays without leases, and
is deleted in the transaction that deletes the namespace. So its version counts all changes in the namespace's life: a
topic's making checks the version.

A namespace can be deleted and created again under the same name, and a new node has the same versions as the old one
had. So each transaction that makes or changes the leases' node, or checks its version, also checks that the node of
the namespace's incarnation exists (catalog/namespaces.py).

A node that can't be decoded counts as one without leases: the maker of a topic, or a reader that takes or ends a lease,
logs its bytes and replaces it at the version that was read. The readers' renewals put their leases back.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from magnetar_broker import paths
from magnetar_broker.managed_ledger.namespace_lease_rules import LapseDetector, leases_for_topic, remove_lapsed
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import LEAVE, UpdateAction
from magnetar_metadata.errors import ForeignValue, MetadataError, Refused
from magnetar_metadata.store import Change, Check, MetadataStore
from magnetar_metadata.undecodable_nodes import UndecodableNodes, decode_node, replace_undecodable
from magnetar_protos.catalog_pb2 import NamespaceNode
from magnetar_protos.managed_ledger_pb2 import LedgerLease, NamespaceLeases
from magnetar_wire.clock import Clock
from magnetar_wire.path_component import decode_path_component
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import NamespaceName, TopicName

__all__ = ["NamespaceLeaseSweeper", "read_leases_for"]

_log = logging.getLogger(__name__)
# Namespaces whose leases are read in one round. The next round goes on behind them.
_READ_A_ROUND: Final = 1000


async def read_leases_for(
    name: TopicName, store: MetadataStore, clock: Clock, randomness: Randomness, along: Sequence[Change] = ()
) -> tuple[list[LedgerLease], Check]:
    """Return the leases that the topic is to be made with, and the check that goes with its making. They are current
    if the caller has synced before. `along` are the other conditions of the making: they hold if the leases' node is
    made or replaced here, too. Raises `MetadataError`: `Refused` with an index above 0 if one of `along` is refused.
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
        while True:
            # Brokers that were started together need not look together.
            await self._clock.sleep(self._interval_s * (0.5 + self._randomness.random()))
            try:
                await self.sweep()
            except MetadataError as error:
                _log.info("The leases on namespaces can't be checked now: %s", error)

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
