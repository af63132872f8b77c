"""Message listeners that are called with several messages at a time: those of one key in order.

The consumers are Shared, and are taken for Key_Shared ones, whose listeners are called so: what a client does with keys
does not depend on the broker.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from magnetar import ConsumerType, Message
from tests.running import GENEROUS_S, until
from tests.unit.client.consume_scene import MemoryBroker, client_of, core_of
from tests.unit.client.sync_consume_scene import EARLIEST, sync_consume_scene, wait_until

KEYS = [f"k{number}" for number in range(6)]


@pytest.fixture(autouse=True)
def _all_are_key_shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in ("magnetar._listeners.message_listener", "magnetar._listeners.thread_listener"):
        monkeypatch.setattr(f"{module}.is_key_shared", lambda core: True)
    return iter(())


def publish(broker: MemoryBroker, count: int) -> None:
    """Store an entry for each number, with its key; for every third one, as the ordering key."""
    for number in range(count):
        key = KEYS[number % len(KEYS)]
        columns: dict[str, Any] = {"keys": [key]}
        if number % 3 == 0:
            columns = {"keys": [f"not {number}"], "ordering_keys": [key.encode()]}
        broker.topic("t").publish(b"%d" % number, batch=True, **columns)


def key_of(message: Message) -> str:
    return message.ordering_key() or message.partition_key()


class Calls:
    """Checks that no two calls have the same key at a time, and in which order they came."""

    def __init__(self) -> None:
        self.by_key: dict[str, list[int]] = {key: [] for key in KEYS}
        self.threads: dict[str, set[str]] = {key: set() for key in KEYS}
        self.running: list[str] = []
        self.most = 0

    @property
    def count(self) -> int:
        return sum(map(len, self.by_key.values()))

    def begin(self, message: Message) -> None:
        key = key_of(message)
        assert key not in self.running
        self.running.append(key)
        self.most = max(self.most, len(self.running))
        self.by_key[key].append(int(message.data()))
        self.threads[key].add(threading.current_thread().name)

    def end(self, message: Message) -> None:
        self.running.remove(key_of(message))

    def check_order(self, count: int) -> None:
        assert self.by_key == {key: list(range(at, count, len(KEYS))) for at, key in enumerate(KEYS)}


@pytest.mark.parametrize("whose", ["client", "application"])
def test_messages_of_a_key_are_in_order_and_those_of_other_keys_at_the_same_time(whose: str) -> None:
    """CON-2: the keys are distributed among the client's threads, as in Java's client; or among the application's."""
    own = ThreadPoolExecutor(3) if whose == "application" else None
    with sync_consume_scene(message_listener_threads=3) as on:
        calls, both = Calls(), threading.Barrier(2)

        def listen(consumer: Any, message: Message) -> None:
            calls.begin(message)
            if message.data() in (b"0", other):
                both.wait(GENEROUS_S)
            calls.end(message)

        # Of another thread than the first message.
        other = b"1" if own else b"%d" % next(at for at in range(6) if _lane(at) != _lane(0))
        on.on_loop(lambda broker: publish(broker, 60))
        on.client.subscribe(
            "t",
            "s",
            ConsumerType.Shared,
            message_listener=listen,
            message_listener_executor=own,
            receiver_queue_size=8,
            **EARLIEST,
        )
        wait_until(lambda: calls.count == 60, "all are listened to")
        calls.check_order(60)
        assert calls.most >= 2
        if own is None:
            assert {len(names) for names in calls.threads.values()} == {1}
    if own is not None:
        own.shutdown()


def _lane(number: int) -> int:
    import zlib

    return zlib.crc32(KEYS[number].encode()) % 3


