"""Publish, and consume on two types of subscription: Shared, which distributes messages among consumers, and Failover,
which delivers them in order to one consumer, with another one on standby."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import magnetar
from magnetar import ConsumerBatchReceivePolicy, ConsumerType, InitialPosition
from magnetar_cli.tour.readings import Reading, parse_number

__all__ = [
    "TOPIC",
    "ProgressCallback",
    "PublishTimes",
    "WrongResult",
    "check",
    "consume_failover",
    "consume_shared",
    "publish",
]

TOPIC: Final = "readings"
# Messages that are published one by one, each persisted before the next.
_ONE_BY_ONE: Final = 200
_PROGRESS_INTERVAL: Final = 1000
_TIMEOUT_S: Final = 30.0

# Called with the number of messages so far.
ProgressCallback = Callable[[int], None]


class WrongResult(Exception):
    """A result differs from the expected one."""


def check(is_right: bool, problem: str) -> None:
    if not is_right:
        raise WrongResult(problem)


@dataclass(frozen=True, slots=True)
class PublishTimes:
    # The time for all messages that are not published one by one.
    seconds: float
    # The median time of a message that is published alone.
    median_ms: float


def publish(client: magnetar.Client, readings: list[Reading], on_progress: ProgressCallback) -> PublishTimes:
    """Publish all readings, and return when all are persisted."""
    with client.create_producer(TOPIC, block_if_queue_full=True) as producer:
        waits = []
        for reading in readings[:_ONE_BY_ONE]:
            sent = time.perf_counter()
            producer.send(reading.value, partition_key=reading.room, event_timestamp=reading.time_ms)
            waits.append(time.perf_counter() - sent)
        started = time.perf_counter()
        for reading in readings[_ONE_BY_ONE:]:
            producer.send_async(reading.value, partition_key=reading.room, event_timestamp=reading.time_ms)
            if reading.number % _PROGRESS_INTERVAL == 0:
                on_progress(reading.number)
        producer.flush()
        return PublishTimes(time.perf_counter() - started, statistics.median(waits) * 1000)


def consume_shared(
    client: magnetar.Client, subscription: str, names: list[str], total: int, on_progress: ProgressCallback
) -> list[int]:
    """Consume with all consumers at once. Return how many messages each has received; none was received twice."""
    received = _ReceivedNumbers(total, on_progress)
    consumers = [_subscribe(client, subscription, ConsumerType.Shared, name) for name in names]
    counts = [0] * len(consumers)

    def consume(at: int) -> None:
        while not received.has_ended:
            messages = consumers[at].batch_receive()
            for message in messages:
                received.add(parse_number(message.data()))
            counts[at] += len(messages)
            if messages:
                consumers[at].acknowledge(messages)

    threads = [threading.Thread(target=received.run, args=(consume, at)) for at in range(len(consumers))]
    for thread in threads:
        thread.start()
    received.wait()
    for thread in threads:
        thread.join()
    received.check_complete()
    for consumer in consumers:
        consumer.close()
    return counts


def consume_failover(
    client: magnetar.Client, subscription: str, names: list[str], total: int, on_progress: ProgressCallback
) -> list[int]:
    """Consume half of the messages with the first consumer, close it, and the others with the second one. Return how
    many each has received, all in order and none twice."""
    first, second = (_subscribe(client, subscription, ConsumerType.Failover, name) for name in names)
    last, counts = -1, []
    for consumer, until in ((first, total // 2), (second, total)):
        before, deadline = last, time.monotonic() + _TIMEOUT_S
        while last < until - 1:
            check(time.monotonic() < deadline, f"{until} messages should be received, and {last + 1} were")
            messages = consumer.batch_receive()
            for message in messages:
                number = parse_number(message.data())
                check(number == last + 1, f"number {number} was received after number {last}")
                last = number
            if messages:
                consumer.acknowledge(messages, receipt=True)
                on_progress(last + 1)
                deadline = time.monotonic() + _TIMEOUT_S
        counts.append(last - before)
        consumer.close()
    return counts


def _subscribe(client: magnetar.Client, subscription: str, kind: ConsumerType, name: str) -> magnetar.Consumer:
    return client.subscribe(
        TOPIC,
        subscription,
        consumer_type=kind,
        consumer_name=name,
        initial_position=InitialPosition.Earliest,
        batch_receive_policy=ConsumerBatchReceivePolicy(max_num_message=1000, timeout_ms=100),
    )


class _ReceivedNumbers:
    """The numbers of the messages that several threads have received, and the error of one of the threads."""

    def __init__(self, total: int, on_progress: ProgressCallback) -> None:
        self._lock = threading.Lock()
        self._numbers = bytearray(total)
        self._count = 0
        self._progressed_at = time.monotonic()
        self._on_progress = on_progress
        self._ended = threading.Event()
        self._error: BaseException | None = None

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def add(self, number: int) -> None:
        with self._lock:
            check(not self._numbers[number], f"number {number} was received twice")
            self._numbers[number] = 1
            self._count += 1
            self._progressed_at = time.monotonic()
            if self._count == len(self._numbers):
                self._ended.set()

    def run(self, work: Callable[[int], None], at: int) -> None:
        """Run a thread's work. Store its error, and end all threads then."""
        try:
            work(at)
        except BaseException as error:  # noqa: BLE001 (`check_complete` raises it)
            self._error = error
            self._ended.set()

    def wait(self) -> None:
        """Wait until all messages were received, a thread has failed, or none has arrived for some time. End the
        threads."""
        try:
            while not self._ended.wait(0.05) and time.monotonic() < self._progressed_at + _TIMEOUT_S:
                self._on_progress(self._count)
        finally:
            self._ended.set()

    def check_complete(self) -> None:
        if self._error is not None:
            raise self._error
        check(
            self._count == len(self._numbers), f"{len(self._numbers)} messages should be received; {self._count} were"
        )
