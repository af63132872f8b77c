"""What a deleted topic leaves behind for those who read it by a lease, and who deletes that in the end.

Whoever deletes a topic can't know for how long its leases hold still, be it the owner or not: that is a matter of the
owner's clock, and of its present life. So ledgers that a lease in the topic's node holds are not deleted with the
topic; a node of its own names them from before the topic's node goes. Nobody can renew the leases any more, since there
is no topic; readers have their whole time, and read on from the bookies.

Every broker looks at these nodes now and then, and deletes the ledgers of one when it has known of it for the leases'
full time on its own clock; then the node. Several may do that at once, or one after the other has died half way: a
ledger that is gone is no hindrance, and a node is named for an incarnation, so it never comes back as another's. A
broker that begins anew gives the time anew.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker import paths
from magnetar_broker.managed_ledger.trimmer import delete_ledgers
from magnetar_metadata import compare_and_set
from magnetar_metadata.compare_and_set import LEAVE
from magnetar_metadata.errors import BadVersion, ForeignValue, MetadataError, NoNode
from magnetar_metadata.store import Check
from magnetar_metadata.undecodable_nodes import decode_node
from magnetar_protos.managed_ledger_pb2 import LeasedRemains, ManagedLedgerNode
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName

__all__ = ["OrphanedLedgerDeleter", "record_leased_ledgers"]

_log = logging.getLogger(__name__)
_MS_PER_S: Final = 1000
# Of one node: some 200 KB.
_LEDGERS_OF_ONE: Final = 40_000
# Nodes that are read in one round, those that are swept, and those that are known at all: what is more has its turn
# when others have gone.
_READ_A_ROUND: Final = 1000
_SWEPT_A_ROUND: Final = 1000
_MOST_KNOWN: Final = 100_000


async def record_leased_ledgers(
    name: TopicName,
    node: ManagedLedgerNode,
    ledger_ids: Sequence[int],
    client: LedgerClient,
    clock: Clock,
    randomness: Randomness,
    checks: Sequence[Check],
) -> list[int]:
    """Those of a topic's ledgers that its leases hold are the remains' when this returns, and are returned; `checks`
    say that the topic's node is the one that is being deleted. Raises `MetadataError`."""
    if not node.leases:
        return []
    lowest = min(lease.from_ledger_id for lease in node.leases)
    held = [ledger_id for ledger_id in ledger_ids if ledger_id >= lowest]
    for number, at in enumerate(range(0, len(held), _LEDGERS_OF_ONE)):
        payload = LeasedRemains(
            topic=str(name),
            incarnation=node.incarnation,
            ledger_ids=held[at : at + _LEDGERS_OF_ONE],
            lease_ms=max(lease.lease_ms for lease in node.leases),
            deleted_ms=clock.time_ms(),
        ).SerializeToString()
        await compare_and_set.change(
            client.ledgers.store,
            paths.leased_ledgers(node.incarnation, number),
            # Whoever was at it before has left the same ones.
            lambda found, payload=payload: payload if found is None else LEAVE,  # type: ignore[misc]
            clock=clock,
            randomness=randomness,
            along=checks,
        )
    return held


class OrphanedLedgerDeleter:
    def __init__(self, client: LedgerClient, clock: Clock, randomness: Randomness, interval_s: float) -> None:
        self._client = client
        self._store = client.ledgers.store
        self._clock = clock
        self._randomness = randomness
        self._interval_s = interval_s
        # By the node's name: when its leases' time is over, on the monotonic clock.
        self._until: dict[str, float] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            # Brokers that were started together need not look together.
            await self._clock.sleep(self._interval_s * (0.5 + self._randomness.random()))
            try:
                await self.look()
            except MetadataError as error:
                _log.info("Ledgers of deleted topics that readers have leased can't be checked now: %s", error)

    async def look(self) -> None:
        """One round. Raises `MetadataError`."""
        names = await self._store.children(paths.LEASED_LEDGERS)
        now = self._clock.monotonic()
        self._until = {name: self._until[name] for name in names if name in self._until}
        news = [name for name in names if name not in self._until]
        for name in news[: min(_READ_A_ROUND, _MOST_KNOWN - len(self._until))]:
            remains = await self._read(name)
            if remains is not None:
                self._until[name] = self._clock.monotonic() + remains.lease_ms / _MS_PER_S
        for name in [name for name, until in self._until.items() if until <= now][:_SWEPT_A_ROUND]:
            await self._sweep(name)

    async def _read(self, name: str) -> LeasedRemains | None:
        path = f"{paths.LEASED_LEDGERS}/{name}"
        try:
            stored = await compare_and_set.read(self._store, path)
            return None if stored is None else decode_node(LeasedRemains, path, stored.payload)
        except ForeignValue as error:
            self._client.ledgers.undecodable_nodes.log_once(path, error)
            return None

    async def _sweep(self, name: str) -> None:
        remains = await self._read(name)
        if remains is None:
            return
        ledger_ids = list(remains.ledger_ids)
        left = len(ledger_ids) - len(await delete_ledgers(self._client, ledger_ids))
        if left:
            _log.warning(
                "%d ledgers of deleted topic %s, whose leases have ended, can't be deleted now", left, remains.topic
            )
            return
        with suppress(BadVersion, NoNode):  # another broker was at it, too
            await self._store.delete(f"{paths.LEASED_LEDGERS}/{name}", 0)
        _log.info("Deleted %d ledgers of deleted topic %s, whose leases have ended", len(ledger_ids), remains.topic)
