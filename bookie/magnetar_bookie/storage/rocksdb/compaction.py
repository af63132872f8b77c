"""Compaction: frees disk space by deleting segments with few live bytes.

A segment is compacted if the share of its live bytes is below `rewrite_below` and no more groups are appended to it.
Its live records are appended to the log again, in groups marked as compaction. When the index is flushed with their new
locations, the file is deleted. So the log is at most as large as the live bytes divided by that share, and each byte
that is written again frees at least as many. A segment without live bytes is just deleted.

The new groups also repeat what else the segment's groups have, as it is by now: data of ledgers and the bookie's own
record. So the log always has everything that the index has, and the index can be rebuilt from it.

If the header or table of a group is damaged, its contents are in the index alone. So each segment is checked from time
to time (`CheckSchedule`), and a damaged one is compacted regardless of its live bytes, before the index is lost, too.

The live data of a segment is found in a thread. It is checked again on the event loop in the step that appends it,
since it may have been dropped in the meantime.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from magnetar_bookie.storage.interface import Changes, StorageFailed
from magnetar_bookie.storage.rocksdb.compaction_rules import CheckSchedule, LiveRecord, choose_segments, split_portion
from magnetar_bookie.storage.rocksdb.disk_space import DiskSpace
from magnetar_bookie.storage.rocksdb.index import IndexBatch, entry_key, ledger_key
from magnetar_bookie.storage.rocksdb.indexed_log import IndexedLog
from magnetar_bookie.storage.rocksdb.live_data import LiveData, find_live_data, is_segment_damaged
from magnetar_bookie.storage.rocksdb.segments import Segments

__all__ = ["Compactor"]

_log = logging.getLogger(__name__)

# Maximum number of ledgers whose data is in one group.
_MAX_LEDGERS: Final = 500
_POLL_S: Final = 0.02


class Compactor:
    def __init__(self, log: IndexedLog, space: DiskSpace, rewrite_below: float, check_interval_s: float) -> None:
        self._indexed_log = log
        self._space = space
        self._rewrite_below = rewrite_below
        self._task: asyncio.Task[None] | None = None
        # Segments with live records that could not be read → half of their live bytes. They are tried again when fewer
        # are left: when such records were dropped, or repaired and stored elsewhere.
        self._unreadable: dict[int, int] = {}
        self._schedule = CheckSchedule(check_interval_s, time.time())
        self._to_check: dict[int, None] = {}
        # Segments with a damaged header or table.
        self._damaged: dict[int, None] = {}
        # Deleted segments, and their size.
        self.deleted_segments = 0
        self.deleted_bytes = 0
        self._is_stopped = False
        # Records were dropped since the last search for segments to compact.
        self.is_requested = True
        # The segment that was appended to at that search.
        self._last_current = 0

    def start_if_needed(self) -> None:
        """Start compaction if a segment may qualify, or is due for a check. Called after each sync."""
        current = self._indexed_log.segments.current
        if self._task is not None or self._is_stopped:
            return
        segments = self._indexed_log.indexed_segments
        due = self._schedule.list_due(time.time(), len(segments))
        if due:
            numbers = sorted(segments)
            self._to_check.update(dict.fromkeys(numbers[position] for position in due if numbers[position] < current))
        if not (self.is_requested or current != self._last_current or self._to_check):
            return
        self.is_requested, self._last_current = False, current
        if self._to_check or self._choose_segments():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="ledger-compaction")

    @property
    def damaged_segments(self) -> int:
        """The number of segments with damage of any kind."""
        return len({**self._unreadable, **self._damaged})

    async def stop(self) -> None:
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _choose_segments(self) -> list[int]:
        log = self._indexed_log
        usages = ((segment, usage.live_bytes, usage.end) for segment, usage in log.usage.segments.items())
        return choose_segments(usages, log.segments.current, self._rewrite_below, self._damaged, self._unreadable)

    async def _run(self) -> None:
        try:
            await self._check_segments()
            while segments := self._choose_segments():
                if not await self._compact(segments):
                    return
        except StorageFailed as error:
            _log.info("No more space is freed: %s", error)
        except Exception as error:  # noqa: BLE001 (nobody awaits this task)
            self._indexed_log.fail(error)
        finally:
            self._task = None

    async def _check_segments(self) -> None:
        log = self._indexed_log
        while self._to_check:
            segment = min(self._to_check)
            if await log.run_in_thread(is_segment_damaged, log.segments, segment):
                self._damaged[segment] = None
            del self._to_check[segment]

    async def _compact(self, segments: list[int]) -> bool:
        """Compact and delete segments. Return False if there is no space to go on."""
        log = self._indexed_log
        emptied, has_progress = [], False
        for segment in segments:
            if not self._space.can_compact(log.usage.segments[segment].live_bytes):
                break
            live = await log.run_in_thread(find_live_data, log.index, log.segments, segment)
            if await self._rewrite(segment, live):
                emptied.append(segment)
            else:
                _log.warning("Segment %d can't be read completely, and is not deleted", segment)
                self._unreadable[segment] = log.usage.segments[segment].live_bytes // 2
                has_progress = True
        if emptied:
            await self._flush_index()
            await log.run_in_thread(log.segments.delete, emptied)
            batch = IndexBatch()
            for segment in emptied:
                self.deleted_segments += 1
                self.deleted_bytes += log.usage.segments.pop(segment).end
                self._damaged.pop(segment, None)
                self._unreadable.pop(segment, None)
                batch.delete(ledger_key(b"u", segment))
            log.index.write(batch.batch)
        return has_progress or bool(emptied)

    async def _rewrite(self, segment: int, live: LiveData) -> bool:
        """Append the live data of a segment again. Return False if a live record can't be read."""
        log = self._indexed_log
        left = live.records
        while left:
            portion, left = split_portion(left)
            records = await log.run_in_thread(_read_records, log.segments, portion)
            keys = [entry_key(ledger_id, entry_id) for ledger_id, entry_id, _ in portion]
            await log.wait_for_due_flush()
            changes = Changes()
            log.check_not_failed()
            located = log.index.locate_keys(keys)
            for (ledger_id, entry_id, location), now, record in zip(portion, located, records, strict=True):
                if now != location:
                    continue
                if len(record) != location[2]:
                    _log.warning(
                        "Entry %d of ledger %d can't be read completely, and is not moved", entry_id, ledger_id
                    )
                    continue
                changes.records[ledger_id, entry_id] = record
            if changes.records:
                log.append(changes, is_compaction=True)
                await log.sync()
        if log.usage.segments[segment].live_bytes > 0:
            return False
        ledgers = list(live.ledgers)
        for begin in range(0, len(ledgers), _MAX_LEDGERS):
            await log.wait_for_due_flush()
            # Read and appended in one step, so that it can't replace newer data.
            ledger_data = {one: log.query(log.index.get_ledger, one) for one in ledgers[begin : begin + _MAX_LEDGERS]}
            changes = Changes(ledgers={one: data for one, data in ledger_data.items() if data})
            log.append(changes, is_compaction=True)
            await log.sync()
        if live.has_bookie_record:
            await log.wait_for_due_flush()
            log.append(Changes(bookie=log.query(log.index.get_bookie_record)), is_compaction=True)
        return True

    async def _flush_index(self) -> None:
        """Return when the index is flushed with everything that was appended so far."""
        log = self._indexed_log
        number = log.written
        await log.sync()
        while not log.is_index_flushed(number):
            log.is_flush_requested = True
            await log.sync()
            await asyncio.sleep(_POLL_S)


def _read_records(segments: Segments, portion: list[LiveRecord]) -> list[bytes]:
    """Read records, in a thread."""
    return [segments.read(*location) for _, _, location in portion]
