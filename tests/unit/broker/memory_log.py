"""A log and cursors in memory that keep to managed_ledger/interface.py: for tests of what stands on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from magnetar_broker.core.append_queue import AppendDone
from magnetar_broker.core.log_entry import Chunk, LogEntry, NewEntry
from magnetar_broker.core.position import Position
from magnetar_broker.errors import BrokerError, LostEntry
from magnetar_broker.managed_ledger.interface import EntriesOf, MessagesOf, Unopened
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.topic_name import TopicName

__all__ = ["MemoryCursor", "MemoryCursors", "MemoryLog"]

FIRST_LEDGER = 7


class MemoryLog:
    """Ledgers of `per_ledger` entries; ids of ledgers have gaps, as they have in a cluster."""

    def __init__(self, per_ledger: int = 10, incarnation: str = "one") -> None:
        self.name = TopicName.parse("topic")
        self.incarnation = incarnation
        self.floor = 0
        self.per_ledger = per_ledger
        self.entries: dict[Position, LogEntry] = {}
        self.order: list[Position] = []
        self.next_index = 0
        self.pending_bytes = 0
        self.on_appended: Callable[[], object] = lambda: None
        # Whether `read_nowait` has it; else reading waits until it is let go.
        self.at_hand = True
        self.gate: asyncio.Event | None = None
        self.fails: BrokerError | None = None
        # Entries that no bookie has any more.
        self.lost: list[Position] = []
        self.reads = 0

    def add(
        self,
        messages: int = 1,
        *,
        batch: bool = False,
        payload: bytes = b"",
        time_ms: int = 0,
        chunk: Chunk | None = None,
    ) -> Position:
        number = len(self.order)
        position = Position(FIRST_LEDGER + 3 * (number // self.per_ledger), number % self.per_ledger)
        self.next_index += messages
        stored = payload or f"entry {position}".encode()
        self.entries[position] = LogEntry(
            position, stored, messages, messages if batch else 0, self.next_index - 1, time_ms, chunk
        )
        self.order.append(position)
        self.on_appended()
        return position

    @property
    def before_first(self) -> Position:
        first = min(self.entries, default=None)
        return Position(FIRST_LEDGER, -1) if first is None else first.previous

    @property
    def last(self) -> Position:
        return max(self.entries, default=self.before_first)

    def append(self, entries: Sequence[NewEntry], done: AppendDone) -> int:
        for entry, messages, batch_size, chunk in entries:
            done([self.add(messages, batch=batch_size > 0, payload=entry, chunk=chunk)])
        return len(entries)

    def first_after(self, position: Position) -> Position:
        found = [known for known in self.entries if known > position]
        return min(found) if found else max(self.last, position).next

    def entries_between(self, after: Position, up_to: Position) -> int:
        return sum(after < known <= up_to for known in self.entries)

    def ledger_end(self, ledger_id: int) -> int | None:
        ids = [known.entry_id for known in self.entries if known.ledger_id == ledger_id]
        return max(ids) if ids and ledger_id != self.last.ledger_id else None

    def next_ledger(self, ledger_id: int) -> int | None:
        return min((known.ledger_id for known in self.entries if known.ledger_id > ledger_id), default=None)

    def _from(self, start: Position, max_entries: int, max_bytes: int) -> list[LogEntry]:
        found: list[LogEntry] = []
        size = 0
        for position in sorted(known for known in self.entries if known >= start)[:max_entries]:
            entry = self.entries[position]
            if position in self.lost:
                if found:
                    break
                raise LostEntry(position, "all have it damaged")
            if found and size + len(entry.stored) > max_bytes:
                break
            size += len(entry.stored)
            found.append(entry)
        return found

    def read_nowait(self, start: Position, max_entries: int, max_bytes: int) -> list[LogEntry] | None:
        if not self.at_hand or self.fails is not None or self.lost:
            return None
        self.reads += 1
        return self._from(start, max_entries, max_bytes)

    async def _wait(self) -> None:
        self.reads += 1
        if self.gate is not None:
            await self.gate.wait()
        else:
            await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails

    async def read(self, start: Position, max_entries: int, max_bytes: int) -> list[LogEntry]:
        await self._wait()
        return self._from(start, max_entries, max_bytes)

    async def read_at(self, positions: Sequence[Position]) -> list[LogEntry | None]:
        await self._wait()
        for position in positions:
            if position in self.lost:
                raise LostEntry(position, "all have it damaged")
        return [self.entries.get(position) for position in positions]

    async def first_at_time(self, time_ms: int) -> Position:
        await asyncio.sleep(0)
        for position in sorted(self.entries):
            if self.entries[position].broker_time_ms >= time_ms:
                return position
        return self.last.next


class MemoryCursor:
    def __init__(self, log: MemoryLog, name: str, durable: bool, mark_delete: Position, properties: Mapping[str, str]):
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


class MemoryCursors:
    def __init__(self, log: MemoryLog) -> None:
        self.log = log
        self.cursors: dict[str, MemoryCursor] = {}
        self.created = 0
        self.gate: asyncio.Event | None = None
        self.fails: BrokerError | None = None

    def get(self, name: str) -> MemoryCursor | None:
        return self.cursors.get(name)

    def durable(self) -> Sequence[MemoryCursor]:
        return list(self.cursors.values())

    def names(self) -> Sequence[str]:
        return list(self.cursors)

    def unopened(self) -> Sequence[Unopened]:
        return []

    async def wait_until_open(self, name: str, *, wait_again: bool = True) -> None:
        """All are."""

    async def replace(self, name: str, mark_delete: Position) -> MemoryCursor:
        raise AssertionError(f"{name} is open")

    async def _wait(self) -> None:
        if self.gate is not None:
            await self.gate.wait()
        else:
            await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails

    async def create(self, name: str, mark_delete: Position, properties: Mapping[str, str]) -> MemoryCursor:
        await self._wait()
        if name in self.cursors:
            raise BrokerError(ErrorCode.ALREADY_EXISTS, f"there is {name}")
        self.created += 1
        self.cursors[name] = MemoryCursor(self.log, name, True, mark_delete, dict(properties))
        return self.cursors[name]

    def create_transient(self, name: str, mark_delete: Position) -> MemoryCursor:
        return MemoryCursor(self.log, name, False, mark_delete, {})

    async def set_properties(self, name: str, properties: Mapping[str, str]) -> None:
        await self._wait()
        self.cursors[name].properties = dict(properties)

    async def delete(self, name: str) -> None:
        await self._wait()
        del self.cursors[name]

    def slowest_saved(self) -> Position | None:
        return min((cursor.saved_mark_delete for cursor in self.cursors.values()), default=None)

    def log_was_trimmed(self) -> None:
        pass
