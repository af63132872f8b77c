"""How a bookie's changes get to the disk: a group is written and synced while the next one gathers.

There is one write and one sync at a time. Whatever came while they were under way is the next group; so a busy bookie
syncs large groups, and an idle one each add by itself, without waiting for more than comes in the same turn of the
loop. All is callbacks: the end of a sync answers its group, and begins the next one, in the turn that hears of it,
where a task and its futures would take two turns more.

A sync that fails, or anything else that goes wrong here, ends it all: nobody knows what is on the disk. Nothing is
answered from then on (the calls that wait break off, which tells their callers nothing), and whoever waits in
`wait_failed` ends the process.
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
        replicas: LedgerRules,
        durable: Callable[[CommittedGroup], object],
        full: Callable[[], object],
        clock: Clock,
        counters: BookieCounters,
    ) -> None:
        self._storage = storage
        self._replicas = replicas
        # Called when a group is durable, and when the disk had no room for one.
        self._durable = durable
        self._full = full
        self._clock = clock
        self._counters = counters
        # A group is on its way, or is about to be.
        self._busy = False
        # The group on its way.
        self._under_way: CommitGroup | None = None
        self.failed: BaseException | None = None
        self._failure_waiters: dict[asyncio.Future[None], None] = {}
        # Streams that wait until less is in line, in the order in which they came.
        self._room_waiters: dict[asyncio.Future[None], None] = {}

    @property
    def entries_in_line(self) -> int:
        """Those on their way to the disk included."""
        return sum(len(group.changes.records) for group in (self._under_way, self._replicas.group) if group)

    def kick(self) -> None:
        """Something was put in line."""
        if not self._busy and self.failed is None and self._replicas.group:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._begin)

    async def durable(self, group: CommitGroup | None) -> None:
        """Returns when the group is on the disk; None: it is. Raises `StorageFailed`."""
        self.check()
        if group is None:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        group.waiting.append(done)
        self.kick()
        await done

    async def room(self, max_pending_bytes: int) -> None:
        """Returns when no more than that is in line."""
        self.check()
        while self._replicas.pending_bytes > max_pending_bytes:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room_waiters[woken] = None
            try:
                await woken
            finally:
                self._room_waiters.pop(woken, None)
            self.check()

    async def wait_failed(self) -> BaseException:
        """Returns, with what happened, when the disk has failed."""
        while self.failed is None:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._failure_waiters[woken] = None
            try:
                await woken
            finally:
                self._failure_waiters.pop(woken, None)
        return self.failed

    def check(self) -> None:
        if self.failed is not None:
            raise StorageFailed(f"the bookie's disk failed, and the bookie does not answer any more: {self.failed}")

    def fail(self, error: BaseException) -> None:
        """Something is wrong with the disk: nothing is answered any more."""
        if self.failed is not None:
            return
        self.failed = error
        for group in (self._under_way, self._replicas.group):
            for done in group.waiting if group else ():
                if not done.done():
                    done.set_exception(StorageFailed(f"the bookie's disk failed: {error}"))
        _wake(self._room_waiters)
        _wake(self._failure_waiters)

    def close(self) -> None:
        """Takes nothing more to the disk. What waits breaks off."""
        self.fail(StorageFailed("the bookie was closed"))

    def _begin(self) -> None:
        """What has gathered leaves for the disk."""
        self._busy = self.failed is None and bool(self._replicas.group)
        if not self._busy:
            return
        group = self._under_way = self._replicas.take()
        self._counters.syncing_since = self._clock.monotonic()
        try:
            try:
                self._storage.write(group.changes)
            except StorageFull as error:
                _log.warning("The bookie accepts no entries any more: %s", error)
                self._full()
                self._storage.write(group.without_records())
            self._storage.begin_sync(self._synced)
        except Exception as error:  # noqa: BLE001 (whatever it is, what is on the disk is not known any more)
            self._disk_failed(error)

    def _synced(self, error: StorageFailed | None) -> None:
        if self.failed is not None:  # somebody else met the failure, while the sync seemed to succeed
            return
        group = self._under_way
        assert group is not None
        try:
            if error is not None:
                raise error
            self._answer(group)
        except Exception as problem:  # noqa: BLE001 (as above)
            self._disk_failed(problem)
            return
        self._under_way = None
        self._begin()

    def _disk_failed(self, error: BaseException) -> None:
        _log.error("The bookie's disk failed: %s", error)
        self.fail(error)

    def _count(self, group: CommitGroup) -> None:
        entries = 0 if group.full else len(group.changes.records)
        size_bytes = 0 if group.full else group.pending_bytes - entries * ENTRY_OVERHEAD_BYTES
        self._counters.synced(entries, size_bytes, self._clock.monotonic())

    def _answer(self, group: CommitGroup) -> None:
        self._count(group)
        self._durable(self._replicas.durable(group))
        for done in group.waiting:
            if not done.done():
                done.set_result(None)
        _wake(self._room_waiters)


def _wake(waiters: dict[asyncio.Future[None], None]) -> None:
    for waiter in list(waiters):
        if not waiter.done():
            waiter.set_result(None)
