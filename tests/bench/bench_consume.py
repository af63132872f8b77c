"""What consuming costs, through the SDK on a standalone: Key_Shared, acknowledgements, holes in a cursor, patterns.
Messages have 100 bytes.

Each bench is a generator in `BENCHES` that gets a standalone and yields its results. The two arms of a ratio consume
the same topic, each time by a new subscription from the first message on. `MAGNETAR_BENCH_FOLDER` selects the disk,
`MAGNETAR_BENCH_SCALE` shrinks the work, and `MAGNETAR_BENCH_ONLY=holes` runs the benches named there.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import magnetar
from magnetar_bookie.read.record import extract_entry
from magnetar_bookie.storage.rocksdb import open_rocksdb
from magnetar_testing.standalone_process import StandaloneProcess
from tests.bench.bench_ledger import log_line
from tests.bench.bench_model import Benches, compare_arms, run_benches
from tests.bench.harness import Result

SCALE: Final = float(os.environ.get("MAGNETAR_BENCH_SCALE", "1"))
MESSAGE_BYTES: Final = 100
# Enough for a turn of a second or more, without batches and with them.
COUNT: Final = max(1000, int(100_000 * SCALE))
BATCHED_COUNT: Final = max(1000, int(1_500_000 * SCALE))
KEYS: Final = max(100, int(10_000 * SCALE))
HOLES: Final = max(10_000, int(1_000_000 * SCALE))
TOPICS: Final = max(10, int(1_000 * SCALE))
BATCH: Final = 1000
# A bench that takes longer has failed.
_TIMEOUT_S: Final = 600.0


def benches() -> Iterator[Result]:
    # An arm that acknowledges nothing receives as many messages as the other.
    return run_benches(BENCHES, max_unacked_messages_per_consumer=0, max_unacked_messages_per_subscription=0)


class ConsumedTopic:
    """A topic with messages, all of which each call of `consume` receives by a new subscription."""

    _numbers = itertools.count()

    def __init__(self, client: magnetar.Client, topic: str, *, batched: bool, keys: int = 0) -> None:
        self._client = client
        self._topic = topic
        self._count = BATCHED_COUNT if batched else COUNT
        publish(client, topic, self._count, batched=batched, keys=keys)

    def consume(self, consumers: int, consumer_type: magnetar.ConsumerType, *, acknowledge: bool) -> float:
        """Return messages/s: from the first subscription to the last message, and the end of all consumers, which send
        their acknowledgements then."""
        group = ReceivingGroup(self._count, acknowledge=acknowledge)
        name = f"s{next(self._numbers)}"
        began = time.perf_counter()
        for _ in range(consumers):
            group.start(
                self._client.subscribe(
                    self._topic, name, consumer_type, initial_position=magnetar.InitialPosition.Earliest
                )
            )
        group.wait()
        return self._count / (time.perf_counter() - began)


class ReceivingGroup:
    """The consumers of one subscription: each has a thread that receives, until all have `count` messages together."""

    def __init__(self, count: int, *, acknowledge: bool) -> None:
        self._count = count
        self._acknowledge = acknowledge
        self._numbers = itertools.count(1)
        self._has_all = threading.Event()
        self._consumers: list[magnetar.Consumer[bytes]] = []
        self._threads: list[threading.Thread] = []

    def start(self, consumer: magnetar.Consumer[bytes]) -> None:
        self._consumers.append(consumer)
        self._threads.append(threading.Thread(target=self._receive, args=(consumer,), daemon=True))
        self._threads[-1].start()

    def wait(self) -> None:
        if not self._has_all.wait(_TIMEOUT_S):
            raise TimeoutError(
                f"{next(self._numbers) - 1:,} of {self._count:,} messages were received in {_TIMEOUT_S:.0f} s"
            )
        for consumer in self._consumers:
            consumer.close()
        for thread in self._threads:
            thread.join()

    def _receive(self, consumer: magnetar.Consumer[bytes]) -> None:
        receive, acknowledge = consumer.receive, consumer.acknowledge
        numbers, count = self._numbers, self._count
        try:
            while True:
                message = receive()
                if self._acknowledge:
                    acknowledge(message)
                if next(numbers) == count:
                    self._has_all.set()
        except magnetar.AlreadyClosed:
            return


def publish(client: magnetar.Client, topic: str, count: int, *, batched: bool, keys: int = 0) -> None:
    options: dict[str, Any] = {"batching_enabled": False}
    if batched:
        options = {
            "batching_enabled": True,
            "batching_max_messages": BATCH,
            "batching_max_allowed_size_in_bytes": 1_048_576,
            "batching_max_publish_delay_ms": 1000,
        }
    producer = client.create_producer(topic, max_pending_messages=20_000, block_if_queue_full=True, **options)
    body = os.urandom(MESSAGE_BYTES)
    for number in range(count):
        producer.send_async(body, None, partition_key=f"key-{number % keys}" if keys else None)
    producer.flush()
    producer.close()


def _bench_key_shared(server: StandaloneProcess) -> Iterator[Result]:
    """Dispatch to 8 consumers, whose acknowledgements release the keys."""
    kind = magnetar.ConsumerType
    with server.client() as client:
        topic = ConsumedTopic(client, "keyed", batched=False, keys=KEYS)
        topic.consume(8, kind.Shared, acknowledge=True)  # warms up
        yield compare_arms(
            "consume.key_shared",
            partial(topic.consume, 8, kind.KeyShared, acknowledge=True),
            partial(topic.consume, 8, kind.Shared, acknowledge=True),
            against="Shared, messages/s",
            floor=0.7,
        )


def _bench_shared_acks(server: StandaloneProcess) -> Iterator[Result]:
    """Receive by 4 consumers, and acknowledge each message by itself."""
    shared = magnetar.ConsumerType.Shared
    with server.client() as client:
        for bench, batched in (("consume.shared_acks", True), ("consume.shared_acks_unbatched", False)):
            topic = ConsumedTopic(client, bench, batched=batched)
            topic.consume(4, shared, acknowledge=True)
            yield compare_arms(
                bench,
                partial(topic.consume, 4, shared, acknowledge=True),
                partial(topic.consume, 4, shared, acknowledge=False),
                against="receive alone, messages/s",
                floor=0.5,
            )


def _bench_holes(server: StandaloneProcess) -> Iterator[Result]:
    """Acknowledge every second message of a topic; then the server is killed, and its cursors' ledgers are measured."""
    ledgers: dict[str, int] = {}
    with server.client() as client, server.admin() as admin:
        for bench, batched in (("consume.holes", False), ("consume.holes_batched", True)):
            publish(client, bench, HOLES, batched=batched)
            _acknowledge_every_second(client, bench)
            (cursor,) = admin.topics.internal_stats(bench).cursors
            ledgers[bench] = cursor.ledger_id
    server.kill()
    for bench, ledger_id in ledgers.items():
        records, size = asyncio.run(_measure_ledger(server.folder / "bookie", ledger_id))
        log_line(f"{bench}: {size:,} bytes in {records} records of ledger {ledger_id}")
        yield Result(bench, size / 1_000_000, "MB", "newest snapshot of the cursor and its later changes", ceiling=0.3)


