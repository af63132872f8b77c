"""An application: one client of the production's SDK, with producers, consumers and readers, in one process.

It reports its results and messages to the checker at once. A killed one reports no more; its next run does the same
work with other objects.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from magnetar import aio
from tests.sim.service.consuming import consume
from tests.sim.service.history import ConsumerSeen
from tests.sim.service.plan import ConsumerPlan, ProducerPlan, TopicPlan
from tests.sim.service.producing import produce
from tests.sim.world.host import Host

if TYPE_CHECKING:
    from tests.sim.service.world import ServiceWorld

__all__ = ["Application", "client_of"]


class Application(Host):
    world: ServiceWorld

    def __init__(self, world: ServiceWorld, name: str, works: list[ProducerPlan | ConsumerPlan]) -> None:
        super().__init__(world, name)
        self._works = works
        self._made = 0
        # Of this run: sends that are not decided, and consumers that are open.
        self.pending = 0
        self.consumers: dict[ConsumerSeen, None] = {}

    def start(self) -> None:
        self.pending = 0
        super().start()

    def kill(self) -> None:
        super().kill()
        for consumer in self.consumers:
            self.world.judged(self.world.history.consumer_ended, consumer)
        self.consumers.clear()

    def new_name(self) -> str:
        """Of a producer or consumer, unique in the run."""
        self._made += 1
        return f"{self.name}.{self.runs_started}.{self._made}"

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
        assert self.process is not None
        self.process.spawn(work)

    async def topic_is_there(self, topic: TopicPlan) -> None:
        """Using it would make one without partitions."""
        while topic.partitions and topic.name not in self.world.made_partitioned:
            await self.clock.sleep(0.05)

    def trace(self, what: str) -> None:
        self.world.trace.line(self.name, what)

    async def main(self) -> None:
        client = client_of(self)
        for number, work in enumerate(self._works):
            chance = self.world.chance.stream(self.name, self.runs_started, "work", number)
            if isinstance(work, ProducerPlan):
                self.spawn(produce(self, client, work, chance))
            else:
                self.spawn(consume(self, client, work, chance))
        await asyncio.get_running_loop().create_future()


def client_of(host: Host) -> aio.Client:
    world: ServiceWorld = host.world  # type: ignore[assignment]
    addresses = [broker.address for broker in world.brokers]
    host.chance.shuffle(addresses)
    return aio.Client(
        "magnetar://" + ",".join(addresses),
        operation_timeout_seconds=5.0,
        connection_timeout_ms=1_500,
        _transport=host.transport,
        _clock=host.clock,
        _randomness=host.chance,
    )
