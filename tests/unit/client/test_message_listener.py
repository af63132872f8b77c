"""What an application is told of a Failover subscription: which partitions it is served."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from magnetar import ConsumerType
from magnetar.exceptions import InvalidConfiguration
from tests.running import until
from tests.unit.client.consume_scene import client_of
from tests.unit.client.sync_consume_scene import sync_consume_scene, wait_until


class Told:
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


async def test_an_asyncio_consumer_s_listener_is_told_on_the_loop() -> None:
    """SUB-3"""
    async with client_of() as (broker, client):
        broker.partitioned["persistent://public/default/p"] = 2
        for topic, partitions in (("t", [-1]), ("p", [0, 1])):
            first, second = Told(), Told()
            options: Any = {"consumer_type": ConsumerType.Failover, "subscription_name": "s"}
            one = await client.subscribe(topic, **options, consumer_name="a", consumer_event_listener=first)
            await until(lambda: len(first.calls) == len(partitions), "it is told")  # noqa: B023
            assert first.calls == [("active", index) for index in partitions]
            await client.subscribe(topic, **options, consumer_name="b", consumer_event_listener=second)
            await until(lambda: len(second.calls) >= len(partitions), "it is told")  # noqa: B023
            assert ("inactive", partitions[0]) in second.calls
            await one.close()
            await until(lambda: second.calls[-1][0] == "active", "it is told")  # noqa: B023
            assert first.threads == second.threads == {threading.current_thread().name}
        wrong: Any
        for wrong in (print, object()):
            with pytest.raises(InvalidConfiguration, match="became_active"):
                await client.subscribe("t", "s", consumer_event_listener=wrong)


def test_a_synchronous_consumer_s_listener_is_told_on_the_thread_of_callbacks() -> None:
    """SUB-3"""
    with sync_consume_scene() as on:
        told = Told()
        on.client.subscribe("t", "s", ConsumerType.Failover, consumer_event_listener=told)
        wait_until(lambda: told.calls == [("active", -1)], "it is told")
        assert told.threads == {"magnetar callbacks"}
