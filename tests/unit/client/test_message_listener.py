"""Message listeners and consumer event listeners."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import magnetar
from magnetar import ConsumerType, Message, MessageId
from magnetar.exceptions import InvalidConfiguration
from tests.running import GENEROUS_S, until
from tests.unit.client.consume_scene import client_of, core_of
from tests.unit.client.sync_consume_scene import EARLIEST, sync_consume_scene, wait_until


class RecordingListener:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.threads: set[str] = set()

    def became_active(self, consumer: Any, partition: int) -> None:
        self._note("active", consumer, partition)

    def became_inactive(self, consumer: Any, partition: int) -> None:
        self._note("inactive", consumer, partition)

    def _note(self, what: str, consumer: Any, partition: int) -> None:
        assert consumer.subscription_name() == "s"
        self.threads.add(threading.current_thread().name)
        self.calls.append((what, partition))
        raise RuntimeError("which is logged")


def test_a_listener_gets_each_message_in_order_on_one_thread_and_one_that_fails_is_not_acknowledged() -> None:
    """CON-2: a listener, on a thread for the application's code."""
    with sync_consume_scene() as on:
        got: list[bytes] = []
        threads: set[str] = set()

        def listen(consumer: magnetar.Consumer, message: Message) -> None:
            threads.add(threading.current_thread().name)
            got.append(message.data())
            if message.data() == b"3":
                raise ValueError("the application's own")
            consumer.acknowledge(message, receipt=message.data() == b"4")  # waits for the loop: it is not on it

        consumer = on.client.subscribe("t", "s", message_listener=listen, **EARLIEST)
        with pytest.raises(InvalidConfiguration):
            consumer.receive()
        with pytest.raises(InvalidConfiguration):
            consumer.batch_receive()
        on.publish_each(50)
        wait_until(lambda: len(got) == 50, "all are listened to")
        assert got == [b"%d" % number for number in range(50)]
        consumer.pause_message_listener()
        on.publish(b"later")
        wait_until(lambda: len(core_of(consumer).queue), "it is prefetched")
        assert len(got) == 50
        consumer.resume_message_listener()
        wait_until(lambda: len(got) == 51, "the last one, too")
        consumer.close()
        topic = on.broker.topic("t")
        assert topic.cursors.cursors["s"].acknowledged_entries == {topic.log.order[at] for at in range(51) if at != 3}
        assert threads == {"magnetar listener 0"}


def test_consumers_are_distributed_among_the_listener_threads_of_the_client() -> None:
    """CON-2: `message_listener_threads`, as in Pulsar's clients; each consumer has one of them."""
    with sync_consume_scene(message_listener_threads=2) as on:
        threads: dict[str, set[str]] = {name: set() for name in "abc"}

        def listen(consumer: magnetar.Consumer, message: Message) -> None:
            threads[consumer.subscription_name()].add(threading.current_thread().name)

        consumers = [on.client.subscribe("t", name, message_listener=listen, **EARLIEST) for name in "ab"]
        on.publish_each(20)
        wait_until(lambda: all(threads[name] for name in "ab"), "both are called")
        consumers[0].close()
        on.client.subscribe("t", "c", message_listener=listen, **EARLIEST)
        wait_until(lambda: threads["c"], "it is called")
        assert threads == {"a": {"magnetar listener 0"}, "b": {"magnetar listener 1"}, "c": {"magnetar listener 0"}}


@pytest.mark.parametrize("closed", ["consumer", "reader", "client"])
def test_closing_waits_for_the_listener_s_call_and_begins_no_other(closed: str) -> None:
    """CON-2: so what the call acknowledges is sent before the consumer leaves."""
    with sync_consume_scene() as on:
        going, calls = threading.Event(), list[bytes]()

        def listen(receiver: Any, message: Message) -> None:
            calls.append(message.data())
            going.wait()
            if closed != "reader":
                receiver.acknowledge(message, receipt=True)

        if closed == "reader":
            made: Any = on.client.create_reader("t", MessageId.earliest, reader_listener=listen)
        else:
            made = on.client.subscribe("t", "s", message_listener=listen, **EARLIEST)
        on.publish_each(2)
        wait_until(lambda: calls, "the listener is called")
        closing = threading.Thread(target=on.client.close if closed == "client" else made.close, daemon=True)
        closing.start()
        closing.join(0.05)
        assert closing.is_alive()
        going.set()
        closing.join(GENEROUS_S)
        assert not closing.is_alive()
        assert calls == [b"0"]
        if closed != "reader":
            topic = on.broker.topic("t")
            assert topic.cursors.cursors["s"].mark_delete == topic.log.order[0]


