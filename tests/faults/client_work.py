"""What clients do that are tortured: producers and consumers of each kind, which write down what they are told.

Acknowledgements are asked to have receipts, and consumers are closed and subscribed anew now and then. Whatever the SDK
raises is written down, and done again. A process of such clients is a `Work` and some threads, each of which runs one
of these functions until it is told to stop (producers) or to quit (consumers).
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import magnetar
from magnetar import aio
from tests.faults.standalone_history import Histories, id_of, ids, message, read_message

__all__ = [
    "PARTITIONED",
    "PLAIN",
    "SHARED",
    "Work",
    "consume_cumulatively",
    "consume_shared",
    "consume_shared_async",
    "options",
    "produce",
    "produce_async",
    "read_all",
]

T = TypeVar("T")

PLAIN, SHARED, PARTITIONED = "t0", "t1", "t2"
_RENEW_S: Final = 4.0
_IDLE_MS: Final = 200
# A receipt is written down at once where none came for so long, else with those that come behind it.
_TELL_S: Final = 0.05
_AGAIN_S: Final = 0.1


class Work:
    """What all workers of a process share."""

    # Between two bursts of a producer, at most.
    pause_s = 0.05

    def __init__(self, url: str, folder: Path, seed: str, listener_name: str | None = None) -> None:
        self.url = url
        self.listener_name = listener_name
        self.seed = seed
        self.histories = Histories(folder)
        self.stopping = threading.Event()
        self.quitting = threading.Event()
        self.client = magnetar.Client(url, listener_name=listener_name)

    def producers(self, more: int) -> None:
        """So many more have begun, or fewer."""

    def was_sent(self, topic: str, producer: str, numbers: Sequence[int]) -> None:
        """They have a receipt."""

    def was_seen(self, subscription: str, found: Sequence[tuple[str, int]]) -> None:
        """A consumer of the subscription has got them: producer and number."""


class ProducerLog:
    """One producer's history. Receipts come on any thread."""

    def __init__(self, work: Work, topic: str, name: str) -> None:
        self.work, self.topic, self.name = work, topic, f"{topic}.{name}"
        self.history = work.histories.of(f"producer-{self.name}")
        self.chance = random.Random(f"{work.seed} {self.name}")
        self.next = 0
        self._lock = threading.Lock()
        # By partition.
        self._receipted: dict[int, list[int]] = {}
        self._told = 0.0
        work.producers(1)

    def ended(self) -> None:
        self.tell()
        self.work.producers(-1)

    def burst(self, most: int) -> list[tuple[int, bytes]]:
        """Messages that may be sent from now on."""
        self.tell()
        numbers = range(self.next, self.next + 1 + self.chance.randrange(most))
        self.next = numbers.stop
        self.history.say("will", producer=self.name, to=numbers.stop - 1)
        return [(number, message(self.name, number, self.chance.randrange(300))) for number in numbers]

    def receipt(self, number: int, message_id: magnetar.MessageId) -> None:
        with self._lock:
            self._receipted.setdefault(message_id.partition(), []).append(number)
        if time.monotonic() > self._told + _TELL_S:
            self.tell()

    def failed(self, number: int, why: object) -> None:
        self.history.say("failed", producer=self.name, number=number, why=str(why))

    def troubled(self, error: Exception) -> None:
        self.history.say("error", producer=self.name, why=f"{type(error).__name__}: {error}")

    def callback(self, number: int) -> Callable[[Any, Any], None]:
        def called(result: Any, message_id: Any) -> None:
            if result == magnetar.Result.Ok:
                self.receipt(number, message_id)
            else:
                self.failed(number, result)

        return called

    def tell(self) -> None:
        """Writes down the receipts that have come."""
        with self._lock:
            receipted, self._receipted = self._receipted, {}
        self._told = time.monotonic()
        for partition, numbers in receipted.items():
            self.history.say("ok", producer=self.name, numbers=numbers, partition=partition)
            self.work.was_sent(self.topic, self.name, numbers)


