"""The logs of tests: one without entries for cursors, and one with entries for all that stands on a log."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Sequence

from magnetar_bookie.read.striping import Striping
from magnetar_broker.errors import BrokerError, LostEntry
from magnetar_broker.managed_ledger.append_queue import AppendDone
from magnetar_broker.managed_ledger.entry_cache import EntryCache
from magnetar_broker.managed_ledger.ledger_striping import LedgerStriping
from magnetar_broker.managed_ledger.log_entry import Chunk, LogEntry, NewEntry
from magnetar_broker.position import EARLIEST, Position
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_protos.managed_ledger_pb2 import TopicEpoch
from magnetar_wire.entry import add_broker_metadata, encode_entry
from magnetar_wire.topic_name import TopicName

__all__ = ["FakeLog", "FakeLogPositions"]

FIRST_LEDGER = 7


class RecordedMarks:
    """What cursors say of the first durable one: one entry of `calls` for each call."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails: Exception | None = None

    def mark_unsubscribed(self) -> None:
        self.calls.append("mark")

    async def save_mark(self) -> None:
        self.calls.append("save")
        if self.fails is not None:
            raise self.fails


class FakeLogPositions:
    """Numbers of entries without the entries: all that cursors ask of a log (`CursorLog` and `LogPositions`).

    Each ledger has a number of entries, which may be millions; the last one may be open.
    """

    def __init__(self, *ledgers: tuple[int, int], is_open: bool = True, name: str = "cursors") -> None:
        self.name = TopicName.parse(name)
        self.incarnation = "i"
        self.ownership_checks = ()
        self.retention = RecordedMarks()
        self.striping = LedgerStriping(Striping(3, 3, 2))
        self.ledgers = dict(ledgers)
        self.is_open = is_open
        self._trimmed = EARLIEST

    # Changes.

    def append(self, count: int = 1) -> Position:
        ledger_id = next(reversed(self.ledgers))
        assert self.is_open
        self.ledgers[ledger_id] += count
        return Position(ledger_id, self.ledgers[ledger_id] - 1)

    def roll(self, ledger_id: int) -> None:
        self.ledgers[ledger_id] = 0
        self.is_open = True

    def trim(self, up_to: Position) -> list[int]:
        """As a managed ledger does: whole closed ledgers."""
        trimmed = []
        for ledger_id, count in list(self.ledgers.items()):
            if self.ledger_end(ledger_id) is None or Position(ledger_id, count - 1) > up_to:
                break
            self._trimmed = Position(ledger_id, count - 1)
            del self.ledgers[ledger_id]
            trimmed.append(ledger_id)
        return trimmed

    # Reading.

    @property
    def before_first(self) -> Position:
        return next((Position(ledger_id, -1) for ledger_id in self.ledgers), self._trimmed)

    @property
    def last(self) -> Position:
        for ledger_id, count in reversed(self.ledgers.items()):
            if count:
                return Position(ledger_id, count - 1)
        return self.before_first

    def first_after(self, position: Position) -> Position:
        for ledger_id, count in self.ledgers.items():
            if Position(ledger_id, count - 1) > position:
                return max(
                    Position(ledger_id, 0), Position(ledger_id, position[1] + 1 if ledger_id == position[0] else 0)
                )
        return Position(self.last.ledger_id, self.last.entry_id + 1)

    def ledger_end(self, ledger_id: int) -> int | None:
        if ledger_id not in self.ledgers or (self.is_open and ledger_id == next(reversed(self.ledgers))):
            return None
        return self.ledgers[ledger_id] - 1

    def next_ledger(self, ledger_id: int) -> int | None:
        ids = list(self.ledgers)
        if ledger_id not in self.ledgers or ledger_id == ids[-1]:
            return None
        return ids[ids.index(ledger_id) + 1]

    def entries_between(self, after: Position, up_to: Position) -> int:
        return max(0, self._up_to(up_to) - self._up_to(after))

    def _up_to(self, position: Position) -> int:
        counts = [
            count if ledger_id < position.ledger_id else max(0, min(count, position.entry_id + 1))
            for ledger_id, count in self.ledgers.items()
            if ledger_id <= position.ledger_id
        ]
        return sum(counts)

    def positions(self) -> list[Position]:
        """Every entry there is."""
        return [Position(ledger_id, entry_id) for ledger_id, count in self.ledgers.items() for entry_id in range(count)]


class FakeLeases:
    def __init__(self) -> None:
        self.any_active = False
        self.has_lapsed = False
        self.lapsed = 0


