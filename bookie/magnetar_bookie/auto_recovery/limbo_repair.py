"""Leading a bookie out of limbo: ledger by ledger, what it may have lost is made good.

A ledger that names the bookie is recovered first if its entries are not settled: if it is IN_RECOVERY, or its last
fragment names the bookie. (An open ledger that names it in earlier fragments only keeps its writer. Those are
confirmed, and nothing that the bookie acknowledged for a later one is relied on: were it to be named anew, that is
after it entered limbo.) Then each slot that names it is filled from the others. Then the ledger is out of limbo here;
a closed one is fenced with that, since what was lost may be its fence, and its writer may live still.

A ledger that does not name the bookie stays as it is: nobody asks for it here, and limbo says "unknown", which is
always true.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from magnetar_bookie.auto_recovery.alarm import Alarm
from magnetar_bookie.auto_recovery.copying import fill_slot
from magnetar_bookie.auto_recovery.tasks import LedgerLock
from magnetar_bookie.core.repair import settled_slots
from magnetar_bookie.errors import LedgerError, NoSuchLedger
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerState
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_metadata.errors import ForeignValue, StoreFull, Unavailable
from magnetar_protos.ledger_pb2 import BookieRecord

__all__ = ["InLimbo", "repair_limbo"]

_log = logging.getLogger(__name__)


class InLimbo(Protocol):
    """What of a bookie is needed here."""

    bookie_id: str
    record: BookieRecord

    def in_limbo(self, ledger_id: int) -> bool: ...

    async def clear_limbo(self, ledger_id: int, *, closed: bool = False) -> None: ...


async def repair_limbo(
    bookie: InLimbo,
    client: LedgerClient,
    settings: AutoRecoverySettings | None = None,
    told: Callable[[int], object] = lambda _: None,
) -> None:
    """Until no ledger that names the bookie is in limbo there. Raises `SessionLost`.

    `told` is called with how many are left whenever all were tried.
    """
    if not bookie.record.limbo_below:
        told(0)
        return
    settings = settings or AutoRecoverySettings()
    alarm = Alarm(client.clock)
    stop = client.bookies.add_listener(alarm.ring)
    pause_s = settings.rw_rereplicate_backoff_seconds
    try:
        while left := await _round(bookie, client, settings):
            told(left)
            await alarm.wait(pause_s)
            pause_s = min(pause_s * 2, settings.rw_rereplicate_backoff_max_seconds)
        told(0)
    finally:
        stop()


async def _round(bookie: InLimbo, client: LedgerClient, settings: AutoRecoverySettings) -> int:
    """Tries every ledger in limbo; returns how many are left."""
    left = 0
    try:
        await client.ledgers.store.sync()
        async for ledger_id in client.ledgers.ledger_ids():
            if not bookie.in_limbo(ledger_id):
                continue
            try:
                async with LedgerLock(client, ledger_id, b"limbo") as mine:
                    if not mine:
                        left += 1
                        continue
                    await _repair(bookie, client, settings, ledger_id)
            except NoSuchLedger:
                continue
            except (LedgerError, ForeignValue, StoreFull, Unavailable) as error:
                left += 1
                _log.info("Ledger %s remains in limbo: %s", ledger_id, error)
    except Unavailable as error:
        _log.info("The repair of ledgers in limbo waits until the metadata store answers: %s", error)
        left += 1
    return left


async def _repair(bookie: InLimbo, client: LedgerClient, settings: AutoRecoverySettings, ledger_id: int) -> None:
    metadata = await client.ledgers.read_metadata(ledger_id, fresh=True)
    if metadata.state is LedgerState.TOMBSTONE or bookie.bookie_id not in metadata.bookies():
        return
    if not metadata.closed and (
        metadata.state is LedgerState.IN_RECOVERY or bookie.bookie_id in metadata.last_fragment.bookies
    ):
        await client.recover(ledger_id)
        metadata = await client.ledgers.read_metadata(ledger_id, fresh=True)
        if metadata.state is LedgerState.TOMBSTONE:
            return

    async def progress(_: int) -> None: ...

    for step in settled_slots(metadata):
        if step.listed == bookie.bookie_id:
            await fill_slot(client, settings, ledger_id, metadata, step, progress)
    await bookie.clear_limbo(ledger_id, closed=metadata.closed)