def patiently(work: Work, troubled: Callable[[Exception], None], make: Callable[[], T]) -> T | None:
    """What `make` makes, however often it fails before. None: it is time to quit."""
    while not work.quitting.is_set():
        try:
            return make()
        except magnetar.MagnetarException as error:
            troubled(error)
            work.quitting.wait(_AGAIN_S)
    return None


async def patiently_async(
    work: Work, troubled: Callable[[Exception], None], make: Callable[[], Awaitable[T]]
) -> T | None:
    while not work.quitting.is_set():
        try:
            return await make()
        except magnetar.MagnetarException as error:
            troubled(error)
            await asyncio.sleep(_AGAIN_S)
    return None


def produce(work: Work, topic: str, name: str, *, batching: bool, keys: int = 0, send_timeout_millis: int = 0) -> None:
    log = ProducerLog(work, topic, name)

    def make() -> magnetar.Producer:
        return work.client.create_producer(
            topic,
            producer_name=log.name,
            batching_enabled=batching,
            send_timeout_millis=send_timeout_millis,
            block_if_queue_full=True,
        )

    producer = patiently(work, log.troubled, make)
    while producer is not None and not work.stopping.is_set():
        for number, payload in log.burst(60 if batching else 4):
            key = str(number % keys) if keys else None
            producer.send_async(payload, log.callback(number), partition_key=key)
        if not log.chance.randrange(8):
            flush(log, producer)
        work.stopping.wait(log.chance.random() * work.pause_s)
    if producer is not None:
        flush(log, producer)
    log.ended()
    if producer is not None:
        producer.close()


def flush(log: ProducerLog, producer: magnetar.Producer) -> None:
    try:
        producer.flush()
    except magnetar.exceptions.Timeout as error:  # those of which it is are told of by themselves
        log.troubled(error)


async def produce_async(work: Work, client: aio.Client, topic: str, name: str) -> None:
    log = ProducerLog(work, topic, name)
    producer = await patiently_async(
        work,
        log.troubled,
        lambda: client.create_producer(topic, producer_name=log.name, send_timeout_millis=0),
    )
    while producer is not None and not work.stopping.is_set():
        burst = log.burst(40)
        results = await asyncio.gather(*(producer.send(payload) for _, payload in burst), return_exceptions=True)
        for (number, _), result in zip(burst, results, strict=True):
            if isinstance(result, BaseException):
                log.failed(number, result)
            else:
                log.receipt(number, result)
        log.tell()
        await asyncio.sleep(log.chance.random() * work.pause_s)
    log.ended()
    if producer is not None:
        await producer.close()


class ConsumerLog:
    """One subscription's reading by one worker."""

    def __init__(self, work: Work, topic: str, subscription: str, worker: str = "") -> None:
        self.work, self.topic, self.subscription = work, topic, f"{topic}.{subscription}"
        self.history = work.histories.of(f"consumer-{self.subscription}{worker}")
        self.chance = random.Random(f"{work.seed} {self.subscription} {worker}")
        self._worker = worker
        self._life = 0
        self.name = ""
        self._until = 0.0
        # It was opened when producers had been told to stop.
        self._last = False

    def opened(self) -> None:
        """Said before it is subscribed: what had a receipt by then must not come to it."""
        self._life += 1
        self.name = f"{self.subscription}#{self._worker}{self._life}"
        self._until = time.monotonic() + _RENEW_S * (0.5 + self.chance.random())
        self._last = self.work.stopping.is_set()
        self.history.say("opened", consumer=self.name)

    def got(self, messages: Sequence[Any]) -> None:
        items = [(*read_message(one.data()), id_of(one.message_id())) for one in messages]
        self.history.say("got", consumer=self.name, items=items)
        self.work.was_seen(self.subscription, [(producer, number) for producer, number, _ in items])

    def done(self, messages: Sequence[Any]) -> None:
        self.history.say("done", consumer=self.name, ids=ids(messages))

    def done_up_to(self, last: Any) -> None:
        self.history.say("done_up_to", consumer=self.name, id=id_of(last.message_id()))

    def failed(self, error: Exception) -> None:
        self.history.say("error", consumer=self.name, why=f"{type(error).__name__}: {error}")

    @property
    def goes_on(self) -> bool:
        """When producers stop, what it holds and has not acknowledged is to come again: to its next life, which
        stays."""
        if self._last:
            return not self.work.quitting.is_set()
        return not self.work.stopping.is_set() and time.monotonic() < self._until

    def chosen(self, messages: Sequence[Any]) -> list[Any]:
        """Those that are acknowledged: all, when it draws to the end."""
        return [one for one in messages if self._last or self.chance.random() < 0.8]


