"""Group commit: writes and syncs one group of changes while the next one collects.

At most one group is written and synced at a time. Everything that arrives in the meantime is in the next group. So a
busy bookie syncs large groups, and an idle one syncs each add by itself: it waits only for what arrives in the same
iteration of the event loop. All steps are callbacks: the end of a sync sends the group's results and starts the next
group in the iteration that learns of it. A task with futures would take two iterations more.

If a sync fails, or any other step does, it is unknown what is on the disk. From then on nothing is answered: calls that
wait raise `StorageFailed`, so their callers don't know the outcome, and `wait_for_failure` returns, upon which the
owner ends the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from magnetar_bookie.server.counters import BookieCounters
from magnetar_bookie.server.group_commit_rules import CommitGroup
from magnetar_bookie.server.ledger_rules import CommittedGroup, LedgerRules
from magnetar_bookie.storage.interface import LedgerStorage, StorageFailed, StorageFull
from magnetar_wire.clock import Clock
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES

__all__ = ["GroupCommit"]

_log = logging.getLogger(__name__)


class GroupCommit:
    def __init__(
        self,
        storage: LedgerStorage,
        rules: LedgerRules,
        on_committed: Callable[[CommittedGroup], object],
        on_disk_full: Callable[[], object],
        clock: Clock,
        counters: BookieCounters,
    ) -> None:
        self._storage = storage
        self._rules = rules
        self._on_committed = on_committed
        # Called when the disk has no space for a group's records.
        self._on_disk_full = on_disk_full
        self._clock = clock
        self._counters = counters
        # A group is being written, or will be in the next iteration of the event loop.
        self._is_busy = False
        # The group that is being written and synced.
        self._in_flight: CommitGroup | None = None
        # Why nothing is answered any more.
        self.failure: BaseException | None = None
        self._failure_waiters: dict[asyncio.Future[None], None] = {}
        # Streams that wait until fewer bytes are pending, in the order of their calls.
        self._capacity_waiters: dict[asyncio.Future[None], None] = {}

    @property
    def pending_entries(self) -> int:
        """The number of entries that are not durable yet."""
        return sum(len(group.changes.records) for group in (self._in_flight, self._rules.group) if group)

    def start_if_idle(self) -> None:
        """Start writing the open group unless another one is being written. Call it after each change."""
        if not self._is_busy and self.failure is None and self._rules.group:
            self._is_busy = True
            asyncio.get_running_loop().call_soon(self._start_group)

    async def wait_durable(self, group: CommitGroup | None) -> None:
        """Return when the group is durable, at once for None. Raises `StorageFailed`."""
        self.check_not_failed()
        if group is None:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group.waiters.append(done)
        self.start_if_idle()
        await done

    async def wait_for_capacity(self, max_pending_bytes: int) -> None:
        """Return when at most this many bytes are pending. Raises `StorageFailed`."""
        self.check_not_failed()
        while self._rules.pending_bytes > max_pending_bytes:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._capacity_waiters[woken] = None
            try:
                await woken
            finally:
                self._capacity_waiters.pop(woken, None)
            self.check_not_failed()

    async def wait_for_failure(self) -> BaseException:
        """Return the error when the disk has failed."""
        while self.failure is None:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._failure_waiters[woken] = None
            try:
                await woken
            finally:
                self._failure_waiters.pop(woken, None)
        return self.failure

    def check_not_failed(self) -> None:
        if self.failure is not None:
            raise StorageFailed(f"the bookie's disk failed, and the bookie does not answer any more: {self.failure}")

    def fail(self, error: BaseException) -> None:
        """Note that the disk failed: from now on nothing is written or answered."""
        if self.failure is not None:
            return
        self.failure = error
        for group in (self._in_flight, self._rules.group):
            for done in group.waiters if group else ():
                if not done.done():
                    done.set_exception(StorageFailed(f"the bookie's disk failed: {error}"))
        _wake(self._capacity_waiters)
        _wake(self._failure_waiters)

    def close(self) -> None:
        """Start no more groups. Calls that wait raise `StorageFailed`."""
        self.fail(StorageFailed("the bookie was closed"))

    def _start_group(self) -> None:
        self._is_busy = self.failure is None and bool(self._rules.group)
        if not self._is_busy:
            return
        group = self._in_flight = self._rules.take_group()
        self._counters.syncing_since = self._clock.monotonic()
        try:
            try:
                self._storage.write(group.changes)
            except StorageFull as error:
                _log.warning("The bookie accepts no entries any more: %s", error)
                self._on_disk_full()
                self._storage.write(group.leave_records_out())
            self._storage.start_sync(self._finish_sync)
        except Exception as error:  # noqa: BLE001 (after any error it is unknown what is on the disk)
            self._fail_with_log(error)

    def _finish_sync(self, error: StorageFailed | None) -> None:
        if self.failure is not None:  # noticed elsewhere, though this sync may have succeeded
            return
        group = self._in_flight
        assert group is not None
        try:
            if error is not None:
                raise error
            self._complete_group(group)
        except Exception as problem:  # noqa: BLE001 (as above)
            self._fail_with_log(problem)
            return
        self._in_flight = None
        self._start_group()

    def _fail_with_log(self, error: BaseException) -> None:
        _log.error("The bookie's disk failed: %s", error)
        self.fail(error)

    def _complete_group(self, group: CommitGroup) -> None:
        self._count_group(group)
        self._on_committed(self._rules.complete_group(group))
        for done in group.waiters:
            if not done.done():
                done.set_result(None)
        _wake(self._capacity_waiters)

    def _count_group(self, group: CommitGroup) -> None:
        entries = 0 if group.disk_was_full else len(group.changes.records)
        size_bytes = 0 if group.disk_was_full else group.pending_bytes - entries * ENTRY_OVERHEAD_BYTES
        self._counters.count_group(entries, size_bytes, self._clock.monotonic())


def _wake(waiters: dict[asyncio.Future[None], None]) -> None:
    for waiter in list(waiters):
        if not waiter.done():
            waiter.set_result(None)
