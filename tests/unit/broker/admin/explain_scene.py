"""A broker in this process, producers of the SDK, and consumers of one of the listeners, to be explained."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from magnetar import ConsumerKeySharedPolicy, ConsumerType, KeySharedMode, MessageId, aio
from magnetar.admin import SubscriptionExplanation
from magnetar.exceptions import MagnetarException
from magnetar_broker.topics.topic import Topic
from magnetar_protos.pulsar_pb2 import IntRange, KeySharedMeta
from magnetar_wire.topic_name import TopicName
from tests.running import until
from tests.unit.broker.pulsar.pulsar_client import PulsarClient
from tests.unit.broker.pulsar.pulsar_scene import PulsarScene, running_pulsar_broker

__all__ = ["ExplainClients", "running_clients"]

_KINDS = {"Exclusive": 0, "Shared": 1, "Failover": 2, "KeyShared": 3}


class ExplainClients:
    """Producers of the SDK, and consumers of one of the listeners."""

    def __init__(self, scene: PulsarScene, sdk: aio.Client, pulsar: PulsarClient | None) -> None:
        self.scene = scene
        self.admin = scene.admin
        self.sdk = sdk
        self.pulsar = pulsar
        self._consumers = 0

    async def publish(self, count: int, topic: str = "t") -> None:
        """Publish messages, each with a key of its own."""
        producer = await self.sdk.create_producer(topic, batching_enabled=False)
        for number in range(count):
            await producer.send(b"x", partition_key=f"key {number}")
        await producer.close()

    async def consume(
        self,
        name: str = "c",
        kind: str = "Exclusive",
        *,
        permits: int = 100,
        priority: int = 0,
        topic: str = "t",
        slots: tuple[int, int] | None = None,
    ) -> Any:
        """Open a consumer that grants permits, and receives nothing."""
        if self.pulsar is None:
            policy = slots and ConsumerKeySharedPolicy(KeySharedMode.Sticky, sticky_ranges=[slots])
            return await self.sdk.subscribe(
                topic,
                "s",
                ConsumerType[kind],
                consumer_name=name,
                receiver_queue_size=permits,
                priority_level=priority,
                key_shared_policy=policy,
            )
        self._consumers += 1
        await self.pulsar.subscribe(
            self._consumers,
            topic,
            sub_type=_KINDS[kind],
            consumer_name=name,
            permits=permits,
            priority_level=priority,
            key_shared_meta=slots
            and KeySharedMeta(key_shared_mode=1, hash_ranges=[IntRange(start=slots[0], end=slots[1])]),
        )
        return self._consumers

    async def refuse(self, name: str, topic: str = "t") -> None:
        """Open a consumer, which is refused."""
        if self.pulsar is None:
            with pytest.raises(MagnetarException):
                await self.sdk.subscribe(topic, "s", consumer_name=name)
        else:
            self.pulsar.answers_pings = True
            assert (await self.pulsar.try_subscribe(99, topic, consumer_name=name)).HasField("error")

    async def explain(self, topic: str = "t") -> SubscriptionExplanation:
        return await self.admin.subscriptions.explain(topic, "s")

    async def until_answer(self, code: str, topic: str = "t") -> SubscriptionExplanation:
        """Return the explanation when its answer is this reason."""

        async def is_answer() -> bool:
            return (await self.explain(topic)).reasons[0].code == code

        await until(is_answer, f"the answer is {code}")
        return await self.explain(topic)

    def topic(self, name: str = "t") -> Topic:
        found = self.scene.broker_session.topics.get_loaded(TopicName.parse(name))
        assert found is not None
        return found


@asynccontextmanager
async def running_clients(listener: str = "grpc", **settings: Any) -> AsyncIterator[ExplainClients]:
    async with running_pulsar_broker(**settings) as scene, scene.client() as sdk:
        clients = ExplainClients(scene, sdk, await scene.pulsar_client() if listener == "pulsar" else None)
        await clients.admin.topics.create("t")
        await clients.admin.subscriptions.create("t", "s", MessageId.earliest)
        yield clients