def test_closing_waits_for_a_call_that_does_not_end_for_the_operation_timeout(caplog: pytest.LogCaptureFixture) -> None:
    with sync_consume_scene(operation_timeout_seconds=0.1) as on:
        going, called = threading.Event(), threading.Event()

        def listen(consumer: magnetar.Consumer, message: Message) -> None:
            called.set()
            going.wait()

        consumer = on.client.subscribe("t", "s", message_listener=listen, **EARLIEST)
        on.publish(b"a")
        assert called.wait(GENEROUS_S)
        consumer.close()
        assert "still runs, and its consumer is closed" in caplog.text
        going.set()


def test_a_listener_may_close_its_consumer() -> None:
    """CON-2"""
    with sync_consume_scene() as on:
        closed = threading.Event()

        def listen(consumer: magnetar.Consumer, message: Message) -> None:
            consumer.close()
            closed.set()

        consumer = on.client.subscribe("t", "s", message_listener=listen)
        on.publish(b"a")
        assert closed.wait(60)
        assert not consumer.is_connected()


def test_listeners_may_close_each_other_s_consumer() -> None:
    with sync_consume_scene(message_listener_threads=2) as on:
        both, closed = threading.Barrier(2), threading.Semaphore(0)
        consumers: dict[str, magnetar.Consumer] = {}

        def listen(consumer: magnetar.Consumer, message: Message) -> None:
            both.wait(GENEROUS_S)
            consumers["b" if consumer.subscription_name() == "a" else "a"].close()
            closed.release()

        for name in "ab":
            consumers[name] = on.client.subscribe("t", name, message_listener=listen)
        on.publish(b"a")
        assert all(closed.acquire(timeout=GENEROUS_S) for _ in consumers)


