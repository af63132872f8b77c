"""Leased ledgers of deleted topics: recorded when the topic is deleted, and deleted when the leases have ended.

A broker that deletes a topic can't know how long its leases still last: that depends on the clock of the topic's owner.
So ledgers that a lease in the topic's node protects are not deleted with the topic. Their ids are recorded in a node of
their own before the topic's node is deleted. The leases can't be renewed any more; readers have their full time, and
continue to read from the bookies.

Every broker checks these nodes at intervals. When it has known a node for the leases' full time, on its own clock, it
deletes the ledgers and then the node. Several brokers may do that at once, or continue after a crash: a ledger that is
deleted already is no error, and the node's name contains the incarnation, so it is never used again. A broker that is
restarted waits for the full time again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker import paths
from magnetar_broker.managed_ledger.sweeps import run_sweeps
from magnetar_broker.managed_ledger.trimmer import delete_ledgers
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import LEAVE
from magnetar_metadata.errors import BadVersion, ForeignValue, NoNode
from magnetar_metadata.store import Check
from magnetar_metadata.undecodable_nodes import decode_node
from magnetar_protos.managed_ledger_pb2 import LeasedRemains, ManagedLedgerNode
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["OrphanedLedgerDeleter", "record_leased_ledgers"]

_log = logging.getLogger(__name__)
_MS_PER_S: Final = 1000
# The maximum in one node: some 200 KB.
_LEDGERS_PER_NODE: Final = 40_000
# The maximum number of nodes that are read in one round, whose ledgers are deleted in one round, and that are known.
# Further ones have their turn when others are deleted.
_READ_A_ROUND: Final = 1000
_DELETED_A_ROUND: Final = 1000
_MAX_KNOWN: Final = 100_000


async def record_leased_ledgers(
    name: TopicName,
    node: ManagedLedgerNode,
    ledger_ids: Sequence[int],
    client: LedgerClient,
    clock: Clock,
    randomness: Randomness,
    checks: Sequence[Check],
) -> list[int]:
    """Record the ledgers of a topic that its leases protect, and return them. `checks` hold while the topic's node is
    the one that is being deleted. Raises `MetadataError`."""
    if not node.leases:
        return []
    lowest = min(lease.from_ledger_id for lease in node.leases)
    leased = [ledger_id for ledger_id in ledger_ids if ledger_id >= lowest]
    for number, at in enumerate(range(0, len(leased), _LEDGERS_PER_NODE)):
        payload = LeasedRemains(
            topic=str(name),
            incarnation=node.incarnation,
            ledger_ids=leased[at : at + _LEDGERS_PER_NODE],
            lease_ms=max(lease.lease_ms for lease in node.leases),
            deleted_ms=clock.time_ms(),
        ).SerializeToString()
        await compare_and_set.change(
            client.ledgers.store,
            paths.leased_ledgers(node.incarnation, number),
            # An earlier attempt has recorded the same ledgers.
            lambda found, payload=payload: payload if found is None else LEAVE,  # type: ignore[misc]
            clock=clock,
            randomness=randomness,
            along=checks,
        )
    return leased


class OrphanedLedgerDeleter:
    """Deletes the leased ledgers of deleted topics when their leases have ended."""

    def __init__(self, client: LedgerClient, clock: Clock, randomness: Randomness, interval_s: float) -> None:
        self._client = client
        self._store = client.ledgers.store
        self._clock = clock
        self._randomness = randomness
        self._interval_s = interval_s
        # By the node's name: when its leases have ended, on the monotonic clock.
        self._until: dict[str, float] = {}

    async def run(self) -> None:
        """Check the nodes at intervals, until cancelled."""
        swept = "Ledgers of deleted topics that readers have leased"
        await run_sweeps(self.check_nodes, swept, self._clock, self._randomness, self._interval_s)

    async def check_nodes(self) -> None:
        """Do one round. Raises `MetadataError`."""
        names = await self._store.children(paths.LEASED_LEDGERS)
        now = self._clock.monotonic()
        self._until = {name: self._until[name] for name in names if name in self._until}
        new = [name for name in names if name not in self._until]
        for name in new[: min(_READ_A_ROUND, _MAX_KNOWN - len(self._until))]:
            orphaned = await self._read(name)
            if orphaned is not None:
                self._until[name] = self._clock.monotonic() + orphaned.lease_ms / _MS_PER_S
        for name in [name for name, until in self._until.items() if until <= now][:_DELETED_A_ROUND]:
            await self._delete_ledgers(name)

    async def _read(self, name: str) -> LeasedRemains | None:
        path = f"{paths.LEASED_LEDGERS}/{name}"
        try:
            stored = await compare_and_set.read(self._store, path)
            return None if stored is None else decode_node(LeasedRemains, path, stored.payload)
        except ForeignValue as error:
            self._client.ledgers.undecodable_nodes.log_once(path, error)
            return None

    async def _delete_ledgers(self, name: str) -> None:
        orphaned = await self._read(name)
        if orphaned is None:
            return
        ledger_ids = list(orphaned.ledger_ids)
        failed = len(ledger_ids) - len(await delete_ledgers(self._client, ledger_ids))
        if failed:
            _log.warning(
                "%d ledgers of deleted topic %s, whose leases have ended, can't be deleted now", failed, orphaned.topic
            )
            return
        with suppress(BadVersion, NoNode):  # another broker has deleted it
            await self._store.delete(f"{paths.LEASED_LEDGERS}/{name}", 0)
        _log.info("Deleted %d ledgers of deleted topic %s, whose leases have ended", len(ledger_ids), orphaned.topic)
