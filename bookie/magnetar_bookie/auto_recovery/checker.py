"""Holding closed ledgers against their bookies' inventories, a few at a time; core/audit.py says which are due.

What is found lacking gets a task, as does what a reader reports. A ledger one of whose bookies is away is not read at
all: it could not be found whole.
"""

from __future__ import annotations

from collections.abc import Callable

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.alarm import Alarm
from magnetar_bookie.auto_recovery.errors import CannotRepair
from magnetar_bookie.auto_recovery.inventory import lacking
from magnetar_bookie.auto_recovery.tasks import Tasks
from magnetar_bookie.core.audit import CheckSchedule
from magnetar_bookie.core.repair import settled_slots
from magnetar_bookie.errors import LedgerError
from magnetar_bookie.ledger import ledger_metadata
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import ForeignValue, StoreFull, Unavailable

__all__ = ["Checker"]


class Checker:
    def __init__(self, client: LedgerClient, settings: AutoRecoverySettings, allowed: Callable[[], bool]) -> None:
        self._client = client
        self._settings = settings
        self._allowed = allowed
        self._tasks = Tasks(client)
        self._alarm = Alarm(client.clock)
        self.schedule = CheckSchedule(
            settings.auditor_periodic_check_interval_seconds, settings.rw_rereplicate_backoff_max_seconds
        )

    def ring(self) -> None:
        """The schedule has changed."""
        self._alarm.ring()

    async def run(self) -> None:
        """Until cancelled, or the session is lost (`SessionLost`)."""
        clock = self._client.clock
        while True:
            for ledger_id in self.schedule.due(clock.monotonic(), self._settings.auditor_checks_per_round):
                if self._allowed():
                    await self._check(ledger_id)
            next_due = self.schedule.next_due()
            wait_s = self._settings.auditor_scan_interval_seconds if next_due is None else next_due - clock.monotonic()
            await self._alarm.wait(max(wait_s, self._settings.auditor_check_pause_seconds))

    async def _check(self, ledger_id: int) -> None:
        # As of the beginning: what becomes damaged during a check is the next one's affair.
        now = self._client.clock.monotonic()
        try:
            version = await self._whole_at(ledger_id)
        except (CannotRepair, LedgerError, ForeignValue, StoreFull, Unavailable):
            version = None
        if version is None:
            self.schedule.not_settled(ledger_id, now)
        else:
            self.schedule.found_whole(ledger_id, version, now)

    async def _whole_at(self, ledger_id: int) -> int | None:
        """The version of the metadata by which nothing is lacking; None: something is, or it can't be told."""
        stored = await compare_and_set.read(self._client.ledgers.store, paths.ledger(ledger_id))
        metadata = ledger_metadata.decode_metadata(stored.payload) if stored else None
        if stored is None or metadata is None or not metadata.closed:
            return None
        alive = self._client.bookies.registered()
        if any(one not in alive for one in metadata.bookies()):
            return None
        for step in settled_slots(metadata):
            async for _, missing in lacking(self._client, self._settings, ledger_id, metadata, step):
                if missing:
                    await self._tasks.report(ledger_id)
                    return None
        return stored.version
