"""Message listeners and consumer event listeners."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import magnetar
from magnetar import ConsumerType, Message
from magnetar.exceptions import InvalidConfiguration
from tests.running import until
from tests.unit.client.consume_scene import client_of
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


def test_a_listener_is_called_on_a_thread_of_its_own_and_a_message_on_which_it_fails_is_not_acknowledged() -> None:
    """CON-2"""
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
        on.publish_each(5)
        wait_until(lambda: len(got) == 5, "all are listened to")
        consumer.pause_message_listener()
        on.publish(b"later")
        time.sleep(0.05)
        assert len(got) == 5
        consumer.resume_message_listener()
        wait_until(lambda: len(got) == 6, "the last one, too")
        consumer.close()
        topic = on.broker.topic("t")
        assert topic.cursors.cursors["s"].acknowledged_entries == {topic.log.order[at] for at in (0, 1, 2, 4, 5)}
        assert not {"magnetar", threading.main_thread().name} & threads


def test_a_listener_may_close_its_consumer() -> None:
    with sync_consume_scene() as on:
        closed = threading.Event()

        def listen(consumer: magnetar.Consumer, message: Message) -> None:
            consumer.close()
            closed.set()

        consumer = on.client.subscribe("t", "s", message_listener=listen)
        on.publish(b"a")
        assert closed.wait(60)
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
