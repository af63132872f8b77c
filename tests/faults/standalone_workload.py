"""Clients of a standalone, as a process of its own: `python -m tests.faults.standalone_workload URL FOLDER SEED`.

    t0   one producer that batches, one that sends message by message, one of asyncio's; read by an Exclusive consumer
         that acknowledges cumulatively, and by a reader
    t1   two producers; read by two Shared consumers, one of asyncio's, which acknowledge some messages of each batch
    t2   three partitions, messages with keys; read by a Failover consumer

Acknowledgements are asked to have receipts, and consumers are closed and subscribed anew now and then. On each topic a
subscription `keep` is made at the beginning, and read at the end: it sees all that there is. Everybody writes down what
happens (standalone_history.py). Told `stop` on standard input, producers end, and consumers go on until they have seen
all that had a receipt: then it says `drained`. Told `quit`, it ends.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import magnetar
from magnetar import aio
from tests.faults.standalone_history import Histories, id_of, ids, message, read_message

__all__ = ["PARTITIONED", "PLAIN", "SHARED"]

PLAIN, SHARED, PARTITIONED = "t0", "t1", "t2"
_RENEW_S: Final = 4.0
_IDLE_MS: Final = 200


class Work:
    """What all workers share."""

    def __init__(self, url: str, folder: Path, seed: str) -> None:
        self.url = url
        self.seed = seed
        self.histories = Histories(folder)
        self.stopping = threading.Event()
        self.quitting = threading.Event()
        self.client = magnetar.Client(url)
        # By subscription: what it has seen, and what had a receipt and it has not seen yet.
        self.seen: dict[str, set[tuple[str, int]]] = {}
        self._missing: dict[str, set[tuple[str, int]]] = {}
        # Producers that have not ended.
        self.producing = 0
        self._lock = threading.Lock()

    def producers(self, more: int) -> None:
        with self._lock:
            self.producing += more

    def subscribed(self, subscription: str) -> None:
        self.seen[subscription] = set()
        self._missing[subscription] = set()

    def was_sent(self, topic: str, producer: str, numbers: Sequence[int]) -> None:
        sent = [(producer, number) for number in numbers]
        with self._lock:
            for name, seen in self.seen.items():
                if name.partition(".")[0] == topic:
                    self._missing[name].update(one for one in sent if one not in seen)

    def was_seen(self, subscription: str, found: Sequence[tuple[str, int]]) -> None:
        with self._lock:
            self.seen[subscription].update(found)
            self._missing[subscription].difference_update(found)

    def missing(self) -> dict[str, int]:
        """Of each subscription: how much of what had a receipt it has not seen."""
        with self._lock:
            return {name: len(missing) for name, missing in self._missing.items()}


class ProducerLog:
    """One producer's history. Receipts come on any thread."""

    def __init__(self, work: Work, topic: str, name: str) -> None:
        self.work, self.topic, self.name = work, topic, f"{topic}.{name}"
        self.history = work.histories.of(f"producer-{self.name}")
        self.chance = random.Random(f"{work.seed} {self.name}")
        self.next = 0
        self._receipted: list[int] = []
        work.producers(1)

    def ended(self) -> None:
        self.told()
        self.work.producers(-1)

    def burst(self, most: int) -> list[tuple[int, bytes]]:
        """Messages that may be sent from now on."""
        self.told()
        numbers = range(self.next, self.next + 1 + self.chance.randrange(most))
        self.next = numbers.stop
        self.history.say("will", producer=self.name, to=numbers.stop - 1)
        return [(number, message(self.name, number, self.chance.randrange(300))) for number in numbers]

    def receipt(self, number: int, result: Any) -> None:
        if result == magnetar.Result.Ok:
            self._receipted.append(number)
        else:
            self.history.say("failed", producer=self.name, number=number, why=str(result))

    def callback(self, number: int) -> Callable[[Any, Any], None]:
        return lambda result, _: self.receipt(number, result)

    def told(self) -> None:
        """Writes down the receipts that have come."""
        numbers, self._receipted = self._receipted, []
        if numbers:
            self.history.say("ok", producer=self.name, numbers=numbers)
            self.work.was_sent(self.topic, self.name, numbers)


def produce(work: Work, topic: str, name: str, *, batching: bool, keys: int = 0) -> None:
    log = ProducerLog(work, topic, name)
    producer = work.client.create_producer(
        topic, producer_name=log.name, batching_enabled=batching, send_timeout_millis=0, block_if_queue_full=True
    )
    while not work.stopping.is_set():
        for number, payload in log.burst(60 if batching else 4):
            key = str(number % keys) if keys else None
            producer.send_async(payload, log.callback(number), partition_key=key)
        if not log.chance.randrange(8):
            producer.flush()
        work.stopping.wait(log.chance.random() * 0.05)
    producer.flush()
    log.ended()
    producer.close()


