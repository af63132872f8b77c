"""Cursors in memory that keep to `Cursor` and `CursorTable` of managed_ledger/interface.py.

All that is acknowledged is held one by one. Nothing is stored: `saved` returns in the next turn of the event loop, or
when `gate` is set, and raises `fails` where that is set. No cursor is ever unopened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.interface import EntriesOf, MessagesOf, Unopened
from magnetar_broker.managed_ledger.position import Position
from magnetar_protos.broker_pb2 import ErrorCode
from tests.unit.broker.fake_log import FakeLog

__all__ = ["FakeCursor", "FakeCursorTable"]


class FakeCursor:
    def __init__(self, log: FakeLog, name: str, durable: bool, mark_delete: Position, properties: Mapping[str, str]):
        self.log = log
        self.name = name
        self.durable = durable
        self.properties = properties
        self.waiting_for = ""
        self.moves = 0
        self.take_overs = 0
        self.start = mark_delete
        # Entries that are done, and messages of those that are not.
        self.done: set[Position] = set()
        self.part: dict[Position, int] = {}
        self.gate: asyncio.Event | None = None
        self.fails: BrokerError | None = None
        self.saves = 0

    @property
    def mark_delete(self) -> Position:
        mark = self.start
        for position in sorted(self.log.entries):
            if position > mark:
                if position not in self.done:
                    break
                mark = position
        return mark

    @property
    def has_holes(self) -> bool:
        return bool(self.done or self.part)

    @property
    def saved_mark_delete(self) -> Position:
        return self.mark_delete

    def acknowledged(self, position: Position) -> bool:
        return position <= self.start or position in self.done

    def acknowledged_messages(self, position: Position) -> int:
        return 0 if self.acknowledged(position) else self.part.get(position, 0)

    def first_open_after(self, position: Position) -> Position:
        found = max(position, self.start).next
        while found in self.done:
            found = found.next
        return found

    def acknowledge(self, entries: Iterable[EntriesOf], messages: Iterable[MessagesOf] = ()) -> list[Position]:
        for ledger_id, first, last in entries:
            self.done |= {known for known in self.log.entries if (ledger_id, first) <= known <= (ledger_id, last)}
        finished = []
        for position, bits, batch_size in messages:
            if position not in self.log.entries or self.acknowledged(position):
                continue
            self.part[position] = self.part.get(position, 0) | bits
            if self.part[position] == (1 << batch_size) - 1:
                self.done.add(position)
                finished.append(position)
        return finished

    def acknowledge_up_to(self, position: Position, messages: int = 0, batch_size: int = 0) -> None:
        if messages:
            self.start = max(self.start, self.log.entries[position].position.previous)
            self.acknowledge((), [(position, messages, batch_size)])
        else:
            self.start = max(self.start, position)

    def taken_over(self) -> None:
        self.take_overs += 1

    def open_entries(self) -> int:
        return sum(not self.acknowledged(position) for position in self.log.entries)

    async def saved(self) -> None:
        self.saves += 1
        if self.gate is not None:
            await self.gate.wait()
        else:
            await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails

    async def move_to(self, position: Position) -> None:
        await self.saved()
        self.start = position
        self.done.clear()
        self.part.clear()
        self.moves += 1


class FakeCursorTable:
    def __init__(self, log: FakeLog) -> None:
        self.on_lost: Callable[[BrokerError], object] = lambda error: None
        self.log = log
        self.cursors: dict[str, FakeCursor] = {}
        self.created = 0
        self.gate: asyncio.Event | None = None
        self.fails: BrokerError | None = None
        # How often the log said that it was trimmed.
        self.trimmed = 0
        self.closed = self.abandoned = False
        # `settle` waits for it.
        self.settled = asyncio.Event()
        self.settled.set()
        # `close` hangs, and raises this when it is cancelled.
        self.fails_when_cancelled: Exception | None = None

    def get(self, name: str) -> FakeCursor | None:
        return self.cursors.get(name)

    def durable(self) -> Sequence[FakeCursor]:
        return list(self.cursors.values())

    def names(self) -> Sequence[str]:
        return list(self.cursors)

    def unopened(self) -> Sequence[Unopened]:
        return []

    async def wait_until_open(self, name: str, *, wait_again: bool = True) -> None:
        """All are."""

    async def replace(self, name: str, mark_delete: Position) -> FakeCursor:
        raise AssertionError(f"{name} is open")

    async def _wait(self) -> None:
        if self.gate is not None:
            await self.gate.wait()
        else:
            await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails

    async def create(self, name: str, mark_delete: Position, properties: Mapping[str, str]) -> FakeCursor:
        await self._wait()
        if name in self.cursors:
            raise BrokerError(ErrorCode.ALREADY_EXISTS, f"there is {name}")
        self.created += 1
        self.cursors[name] = FakeCursor(self.log, name, True, mark_delete, dict(properties))
        return self.cursors[name]

    def create_transient(self, name: str, mark_delete: Position) -> FakeCursor:
        return FakeCursor(self.log, name, False, mark_delete, {})

    async def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        await self._wait()
        self.cursors[name].properties = dict(properties)

    async def delete(self, name: str) -> None:
        await self._wait()
        del self.cursors[name]

    def slowest_saved(self) -> Position | None:
        return min((cursor.saved_mark_delete for cursor in self.cursors.values()), default=None)

    def tick(self, now: float) -> None:
        """None of them has a ledger."""

    def log_was_trimmed(self) -> None:
        self.trimmed += 1

    async def settle(self) -> None:
        await self.settled.wait()

    async def close(self) -> None:
        self.closed = True
        if self.fails_when_cancelled is not None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise self.fails_when_cancelled from None

    def abandon(self) -> None:
        self.abandoned = True
