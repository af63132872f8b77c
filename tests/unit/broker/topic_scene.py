"""A topic with parts that do as they are told: a log that stores what it is let store, and nobody consumes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from magnetar_broker.core.counters import BrokerCounters
from magnetar_broker.core.log_entry import NewEntry
from magnetar_broker.core.position import Position
from magnetar_broker.errors import BrokerError, TopicGivenUp
from magnetar_broker.topic.options import TopicOptions
from magnetar_broker.topic.topic import Topic
from magnetar_broker.topic.topics import Topics
from magnetar_metadata.store import Change
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.clock import Clock, SystemClock
from magnetar_wire.randomness import SeededRandomness
from magnetar_wire.topic_name import TopicName
from tests.owns_everything import OwnsEverything

__all__ = ["NAME", "FakeCatalog", "FakeCursors", "FakeLog", "FakeStorage", "FakeSubscriptions", "topics_on"]

NAME = TopicName.parse("t")


class _Refused(bytes):
    """An entry that was not taken."""


class FakeLeases:
    def __init__(self) -> None:
        self.any_stands = False
        self.any_lapsed = False
        self.lapsed = 0


class FakeLog:
    """Appends are decided when `decide` is called; at once, while `prompt`."""

    def __init__(self, incarnation: str = "i1") -> None:
        self.incarnation = incarnation
        self.life = b"life"
        self.prompt = True
        self.ledger_id = 7
        self.stored: list[bytes] = []
        self.waiting: deque[tuple[bytes, Callable[[Any], object]]] = deque()
        self.on_appended: Callable[[], object] = lambda: None
        self.on_lost: Callable[[BrokerError], object] = lambda error: None
        self.closed = self.abandoned = False
        # So many may wait; what comes then is refused in its turn.
        self.room = 2**40
        self.closed_ledgers = 0
        self.has_rest = False
        # The end of the first ledger, if that is closed.
        self.ends = Position(7, 9)
        self.waiting_for = ""
        self.trims: list[Position | None] = []
        self.ticks = 0
        self.trim_fails: Exception | None = None
        self.leases = FakeLeases()

    @property
    def before_first(self) -> Position:
        return Position(self.ledger_id, -1)

    @property
    def last(self) -> Position:
        return Position(self.ledger_id, len(self.stored) - 1)

    @property
    def pending_bytes(self) -> int:
        return sum(len(one) for one, _ in self.waiting)

    def append(self, entries: Sequence[NewEntry], done: Callable[[Any], object]) -> int:
        for taken, (entry, messages, batch_size, _) in enumerate(entries):
            assert messages == max(1, batch_size)
            full = len(self.waiting) >= self.room
            self.waiting.append((_Refused(entry) if full else entry, done))
            if self.prompt:
                asyncio.get_running_loop().call_soon(self.decide)
            if full:
                return taken
        return len(entries)

    def may_trim(self, up_to: Position | None) -> bool:
        return up_to is None or up_to >= self.ends

    def decide(self, count: int = -1, error: BrokerError | None = None) -> None:
        while self.waiting and count:
            count -= 1
            entry, done = self.waiting.popleft()
            if isinstance(entry, _Refused):
                done(BrokerError(ErrorCode.TOO_MANY_REQUESTS, "there was no room"))
            elif error is None:
                self.stored.append(entry)
                places = [self.last]
                # As a log does, those of one that follow each other are told at once.
                while self.waiting and count and self.waiting[0][1] == done and type(self.waiting[0][0]) is bytes:
                    count -= 1
                    self.stored.append(self.waiting.popleft()[0])
                    places.append(self.last)
                done(places)
            else:
                done(error)

    def tick(self, now: float) -> None:
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


class FakeCursors:
    def __init__(self) -> None:
        self.on_lost: Callable[[BrokerError], object] = lambda error: None
        self.slowest: Position | None = None
        self.open: list[Any] = []
        self.closed = self.abandoned = False
        self.trimmed = 0
        self.settled = asyncio.Event()
        self.settled.set()
        # `close` hangs, and raises this when it is cancelled.
        self.fails_when_cancelled: Exception | None = None

    def durable(self) -> list[Any]:
        return self.open

    def names(self) -> list[str]:
        return [cursor.name for cursor in self.open]

    def tick(self, now: float) -> None:
        """None of them has a ledger."""

    def slowest_saved(self) -> Position | None:
        return self.slowest

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


class FakeSubscriptions:
    def __init__(self) -> None:
        self.consumers = 0
        self.ended: list[BrokerError] = []

    def appended(self) -> None: ...

    async def close(self, problem: BrokerError) -> None:
        self.end(problem)

    def end(self, problem: BrokerError) -> None:
        if not self.ended:
            self.ended.append(problem)
        self.consumers = 0


class FakeStorage:
    """`opened` are the lives of topics, in order. Opening waits while `gate` is not set, and with an open log while
    `cursors_gate` is not."""

    def __init__(self, options: TopicOptions | None = None, clock: Clock | None = None) -> None:
        self.options = options or TopicOptions()
        self.clock = clock or SystemClock()
        self.counters = BrokerCounters()
        self.there: dict[TopicName, str] = {}
        self.opened: list[Topic] = []
        self.deleted: list[TopicName] = []
        self.deleted_incarnations: list[str] = []
        self.opening = 0
        self.most_opening = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.cursors_gate = asyncio.Event()
        self.cursors_gate.set()
        self.fails: Exception | None = None
        # Raised once, behind `cursors_gate`.
        self.cursors_fail: Exception | None = None

    async def see(self, name: TopicName) -> None:
        pass

    async def open(
        self,
        name: TopicName,
        *,
        create: bool,
        along: Sequence[Change],
        policies: Policies,
        seen: None = None,
        log_opened: Callable[[Topic], object] = lambda _: None,
    ) -> Topic:
        self.opening += 1
        self.most_opening = max(self.most_opening, self.opening)
        try:
            await self.gate.wait()
        finally:
            self.opening -= 1
        if self.fails is not None:
            raise self.fails
        if name not in self.there:
            if not create:
                raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no {name}")
            self.there[name] = f"i{len(self.deleted) + 1}"
        topic = Topic(
            name,
            FakeLog(self.there[name]),  # type: ignore[arg-type]
            FakeCursors(),  # type: ignore[arg-type]
            FakeSubscriptions(),  # type: ignore[arg-type]
            self.options,
            self.clock,
            SeededRandomness(1),
            self.counters,
        )
        self.opened.append(topic)
        log_opened(topic)
        try:
            await self.cursors_gate.wait()
            if (error := self.cursors_fail) is not None:
                self.cursors_fail = None
                self.cursors_gate.clear()
                raise error
        except BaseException:
            topic.abandon(TopicGivenUp(f"{name} could not be opened"))
            raise
        return topic

    async def claim(self, name: TopicName) -> bytes:
        if name not in self.there:
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no {name}")
        return b"life"

    async def delete(self, name: TopicName, life: bytes | None = None, incarnation: str = "") -> None:
        await asyncio.sleep(0)
        self.there.pop(name, None)
        self.deleted.append(name)
        self.deleted_incarnations.append(incarnation)


class FakeCatalog:
    def __init__(self) -> None:
        self.allowed = True

    async def check_topic(self, name: TopicName) -> Policies:
        if name.namespace == "nowhere":
            raise BrokerError(ErrorCode.NOT_FOUND, "there is no such namespace")
        return Policies()

    async def creation(self, name: TopicName, *, asked: bool = False) -> Sequence[Change]:
        if not self.allowed and not asked:
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, "none is made on first use")
        return ()


def topics_on(storage: FakeStorage, catalog: FakeCatalog | None = None) -> Topics:
    catalog = catalog or FakeCatalog()
    return Topics(storage, catalog, storage.options, storage.clock, OwnsEverything(()), storage.counters)
