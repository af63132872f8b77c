"""A bookie's storage: the log and the index together.

Theory of operation
-------------------
`write` gives the group its number and puts it in line for the log; it does no I/O, and from then on the group is read,
its records from memory. The index may be some groups behind, which only add: whoever asks it has it catch up first, and
else it does so for many together, while a sync is under way. `sync` takes what is in line, writes and syncs it in a
thread, writes the mark there, and then counts it as durable. One thread does all that, so one thing after the other.

The index is flushed every so often, right after a sync, when nothing is in line: its files then hold nothing that the
log does not hold durably (`index.py`). Two write: the bookie, which has one sync under way at a time, and what frees
room. When a flush is due the second stops writing until one has begun; and a sync does not return while much more than
that waits to be flushed, as RocksDB would flush by itself at last.

Who reads, reads in a thread: where the records are from the index, then the files, neighbours with one call. A segment
that goes meanwhile was written anew elsewhere, and the index is asked again.

A failed write or fsync, or an index that can't be read, ends it: nothing is answered from then on, and the process is
told (`when_failed`), as it may have been what frees room that met it, with nobody waiting. Of the index a note
says so to the next opening, which makes it anew; without one a damaged index would end each process that meets it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from magnetar_bookie.settings.storage import StorageSettings
from magnetar_bookie.storage.interface import Changes, Damaged, LedgerRecord, StorageFailed
from magnetar_bookie.storage.rocksdb.compaction import Compactor
from magnetar_bookie.storage.rocksdb.disk_space import DiskSpace, create_ballast
from magnetar_bookie.storage.rocksdb.group_format import encode_group
from magnetar_bookie.storage.rocksdb.index import Index, IndexDamaged
from magnetar_bookie.storage.rocksdb.index_updates import LoggedGroup, SegmentUsage, SegmentUse, apply_groups
from magnetar_bookie.storage.rocksdb.log_reader import read_records
from magnetar_bookie.storage.rocksdb.marker_files import INDEX_DAMAGED, LOST, remove_marker, write_marker
from magnetar_bookie.storage.rocksdb.segments import PendingWrites, Segments
from magnetar_bookie.storage.rocksdb.storage_stats import StorageStats
from magnetar_bookie.storage.rocksdb.sync_thread import SyncThread
from magnetar_metadata.locked_folder import DurableMark, fork_handling

__all__ = ["OpenedFolder", "RocksStorage"]

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# The index is flushed when so much was changed in it.
INDEX_CHANGES: Final = 200_000
# A sync returns no sooner than less than this waits for a flush.
MAX_UNFLUSHED_CHANGES: Final = 2 * INDEX_CHANGES
_POLL_S: Final = 0.02
# So many groups, or records in them, are put into the index together: for one that comes alone that is half of what its
# being written takes of the loop.
_GROUPS_BEHIND: Final = 32
_RECORDS_BEHIND: Final = 100


@dataclass(frozen=True, slots=True)
class OpenedFolder:
    """What `opening.py` found."""

    folder: Path
    mark: DurableMark
    index: Index
    usage: SegmentUsage
    segments: Segments
    # The last group.
    number: int
    intact: bool


class RocksStorage:
    """A `LedgerStorage`; made by `open_rocksdb`."""

    def __init__(self, opened: OpenedFolder, settings: StorageSettings) -> None:
        self._folder = opened.folder
        self._mark = opened.mark
        self._settings = settings
        self._intact = opened.intact
        self._index = opened.index
        self._usage = opened.usage
        # Groups that are not in them yet, and how many records those have.
        self._behind: list[LoggedGroup] = []
        self._records_behind = 0
        self.segments = opened.segments
        self.space = DiskSpace(opened.folder, settings)
        # Why nothing is done any more.
        self.dead: str | None = None
        self._told: Callable[[StorageFailed], object] | None = None
        # The last group that was written, that is durable, and that the index holds durably.
        self.written = opened.number
        self.durable = opened.number
        self.flushed = 0
        # What a flush of the index that is under way will hold.
        self._flushing: int | None = None
        # Somebody waits for the index to be flushed.
        self.flush_wanted = False
        self._log_bytes_unflushed = 0
        self._unflushed_changes = 0
        # The group whose durability ends the note of a loss.
        self._loss_noted_with: int | None = None
        self._loss_stands = not opened.intact
        self._mark_synced_at = 0.0
        self._mark_timer: asyncio.TimerHandle | None = None
        # Of the thread that syncs: why nobody knows what is on the disk.
        self._unsure: str | None = None
        self._writer = SyncThread("ledger-sync")
        self._readers = ThreadPoolExecutor(settings.read_threads, "ledger-read")
        self._reclaimer = Compactor(self, settings.rewrite_below, settings.log_check_interval_seconds)
        fork_handling.register(self)

    # What is there.

    @property
    def intact(self) -> bool:
        return self._intact

    def has_room(self) -> bool:
        return self.space.can_resume(self.held_bytes)

    def bookie(self) -> bytes | None:
        return self._ask(self.index.bookie)

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        return self._ask(self.index.ledger, ledger_id)

    def ledger_ids(self, first: int, limit: int) -> list[int]:
        return self._ask(self.index.ledger_ids, first, limit)

    def last_entry(self, ledger_id: int) -> int:
        return self._ask(self.index.last_entry, ledger_id)

    def has(self, ledger_id: int, entry_id: int) -> bool:
        return self._ask(self.index.has, ledger_id, entry_id)

    def entry_ids(self, ledger_id: int, first: int, last: int, limit: int) -> list[int]:
        return self._ask(self.index.entry_ids, ledger_id, first, last, limit)

    async def read(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> list[bytes | Damaged | None]:
        self.check()
        if not entry_ids:
            return []
        return await self.in_thread(read_records, self.index, self.segments, ledger_id, entry_ids, max_bytes)

    # What changes it.

    def write(self, changes: Changes) -> None:
        self.check()
        if changes.records:
            self.space.check_entries_fit(self.held_bytes, sum(map(len, changes.records.values())))
        self.put(changes, moves=False)
        self._reclaimer.wanted = self._reclaimer.wanted or bool(changes.dropped or changes.discarded)
        if changes.bookie is not None and self._loss_stands and self._loss_noted_with is None:
            self._loss_noted_with = self.written

    def put(self, changes: Changes, *, moves: bool) -> None:
        """Writes a group, whatever room there is."""
        group = encode_group(self.written + 1, changes, moves=moves)
        segment, offset = self.segments.append(group)
        self.written = group.number
        placed = LoggedGroup(group.table, group.number, segment, offset + group.records_at, offset + group.size, moves)
        self._log_bytes_unflushed += group.size
        if placed.only_adds:
            self._behind.append(placed)
            self._records_behind += len(group.table.records)
        else:
            self._catch_up()
            self._unflushed_changes += self._ask(apply_groups, self._index, self._usage, [placed])

    @property
    def index(self) -> Index:
        """All that was written is in it: to be asked for on the event loop. Raises `StorageFailed`."""
        if self._behind:
            self._catch_up()
        return self._index

    @property
    def usage(self) -> SegmentUsage:
        """With all that was written: to be asked for on the event loop. Raises `StorageFailed`."""
        if self._behind:
            self._catch_up()
        return self._usage

    @property
    def segments_known(self) -> Mapping[int, SegmentUse]:
        """What of the usage is at hand: the newest groups may be missing in it."""
        return self._usage.segments

    def _catch_up(self) -> None:
        behind, self._behind, self._records_behind = self._behind, [], 0
        if behind:
            self._unflushed_changes += self._ask(apply_groups, self._index, self._usage, behind)

    async def sync(self) -> None:
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: StorageFailed | None) -> None:
            if synced.done():  # nobody waits for it any more
                return
            if error is None:
                synced.set_result(None)
            else:
                synced.set_exception(error)

        self.begin_sync(done)
        await synced

    def begin_sync(self, done: Callable[[StorageFailed | None], object]) -> None:
        self.check()
        line, number = self.segments.take(), self.written
        loss_noted = self._loss_noted_with is not None
        self._writer.run(
            partial(self._make_durable, line, number, loss_noted), partial(self._synced, line, number, done)
        )
        if len(self._behind) >= _GROUPS_BEHIND or self._records_behind >= _RECORDS_BEHIND:
            with contextlib.suppress(StorageFailed):  # it is dead, and says so when the sync ends
                self._catch_up()

    def when_failed(self, told: Callable[[StorageFailed], object]) -> None:
        self._told = told

    async def close(self) -> None:
        self._reclaimer.stop()
        await self._reclaimer.stopped()
        try:
            if self.dead is None:
                self._catch_up()
                await self.sync()
        finally:
            self.dead = self.dead or "it was closed"
            if self._mark_timer is not None:
                self._mark_timer.cancel()
            # One who stops waiting must not have the lock go before the rest is closed.
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._close))

    def abandon_after_fork(self) -> None:
        """In the child, where nothing may touch the folder: RocksDB hangs there when it is closed."""
        self.dead = "its folder belongs to the process that this one was forked from"

    # For what frees room, and who watches.

    def held_bytes(self) -> int:
        """What the log's files hold."""
        return sum(use.end for use in self.usage.segments.values())

    def used_bytes(self) -> int:
        """What of that is records that are still there."""
        return sum(use.used for use in self.usage.segments.values())

    def use(self) -> StorageStats:
        """Raises `StorageFailed`."""
        return StorageStats(
            segments=len(self.usage.segments),
            held_bytes=self.held_bytes(),
            used_bytes=self.used_bytes(),
            index_bytes=self._ask(self.index.disk_bytes),
            reclaimed_segments=self._reclaimer.freed,
            reclaimed_bytes=self._reclaimer.freed_bytes,
            unreadable_segments=self._reclaimer.unreadable,
        )

    def index_is_flushed(self, number: int) -> bool:
        """Whether the index holds all groups up to this one durably."""
        if self._flushing is not None and not self._ask(self.index.flushing):
            self.flushed, self._flushing = self._flushing, None
        return self.flushed >= number

    async def no_flush_due(self) -> None:
        """Returns when who frees room may write."""
        while self._flush_if_due():
            await asyncio.sleep(_POLL_S)
            self.check()

    async def in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Reads in a thread; what fails there ends the storage."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._readers, lambda: call(*args, **kwargs))
        except (StorageFailed, OSError, RuntimeError) as error:
            self.check()
            self.fail(error)
            raise StorageFailed(f"the storage {self._folder} failed: {error}") from error

    def check(self) -> None:
        if self.dead is not None:
            raise StorageFailed(f"the storage {self._folder} is out of service: {self.dead}")

    def fail(self, error: BaseException) -> None:
        if self.dead is not None:
            return
        self.dead = str(error) or repr(error)
        _log.error("The storage %s failed: %s", self._folder, self.dead)
        if isinstance(error, IndexDamaged):
            try:
                write_marker(self._folder, INDEX_DAMAGED, self.dead)
            except OSError as second:
                _log.error("The failure could not be noted for the next start: %s", second)
        if self._told is not None:
            self._told(StorageFailed(f"the storage {self._folder} failed: {self.dead}"))

    def _ask(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.check()
        try:
            return call(*args, **kwargs)
        except StorageFailed as error:
            self.fail(error)
            raise

    def _make_durable(self, line: PendingWrites, number: int, loss_noted: bool) -> None:
        """In the thread."""
        # The next one may be waiting here already, with nothing in its line, since this one has taken it all. It must
        # not succeed: what it would vouch for is what this one failed to write.
        if self._unsure is not None:
            raise StorageFailed(f"an earlier sync failed: {self._unsure}")
        try:
            self._write_and_sync(line, number, loss_noted)
        except BaseException as error:
            self._unsure = str(error) or repr(error)
            raise

    def _write_and_sync(self, line: PendingWrites, number: int, loss_noted: bool) -> None:
        self.segments.sync(line)
        self._mark.write(number)
        now = time.monotonic()
        if now - self._mark_synced_at >= self._settings.mark_sync_interval_seconds:
            self._mark.sync()
            self._mark_synced_at = now
        if loss_noted and self._loss_stands:
            remove_marker(self._folder, LOST)
            self._loss_stands = False

    def _synced(
        self,
        line: PendingWrites,
        number: int,
        done: Callable[[StorageFailed | None], object],
        error: BaseException | None,
    ) -> None:
        try:
            if error is not None:
                self.fail(error)
            else:
                self.segments.written(line)
                self.durable = max(self.durable, number)
                if self.dead is None:
                    self._keep_up()
        finally:
            self._tell_synced(done)

    def _tell_synced(self, done: Callable[[StorageFailed | None], object]) -> None:
        """As soon as not too much waits for a flush."""
        try:
            self.check()
            if self._unflushed_changes >= MAX_UNFLUSHED_CHANGES:
                self._flush_if_due()
                asyncio.get_running_loop().call_later(_POLL_S, self._tell_synced, done)
                return
        except StorageFailed as failed:
            done(failed)
            return
        done(None)

    def _keep_up(self) -> None:
        """What is to be done now and then, after a sync."""
        if self._mark_timer is None:
            loop = asyncio.get_running_loop()
            self._mark_timer = loop.call_later(self._settings.mark_sync_interval_seconds, self._sync_mark)
        with contextlib.suppress(StorageFailed):  # it is dead, and says so to the next who asks
            self._flush_if_due()
            self._reclaimer.kick()

    def _flush_if_due(self) -> bool:
        """Begins it if it can. Whether one is due, and has not begun."""
        if not (
            self.flush_wanted
            or self._log_bytes_unflushed >= self._settings.index_flush_bytes
            or self._unflushed_changes >= INDEX_CHANGES
        ):
            return False
        if self.written != self.durable:
            return True
        self.index_is_flushed(0)
        if self._flushing is not None or not self._ask(self.index.begin_flush):
            return True
        self._flushing, self.flush_wanted = self.durable, False
        self._log_bytes_unflushed = self._unflushed_changes = 0
        return False

    def _sync_mark(self) -> None:
        """The last one, when nothing follows it."""
        self._mark_timer = None
        if self.dead is None:
            loop = asyncio.get_running_loop()
            self._writer.run(self._mark.sync, self._by_itself)
            # By a thread that no sync waits for.
            ballast = loop.run_in_executor(self._readers, create_ballast, self._folder, self._settings)
            ballast.add_done_callback(lambda done: self._by_itself(None if done.cancelled() else done.exception()))

    def _by_itself(self, error: BaseException | None) -> None:
        if error is not None:
            self.fail(error)

    def _close(self) -> None:
        """In a thread."""
        self._readers.shutdown()
        self._writer.shutdown()
        try:
            if self.durable == self.written:
                self._index.flush()
                self._mark.sync()
        except (StorageFailed, OSError) as error:
            # What it should have saved is the time to read the log again.
            _log.warning("The storage %s was closed with an error: %s", self._folder, error)
        finally:
            try:
                # Closing it flushes it: it must not get ahead of the log.
                if self.durable == self.written:
                    self._index.close()
            except StorageFailed as error:
                _log.warning("The storage %s was closed with an error: %s", self._folder, error)
            self.segments.close()
            self._mark.close()
