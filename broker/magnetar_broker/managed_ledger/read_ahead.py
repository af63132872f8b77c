"""Readers that go through a ledger in order, and have what they read next fetched ahead.

A `SequentialRead` is one of them between two reads: it knows where it stands, has what is left of the last chunk, and a
few MiB more on their way. `ReadAhead` keeps those of all topics, so many at most: the one that was used least lately is
let go, and whoever it belonged to begins anew where it stands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

from magnetar_broker.errors import DamagedEntry
from magnetar_broker.managed_ledger.log_entry import LogEntry, decode_log_entry
from magnetar_broker.managed_ledger.position import Position
from magnetar_wire.errors import WireError

__all__ = ["ReadAhead", "SequentialRead", "decoded"]

Spawn = Callable[[Coroutine[Any, Any, None]], object]


class SequentialRead:
    __slots__ = ("_batches", "_ledger_id", "_left", "_spawn", "next")

    def __init__(self, start: Position, batches: AsyncGenerator[tuple[int, list[bytes]], None], spawn: Spawn) -> None:
        # What is read next.
        self.next = start
        self._ledger_id = start.ledger_id
        self._batches = batches
        # Fetched, from `next` on.
        self._left: deque[bytes] = deque()
        self._spawn = spawn

    async def read(self, max_entries: int, max_bytes: int) -> list[LogEntry]:
        """At least one entry; none at its end. One that is cancelled, or fails, must be let go."""
        while not self._left:
            try:
                first, chunk = await anext(self._batches)
            except StopAsyncIteration:
                return []
            assert first == self.next.entry_id
            self._left.extend(chunk)
        taken: list[bytes] = []
        size = 0
        while self._left and len(taken) < max_entries:
            size += len(self._left[0])
            if taken and size > max_bytes:
                break
            taken.append(self._left.popleft())
        entries = decoded(self.next, taken)
        self.next = Position(self._ledger_id, self.next.entry_id + len(entries))
        return entries

    def let_go(self) -> None:
        """What is on its way is cancelled."""
        self._left.clear()
        self._spawn(self._close())

    async def _close(self) -> None:
        await self._batches.aclose()


class ReadAhead:
    def __init__(self, max_readers: int) -> None:
        self._max_readers = max_readers
        # Those that nobody reads through at the moment, the one used least lately first; with whom they belong to.
        self._idle: dict[SequentialRead, object] = {}

    def __len__(self) -> int:
        return len(self._idle)

    def keep(self, read: SequentialRead, owner: object) -> None:
        self._idle[read] = owner
        if len(self._idle) > self._max_readers:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            oldest.let_go()

    def take(self, owner: object, start: Position) -> SequentialRead | None:
        """The one of this owner that stands there."""
        for read, whose in self._idle.items():
            if whose is owner and read.next == start:
                del self._idle[read]
                return read
        return None

    def let_go(self, owner: object, up_to: Position | None = None) -> None:
        """All of this owner; or those that stand at or before a place."""
        for read, whose in list(self._idle.items()):
            if whose is owner and (up_to is None or read.next <= up_to):
                del self._idle[read]
                read.let_go()


def decoded(start: Position, stored: list[bytes]) -> list[LogEntry]:
    """Entries that follow each other, up to the first that is none. Raises `DamagedEntry` if that is `start`."""
    entries: list[LogEntry] = []
    for place, one in enumerate(stored):
        position = Position(start.ledger_id, start.entry_id + place)
        try:
            entries.append(decode_log_entry(position, one))
        except WireError as error:
            if not entries:
                raise DamagedEntry(position, error) from None
            break
    return entries
