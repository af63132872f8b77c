"""A topic of fakes: a log that stores entries when the test lets it, and subscriptions without consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from magnetar_broker.counters import BrokerCounters
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.topic_node import NewTopic
from magnetar_broker.position import Position
from magnetar_broker.schemas.schema_rules import SchemaRules
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_broker.topics.rate_limit import RateLimit
from magnetar_broker.topics.topic import Topic
from magnetar_broker.topics.topic_schemas import SchemaAccess, TopicSchemas
from magnetar_broker.topics.topics import Topics
from magnetar_metadata.store import Change
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies, SchemaCompatibility
from magnetar_testing.clock import ManualClock
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import Clock, SystemClock
from magnetar_wire.topic_name import TopicName
from tests.fake_ownership import FakeOwnership
from tests.unit.broker.fake_cursors import FakeCursorTable
from tests.unit.broker.fake_log import FakeLog
from tests.unit.broker.fake_schema_registry import FakeSchemaRegistry

__all__ = [
    "NAME",
    "FakeCatalog",
    "FakeProducerSink",
    "FakeStorage",
    "FakeSubscriptions",
    "cursors_of",
    "log_of",
    "passes",
    "subscriptions_of",
    "topics_on",
]

NAME = TopicName.parse("t")


class FakeProducerSink:
    """All of `ProducerSink`: `results` has what was stored, refused and ended. Its client is always alive."""

    def __init__(self) -> None:
        self.results: list[tuple[Any, ...]] = []
        self.decided_bytes = 0

    def stored(self, number: int, position: Position) -> None:
        self.results.append(("stored", number, position))

    def partly_stored(self, number: int, position: Position, duplicates: int) -> None:
        self.results.append(("partly stored", number, position, duplicates))

    def refused(self, number: int, error: BrokerError) -> None:
        self.results.append(("refused", number, error))

    def decided(self, memory_bytes: int) -> None:
        self.decided_bytes += memory_bytes

    def report_waiting(self, waiting_for: str) -> None: ...

    def topic_grew(self, partitions: int) -> None:
        self.results.append(("grown", partitions, None))

    def queued(self, producer_name: str) -> None:
        self.results.append(("queued", producer_name))

    def ended(self, error: BrokerError) -> None:
        self.results.append(("ended", error))

    async def check_alive(self) -> bool:
        return True


class FakeSubscriptions:
    """The part of `Subscriptions` that a `Topic` calls. The test sets `consumers`; `ended` has the errors of `end`."""

    def __init__(self) -> None:
        self.consumers = 0
        self.ended: list[BrokerError] = []

    def appended(self) -> None: ...

    def time_ms(self) -> int:
        return 0

    def apply_settings(self) -> None: ...

    async def close(self, problem: BrokerError) -> None:
        self.end(problem)

    async def evict(self, name: str, find_end: Callable[[], Position | None]) -> int:
        return 0

    def end(self, problem: BrokerError) -> None:
        if not self.ended:
            self.ended.append(problem)
        self.consumers = 0


class FakeStorage:
    """`opened` has all opened topics, in order. Opening waits while `gate` is not set, and with an open log while
    `cursors_gate` is not."""

    def __init__(self, options: TopicSettings | None = None, clock: Clock | None = None) -> None:
        self.options = options or BrokerServiceSettings()
        self.clock = clock or SystemClock()
        self.counters = BrokerCounters()
        self.publish_limit = RateLimit("all", lambda: self.options.broker_publish_rate, self.clock)
        self.rules = SchemaRules(SchemaCompatibility.FULL, allow_auto_update=True, validation_enforced=False)
        self.registry = FakeSchemaRegistry()
        self.schemas = SchemaAccess(self.registry, self._find_rules, self._find_rules)
        self.there: dict[TopicName, str] = {}
        self.opened: list[Topic] = []
        self.deleted: list[TopicName] = []
        self.deleted_incarnations: list[str] = []
        # Of the topic that was opened last.
        self.own_policies = Policies()
        self.opening = 0
        self.most_opening = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.cursors_gate = asyncio.Event()
        self.cursors_gate.set()
        self.fails: Exception | None = None
        # Raised once, behind `cursors_gate`.
        self.cursors_fail: Exception | None = None

    async def _find_rules(self, name: TopicName) -> SchemaRules:
        return self.rules

    async def prefetch(self, name: TopicName) -> None:
        pass

    async def open(
        self,
        name: TopicName,
        *,
        policies: Policies,
        if_absent: NewTopic | None = None,
        own_policies: Awaitable[Policies] | None = None,
        prefetched: None = None,
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
        if own_policies is not None:
            self.own_policies = await own_policies
        if name not in self.there:
            if if_absent is None:
                raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no {name}")
            self.there[name] = f"i{len(self.deleted) + 1}"
        log = FakeLog(per_ledger=2**40, incarnation=self.there[name])
        topic = Topic(
            name,
            log,  # type: ignore[arg-type]
            FakeCursorTable(log),
            FakeSubscriptions(),  # type: ignore[arg-type]
            LiveSettings(self.options, Policies(), are_known=True),  # type: ignore[arg-type]
            self.clock,
            SeededRandomness(1),
            self.counters,
            TopicSchemas(name, self.schemas),
            self.publish_limit,
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
            topic.abandon(TopicUnloaded(f"{name} could not be opened"))
            raise
        return topic

    async def claim(self, name: TopicName) -> bytes:
        if name not in self.there:
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no {name}")
        return b"epoch"

    async def delete(self, name: TopicName, owner_epoch: bytes | None = None, incarnation: str = "") -> None:
        await asyncio.sleep(0)
        self.there.pop(name, None)
        self.deleted.append(name)
        self.deleted_incarnations.append(incarnation)


class FakeCatalog:
    """All of the catalog that `Topics` calls. Every namespace but 'nowhere' exists, with no policies."""

    def __init__(self) -> None:
        self.allowed = True

    async def check_topic(self, name: TopicName) -> Policies:
        if name.namespace == "nowhere":
            raise BrokerError(ErrorCode.NOT_FOUND, "there is no such namespace")
        return Policies()

    def creation_turn(self, name: TopicName, policies: Policies) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def prepare_creation(self, name: TopicName, *, explicit: bool = False) -> Sequence[Change]:
        if not self.allowed and not explicit:
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, "it is not created on first use")
        return ()


def topics_on(storage: FakeStorage, catalog: FakeCatalog | None = None) -> Topics:
    catalog = catalog or FakeCatalog()
    return Topics(storage, catalog, storage.options, storage.clock, FakeOwnership.of_everything(()), storage.counters)


def subscriptions_of(topic: Topic) -> FakeSubscriptions:
    subscriptions: object = topic.subscriptions
    assert isinstance(subscriptions, FakeSubscriptions)
    return subscriptions


def cursors_of(topic: Topic) -> FakeCursorTable:
    cursors: object = topic.cursors
    assert isinstance(cursors, FakeCursorTable)
    return cursors


def log_of(topic: Topic) -> FakeLog:
    log: object = topic.log
    assert isinstance(log, FakeLog)
    return log


async def passes(clock: ManualClock, seconds: float) -> None:
    for _ in range(int(seconds * 10)):
        clock.advance(0.1)
        for _ in range(6):
            await asyncio.sleep(0)