def options(kind: magnetar.ConsumerType) -> dict[str, Any]:
    return {
        "consumer_type": kind,
        "initial_position": magnetar.InitialPosition.Earliest,
        "negative_ack_redelivery_delay_ms": 300,
        "receiver_queue_size": 200,
    }


def consume_cumulatively(
    work: Work, topic: str, subscription: str, kind: magnetar.ConsumerType, worker: str = "", most: int = 40
) -> None:
    """Acknowledges after `most` messages at the latest."""
    log = ConsumerLog(work, topic, subscription, worker)
    while not work.quitting.is_set():
        log.opened()
        try:
            with work.client.subscribe(topic, subscription, **options(kind)) as consumer:
                while log.goes_on:
                    found = received(consumer, 1 + log.chance.randrange(most))
                    if found:
                        log.got(found)
                    # The last one of each partition.
                    for last in {one.message_id().partition(): one for one in found}.values():
                        consumer.acknowledge_cumulative(last, receipt=True)
                        log.done_up_to(last)
        except magnetar.MagnetarException as error:
            log.failed(error)
            work.quitting.wait(0.1)


def received(consumer: Any, most: int) -> list[Any]:
    found: list[Any] = []
    try:
        while len(found) < most:
            found.append(consumer.receive(_IDLE_MS))
    except magnetar.exceptions.Timeout:
        pass
    return found


def consume_shared(work: Work, topic: str, subscription: str, worker: str = "sync-") -> None:
    log = ConsumerLog(work, topic, subscription, worker)
    while not work.quitting.is_set():
        log.opened()
        try:
            with work.client.subscribe(topic, subscription, **options(magnetar.ConsumerType.Shared)) as consumer:
                while log.goes_on:
                    acknowledge_some(log, consumer, received(consumer, 1 + log.chance.randrange(30)))
        except magnetar.MagnetarException as error:
            log.failed(error)
            work.quitting.wait(0.1)


def acknowledge_some(log: ConsumerLog, consumer: magnetar.Consumer, found: Sequence[Any]) -> None:
    if not found:
        return
    log.got(found)
    chosen = log.chosen(found)
    if chosen:
        consumer.acknowledge(chosen, receipt=True)
        log.done(chosen)
    for one in found:
        if one not in chosen and log.chance.random() < 0.5:
            consumer.negative_acknowledge(one)


async def consume_shared_async(
    work: Work, client: aio.Client, topic: str, subscription: str, worker: str = "aio-"
) -> None:
    log = ConsumerLog(work, topic, subscription, worker)
    while not work.quitting.is_set():
        log.opened()
        try:
            shared = options(magnetar.ConsumerType.Shared)
            async with await client.subscribe(topic, subscription, **shared) as consumer:
                while log.goes_on:
                    try:
                        one = await consumer.receive(_IDLE_MS)
                    except magnetar.exceptions.Timeout:
                        continue
                    log.got([one])
                    if log.chosen([one]):
                        await consumer.acknowledge(one, receipt=True)
                        log.done([one])
        except magnetar.MagnetarException as error:
            log.failed(error)
            await asyncio.sleep(0.1)


def read_all(work: Work, topic: str, worker: str = "") -> None:
    """A reader, from the first message to the last, over all that befalls the server."""
    log = ConsumerLog(work, topic, "reader", worker)
    log.opened()
    reader = patiently(work, log.failed, lambda: work.client.create_reader(topic, magnetar.MessageId.earliest))
    while reader is not None and not work.quitting.is_set():
        try:
            log.got([reader.read_next(_IDLE_MS)])
        except magnetar.exceptions.Timeout:
            continue
    if reader is not None:
        reader.close()
