"""The replication worker takes repair tasks, one at a time, and repairs their ledgers. One runs beside each bookie.

It tries the tasks in a random order, so that several workers spread over them, and skips those that another worker has
locked. A ledger that could not be repaired is retried after a pause, which doubles up to a limit. When bookies register
or leave, all pauses end, since the result may be another one then. After any failure there is a pause.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.bookie_watcher import BookieWatcher
from magnetar_bookie.auto_recovery.ledger_repair import LedgerRepair
from magnetar_bookie.auto_recovery.underreplicated_ledgers import RepairLock, UnderreplicatedLedgers
from magnetar_bookie.auto_recovery.wakeup_event import WakeupEvent
from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.core.counters import RepairCounters
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_metadata.errors import ForeignValue, StoreFull, Unavailable
from magnetar_wire.tasks import OrderedTaskGroup

__all__ = ["ReplicationWorker"]

_log = logging.getLogger(__name__)
_MAX_WAIT_S: Final = 3600.0


@dataclass(slots=True)
class _Pause:
    seconds: float
    until: float


class ReplicationWorker:
    def __init__(
        self,
        client: LedgerClient,
        bookie_watcher: BookieWatcher,
        settings: AutoRecoverySettings,
        counters: RepairCounters | None = None,
    ) -> None:
        self._client = client
        self._bookie_watcher = bookie_watcher
        self._settings = settings
        self._counters = counters or RepairCounters()
        # The current repair and its ledger.
        self.repairing: tuple[int, LedgerRepair] | None = None
        self._underreplicated = UnderreplicatedLedgers(client)
        self._wakeup = WakeupEvent(client.clock)
        # By ledger: when a task that could not be finished is retried.
        self._pauses: dict[int, _Pause] = {}
        # The ledgers with tasks when they were last listed, and whether the watch has reported a change since.
        self._ledger_ids: list[int] = []
        self._tasks_changed = True

    async def run(self) -> None:
        """Repair ledgers until cancelled. Raises `SessionLost`."""
        stop_watching = self._bookie_watcher.watch_bookies(self._retry_all)
        watch = self._client.ledgers.store.watch(paths.TASKS)
        try:
            async with OrderedTaskGroup() as group:
                group.create_task(self._watch_tasks(watch.wait))
                wait_s = _MAX_WAIT_S
                while True:
                    # A new watch reports a change at once.
                    await self._wakeup.wait(wait_s)
                    wait_s = await self._try_due_tasks()
        finally:
            watch.close()
            stop_watching()

    async def _watch_tasks(self, wait_change: Callable[[], Awaitable[None]]) -> None:
        while True:
            await wait_change()
            self._tasks_changed = True
            self._wakeup.wake()

    def _retry_all(self) -> None:
        self._pauses.clear()
        self._wakeup.wake()

    async def _try_due_tasks(self) -> float:
        """Try each task that is due, and return the seconds until the next one is."""
        if self._tasks_changed:
            self._tasks_changed = False
            try:
                self._ledger_ids = await self._underreplicated.list_ledger_ids()
            except Unavailable:
                self._tasks_changed = True
                return self._settings.metadata_retry_seconds
        ledger_ids = list(self._ledger_ids)
        self._pauses = {one: self._pauses[one] for one in ledger_ids if one in self._pauses}
        self._client.randomness.shuffle(ledger_ids)
        for ledger_id in ledger_ids:
            pause = self._pauses.get(ledger_id)
            if pause is None or pause.until <= self._client.clock.monotonic():
                await self._try_task(ledger_id)
        now = self._client.clock.monotonic()
        return min((pause.until - now for pause in self._pauses.values()), default=_MAX_WAIT_S)

    async def _try_task(self, ledger_id: int) -> None:
        try:
            async with RepairLock(self._client, ledger_id, b"worker") as acquired:
                done = acquired and await self._repair(ledger_id)
        except (Unavailable, StoreFull) as error:
            _log.info("The repair of ledger %s waits until the metadata store answers: %s", ledger_id, error)
            done = False
        except ForeignValue as error:
            self._client.ledgers.foreign.pass_over(paths.task(ledger_id), error)
            done = False
        if done:
            self._pauses.pop(ledger_id, None)
            self._ledger_ids.remove(ledger_id)
        else:
            self._pause(ledger_id)

    def _pause(self, ledger_id: int) -> None:
        previous = self._pauses.get(ledger_id)
        seconds = self._settings.rw_rereplicate_backoff_seconds if previous is None else previous.seconds * 2
        seconds = min(seconds, self._settings.rw_rereplicate_backoff_max_seconds)
        self._pauses[ledger_id] = _Pause(seconds, self._client.clock.monotonic() + seconds)

    async def _repair(self, ledger_id: int) -> bool:
        """Repair the ledger, and return whether its task is deleted."""
        task = await self._underreplicated.read_task(ledger_id)
        if task is None:
            return True
        recorded_at = self._client.clock.monotonic()

        async def progress(entries: int) -> None:
            nonlocal recorded_at
            self._counters.entries_in_place += entries
            now = self._client.clock.monotonic()
            if now - recorded_at >= self._settings.progress_interval_seconds:
                recorded_at = now
                await self._underreplicated.record_progress(ledger_id, repair.copied, repair.total, "")

        repair = LedgerRepair(self._client, self._bookie_watcher, self._settings, ledger_id, progress)
        self.repairing = ledger_id, repair
        try:
            stuck = await repair.run(list(task.lost_bookies))
        finally:
            self.repairing = None
        if not stuck:
            self._counters.tasks_done += 1
            return await self._underreplicated.mark_replicated(ledger_id, task)
        _log.info("Ledger %s is not fully replicated yet, and is retried: %s", ledger_id, stuck)
        await self._underreplicated.record_progress(ledger_id, repair.copied, repair.total, stuck)
        return False