@pytest.mark.parametrize("by_key", [False, True])
def test_an_executor_of_the_application_calls_a_listener_in_order(
    by_key: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CON-2: threads of the user's own. Calls that they refuse are made later, without further messages."""
    monkeypatch.setattr("magnetar._listeners.thread_listener.is_key_shared", lambda core: by_key)

    class Refusing(ThreadPoolExecutor):
        refusals = 3

        def submit(self, *arguments: Any, **options: Any) -> Any:
            self.refusals -= 1
            if self.refusals >= 0:
                raise RuntimeError("no thread is free")
            return super().submit(*arguments, **options)

    with Refusing(3, "own") as own, sync_consume_scene() as on:
        got, threads = list[bytes](), set[str]()

        def listen(consumer: magnetar.Consumer, message: Message) -> None:
            threads.add(threading.current_thread().name.split("_")[0])
            got.append(message.data())

        on.publish(*(b"%d" % number for number in range(50)))
        on.client.subscribe(
            "t", "s", ConsumerType.Shared, message_listener=listen, message_listener_executor=own, **EARLIEST
        )
        wait_until(lambda: len(got) == 50, "all are listened to")
        assert got == [b"%d" % number for number in range(50)]
        assert threads == {"own"}
        assert caplog.text.count("refused a listener's call") == 1


def test_a_message_listener_executor_calls_a_listener_with_several_messages_at_a_time() -> None:
    """CON-2: as Java's MessageListenerExecutor, it chooses the thread of each message."""
    with ThreadPoolExecutor(3) as pool, sync_consume_scene() as on:
        together, got, given = threading.Barrier(3), list[bytes](), list[bytes]()

        class Own:
            def execute(self, message: Message, run: Callable[[], object]) -> None:
                given.append(message.data())
                if message.data() == b"5":
                    raise RuntimeError("which is logged")
                pool.submit(run)
                pool.submit(run)  # has no effect

        def listen(consumer: magnetar.Consumer, message: Message) -> None:
            if int(message.data()) < 3:
                together.wait(GENEROUS_S)
            got.append(message.data())

        consumer = on.client.subscribe(
            "t",
            "s",
            ConsumerType.Shared,
            message_listener=listen,
            message_listener_executor=Own(),
            receiver_queue_size=3,
        )
        consumer.pause_message_listener()
        on.publish_each(10)
        wait_until(lambda: len(core_of(consumer).queue) == 3, "the queue is full")
        assert not given
        consumer.resume_message_listener()
        wait_until(lambda: len(got) == 9, "all but the one that failed")
        assert given == [b"%d" % number for number in range(10)]
        assert sorted(got) == [one for one in given if one != b"5"]
        with pytest.raises(InvalidConfiguration, match="message_listener_executor"):
            on.client.subscribe("t", "other", message_listener_executor=print)  # type: ignore[arg-type]


async def test_an_asyncio_listener_goes_on_after_errors_and_closing_waits_for_its_call() -> None:
    """CON-2: tasks of the user's loop."""
    async with client_of() as (broker, client):
        going, got = asyncio.Event(), list[bytes]()

        async def listen(consumer: Any, message: Message) -> None:
            got.append(message.data())
            if message.data() == b"error":
                raise ValueError("which is logged")
            if message.data() == b"cancelled":
                other = asyncio.create_task(asyncio.sleep(60))
                other.cancel()
                await other
            if message.data() == b"held":
                await going.wait()
                await consumer.acknowledge(message, receipt=True)

        consumer = await client.subscribe("t", "s", message_listener=listen)
        topic = broker.topic("t")
        for payload in (b"error", b"cancelled", b"held", b"never"):
            topic.publish(payload)
        await until(lambda: got[-1:] == [b"held"], "it is called")
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        assert consumer.is_connected()
        going.set()
        await closing
        assert got == [b"error", b"cancelled", b"held"]
        assert topic.cursors.cursors["s"].acknowledged_entries == {topic.log.order[2]}


@pytest.mark.parametrize("how", ["cancelled", "late", "by a task of the listener", "by closing its client"])
async def test_an_asyncio_listener_s_call_does_not_block_a_close_for_ever(how: str) -> None:
    async with client_of(operation_timeout_seconds=0.05 if how == "late" else 60) as (broker, client):
        called, cancelled = asyncio.Event(), asyncio.Event()

        async def listen(consumer: Any, message: Message) -> None:
            called.set()
            try:
                if how == "by a task of the listener":
                    await asyncio.create_task(consumer.close())
                elif how == "by closing its client":
                    await client.close()
                else:
                    await asyncio.Event().wait()
            finally:
                cancelled.set()

        consumer = await client.subscribe("t", "s", message_listener=listen)
        broker.topic("t").publish(b"a")
        await called.wait()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        if how == "cancelled":
            closing.cancel()
        await asyncio.wait([closing])
        await cancelled.wait()
        assert not consumer.is_connected()


async def test_an_asyncio_consumer_s_event_listener_is_notified_on_the_loop() -> None:
    """SUB-3"""
    async with client_of() as (broker, client):
        broker.partitioned["persistent://public/default/p"] = 2
        for topic, partitions in (("t", [-1]), ("p", [0, 1])):
            first, second = RecordingListener(), RecordingListener()
            options: Any = {"consumer_type": ConsumerType.Failover, "subscription_name": "s"}
            one = await client.subscribe(topic, **options, consumer_name="a", consumer_event_listener=first)
            await until(lambda: len(first.calls) == len(partitions), "it is notified")  # noqa: B023
            assert first.calls == [("active", index) for index in partitions]
            await client.subscribe(topic, **options, consumer_name="b", consumer_event_listener=second)
            await until(lambda: len(second.calls) >= len(partitions), "it is notified")  # noqa: B023
            assert ("inactive", partitions[0]) in second.calls
            await one.close()
            await until(lambda: second.calls[-1][0] == "active", "it is notified")  # noqa: B023
            assert first.threads == second.threads == {threading.current_thread().name}
        wrong: Any
        for wrong in (print, object()):
            with pytest.raises(InvalidConfiguration, match="became_active"):
                await client.subscribe("t", "s", consumer_event_listener=wrong)


def test_a_synchronous_consumer_s_event_listener_is_notified_on_the_callback_thread() -> None:
    """SUB-3"""
    with sync_consume_scene() as on:
        notified = RecordingListener()
        on.client.subscribe("t", "s", ConsumerType.Failover, consumer_event_listener=notified)
        wait_until(lambda: notified.calls == [("active", -1)], "it is notified")
        assert notified.threads == {"magnetar callbacks"}
