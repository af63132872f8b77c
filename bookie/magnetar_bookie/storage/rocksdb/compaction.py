"""Freeing the disk of what was dropped: segments that hold little that is in use go.

A segment that is not appended to any more, and of whose bytes less than a share is in use, is read; what of it is still
in use is written again at the end of the log, as a group that moves it; and when the index holds that durably the
file is deleted. So what is held is at most the share's inverse of what is in use, and each byte that is written again
frees as much at least. Where nothing is in use there is nothing to write.

The group carries on what else the segment's groups told, as it is by now: what is remembered of their ledgers, and the
bookie's own record. So the log always holds all that the index does, and the index can be made anew from it.

What a group's head or table told that rotted is in the index alone. So each is looked at now and then
(`compaction_rules.py`), and a segment where one rotted is written anew from the index, whatever of it is in use: before
the index is lost, too.

Looking at the segment is done in a thread; what is in use is then looked at again on the event loop, in one step with
writing it, as it may have been dropped meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from magnetar_bookie.storage.interface import Changes, StorageFailed
from magnetar_bookie.storage.rocksdb.compaction_rules import CheckSchedule
from magnetar_bookie.storage.rocksdb.index import IndexBatch, Location, entry_key, ledger_key
from magnetar_bookie.storage.rocksdb.live_data import LiveData, find_live_data, is_damaged
from magnetar_bookie.storage.rocksdb.segments import Segments

if TYPE_CHECKING:
    from magnetar_bookie.storage.rocksdb.storage import RocksStorage

__all__ = ["Compactor"]

_log = logging.getLogger(__name__)

# One group moves at most so much.
_MOVED_BYTES: Final = 4 << 20
MOVED_RECORDS: Final = 500
_LEDGERS: Final = 500
# So many segments go with one flush of the index.
_SEGMENTS: Final = 16
_POLL_S: Final = 0.02


class Compactor:
    def __init__(self, storage: RocksStorage, rewrite_below: float, check_interval_s: float) -> None:
        self._storage = storage
        self._rewrite_below = rewrite_below
        self._task: asyncio.Task[None] | None = None
        # Segments with records that could not be read → half of what these come to. They stay until so little is left:
        # the records were dropped, or mended and written elsewhere.
        self._unreadable: dict[int, int] = {}
        self._check_times = CheckSchedule(check_interval_s, time.time())
        self._to_check: dict[int, None] = {}
        # Those of which a head or a table can't be read.
        self._rotten: dict[int, None] = {}
        # Segments that were freed, and what they held.
        self.freed = 0
        self.freed_bytes = 0
        self._stopped = False
        # Something was dropped since it looked last.
        self.wanted = True
        self._looked_at = 0

    def kick(self) -> None:
        """Something is durable. Looks for what can be freed if anything was, or the last look was at less."""
        current = self._storage.segments.current
        if self._task is not None or self._stopped:
            return
        segments = self._storage.segments_known
        due = self._check_times.due(time.time(), len(segments))
        if due:
            numbers = sorted(segments)
            self._to_check.update(dict.fromkeys(numbers[place] for place in due if numbers[place] < current))
        if not (self.wanted or current != self._looked_at or self._to_check):
            return
        self.wanted, self._looked_at = False, current
        if self._to_check or self._candidates():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="ledger-reclaim")

    @property
    def unreadable(self) -> int:
        """Segments of which something could not be read."""
        return len({**self._unreadable, **self._rotten})

    def stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    async def stopped(self) -> None:
        if self._task is not None:
            await asyncio.wait([self._task])

    def _candidates(self) -> list[int]:
        """Those with the least in use first."""
        storage = self._storage
        found = [
            (use.used, segment)
            for segment, use in storage.usage.segments.items()
            if (use.used <= self._rewrite_below * use.end or segment in self._rotten)
            and segment < storage.segments.current
            and use.used <= self._unreadable.get(segment, use.used)
        ]
        return [segment for _, segment in sorted(found)[:_SEGMENTS]]

    async def _run(self) -> None:
        try:
            await self._check()
            while segments := self._candidates():
                if not await self._reclaim(segments):
                    return
        except StorageFailed as error:
            _log.info("No more space is freed: %s", error)
        except Exception as error:  # noqa: BLE001 (nobody else would ever hear of it)
            self._storage.fail(error)
        finally:
            self._task = None

    async def _check(self) -> None:
        storage = self._storage
        while self._to_check:
            segment = min(self._to_check)
            if await storage.in_thread(is_damaged, storage.segments, segment):
                self._rotten[segment] = None
            del self._to_check[segment]

    async def _reclaim(self, segments: list[int]) -> bool:
        """False: there is too little room to go on."""
        storage = self._storage
        emptied, progress = [], False
        for segment in segments:
            if not storage.space.can_compact(storage.usage.segments[segment].used):
                break
            in_use = await storage.in_thread(find_live_data, storage.index, storage.segments, segment)
            if await self._move(segment, in_use):
                emptied.append(segment)
            else:
                _log.warning("Segment %d can't be read completely, and is not deleted", segment)
                self._unreadable[segment] = storage.usage.segments[segment].used // 2
                progress = True
        if emptied:
            await self._flushed()
            await storage.in_thread(storage.segments.delete, emptied)
            batch = IndexBatch()
            for segment in emptied:
                self.freed += 1
                self.freed_bytes += storage.usage.segments.pop(segment).end
                self._rotten.pop(segment, None)
                self._unreadable.pop(segment, None)
                batch.delete(ledger_key(b"u", segment))
            storage.index.write(batch.batch)
        return progress or bool(emptied)

    async def _move(self, segment: int, in_use: LiveData) -> bool:
        """False: something of it can't be read."""
        storage = self._storage
        waiting = in_use.records
        while waiting:
            portion, waiting = _portion(waiting)
            records = await storage.in_thread(_read, storage.segments, portion)
            keys = [entry_key(ledger_id, entry_id) for ledger_id, entry_id, _ in portion]
            await storage.no_flush_due()
            changes = Changes()
            storage.check()
            located = storage.index.locate_each(keys)
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
                storage.put(changes, moves=True)
                await storage.sync()
        if storage.usage.segments[segment].used > 0:
            return False
        ledgers = list(in_use.ledgers)
        for begin in range(0, len(ledgers), _LEDGERS):
            await storage.no_flush_due()
            # As it is by now, and written in the same step: it is never an older one than what came in between.
            remembered = {one: storage.ledger(one) for one in ledgers[begin : begin + _LEDGERS]}
            storage.put(Changes(ledgers={one: record for one, record in remembered.items() if record}), moves=True)
            await storage.sync()
        if in_use.bookie:
            await storage.no_flush_due()
            storage.put(Changes(bookie=storage.bookie()), moves=True)
        return True

    async def _flushed(self) -> None:
        """Returns when the index holds durably what was written so far."""
        storage = self._storage
        number = storage.written
        await storage.sync()
        while not storage.index_is_flushed(number):
            storage.flush_wanted = True
            await storage.sync()
            await asyncio.sleep(_POLL_S)


def _portion(
    waiting: list[tuple[int, int, Location]],
) -> tuple[list[tuple[int, int, Location]], list[tuple[int, int, Location]]]:
    size, count = 0, 0
    for _, _, location in waiting[:MOVED_RECORDS]:
        if count and size + location[2] > _MOVED_BYTES:
            break
        size += location[2]
        count += 1
    return waiting[:count], waiting[count:]


def _read(segments: Segments, portion: list[tuple[int, int, Location]]) -> list[bytes]:
    """In a thread."""
    return [segments.read(*location) for _, _, location in portion]
