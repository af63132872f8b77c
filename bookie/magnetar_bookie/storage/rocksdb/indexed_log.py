"""The log and its index together: groups are appended, synced and indexed.

Theory of operation
-------------------
`append` gives a group its number and puts it into the pending writes; it does no I/O. From then on its records can be
read, from memory. `start_sync` writes and syncs all pending groups in a thread, writes the durable mark there, and then
counts them as durable. It is one thread, so that happens in the order of the calls.

Groups that only add entries are indexed later, many together, while a sync is in flight. The properties `index` and
`usage` index them first, so nobody sees an index that lacks groups.

The index is flushed from time to time, right after a sync and while no groups are pending: its files then have nothing
that is not durable in the log (`index.py`). Two tasks append: the bookie, which has at most one sync in flight, and
compaction. If a flush is due, compaction waits until it has started. A sync doesn't return while much more waits to be
flushed, as RocksDB would flush by itself at some point.

If a write or a sync fails, or the index can't be read, the log has failed: nothing is answered any more, and
`on_failure` is called, since the error may have occurred in compaction. If the index is damaged, a marker has the next
process rebuild it; otherwise each process that reads the damaged part would end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from magnetar_bookie.settings.storage import StorageSettings
from magnetar_bookie.storage.interface import Changes, StorageFailed
from magnetar_bookie.storage.rocksdb.disk_space import create_ballast
from magnetar_bookie.storage.rocksdb.group_format import encode_group
from magnetar_bookie.storage.rocksdb.index import Index, IndexDamaged
from magnetar_bookie.storage.rocksdb.index_updates import LoggedGroup, LogUsage, SegmentUsage, apply_groups
from magnetar_bookie.storage.rocksdb.marker_files import INDEX_DAMAGED, LOST, remove_marker, write_marker
from magnetar_bookie.storage.rocksdb.segments import PendingWrites, Segments
from magnetar_bookie.storage.rocksdb.sync_thread import SyncThread
from magnetar_metadata.locked_folder import DurableMark, fork_handling

__all__ = ["IndexedLog", "OpenedFolder"]

_log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

# The number of changed keys after which the index is flushed.
INDEX_CHANGES: Final = 200_000
# A sync returns when fewer changed keys than this wait for a flush.
MAX_UNFLUSHED_CHANGES: Final = 2 * INDEX_CHANGES
_POLL_S: Final = 0.02
# How many groups, or records in them, are indexed together. For entries that are added alone, indexing each at once
# would take half of the time that its write takes on the event loop.
_MAX_UNINDEXED_GROUPS: Final = 32
_MAX_UNINDEXED_RECORDS: Final = 100


@dataclass(frozen=True, slots=True)
class OpenedFolder:
    """The state of a folder after `crash_recovery.py` has opened it."""

    folder: Path
    mark: DurableMark
    index: Index
    usage: LogUsage
    segments: Segments
    # The last group of the log.
    number: int
    is_intact: bool


class IndexedLog:
    def __init__(self, opened: OpenedFolder, settings: StorageSettings) -> None:
        self._folder = opened.folder
        self._mark = opened.mark
        self._settings = settings
        self._index = opened.index
        self._usage = opened.usage
        # Groups that are not in the index yet, and the number of their records.
        self._unindexed: list[LoggedGroup] = []
        self._unindexed_records = 0
        self.segments = opened.segments
        # Why the log failed or was closed; None: it is in use.
        self.failure: str | None = None
        self.on_failure: Callable[[StorageFailed], object] | None = None
        # Called after each sync that succeeded.
        self.on_synced: Callable[[], object] = lambda: None
        # The last group that was appended, that is durable, and up to which the index is flushed.
        self.written = opened.number
        self.durable = opened.number
        self.flushed = 0
        # Up to which group the index is flushed by the flush in flight.
        self._flushing: int | None = None
        # Compaction waits for a flush.
        self.is_flush_requested = False
        self._unflushed_log_bytes = 0
        self._unflushed_changes = 0
        # The group with which the bookie has noted a loss: when it is durable, the marker is deleted.
        self._loss_noted_in: int | None = None
        self._has_loss_marker = not opened.is_intact
        self._mark_synced_at = 0.0
        self._mark_timer: asyncio.TimerHandle | None = None
        # In the sync thread: the error after which it is unknown what is on the disk.
        self._sync_error: str | None = None
        self._sync_thread = SyncThread("ledger-sync")
        self._read_threads = ThreadPoolExecutor(settings.read_threads, "ledger-read")
        fork_handling.register(self)

    # Appends.

    def append(self, changes: Changes, *, is_compaction: bool = False) -> None:
        """Append a group. It is readable at once, and durable after a sync. Free space is not checked."""
        group = encode_group(self.written + 1, changes, is_compaction=is_compaction)
        segment, offset = self.segments.append(group)
        self.written = group.number
        logged = LoggedGroup(
            group.table,
            group.number,
            segment,
            offset + group.records_offset,
            offset + group.group_bytes,
            is_compaction,
        )
        self._unflushed_log_bytes += group.group_bytes
        if logged.only_adds:
            self._unindexed.append(logged)
            self._unindexed_records += len(group.table.records)
        else:
            self._index_groups()
            self._unflushed_changes += self.query(apply_groups, self._index, self._usage, [logged])
        if changes.bookie is not None and self._has_loss_marker and self._loss_noted_in is None and not is_compaction:
            self._loss_noted_in = self.written

    # The index.

    @property
    def index(self) -> Index:
        """The index, with all groups that were appended. For the event loop. Raises `StorageFailed`."""
        if self._unindexed:
            self._index_groups()
        return self._index

    @property
    def usage(self) -> LogUsage:
        """The live bytes, with all groups that were appended. For the event loop. Raises `StorageFailed`."""
        if self._unindexed:
            self._index_groups()
        return self._usage

    @property
    def indexed_segments(self) -> Mapping[int, SegmentUsage]:
        """The live bytes without the newest groups. It never raises."""
        return self._usage.segments

    def count_log_bytes(self) -> int:
        """Return the size of all segments."""
        return sum(usage.end for usage in self.usage.segments.values())

    def count_live_bytes(self) -> int:
        """Return the bytes of all records that are not deleted."""
        return sum(usage.live_bytes for usage in self.usage.segments.values())

    def query(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a method of the index. If it fails, the log has failed."""
        self.check_not_failed()
        try:
            return call(*args, **kwargs)
        except StorageFailed as error:
            self.fail(error)
            raise

    async def run_in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that reads, in a thread. If it fails, the log has failed."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._read_threads, lambda: call(*args, **kwargs))
        except (StorageFailed, OSError, RuntimeError) as error:
            self.check_not_failed()
            self.fail(error)
            raise StorageFailed(f"the storage {self._folder} failed: {error}") from error

    def _index_groups(self) -> None:
        groups, self._unindexed, self._unindexed_records = self._unindexed, [], 0
        if groups:
            self._unflushed_changes += self.query(apply_groups, self._index, self._usage, groups)

    # Syncs.

    async def sync(self) -> None:
        """Return when all groups are durable that were appended before. Raises `StorageFailed`."""
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: StorageFailed | None) -> None:
            if synced.done():  # the caller was cancelled
                return
            if error is None:
                synced.set_result(None)
            else:
                synced.set_exception(error)

        self.start_sync(done)
        await synced

    def start_sync(self, on_done: Callable[[StorageFailed | None], object]) -> None:
        """See `LedgerStorage.start_sync`."""
        self.check_not_failed()
        pending, number = self.segments.take_pending(), self.written
        remove_loss_marker = self._loss_noted_in is not None
        self._sync_thread.submit(
            partial(self._write_and_sync, pending, number, remove_loss_marker),
            partial(self._finish_sync, pending, number, on_done),
        )
        if len(self._unindexed) >= _MAX_UNINDEXED_GROUPS or self._unindexed_records >= _MAX_UNINDEXED_RECORDS:
            with contextlib.suppress(StorageFailed):  # the log has failed: the end of the sync reports it
                self._index_groups()

    def _write_and_sync(self, pending: PendingWrites, number: int, remove_loss_marker: bool) -> None:
        """Run a sync, in the sync thread."""
        # This sync may have been submitted before the last one failed, and have nothing to write, since the last one
        # took it all. It must fail, too: it would count groups as durable that the last one could not write.
        if self._sync_error is not None:
            raise StorageFailed(f"an earlier sync failed: {self._sync_error}")
        try:
            self.segments.write_and_sync(pending)
            self._mark.write(number)
            now = time.monotonic()
            if now - self._mark_synced_at >= self._settings.mark_sync_interval_seconds:
                self._mark.sync()
                self._mark_synced_at = now
            if remove_loss_marker and self._has_loss_marker:
                remove_marker(self._folder, LOST)
                self._has_loss_marker = False
        except BaseException as error:
            self._sync_error = str(error) or repr(error)
            raise

    def _finish_sync(
        self,
        pending: PendingWrites,
        number: int,
        on_done: Callable[[StorageFailed | None], object],
        error: BaseException | None,
    ) -> None:
        try:
            if error is not None:
                self.fail(error)
            else:
                self.segments.release_pending(pending)
                self.durable = max(self.durable, number)
                if self.failure is None:
                    self._do_upkeep()
        finally:
            self._report_sync(on_done)

    def _report_sync(self, on_done: Callable[[StorageFailed | None], object]) -> None:
        """Call `on_done` as soon as not too much waits to be flushed."""
        try:
            self.check_not_failed()
            if self._unflushed_changes >= MAX_UNFLUSHED_CHANGES:
                self._flush_if_due()
                asyncio.get_running_loop().call_later(_POLL_S, self._report_sync, on_done)
                return
        except StorageFailed as failed:
            on_done(failed)
            return
        on_done(None)

    def _do_upkeep(self) -> None:
        if self._mark_timer is None:
            loop = asyncio.get_running_loop()
            self._mark_timer = loop.call_later(self._settings.mark_sync_interval_seconds, self._sync_mark)
        with contextlib.suppress(StorageFailed):  # the log has failed: the next caller gets the error
            self._flush_if_due()
            self.on_synced()

    def _sync_mark(self) -> None:
        """Sync the mark although no group follows, and create the ballast if it is missing."""
        self._mark_timer = None
        if self.failure is None:
            loop = asyncio.get_running_loop()
            self._sync_thread.submit(self._mark.sync, self._fail_if_error)
            # In a thread for which no sync waits.
            ballast = loop.run_in_executor(self._read_threads, create_ballast, self._folder, self._settings)
            ballast.add_done_callback(lambda done: self._fail_if_error(None if done.cancelled() else done.exception()))

    # Flushes of the index.

    def is_index_flushed(self, number: int) -> bool:
        """Return whether the index is flushed up to this group."""
        if self._flushing is not None and not self.query(self.index.is_flushing):
            self.flushed, self._flushing = self._flushing, None
        return self.flushed >= number

    async def wait_for_due_flush(self) -> None:
        """Return when no flush is due, so that compaction may append."""
        while self._flush_if_due():
            await asyncio.sleep(_POLL_S)
            self.check_not_failed()

    def _flush_if_due(self) -> bool:
        """Start a flush if one is due. Return whether one is due and could not be started yet."""
        if not (
            self.is_flush_requested
            or self._unflushed_log_bytes >= self._settings.index_flush_bytes
            or self._unflushed_changes >= INDEX_CHANGES
        ):
            return False
        if self.written != self.durable:
            return True
        self.is_index_flushed(0)
        if self._flushing is not None or not self.query(self.index.start_flush):
            return True
        self._flushing, self.is_flush_requested = self.durable, False
        self._unflushed_log_bytes = self._unflushed_changes = 0
        return False

    # Failure and end.

    def check_not_failed(self) -> None:
        if self.failure is not None:
            raise StorageFailed(f"the storage {self._folder} is out of service: {self.failure}")

    def fail(self, error: BaseException) -> None:
        if self.failure is not None:
            return
        self.failure = str(error) or repr(error)
        _log.error("The storage %s failed: %s", self._folder, self.failure)
        if isinstance(error, IndexDamaged):
            try:
                write_marker(self._folder, INDEX_DAMAGED, self.failure)
            except OSError as second:
                _log.error("The failure could not be noted for the next start: %s", second)
        if self.on_failure is not None:
            self.on_failure(StorageFailed(f"the storage {self._folder} failed: {self.failure}"))

    def _fail_if_error(self, error: BaseException | None) -> None:
        if error is not None:
            self.fail(error)

    async def close(self) -> None:
        """Sync, and close the folder."""
        try:
            if self.failure is None:
                self._index_groups()
                await self.sync()
        finally:
            self.failure = self.failure or "it was closed"
            if self._mark_timer is not None:
                self._mark_timer.cancel()
            # Shielded: if the caller is cancelled, the folder's lock must not be released before the rest is closed.
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._close_files))

    def _close_files(self) -> None:
        """Close everything, in a thread."""
        self._read_threads.shutdown()
        self._sync_thread.shutdown()
        try:
            if self.durable == self.written:
                self._index.flush()
                self._mark.sync()
        except (StorageFailed, OSError) as error:
            # The next opening takes longer, as it reads more of the log.
            _log.warning("The storage %s was closed with an error: %s", self._folder, error)
        finally:
            try:
                # To close the index flushes it, and it must not get ahead of the log.
                if self.durable == self.written:
                    self._index.close()
            except StorageFailed as error:
                _log.warning("The storage %s was closed with an error: %s", self._folder, error)
            self.segments.close()
            self._mark.close()

    def abandon_after_fork(self) -> None:
        """Fail in a forked child, which must not touch the folder: RocksDB hangs there when it is closed."""
        self.failure = "its folder belongs to the process that this one was forked from"
