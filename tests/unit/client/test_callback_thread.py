"""Callbacks, routers and listeners of the application may raise errors, block, and call the client."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import magnetar
from magnetar import ConsumerType, Message, MessageId, PartitionsRoutingMode, Result
from magnetar.exceptions import AlreadyClosed
from tests.running import GENEROUS_S
from tests.unit.client.scene import sync_scene
from tests.unit.client.sync_consume_scene import EARLIEST, LONG_MS, sync_consume_scene, wait_until


def in_time(work: Callable[[], object], what: str) -> None:
    """Run this on a thread of its own, so that a deadlock fails the test and does not hang it."""
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (raised below)
            failed.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    thread.join(GENEROUS_S)
    assert not thread.is_alive(), f"a deadlock: {what}"
    if failed:
        raise failed[0]


def test_a_callback_that_raises_is_logged_and_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    with sync_scene() as made, made.client() as client:
        producer = client.create_producer("t")
        results: list[Result] = []

        def raises(result: Result, message_id: MessageId | None) -> None:
            results.append(result)
            raise ValueError("a bug in the application")

        def ends(result: Result, message_id: MessageId | None) -> None:
            results.append(result)
            raise SystemExit(3)

        with caplog.at_level(logging.ERROR, "magnetar"):
            for callback in (raises, ends, raises, lambda result, _: results.append(result)):
                producer.send_async(b"x", callback)
            producer.flush()
        assert results == [Result.Ok] * 4
        assert len([one for one in caplog.records if "callback" in one.getMessage()]) == 3
        producer.send(b"it goes on")


@pytest.mark.parametrize(
    "what", ["send", "send when full", "flush", "create", "close producer", "close client", "shutdown client"]
)
def test_a_callback_may_make_any_blocking_call(what: str) -> None:
    """No call waits for the thread on which it is made, or raises an error."""
    with sync_scene() as made:
        client = made.client()
        producer = client.create_producer("t", max_pending_messages=2, block_if_queue_full=True)
        done = threading.Event()
        failed: list[BaseException] = []
        calls: dict[str, Callable[[], Any]] = {
            "send": lambda: producer.send(b"from a callback"),
            "send when full": lambda: [producer.send_async(b"%d" % number) for number in range(20)],  # type: ignore[func-returns-value]
            "flush": producer.flush,
            "create": lambda: client.create_producer("u").send(b"x"),
            "close producer": producer.close,
            "close client": client.close,
            "shutdown client": client.shutdown,
        }

        def callback(result: Result, message_id: MessageId | None) -> None:
            try:
                calls[what]()
            except BaseException as error:  # noqa: BLE001 (raised below)
                failed.append(error)
            done.set()

        producer.send_async(b"first", callback)
        in_time(lambda: done.wait(GENEROUS_S), what)
        assert done.is_set()
        assert not failed
        in_time(client.close, "closing afterwards")


def test_a_blocking_callback_delays_callbacks_and_senders_and_nothing_else() -> None:
    """Other producers of the client send and get receipts. Closing waits for the callback, because a client calls all
    callbacks before it is closed."""
    with sync_scene() as made:
        client = made.client()
        producer, other = client.create_producer("t", max_pending_messages=5), client.create_producer("u")
        going, held = threading.Event(), threading.Event()

        def blocks(result: Result, message_id: MessageId | None) -> None:
            held.set()
            going.wait()

        producer.send_async(b"x", blocks)
        assert held.wait(GENEROUS_S)
        in_time(lambda: other.send(b"y"), "another producer's send")
        in_time(lambda: producer.send(b"y"), "a send after the callback")
        closing = threading.Thread(target=client.close)
        closing.start()
        going.set()
        closing.join(GENEROUS_S)
        assert not closing.is_alive()


def test_a_router_that_raises_an_error_or_sends() -> None:
    with sync_scene() as made, made.client() as client:
        made.on_loop(lambda broker: broker.partitioned.update({"persistent://public/default/p": 3}))
        other = client.create_producer("routed")

        def route(message: Any, partitions: int) -> int:
            if message.data() == b"raise":
                raise ValueError("a bug in the application")
            other.send(b"from a router")
            return 2

        producer = client.create_producer(
            "p", message_routing_mode=PartitionsRoutingMode.CustomPartition, message_router=route
        )
        with pytest.raises(ValueError, match="in the application"):
            producer.send(b"raise")
        in_time(lambda: producer.send(b"x"), "a router that sends")
        assert made.on_loop(lambda broker: broker.topic("p-partition-2").payloads()) == [b"x"]
        assert made.on_loop(lambda broker: broker.topic("routed").payloads()) == [b"from a router"]


@pytest.mark.parametrize(
    "what", ["acknowledge", "receipt", "seek", "subscribe", "unsubscribe", "close", "close client", "redeliver"]
)
def test_a_listener_may_make_any_blocking_call(what: str) -> None:
    """CON-2"""
    with sync_consume_scene() as on:
        done = threading.Event()
        failed: list[BaseException] = []

        def call(consumer: magnetar.Consumer, message: Message) -> None:
            calls: dict[str, Callable[[], Any]] = {
                "acknowledge": lambda: consumer.acknowledge(message),
                "receipt": lambda: consumer.acknowledge(message, receipt=True),
                "seek": lambda: consumer.seek(MessageId.latest),
                "subscribe": lambda: on.client.subscribe("t", "another", **EARLIEST).receive(LONG_MS),
                "unsubscribe": consumer.unsubscribe,
                "close": consumer.close,
                "close client": on.client.close,
                "redeliver": consumer.redeliver_unacknowledged_messages,
            }
            calls[what]()

        def listen(consumer: magnetar.Consumer, message: Message) -> None:
            if done.is_set():
                return
            try:
                call(consumer, message)
            except BaseException as error:  # noqa: BLE001 (raised below)
                failed.append(error)
            done.set()

        on.client.subscribe("t", "s", message_listener=listen, **EARLIEST)
        on.publish(b"1")
        in_time(lambda: done.wait(GENEROUS_S), what)
        assert done.is_set()
        assert not failed


def test_a_blocking_listener_delays_nothing_else() -> None:
    """CON-2: the client's other consumers, and its producers' callbacks, go on."""
    with sync_consume_scene() as on:
        going, held = threading.Event(), threading.Event()

        def blocks(consumer: magnetar.Consumer, message: Message) -> None:
            held.set()
            going.wait()

        blocked = on.client.subscribe("t", "s", message_listener=blocks, **EARLIEST)
        other = on.client.subscribe("t", "other", ConsumerType.Shared, **EARLIEST)
        on.publish(b"1")
        assert held.wait(GENEROUS_S)
        message = other.receive(LONG_MS)
        in_time(lambda: other.acknowledge(message, receipt=True), "another consumer's receipt")
        going.set()
        in_time(blocked.close, "closing the consumer when its listener goes on")
        with pytest.raises(AlreadyClosed):
            blocked.acknowledge(message)


def test_an_event_listener_that_raises_an_error_or_calls_the_consumer(caplog: pytest.LogCaptureFixture) -> None:
    """SUB-3"""
    partitions: list[int] = []

    class Listener:
        def became_active(self, consumer: magnetar.Consumer, partition: int) -> None:
            partitions.append(partition)
            consumer.get_last_message_id()
            consumer.close()
            raise ValueError("a bug in the application")

        def became_inactive(self, consumer: magnetar.Consumer, partition: int) -> None: ...

    with sync_consume_scene() as on, caplog.at_level(logging.ERROR, "magnetar"):
        consumer = on.client.subscribe("t", "s", ConsumerType.Failover, consumer_event_listener=Listener())
        wait_until(lambda: bool(partitions) and not consumer.is_connected(), "it is called, and closes the consumer")
        deadline = time.monotonic() + GENEROUS_S
        while not any("consumer_event_listener" in one.getMessage() for one in caplog.records):
            assert time.monotonic() < deadline
            time.sleep(0.005)
