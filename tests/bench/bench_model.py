"""What deduplication, chunks, partitions and policies cost, through the SDK on a standalone. Messages have 100 bytes,
except for chunks.

Each bench is a generator in `BENCHES` that gets the standalone and yields its result. One with two arms yields
`compare_arms`: the arms do the same work in turns, within one run. `MAGNETAR_BENCH_FOLDER` selects the disk, and
`MAGNETAR_BENCH_SCALE` shrinks the work; `MAGNETAR_BENCH_ONLY=policies` runs the benches named there.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import magnetar
from magnetar.admin import NamespacePolicies
from magnetar.admin.policies import BacklogQuota, DispatchRate, InactiveTopics, PublishRate, Retention, SubscribeRate
from magnetar_testing.standalone_process import StandaloneProcess
from tests.bench.bench_ledger import log_line
from tests.bench.harness import Result

SCALE: Final = float(os.environ.get("MAGNETAR_BENCH_SCALE", "1"))
TURNS: Final = 15 if SCALE >= 1 else 1
MESSAGE_BYTES: Final = 100
COUNT: Final = max(1000, int(500_000 * SCALE))
_WARM_UP: Final = 1000
LARGE_BYTES: Final = max(20_000_000, int(10 * SCALE) * 20_000_000)
# More than any bench reaches.
_MANY: Final = 1_000_000_000


# By name: a bench gets a standalone of its own.
Benches = dict[str, Callable[[StandaloneProcess], Iterator[Result]]]


def benches() -> Iterator[Result]:
    return run_benches(BENCHES)


def run_benches(available: Benches, **settings: Any) -> Iterator[Result]:
    """Run the benches that `MAGNETAR_BENCH_ONLY` names, or all. `settings`: of the standalone."""
    wanted = [name for name in os.environ.get("MAGNETAR_BENCH_ONLY", "").split(",") if name] or list(available)
    for name in wanted:
        with (
            tempfile.TemporaryDirectory(dir=os.environ.get("MAGNETAR_BENCH_FOLDER")) as folder,
            StandaloneProcess(Path(folder) / "standalone", **settings) as server,
        ):
            yield from available[name](server)


def compare_arms(
    bench: str, ours: Callable[[], float], other: Callable[[], float], *, against: str, floor: float
) -> Result:
    """Compare two arms, each of which does the same work once a call and returns its speed, such as messages/s."""
    ratios, speeds = [], []
    for turn in range(TURNS):
        if turn % 2:  # neither arm is always the first one
            beside = other()
            mine = ours()
        else:
            mine = ours()
            beside = other()
        ratios.append(mine / beside)
        speeds.append((mine, beside))
    medians = [statistics.median(arm) for arm in zip(*speeds, strict=True)]
    shown = ", ".join(f"{one:.2f}" for one in ratios)
    log_line(f"{bench}: {medians[0]:,.0f} and {medians[1]:,.0f}; ratios {shown}")
    return Result(bench, statistics.median(ratios), "ratio", against, floor)


class BatchedPublisher:
    """Publishes batched messages of 100 bytes to one topic."""

    def __init__(self, client: magnetar.Client, topic: str) -> None:
        self._producer = client.create_producer(
            topic,
            batching_enabled=True,
            batching_max_messages=1000,
            batching_max_allowed_size_in_bytes=131_072,
            batching_max_publish_delay_ms=5,
            max_pending_messages=20_000,
            block_if_queue_full=True,
        )
        self._body = os.urandom(MESSAGE_BYTES)
        self._publish(_WARM_UP)

    def measure(self) -> float:
        """Publish `COUNT` messages and return messages/s; each one is persisted."""
        began = time.perf_counter()
        self._publish(COUNT)
        return COUNT / (time.perf_counter() - began)

    def _publish(self, count: int) -> None:
        body, send = self._body, self._producer.send_async
        for _ in range(count):
            send(body, None)
        self._producer.flush()


def _bench_policies(server: StandaloneProcess) -> Iterator[Result]:
    """Publish with every limit set and none reached."""
    with server.client() as client, server.admin() as admin:
        admin.namespaces.create("public/limited", _EVERY_LIMIT)
        admin.namespaces.create("public/unlimited")
        limited = BatchedPublisher(client, "persistent://public/limited/published")
        unlimited = BatchedPublisher(client, "persistent://public/unlimited/published")
        yield compare_arms(
            "model.policies",
            limited.measure,
            unlimited.measure,
            against="the same without limits, messages/s",
            floor=0.95,
        )


class LargeMessages:
    """Publishes messages to one topic, and receives and acknowledges them, on one client."""

    def __init__(self, client: magnetar.Client, topic: str, message_bytes: int) -> None:
        self._consumer = client.subscribe(topic, "bench")
        self._producer = client.create_producer(
            topic, batching_enabled=False, chunking_enabled=True, block_if_queue_full=True
        )
        self._body = os.urandom(message_bytes)
        self._publish_and_receive(3)

    def measure(self) -> float:
        """Publish and receive `LARGE_BYTES` and return MB/s; each message is persisted, whole and acknowledged."""
        began = time.perf_counter()
        self._publish_and_receive(LARGE_BYTES // len(self._body))
        return LARGE_BYTES / 1_000_000 / (time.perf_counter() - began)

    def _publish_and_receive(self, count: int) -> None:
        publisher = threading.Thread(target=self._publish, args=(count,))
        publisher.start()
        for _ in range(count):
            message = self._consumer.receive(60_000)
            assert len(message.data()) == len(self._body)
            self._consumer.acknowledge(message)
        publisher.join()

    def _publish(self, count: int) -> None:
        for _ in range(count):
            self._producer.send_async(self._body)
        self._producer.flush()


def _bench_chunks(server: StandaloneProcess) -> Iterator[Result]:
    """Publish and receive messages of 20 MB, which are sent in chunks."""
    with server.client() as client:
        in_chunks = LargeMessages(client, "in-chunks", 20_000_000)
        whole = LargeMessages(client, "whole", 1_000_000)
        yield compare_arms(
            "model.chunks",
            in_chunks.measure,
            whole.measure,
            against="the same bytes in messages of 1 MB, MB/s",
            floor=0.7,
        )


_EVERY_LIMIT: Final = NamespacePolicies(
    retention=Retention(time_minutes=_MANY, size_mb=1_000_000),
    message_ttl_seconds=_MANY,
    subscription_expiration_minutes=_MANY // 1_000,
    backlog_quota_size=BacklogQuota("producer_exception", limit_size_bytes=1 << 39),
    backlog_quota_age=BacklogQuota("producer_exception", limit_time_seconds=1_000_000),
    inactive_topics=InactiveTopics(True, "delete_when_no_subscriptions", _MANY),
    publish_rate=PublishRate(messages_per_s=_MANY, bytes_per_s=1 << 40),
    dispatch_rate=DispatchRate(messages=_MANY, bytes=1 << 40),
    subscription_dispatch_rate=DispatchRate(messages=_MANY, bytes=1 << 40),
    subscribe_rate=SubscribeRate(per_consumer=_MANY),
    max_producers_per_topic=_MANY,
    max_consumers_per_topic=_MANY,
    max_consumers_per_subscription=_MANY,
    max_unacked_messages_per_consumer=_MANY,
    max_unacked_messages_per_subscription=_MANY,
    max_subscriptions_per_topic=_MANY,
    max_topics_per_namespace=_MANY,
)


def _bench_dedup(server: StandaloneProcess) -> Iterator[Result]:
    """Publish with deduplication."""
    with server.client() as client, server.admin() as admin:
        admin.namespaces.create("public/deduplicated", NamespacePolicies(deduplication=True))
        admin.namespaces.create("public/repeated")
        deduplicated = BatchedPublisher(client, "persistent://public/deduplicated/published")
        repeated = BatchedPublisher(client, "persistent://public/repeated/published")
        yield compare_arms(
            "model.dedup",
            deduplicated.measure,
            repeated.measure,
            against="the same without deduplication, messages/s",
            floor=0.9,
        )


def _bench_partitions(server: StandaloneProcess) -> Iterator[Result]:
    """Open a producer and a consumer of a topic with many partitions, which no client has used before."""
    partitions = max(10, int(1000 * SCALE))
    with server.client() as client, server.admin() as admin:
        admin.topics.create_partitioned("partitioned", partitions)
        began = time.perf_counter()
        producer = client.create_producer("partitioned")
        consumer = client.subscribe("partitioned", "s")
        seconds = time.perf_counter() - began
        producer.send(b"used")
        consumer.receive(60_000)
        log_line(f"model.partitions: {partitions} partitions opened in {seconds:.2f} s")
        yield Result("model.partitions", seconds, "seconds", "one producer and one consumer opened", ceiling=10)


BENCHES: Final[Benches] = {
    "chunks": _bench_chunks,
    "policies": _bench_policies,
    "dedup": _bench_dedup,
    "partitions": _bench_partitions,
}
