"""Reads of ledgers in order, whose next entries are fetched ahead.

A `SequentialRead` has a position, the rest of the last fetched chunk, and a few MiB in flight. `ReadAhead` has those of
all topics, and closes the least recently used one if there are too many. A consumer whose read was closed begins
another one at its position.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from magnetar_broker.errors import DamagedEntry
from magnetar_broker.managed_ledger.log_entry import LogEntry, decode_log_entry
from magnetar_broker.position import Position
from magnetar_wire.errors import WireError

__all__ = ["ReadAhead", "SequentialRead", "decode_entries"]

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class SequentialRead:
    __slots__ = ("_batches", "_ledger_id", "_left", "_spawn", "next")

    def __init__(self, start: Position, batches: AsyncGenerator[tuple[int, list[bytes]], None], spawn: Spawn) -> None:
        # The position of the next entry.
        self.next = start
        self._ledger_id = start.ledger_id
        self._batches = batches
        # Fetched, from `next` on.
        self._left: deque[bytes] = deque()
        self._spawn = spawn

    async def read(self, max_entries: int, max_bytes: int) -> list[LogEntry]:
        """Return at least one entry; none at the end. If this fails or is cancelled, `close` the read."""
        while not self._left:
            try:
                first, chunk = await anext(self._batches)
            except StopAsyncIteration:
                return []
            assert first == self.next.entry_id
            self._left.extend(chunk)
        read_now: list[bytes] = []
        size = 0
        while self._left and len(read_now) < max_entries:
            size += len(self._left[0])
            if read_now and size > max_bytes:
                break
            read_now.append(self._left.popleft())
        entries = decode_entries(self.next, read_now)
        self._left.extendleft(reversed(read_now[len(entries) :]))  # from a malformed entry on
        self.next = Position(self._ledger_id, self.next.entry_id + len(entries))
        return entries

    def close(self) -> None:
        """Cancel what is in flight."""
        self._left.clear()
        self._spawn(self._close_batches())

    async def _close_batches(self) -> None:
        await self._batches.aclose()


class ReadAhead:
    def __init__(self, max_readers: int) -> None:
        self._max_readers = max_readers
        # The reads that are not in use at the moment, the least recently used first, and their owners.
        self._idle: dict[SequentialRead, object] = {}

    def __len__(self) -> int:
        return len(self._idle)

    def put_back(self, read: SequentialRead, owner: object) -> None:
        self._idle[read] = owner
        if len(self._idle) > self._max_readers:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.close()

    def take(self, owner: object, start: Position) -> SequentialRead | None:
        """Remove and return the owner's read that continues at this position; None: there is none."""
        for read, its_owner in self._idle.items():
            if its_owner is owner and read.next == start:
                del self._idle[read]
                return read
        return None

    def close_reads(self, owner: object, up_to: Position | None = None) -> None:
        """Close all reads of this owner, or those at or before a position."""
        for read, its_owner in list(self._idle.items()):
            if its_owner is owner and (up_to is None or read.next <= up_to):
                del self._idle[read]
                read.close()


def decode_entries(start: Position, stored: list[bytes]) -> list[LogEntry]:
    """Decode consecutive entries, up to the first malformed one. Raises `DamagedEntry` if that is the first."""
    entries: list[LogEntry] = []
    for number, one in enumerate(stored):
        position = Position(start.ledger_id, start.entry_id + number)
        try:
            entries.append(decode_log_entry(position, one))
        except WireError as error:
            if not entries:
                raise DamagedEntry(position, error) from None
            break
    return entries