def _acknowledge_every_second(client: magnetar.Client, topic: str) -> None:
    with client.subscribe(topic, "s", initial_position=magnetar.InitialPosition.Earliest) as consumer:
        for number in range(HOLES):
            message = consumer.receive(60_000)
            if number % 2:
                consumer.acknowledge(message)
        consumer.acknowledge(message, receipt=True)


async def _measure_ledger(folder: Path, ledger_id: int) -> tuple[int, int]:
    """Return the number and the size of the entries that a bookie has of a ledger."""
    storage = await open_rocksdb(folder)
    try:
        entry_ids = range(storage.get_last_entry_id(ledger_id) + 1)
        records = [await storage.read(ledger_id, [one], 1 << 30) for one in entry_ids]
        stored = [record for (record,) in records if isinstance(record, bytes)]
        return len(stored), sum(len(extract_entry(record)) for record in stored)
    finally:
        await storage.close()


def _bench_pattern(server: StandaloneProcess) -> Iterator[Result]:
    """Subscribe to a pattern, with a message in each topic."""
    with server.client() as client:
        for number in range(TOPICS):
            producer = client.create_producer(f"pattern-{number}")
            producer.send(os.urandom(MESSAGE_BYTES))
            producer.close()
        pattern: Any = re.compile(r"persistent://public/default/pattern-\d+")
        began = time.perf_counter()
        consumer = client.subscribe(pattern, "s", initial_position=magnetar.InitialPosition.Earliest)
        delivered: set[str] = set()
        while len(delivered) < TOPICS:
            delivered.add(consumer.receive(60_000).topic_name())
        seconds = time.perf_counter() - began
        log_line(f"consume.pattern: {TOPICS} topics delivered after {seconds:.2f} s")
        yield Result("consume.pattern", seconds, "seconds", "until all topics deliver", ceiling=10)


BENCHES: Final[Benches] = {
    "key_shared": _bench_key_shared,
    "shared_acks": _bench_shared_acks,
    "holes": _bench_holes,
    "pattern": _bench_pattern,
}
