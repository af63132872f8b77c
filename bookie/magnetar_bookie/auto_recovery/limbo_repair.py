"""End the limbo of a bookie: copy what its disk may have lost from other replicas, ledger by ledger.

A ledger that names the bookie is recovered first if its entries are not final: if it is IN_RECOVERY, or its last
fragment names the bookie. (An open ledger that names the bookie in earlier fragments only keeps its writer. The entries
of those are confirmed, and nothing that the bookie acknowledged for a later fragment is relied on: if one names it
again, that is after it entered limbo.) Then the missing entries of each slot that names the bookie are copied to it.
Then the ledger is out of limbo here. A closed one is fenced at the same time: its fence may be lost, and its writer may
still run.

A ledger that does not name the bookie stays in limbo. Nobody reads it here, and "unknown" is always true.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from magnetar_bookie.auto_recovery.fragment_replicator import copy_missing_entries
from magnetar_bookie.auto_recovery.ledger_repair_rules import list_final_slots
from magnetar_bookie.auto_recovery.underreplicated_ledgers import RepairLock
from magnetar_bookie.auto_recovery.wakeup_event import WakeupEvent
from magnetar_bookie.errors import LedgerError, NoSuchLedger
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerState
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_metadata.errors import ForeignValue, StoreFull, Unavailable

__all__ = ["repair_limbo"]

_log = logging.getLogger(__name__)


async def repair_limbo(
    bookie: Bookie,
    client: LedgerClient,
    settings: AutoRecoverySettings | None = None,
    on_round: Callable[[int], object] = lambda _: None,
) -> None:
    """Repair ledgers until none that names the bookie is in limbo there. Raises `SessionLost`.

    `on_round` is called with the number of ledgers left each time that all of them were tried.
    """
    if not bookie.record.limbo_below:
        on_round(0)
        return
    settings = settings or AutoRecoverySettings()
    wakeup = WakeupEvent(client.clock)
    stop_listening = client.bookies.add_listener(wakeup.wake)
    pause_s = settings.rw_rereplicate_backoff_seconds
    try:
        while left := await _repair_all(bookie, client, settings):
            on_round(left)
            await wakeup.wait(pause_s)
            pause_s = min(pause_s * 2, settings.rw_rereplicate_backoff_max_seconds)
        on_round(0)
    finally:
        stop_listening()


async def _repair_all(bookie: Bookie, client: LedgerClient, settings: AutoRecoverySettings) -> int:
    """Try every ledger in limbo once, and return how many are left."""
    left = 0
    try:
        await client.ledgers.store.sync()
        async for ledger_id in client.ledgers.ledger_ids():
            if not bookie.is_in_limbo(ledger_id):
                continue
            try:
                async with RepairLock(client, ledger_id, b"limbo") as acquired:
                    if not acquired:
                        left += 1
                        continue
                    await _repair_ledger_in_limbo(bookie, client, settings, ledger_id)
            except NoSuchLedger:
                continue
            except (LedgerError, ForeignValue, StoreFull, Unavailable) as error:
                left += 1
                _log.info("Ledger %s remains in limbo: %s", ledger_id, error)
    except Unavailable as error:
        _log.info("The repair of ledgers in limbo waits until the metadata store answers: %s", error)
        left += 1
    return left


async def _repair_ledger_in_limbo(
    bookie: Bookie, client: LedgerClient, settings: AutoRecoverySettings, ledger_id: int
) -> None:
    metadata = await client.ledgers.read_metadata(ledger_id, fresh=True)
    if metadata.state is LedgerState.TOMBSTONE or bookie.bookie_id not in metadata.bookies():
        return
    if not metadata.is_closed and (
        metadata.state is LedgerState.IN_RECOVERY or bookie.bookie_id in metadata.last_fragment.bookies
    ):
        await client.recover(ledger_id)
        metadata = await client.ledgers.read_metadata(ledger_id, fresh=True)
        if metadata.state is LedgerState.TOMBSTONE:
            return

    async def progress(_: int) -> None: ...

    for slot in list_final_slots(metadata):
        if slot.current == bookie.bookie_id:
            await copy_missing_entries(client, settings, ledger_id, metadata, slot, progress)
    await bookie.clear_limbo(ledger_id, closed=metadata.is_closed)