@pytest.mark.parametrize("whose", ["client", "application"])
def test_what_waits_for_its_turn_is_bounded_and_dropped_if_it_is_redelivered(whose: str) -> None:
    """CON-2: so the listener is not called twice with what it has not got yet, and with nothing in a pause."""
    own = ThreadPoolExecutor(1) if whose == "application" else None
    with sync_consume_scene(message_listener_threads=2) as on:
        calls, (going, held, ended) = list[int](), (threading.Event() for _ in range(3))

        def listen(consumer: Any, message: Message) -> None:
            calls.append(int(message.data()))
            held.set()
            going.wait(GENEROUS_S)
            ended.set()

        on.on_loop(lambda broker: [broker.topic("t").publish(b"%d" % at, keys=["k"]) for at in range(20)])
        consumer = on.client.subscribe(
            "t",
            "s",
            ConsumerType.Shared,
            message_listener=listen,
            message_listener_executor=own,
            receiver_queue_size=4,
            **EARLIEST,
        )
        assert held.wait(GENEROUS_S)
        queue, part = core_of(consumer).queue, core_of(consumer).partitions[0]
        before = part.connection
        wait_until(lambda: len(queue) >= 3, "the queue is full, and so are the lanes")
        consumer.pause_message_listener()
        on.run(on.broker.unload("t"))
        wait_until(lambda: part.connection not in (None, before) and len(queue) >= 3, "it is reopened")
        going.set()
        assert ended.wait(GENEROUS_S)
        assert calls == [0]
        consumer.resume_message_listener()
        wait_until(lambda: len(calls) >= 21, "all are listened to")
        assert calls == [0, *range(20)]
    if own is not None:
        own.shutdown()


@pytest.mark.parametrize("whose", ["client", "application"])
def test_what_waits_for_its_turn_is_dropped_when_everything_is_to_be_redelivered(whose: str) -> None:
    """CON-2, SUB-6: from the request on, so the messages of a key stay in order. The listener makes it, as it could not
    process one of them."""
    own = ThreadPoolExecutor(2) if whose == "application" else None
    with sync_consume_scene(message_listener_threads=2) as on:
        calls, processed = list[int](), list[int]()

        def listen(consumer: Any, message: Message) -> None:
            calls.append(number := int(message.data()))
            if number == 3 and calls.count(3) == 1:
                consumer.redeliver_unacknowledged_messages()
                return
            processed.append(number)
            consumer.acknowledge(message)

        on.on_loop(lambda broker: [broker.topic("t").publish(b"%d" % at, keys=["k"]) for at in range(20)])
        on.client.subscribe(
            "t",
            "s",
            ConsumerType.KeyShared,
            message_listener=listen,
            message_listener_executor=own,
            **EARLIEST,
        )
        wait_until(lambda: len(set(processed)) == 20, "all are processed")
        assert processed == list(range(20))
    if own is not None:
        own.shutdown()


async def test_an_asyncio_listener_is_called_in_as_many_tasks() -> None:
    """CON-2"""
    async with client_of(message_listener_threads=3) as (broker, client):
        calls, both = Calls(), asyncio.Barrier(2)
        other = b"%d" % next(at for at in range(6) if _lane(at) != _lane(0))

        async def listen(consumer: Any, message: Message) -> None:
            calls.begin(message)
            if message.data() in (b"0", other):
                await both.wait()
            await asyncio.sleep(0)
            calls.end(message)

        publish(broker, 60)
        consumer = await client.subscribe("t", "s", ConsumerType.Shared, message_listener=listen, **EARLIEST)
        await until(lambda: calls.count == 60, "all are listened to")
        calls.check_order(60)
        assert 2 <= calls.most <= 3
        await consumer.close()


async def test_what_waits_for_an_asyncio_listener_is_bounded_and_dropped_if_it_is_redelivered() -> None:
    """CON-2"""
    async with client_of(message_listener_threads=2) as (broker, client):
        calls, going = list[int](), asyncio.Event()

        async def listen(consumer: Any, message: Message) -> None:
            calls.append(int(message.data()))
            await going.wait()

        for at in range(20):
            broker.topic("t").publish(b"%d" % at, keys=["k"])
        consumer = await client.subscribe(
            "t", "s", ConsumerType.Shared, message_listener=listen, receiver_queue_size=4, **EARLIEST
        )
        queue, part = core_of(consumer).queue, core_of(consumer).partitions[0]
        before = part.connection
        await until(lambda: len(calls) == 1 and len(queue) >= 3, "the queue is full, and so are the lanes")
        await broker.unload("t")
        await until(lambda: part.connection not in (None, before) and len(queue) >= 3, "it is reopened")
        going.set()
        await until(lambda: len(calls) >= 21, "all are listened to")
        assert calls == [0, *range(20)]