async def produce_async(work: Work, client: aio.Client, topic: str, name: str) -> None:
    log = ProducerLog(work, topic, name)
    producer = await client.create_producer(topic, producer_name=log.name, send_timeout_millis=0)
    while not work.stopping.is_set():
        burst = log.burst(40)
        results = await asyncio.gather(*(producer.send(payload) for _, payload in burst), return_exceptions=True)
        for (number, _), result in zip(burst, results, strict=True):
            log.receipt(number, result if isinstance(result, BaseException) else magnetar.Result.Ok)
        log.told()
        await asyncio.sleep(log.chance.random() * 0.05)
    log.ended()
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

    def opened(self) -> None:
        """Said before it is subscribed: what had a receipt by then must not come to it."""
        self._life += 1
        self.name = f"{self.subscription}#{self._worker}{self._life}"
        self._until = time.monotonic() + _RENEW_S * (0.5 + self.chance.random())
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
        return not self.work.quitting.is_set() and (self.work.stopping.is_set() or time.monotonic() < self._until)

    def chosen(self, messages: Sequence[Any]) -> list[Any]:
        """Those that are acknowledged: all, when it draws to the end."""
        return [one for one in messages if self.work.stopping.is_set() or self.chance.random() < 0.8]


def options(kind: magnetar.ConsumerType) -> dict[str, Any]:
    return {
        "consumer_type": kind,
        "initial_position": magnetar.InitialPosition.Earliest,
        "negative_ack_redelivery_delay_ms": 300,
        "receiver_queue_size": 200,
    }


def consume_cumulatively(work: Work, topic: str, subscription: str, kind: magnetar.ConsumerType) -> None:
    log = ConsumerLog(work, topic, subscription)
    while not work.quitting.is_set():
        log.opened()
        try:
            with work.client.subscribe(topic, subscription, **options(kind)) as consumer:
                while log.goes_on:
                    found = received(consumer, 1 + log.chance.randrange(40))
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


def consume_shared(work: Work, topic: str, subscription: str) -> None:
    log = ConsumerLog(work, topic, subscription, "sync-")
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


async def consume_shared_async(work: Work, client: aio.Client, topic: str, subscription: str) -> None:
    log = ConsumerLog(work, topic, subscription, "aio-")
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


def read_all(work: Work, topic: str) -> None:
    """A reader, from the first message to the last, over all that befalls the server."""
    log = ConsumerLog(work, topic, "reader")
    log.opened()
    reader = work.client.create_reader(topic, magnetar.MessageId.earliest)
    while not work.quitting.is_set():
        try:
            log.got([reader.read_next(_IDLE_MS)])
        except magnetar.exceptions.Timeout:
            continue
    reader.close()


def read_kept(work: Work, topic: str) -> None:
    """What the subscription has that nobody has read so far. Until then nothing is trimmed, and all others may read."""
    work.stopping.wait()
    while work.producing or any(count for name, count in work.missing().items() if not name.endswith(".keep")):
        work.quitting.wait(0.1)
    consume_cumulatively(work, topic, "keep", magnetar.ConsumerType.Exclusive)


async def asynchronous(work: Work) -> None:
    client = aio.Client(work.url)
    await asyncio.gather(
        produce_async(work, client, PLAIN, "aio"),
        produce_async(work, client, SHARED, "aio"),
        produce_async(work, client, PARTITIONED, "aio"),
        consume_shared_async(work, client, SHARED, "shared"),
    )
    await client.close()


def workers(work: Work) -> list[Callable[[], object]]:
    failover, exclusive = magnetar.ConsumerType.Failover, magnetar.ConsumerType.Exclusive
    return [
        lambda: produce(work, PLAIN, "batched", batching=True),
        lambda: produce(work, PLAIN, "single", batching=False),
        lambda: produce(work, SHARED, "batched", batching=True),
        lambda: produce(work, PARTITIONED, "keyed", batching=True, keys=11),
        lambda: consume_cumulatively(work, PLAIN, "cumulative", exclusive),
        lambda: consume_cumulatively(work, PARTITIONED, "failover", failover),
        lambda: consume_shared(work, SHARED, "shared"),
        lambda: read_all(work, PLAIN),
        *(lambda topic=topic: read_kept(work, topic) for topic in (PLAIN, SHARED, PARTITIONED)),
        lambda: asyncio.run(asynchronous(work)),
    ]


def main(url: str, folder: str, seed: str) -> None:
    work = Work(url, Path(folder), seed)
    subscriptions = {PLAIN: ("keep", "cumulative"), SHARED: ("keep", "shared"), PARTITIONED: ("keep", "failover")}
    for topic, names in subscriptions.items():
        for name in names:
            kind = magnetar.ConsumerType.Shared if name == "shared" else magnetar.ConsumerType.Exclusive
            work.client.subscribe(topic, name, **options(kind)).close()
            work.subscribed(f"{topic}.{name}")
    work.subscribed(f"{PLAIN}.reader")
    broken: list[BaseException] = []

    def guarded(worker: Callable[[], object]) -> None:
        try:
            worker()
        except BaseException as error:  # whatever it is, the rig is told
            broken.append(error)
            raise

    threads = [threading.Thread(target=guarded, args=(worker,), daemon=True) for worker in workers(work)]
    for thread in threads:
        thread.start()
    _say("begun")
    sys.stdin.readline()
    work.stopping.set()
    told = 0.0
    while not broken and (work.producing or any(work.missing().values())):
        if time.monotonic() > told + 5:
            told = time.monotonic()
            sys.stderr.write(f"missing {work.missing()}" + "\n")
        time.sleep(0.1)
    _say(f"broken {broken}" if broken else "drained")
    sys.stdin.readline()
    work.quitting.set()
    for thread in threads:
        thread.join()
    work.client.close()
    work.histories.close()
    _say("ended")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
