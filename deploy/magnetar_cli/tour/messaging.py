"""Publishing, and consuming on two types of subscription: Shared, which spreads the work, and Failover, which keeps the
order and has somebody ready."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import magnetar
from magnetar import ConsumerBatchReceivePolicy, ConsumerType, InitialPosition
from magnetar_cli.tour.readings import Reading, number_of

__all__ = ["TOPIC", "Published", "Unexpected", "consume_failover", "consume_shared", "must", "publish"]

TOPIC: Final = "readings"
# Published one by one, each durable before the next.
_ONE_BY_ONE: Final = 200
_TOLD_EVERY: Final = 1000
_SILENCE_S: Final = 30.0

Tell = Callable[[int], None]


class Unexpected(Exception):
    """Something else came out than must."""


def must(fact: bool, otherwise: str) -> None:
    if not fact:
        raise Unexpected(otherwise)


@dataclass(frozen=True, slots=True)
class Published:
    seconds: float
    # Of one message that is waited for.
    median_ms: float


def publish(client: magnetar.Client, readings: list[Reading], tell: Tell) -> Published:
    """All of them; returns when all are durable."""
    with client.create_producer(TOPIC, block_if_queue_full=True) as producer:
        waits = []
        for reading in readings[:_ONE_BY_ONE]:
            sent = time.perf_counter()
            producer.send(reading.value, partition_key=reading.room, event_timestamp=reading.time_ms)
            waits.append(time.perf_counter() - sent)
        started = time.perf_counter()
        for reading in readings[_ONE_BY_ONE:]:
            producer.send_async(reading.value, partition_key=reading.room, event_timestamp=reading.time_ms)
            if reading.number % _TOLD_EVERY == 0:
                tell(reading.number)
        producer.flush()
        return Published(time.perf_counter() - started, statistics.median(waits) * 1000)


def consume_shared(client: magnetar.Client, subscription: str, names: list[str], total: int, tell: Tell) -> list[int]:
    """How many each of the consumers got: each message one of them, and none two."""
    seen = _Seen(total, tell)
    consumers = [_subscribe(client, subscription, ConsumerType.Shared, name) for name in names]
    got = [0] * len(consumers)

    def work(at: int) -> None:
        while not seen.over:
            messages = consumers[at].batch_receive()
            for message in messages:
                seen.note(number_of(message.data()))
            got[at] += len(messages)
            if messages:
                consumers[at].acknowledge(messages)

    threads = [threading.Thread(target=seen.guarded, args=(work, at)) for at in range(len(consumers))]
    for thread in threads:
        thread.start()
    seen.wait()
    for thread in threads:
        thread.join()
    seen.must_be_whole()
    for consumer in consumers:
        consumer.close()
    return got


def consume_failover(client: magnetar.Client, subscription: str, names: list[str], total: int, tell: Tell) -> list[int]:
    """How many the first got, who left half-way, and how many the second, who took over: all in order, none twice."""
    first, second = (_subscribe(client, subscription, ConsumerType.Failover, name) for name in names)
    last, got = -1, []
    for consumer, until in ((first, total // 2), (second, total)):
        before, deadline = last, time.monotonic() + _SILENCE_S
        while last < until - 1:
            must(time.monotonic() < deadline, f"{until} messages should be received, and {last + 1} were")
            messages = consumer.batch_receive()
            for message in messages:
                number = number_of(message.data())
                must(number == last + 1, f"number {number} was received after number {last}")
                last = number
            if messages:
                consumer.acknowledge(messages, receipt=True)
                tell(last + 1)
                deadline = time.monotonic() + _SILENCE_S
        got.append(last - before)
        consumer.close()
    return got


def _subscribe(client: magnetar.Client, subscription: str, kind: ConsumerType, name: str) -> magnetar.Consumer:
    return client.subscribe(
        TOPIC,
        subscription,
        consumer_type=kind,
        consumer_name=name,
        initial_position=InitialPosition.Earliest,
        batch_receive_policy=ConsumerBatchReceivePolicy(max_num_message=1000, timeout_ms=100),
    )


class _Seen:
    """Which numbers several threads have seen, and what went wrong in one of them."""

    def __init__(self, total: int, tell: Tell) -> None:
        self._lock = threading.Lock()
        self._numbers = bytearray(total)
        self._count = 0
        self._moved = time.monotonic()
        self._tell = tell
        self._ended = threading.Event()
        self._error: BaseException | None = None

    @property
    def over(self) -> bool:
        return self._ended.is_set()

    def note(self, number: int) -> None:
        with self._lock:
            must(not self._numbers[number], f"number {number} was received twice")
            self._numbers[number] = 1
            self._count += 1
            self._moved = time.monotonic()
            if self._count == len(self._numbers):
                self._ended.set()

    def guarded(self, work: Callable[[int], None], at: int) -> None:
        try:
            work(at)
        except BaseException as error:  # noqa: BLE001 (whoever waits raises it)
            self._error = error
            self._ended.set()

    def wait(self) -> None:
        """Until all were seen, a thread has failed, or nothing comes any more. Always ends the threads."""
        try:
            while not self._ended.wait(0.05) and time.monotonic() < self._moved + _SILENCE_S:
                self._tell(self._count)
        finally:
            self._ended.set()

    def must_be_whole(self) -> None:
        if self._error is not None:
            raise self._error
        must(self._count == len(self._numbers), f"{len(self._numbers)} messages should be received; {self._count} were")
