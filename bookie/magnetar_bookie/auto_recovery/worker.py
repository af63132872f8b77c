"""A worker: takes repair tasks, one at a time, and makes ledgers whole. One runs with each bookie.

It goes through the tasks in an order of its own draw, so that many workers spread, and passes over those that another
holds the lock of. What could not be made whole is tried again after a pause that doubles up to a limit, and from the
beginning when bookies come or go: that is when something could have changed. Whatever fails, nothing is tried without
a pause.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.alarm import Alarm
from magnetar_bookie.auto_recovery.cluster import Cluster
from magnetar_bookie.auto_recovery.ledger_repair import LedgerRepair
from magnetar_bookie.auto_recovery.tasks import LedgerLock, Tasks
from magnetar_bookie.core.counters import RepairCounters
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_metadata.errors import ForeignValue, StoreFull, Unavailable
from magnetar_wire.tasks import OrderedTaskGroup

__all__ = ["Worker"]

_log = logging.getLogger(__name__)
_LONGEST_WAIT_S: Final = 3600.0


@dataclass(slots=True)
class _Pause:
    seconds: float
    until: float


class Worker:
    def __init__(
        self,
        client: LedgerClient,
        cluster: Cluster,
        settings: AutoRecoverySettings,
        counters: RepairCounters | None = None,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._settings = settings
        self._counters = counters or RepairCounters()
        # The ledger that it is at, and how far that is.
        self.repairing: tuple[int, LedgerRepair] | None = None
        self._tasks = Tasks(client)
        self._alarm = Alarm(client.clock)
        # Of each task that could not be finished: when it is due again.
        self._pauses: dict[int, _Pause] = {}
        # The tasks there were at the last look, and whether the watch has told of changes since.
        self._listed: list[int] = []
        self._changed = True

    async def run(self) -> None:
        """Until cancelled, or the session is lost (`SessionLost`)."""
        stop = self._cluster.follow(self._bookies_changed)
        watch = self._client.ledgers.store.watch(paths.TASKS)
        try:
            async with OrderedTaskGroup() as group:
                group.create_task(self._follow(watch.wait))
                wait_s = _LONGEST_WAIT_S
                while True:
                    # A new watch tells of changes at once.
                    await self._alarm.wait(wait_s)
                    wait_s = await self._round()
        finally:
            watch.close()
            stop()

    async def _follow(self, news: Callable[[], Awaitable[None]]) -> None:
        while True:
            await news()
            self._changed = True
            self._alarm.ring()

    def _bookies_changed(self) -> None:
        self._pauses.clear()
        self._alarm.ring()

    async def _round(self) -> float:
        """Tries every task that is due; returns after how long the next one is."""
        if self._changed:
            self._changed = False
            try:
                self._listed = await self._tasks.ledger_ids()
            except Unavailable:
                self._changed = True
                return self._settings.metadata_retry_seconds
        ledger_ids = list(self._listed)
        self._pauses = {one: self._pauses[one] for one in ledger_ids if one in self._pauses}
        self._client.randomness.shuffle(ledger_ids)
        for ledger_id in ledger_ids:
            pause = self._pauses.get(ledger_id)
            if pause is None or pause.until <= self._client.clock.monotonic():
                await self._try(ledger_id)
        now = self._client.clock.monotonic()
        return min((pause.until - now for pause in self._pauses.values()), default=_LONGEST_WAIT_S)

    async def _try(self, ledger_id: int) -> None:
        try:
            async with LedgerLock(self._client, ledger_id, b"worker") as mine:
                done = mine and await self._work(ledger_id)
        except (Unavailable, StoreFull) as error:
            _log.info("The repair of ledger %s waits until the metadata store answers: %s", ledger_id, error)
            done = False
        except ForeignValue as error:
            self._client.ledgers.undecodable_nodes.log_once(paths.task(ledger_id), error)
            done = False
        if done:
            self._pauses.pop(ledger_id, None)
            self._listed.remove(ledger_id)
        else:
            self._postpone(ledger_id)

    def _postpone(self, ledger_id: int) -> None:
        before = self._pauses.get(ledger_id)
        first, longest = (
            self._settings.rw_rereplicate_backoff_seconds,
            self._settings.rw_rereplicate_backoff_max_seconds,
        )
        seconds = min(before.seconds * 2 if before else first, longest)
        self._pauses[ledger_id] = _Pause(seconds, self._client.clock.monotonic() + seconds)

    async def _work(self, ledger_id: int) -> bool:
        """Whether the task is no more."""
        task = await self._tasks.read(ledger_id)
        if task is None:
            return True
        noted_at = self._client.clock.monotonic()

        async def progress(entries: int) -> None:
            nonlocal noted_at
            self._counters.entries_in_place += entries
            now = self._client.clock.monotonic()
            if now - noted_at >= self._settings.progress_interval_seconds:
                noted_at = now
                await self._tasks.note(ledger_id, repair.copied, repair.total, "")

        repair = LedgerRepair(self._client, self._cluster, self._settings, ledger_id, progress)
        self.repairing = ledger_id, repair
        try:
            stuck = await repair.run(list(task.lost_bookies))
        finally:
            self.repairing = None
        if not stuck:
            self._counters.tasks_done += 1
            return await self._tasks.finish(ledger_id, task)
        _log.info("Ledger %s is not fully replicated yet, and is retried: %s", ledger_id, stuck)
        await self._tasks.note(ledger_id, repair.copied, repair.total, stuck)
        return False
