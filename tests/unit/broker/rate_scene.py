"""A broker whose rates of publishes and dispatches go by a clock that the test advances, over both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from magnetar import ConsumerType, InitialPosition
from magnetar_broker.counters import DeliveryCounters
from magnetar_broker.topics.topic import Topic
from magnetar_protos.pulsar_pb2 import BaseCommand
from magnetar_testing.clock import ManualClock
from magnetar_wire.topic_name import TopicName
from tests.produce_client import ProduceClient, entry
from tests.running import until
from tests.unit.broker.broker_scene import BrokerScene
from tests.unit.broker.pulsar.pulsar_client import PulsarClient
from tests.unit.broker.pulsar.pulsar_scene import PulsarScene, running_pulsar_broker

__all__ = ["LISTENERS", "Publisher", "RateScene", "connected", "running"]

_REFRESH = {"metadata_cache_ttl_seconds": 0.02}
LISTENERS: Final = ("grpc", "pulsar")


class Publisher:
    """One producer of a topic, over either protocol: `stored` is the number of its results."""

    def __init__(self, client: Any, producer_id: int, name: str) -> None:
        self._client = client
        self._id = producer_id
        self._name = name
        self._next = 0

    async def publish(self, count: int, payload: bytes = b"x", **metadata: Any) -> None:
        numbers = range(self._next, self._next + count)
        self._next += count
        if isinstance(self._client, PulsarClient):
            self._client.publish(self._id, *numbers, name=self._name)
        else:
            entries = [entry(number, payload, self._name, **metadata) for number in numbers]
            await self._client.send((self._id, numbers[0], entries))

    @property
    def stored(self) -> list[int]:
        """The numbers of its stored entries, in the order of the results."""
        if isinstance(self._client, PulsarClient):
            receipts = [one.send_receipt for one in self._client.answers_of(BaseCommand.SEND_RECEIPT)]
            return [one.sequence_id for one in receipts if one.producer_id == self._id]
        return [number for producer_id, number in self._client.receipts if producer_id == self._id]


class RateScene:
    def __init__(self, broker: BrokerScene, client: Any, stack: AsyncExitStack) -> None:
        self.broker = broker
        self.client = client
        self._stack = stack
        self._consumers = 0
        # Of all rates.
        self.clock = ManualClock()
        self._opened = 0

    async def open(self, topic: str = "t") -> Publisher:
        self._opened += 1
        name = f"p{self._opened}"
        if isinstance(self.client, PulsarClient):
            await self.client.open_producer(self._opened, topic, producer_name=name)
        else:
            await self.client.open(self._opened, name, topic)
        self.use_clock(topic)
        return Publisher(self.client, self._opened, name)

    def use_clock(self, topic: str = "t") -> None:
        """Let the topic's rates go by the clock of this scene, from their first use on."""
        loaded = self.topic(topic)
        for limit in (*loaded.publish_throttle.limits, *loaded.subscriptions.rates.limits):
            limit.clock = self.clock
        loaded.subscriptions.rates.clock = self.clock

    async def consume(self, name: str = "s", topic: str = "t", *, shared: bool = False) -> Any:
        """Open a consumer that takes everything, from the beginning."""
        if isinstance(self.client, PulsarClient):
            self._consumers += 1
            await self.client.subscribe(self._consumers, topic, name, permits=10_000, sub_type=1 if shared else 0)
            return self._consumers
        client = await self._stack.enter_async_context(self.broker.client())
        kind = ConsumerType.Shared if shared else ConsumerType.Exclusive
        options: Any = {"initial_position": InitialPosition.Earliest, "receiver_queue_size": 10_000}
        return await client.subscribe(topic, name, consumer_type=kind, **options)

    def delivered(self, *names: str, topic: str = "t") -> list[int]:
        """Return the number of messages that each subscription has delivered."""
        return [self.counters(name, topic).delivered.messages for name in names]

    def counters(self, name: str = "s", topic: str = "t") -> DeliveryCounters:
        return next(one.counters for one in self.topic(topic).subscriptions.stats() if one.name == name)

    def topic(self, name: str = "t") -> Topic:
        topic = self.broker.broker_session.topics.get_loaded(TopicName.parse(name))
        assert topic is not None
        return topic

    async def settle(self, publishers: Sequence[Publisher], expected: Callable[[list[int]], bool]) -> None:
        await until(lambda: expected([len(one.stored) for one in publishers]), "the rate lets it pass")

    async def advance(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.1)):
            self.clock.advance(0.1)
            await asyncio.sleep(0)


@asynccontextmanager
async def running(listener: str, **settings: Any) -> AsyncIterator[RateScene]:
    async with running_pulsar_broker(**_REFRESH, **settings) as broker, connected(listener, broker) as scene:
        yield scene


@asynccontextmanager
async def connected(listener: str, broker: PulsarScene) -> AsyncIterator[RateScene]:
    """Yield a scene of a broker that has started."""
    async with AsyncExitStack() as stack:
        if listener == "pulsar":
            client: Any = await broker.pulsar_client()
        else:
            connection = broker.transport.connect(broker.address)
            stack.push_async_callback(connection.close)
            client = ProduceClient(connection.open_stream("produce"))
        yield RateScene(broker, client, stack)