class FakeLog:
    """A topic's log: all of `Log`, and what else of `ManagedLedger` a `Topic` calls.

    Ledgers have `per_ledger` entries each; their ids have gaps, as they have in a cluster. An entry is there as soon as
    it is added. Appended ones are decided in the next turn of the event loop while `prompt`, otherwise by `decide`.
    Trimming deletes nothing: `trims` has the positions up to which it was requested.
    """

    def __init__(self, per_ledger: int = 10, incarnation: str = "one") -> None:
        self.name = TopicName.parse("topic")
        self.incarnation = incarnation
        self.floor = 0
        self.is_terminated = False
        self.topic_epoch: TopicEpoch | None = None
        self.per_ledger = per_ledger
        self.entries: dict[Position, LogEntry] = {}
        self.order: list[Position] = []
        self.next_index = 0
        self.on_appended: Callable[[], object] = lambda: None
        # Whether `read_nowait` has it; else reading waits until it is let go.
        self.is_cached = True
        self.gate: asyncio.Event | None = None
        self.fails: BrokerError | None = None
        # Entries that no bookie has any more.
        self.lost: list[Position] = []
        self.reads = 0
        # Entries that were appended and are not decided, and whether they will be refused.
        self.prompt = True
        self.waiting: deque[tuple[NewEntry, bool, AppendDone]] = deque()
        # At most this many wait. The next one is refused in its turn.
        self.capacity = 2**40
        self.owner_epoch = b"epoch"
        self.on_lost: Callable[[BrokerError], object] = lambda error: None
        self.closed = self.abandoned = False
        self.closed_ledgers = 0
        self.has_ledgers_to_delete = False
        # The end of the first ledger, if that is closed.
        self.ends = Position(FIRST_LEDGER, 9)
        self.waiting_for = ""
        self.trims: list[Position | None] = []
        self.ticks = 0
        self.trim_fails: Exception | None = None
        self.leases = FakeLeases()
        self.cache = EntryCache(1 << 24)

    async def change_topic_epoch(self, choose: Callable[[], TopicEpoch | None]) -> None:
        self.topic_epoch = choose() or self.topic_epoch

    async def read_first_partition_epoch(self) -> int | None:
        return None

    async def check_current(self) -> None: ...

    def add(
        self,
        messages: int = 1,
        *,
        batch: bool = False,
        payload: bytes = b"",
        time_ms: int = 0,
        chunk: Chunk | None = None,
        key: str | None = None,
    ) -> Position:
        number = len(self.order)
        position = Position(FIRST_LEDGER + 3 * (number // self.per_ledger), number % self.per_ledger)
        self.next_index += messages
        stored = payload or (f"entry {position}".encode() if key is None else _encode(key))
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

    @property
    def stored(self) -> list[bytes]:
        """The entries that were appended or added, in order."""
        return [self.entries[position].stored for position in self.order]

    @property
    def pending_bytes(self) -> int:
        return sum(len(new.entry) for new, _, _ in self.waiting)

    def append(self, entries: Sequence[NewEntry], done: AppendDone) -> int:
        for taken, new in enumerate(entries):
            assert new.messages == max(1, new.batch_size)
            full = len(self.waiting) >= self.capacity
            self.waiting.append((new, full, done))
            if self.prompt:
                asyncio.get_running_loop().call_soon(self.decide)
            if full:
                return taken
        return len(entries)

    def decide(self, count: int = -1, error: BrokerError | None = None) -> None:
        """Store the oldest `count` waiting entries, or refuse them with the error; all of them by default."""
        while self.waiting and count:
            count -= 1
            new, refused, done = self.waiting.popleft()
            if refused:
                done(BrokerError(ErrorCode.TOO_MANY_REQUESTS, "there was no capacity"))
            elif error is not None:
                done(error)
            else:
                positions = [self._store(new)]
                # As a log does, it notifies once of entries that follow each other.
                while self.waiting and count and self.waiting[0][1:] == (False, done):
                    count -= 1
                    positions.append(self._store(self.waiting.popleft()[0]))
                done(positions)

    def _store(self, new: NewEntry) -> Position:
        return self.add(new.messages, batch=new.batch_size > 0, payload=new.entry, chunk=new.chunk)

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
        if not self.is_cached or self.fails is not None or self.lost:
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

    async def read_at(self, positions: Sequence[Position], max_bytes: int | None = None) -> list[LogEntry | None]:
        await self._wait()
        found: list[LogEntry | None] = []
        size = 0
        for position in positions:
            if position in self.lost:
                raise LostEntry(position, "all have it damaged")
            entry = self.entries.get(position)
            size += 0 if entry is None else len(entry.stored)
            if found and max_bytes is not None and size > max_bytes:
                break
            found.append(entry)
        return found

    async def find_first_at_time(self, time_ms: int) -> Position:
        await asyncio.sleep(0)
        for position in sorted(self.entries):
            if self.entries[position].broker_time_ms >= time_ms:
                return position
        return self.last.next

    def check_not_terminated(self) -> None:
        if self.is_terminated:
            raise BrokerError(ErrorCode.TOPIC_TERMINATED, f"{self.name} is terminated")

    def may_trim(self, up_to: Position | None) -> bool:
        return up_to is None or up_to >= self.ends

    def tick(self) -> None:
        self.ticks += 1

    async def trim(self, up_to: Callable[[], Position | None]) -> bool:
        self.trims.append(up_to())
        if self.trim_fails is not None:
            raise self.trim_fails
        self.closed_ledgers = 0
        return True

    async def close(self) -> None:
        self.closed = True

    def abandon(self) -> None:
        self.abandoned = True


@functools.cache
def _encode(key: str) -> bytes:
    """Return an entry whose first message has this key."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0, partition_key=key)
    return add_broker_metadata(encode_entry(metadata, b"x"), 0, 0)
