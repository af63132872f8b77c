"""CHK-68: a budget for undecided entries bounds the memory that they take, however small they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from magnetar_broker.counters import BrokerCounters, TopicCounters
from magnetar_broker.errors import TopicUnloaded
from magnetar_broker.managed_ledger.append_queue import AppendDone, AppendQueue
from magnetar_broker.managed_ledger.entry_cache import CachedEntries, EntryCache
from magnetar_broker.managed_ledger.log_entry import LogEntry, NewEntry
from magnetar_broker.position import Position
from magnetar_broker.settings.rates import NO_RATE
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.topics.producer import Producer, TopicPublishing
from magnetar_broker.topics.producer_sink import ProducerIdentity
from magnetar_broker.topics.publish_budget import PublishBudget
from magnetar_broker.topics.publish_throttle import PublishThrottle
from magnetar_broker.topics.rate_limit import RateLimit
from magnetar_wire.clock import SystemClock
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES, count_entry_memory
from magnetar_wire.topic_name import TopicName
from tests.produce_client import entry
from tests.running import until, within
from tests.traced_memory import traced_memory
from tests.unit.broker.produce_server import running_produce_server
from tests.unit.broker.topic_scene import FakeProducerSink

BUDGET = 2 << 20
# In one run. Alone they take most memory; in long runs least.
RUNS = pytest.mark.parametrize("run", [1, 100])


class WaitingLog:
    """A log whose bookies are down: it accepts all appends, and decides them when the test calls `decide_all`."""

    def __init__(self, max_bytes: int = 1 << 40) -> None:
        self.name = TopicName.parse("t")
        self.queue = AppendQueue(1_000_000, 0, max_bytes)

    def append(self, entries: Sequence[NewEntry], done: AppendDone) -> int:
        return self.queue.append(entries, done, 1_700_000_000_000)

    def decide_all(self) -> None:
        queue = self.queue
        queue.take_run(1 << 40, 1 << 60, 1 << 60, takes_chunks=True)
        for number, append in enumerate(queue.confirm(len(queue))[0]):
            append.done([Position(1, number)])


def producer_on(log: Any, budget: PublishBudget, sink: FakeProducerSink) -> Producer:
    unlimited = RateLimit("none", lambda: NO_RATE, SystemClock())
    throttle = PublishThrottle(budget, unlimited, unlimited)
    publishing = TopicPublishing(
        log,
        throttle,
        TopicSettings(),
        SystemClock(),
        TopicCounters(),
        BrokerCounters(),
        lambda name, sequence_id, ids, size_bytes: None,
    )
    return Producer(ProducerIdentity(1, "p", b"", 0, {}, ""), publishing, sink)


def small_entries(first: int, count: int) -> list[bytes]:
    return [entry(1_000_000 + number, b"12345") for number in range(first, first + count)]


def is_about(memory_bytes: int, budget_bytes: int) -> bool:
    """Counting is as cheap as one constant per entry, so it is as close as that."""
    return budget_bytes / 2 < memory_bytes < budget_bytes * 1.25


@RUNS
def test_topic_budget_bounds_memory_of_small_entries(run: int) -> None:
    """CHK-68: 25-byte entries of a topic whose bookies are away took 17 times its budget."""

    def fill() -> tuple[Producer, WaitingLog]:
        log = WaitingLog()
        producer = producer_on(log, budget, sink)
        number = 0
        while not budget.is_full:
            producer.publish(number, small_entries(number, run))
            number += run
        return producer, log

    budget, sink = PublishBudget(BUDGET), FakeProducerSink()
    memory_bytes, (producer, log) = traced_memory(fill)
    assert is_about(memory_bytes, BUDGET)
    assert log.queue.pending_bytes >= BUDGET
    used = budget.used_bytes
    log.decide_all()
    assert (budget.used_bytes, sink.decided_bytes, log.queue.pending_bytes) == (0, used, 0)
    assert producer.pending == 0


def test_a_logs_bound_on_pending_appends_bounds_their_memory() -> None:
    """CHK-68: `managed_ledger_max_pending_bytes` counts memory."""

    def fill() -> WaitingLog:
        log = WaitingLog(BUDGET)
        number = 0
        while log.queue.pending_bytes < BUDGET:
            log.append([NewEntry(one, 1, 0) for one in small_entries(number, 100)], print)
            number += 100
        return log

    memory_bytes, log = traced_memory(fill)
    assert BUDGET / 4 < memory_bytes < BUDGET * 1.25
    assert log.queue.pending_bytes >= BUDGET


def test_producer_releases_its_budget_for_stored_and_refused_entries() -> None:
    """CHK-68: entries that are stored, refused by themselves, refused by the log, and passed over behind the end."""
    budget, sink, log = PublishBudget(BUDGET), FakeProducerSink(), WaitingLog(4 * ENTRY_OVERHEAD_BYTES)
    producer = producer_on(log, budget, sink)
    runs = [[*small_entries(0, 2), b"bad"], small_entries(3, 7), small_entries(10, 5)]
    for first, run in zip((0, 3, 10), runs, strict=True):
        producer.publish(first, run)
    for append in [*log.queue.take_all()]:
        append.done(append.error or [Position(1, 0)])
    assert budget.used_bytes == 0
    assert sink.decided_bytes == sum(map(count_entry_memory, runs))
    late = producer_on(WaitingLog(), budget, sink)
    late.publish(0, small_entries(0, 3))
    late._on_decided(TopicUnloaded("it is unloaded"))
    assert budget.used_bytes == 2 * count_entry_memory(small_entries(0, 1))


def test_cache_size_bounds_memory_of_small_entries() -> None:
    """CHK-68: `managed_ledger_cache_size_mb` counts memory."""

    def fill() -> tuple[EntryCache, CachedEntries]:
        cache = EntryCache(BUDGET)
        topic = CachedEntries(cache)
        for number in range(20_000):
            stored = small_entries(number, 1)[0]
            topic.add([LogEntry(Position(1_000_000, number), stored, 1, 0, 1_000_000 + number, number)])
        return cache, topic

    memory_bytes, (cache, topic) = traced_memory(fill)
    assert is_about(memory_bytes, BUDGET)
    topic.drop_all()
    assert cache.size_bytes == 0


@pytest.mark.parametrize(
    "options",
    [
        {"max_pending_publish_bytes_per_connection": 1 << 20},
        {"max_pending_publish_bytes_per_topic": 1 << 20},
        {"max_message_publish_buffer_size_in_mb": 1},
    ],
    ids=str,
)
async def test_a_stream_of_small_entries_is_held_at_the_memory_that_they_take(options: dict[str, int]) -> None:
    """CHK-68: no bound of a `produce` stream lets more small entries in than its memory holds."""

    async with running_produce_server(**options) as (server, connect):
        client = connect()
        await client.open(1)
        log = server.log()
        log.prompt = False
        most, run, count = (1 << 20) // ENTRY_OVERHEAD_BYTES + 1, 100, 10_000

        async def send_all() -> None:
            for first in range(0, count, run):
                await client.send((1, first, [entry(number) for number in range(first, first + run)]))

        sending = asyncio.create_task(send_all())
        await until(lambda: server.budget.used_bytes >= 1 << 20, "it is taken up to the bound")
        probe = connect()
        await probe.open(2, "q")
        for _ in range(1000):
            await asyncio.sleep(0)
        assert len(log.waiting) < most + run
        log.prompt = True
        log.decide()
        await within(sending, "everything is sent")
        await until(lambda: len(client.receipts) == count, "everything is stored")
        assert server.budget.used_bytes == 0


async def test_an_entry_larger_than_every_budget_passes() -> None:
    """CHK-68: counting memory stops nothing for good."""

    async with running_produce_server(
        max_pending_publish_bytes_per_connection=1, max_pending_publish_bytes_per_topic=1
    ) as (server, connect):
        client = connect()
        await client.open(1)
        for number in range(10):
            await client.send((1, number, [entry(number, bytes(1000))]))
        await until(lambda: len(client.receipts) == 10, "they are stored")
        assert server.budget.used_bytes == 0
