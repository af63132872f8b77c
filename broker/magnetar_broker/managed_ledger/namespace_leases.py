"""Reads a namespace's leases for the making of a topic, and removes those that have lapsed. The rules are in
core/namespace_leases.py.

A namespace's leases stand in one node. It is made with the namespace's first topic or lease, and stays without leases,
so that its version counts all changes: a topic's making checks the version.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from magnetar_bookie.client.foreign_nodes import ForeignNodes, decode_node
from magnetar_broker import paths
from magnetar_broker.core.namespace_leases import LapseDetector, leases_for_topic, remove_lapsed
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import LEAVE, Instead
from magnetar_metadata.errors import ForeignValue, MetadataError
from magnetar_metadata.store import Check, MetadataStore
from magnetar_protos.managed_ledger_pb2 import LedgerLease, NamespaceLeases
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["NamespaceLeaseSweeper", "read_leases_for"]

_log = logging.getLogger(__name__)
# Namespaces whose leases are read in one round. The next round goes on behind them.
_READ_A_ROUND: Final = 1000


async def read_leases_for(
    name: TopicName, store: MetadataStore, clock: Clock, randomness: Randomness
) -> tuple[list[LedgerLease], Check]:
    """Return the leases that the topic is to be made with, and the check that goes with its making. They are current
    if the caller has synced before. Raises `MetadataError`."""
    path = paths.namespace_leases(name.namespace_name)
    stored = await compare_and_set.read(store, path)
    if stored is None:
        stored = await compare_and_set.change(
            store, path, lambda payload: b"" if payload is None else LEAVE, clock=clock, randomness=randomness
        )
        assert stored is not None
    node = decode_node(NamespaceLeases, path, stored.payload)
    return leases_for_topic(node, name, clock.time_ms()), Check(path, stored.version)


class NamespaceLeaseSweeper:
    """Removes lapsed leases. Every broker has one."""

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        randomness: Randomness,
        interval_s: float,
        foreign: ForeignNodes,
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
                _log.info("the leases on namespaces can't be looked at now: %s", error)

    async def sweep(self) -> None:
        """Do one round. Raises `MetadataError`."""
        names = await self._store.children(paths.NAMESPACE_LEASES)
        self._detectors = {name: self._detectors.get(name) or LapseDetector() for name in names}
        behind = bisect_right(names, self._last)
        for name in (names[behind:] + names[:behind])[:_READ_A_ROUND]:
            path = f"{paths.NAMESPACE_LEASES}/{name}"
            try:
                await self._sweep_namespace(path, self._detectors[name])
            except ForeignValue as error:
                self._foreign.pass_over(path, error)
            self._last = name

    async def _sweep_namespace(self, path: str, detector: LapseDetector) -> None:
        stored = await compare_and_set.read(self._store, path)
        if stored is None:
            return
        lapsed = detector.lapsed(decode_node(NamespaceLeases, path, stored.payload), self._clock.monotonic())
        if not lapsed:
            return
        removed = 0

        def without_lapsed(payload: bytes | None) -> bytes | Instead:
            nonlocal removed
            if payload is None:
                return LEAVE
            node = decode_node(NamespaceLeases, path, payload)
            removed = remove_lapsed(node, lapsed)
            return node.SerializeToString() if removed else LEAVE

        await compare_and_set.change(
            self._store, path, without_lapsed, clock=self._clock, randomness=self._randomness, known=stored
        )
        if removed:
            self._count_lapsed(removed)
            _log.warning("%d leases at %s were not renewed in time, and are removed", removed, path)
