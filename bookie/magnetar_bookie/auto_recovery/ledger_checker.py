"""Compare closed ledgers with their bookies' inventories, a few at a time (`CheckSchedule` of auditor_rules.py).

A ledger with missing entries gets a repair task, as it does when a reader reports it. A ledger with an unregistered
bookie is not checked, as the check could not be completed.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.auditor_rules import CheckSchedule
from magnetar_bookie.auto_recovery.errors import CannotRepair
from magnetar_bookie.auto_recovery.inventory import find_missing_entries
from magnetar_bookie.auto_recovery.ledger_repair_rules import list_final_slots
from magnetar_bookie.auto_recovery.underreplicated_ledgers import UnderreplicatedLedgers
from magnetar_bookie.auto_recovery.wakeup_event import WakeupEvent
from magnetar_bookie.errors import LedgerError
from magnetar_bookie.ledger import ledger_metadata
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import ForeignValue, StoreFull, Unavailable

__all__ = ["LedgerChecker"]


class LedgerChecker:
    def __init__(self, client: LedgerClient, settings: AutoRecoverySettings, is_term_valid: Callable[[], bool]) -> None:
        self._client = client
        self._settings = settings
        self._is_term_valid = is_term_valid
        self._underreplicated = UnderreplicatedLedgers(client)
        self._wakeup = WakeupEvent(client.clock)
        self.schedule = CheckSchedule(
            settings.auditor_periodic_check_interval_seconds, settings.rw_rereplicate_backoff_max_seconds
        )

    def wake(self) -> None:
        """Notify the checker that its schedule has changed."""
        self._wakeup.wake()

    async def run(self) -> None:
        """Check ledgers when they are due, until cancelled. Raises `SessionLost`."""
        clock = self._client.clock
        while True:
            for ledger_id in self.schedule.due_ledgers(clock.monotonic(), self._settings.auditor_checks_per_round):
                if self._is_term_valid():
                    await self._check(ledger_id)
            next_due = self.schedule.next_due()
            wait_s = self._settings.auditor_scan_interval_seconds if next_due is None else next_due - clock.monotonic()
            await self._wakeup.wait(max(wait_s, self._settings.auditor_check_pause_seconds))

    async def _check(self, ledger_id: int) -> None:
        # The time before the check: damage that occurs during a check is found by the next one.
        now = self._client.clock.monotonic()
        try:
            version = await self._find_complete_version(ledger_id)
        except (CannotRepair, LedgerError, ForeignValue, StoreFull, Unavailable):
            version = None
        if version is None:
            self.schedule.record_incomplete(ledger_id, now)
        else:
            self.schedule.record_complete(ledger_id, version, now)

    async def _find_complete_version(self, ledger_id: int) -> int | None:
        """Return the version of the metadata by which no entry is missing, or None if one is or that is unknown."""
        stored = await compare_and_set.read(self._client.ledgers.store, paths.ledger(ledger_id))
        metadata = ledger_metadata.decode_metadata(stored.payload) if stored else None
        if stored is None or metadata is None or not metadata.is_closed:
            return None
        alive = self._client.bookies.registered()
        if any(one not in alive for one in metadata.bookies()):
            return None
        for slot in list_final_slots(metadata):
            async for _, missing in find_missing_entries(self._client, self._settings, ledger_id, metadata, slot):
                if missing:
                    await self._underreplicated.mark_underreplicated(ledger_id)
                    return None
        return stored.version
