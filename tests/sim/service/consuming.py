"""A consumer or reader of an application: it receives, acknowledges in all ways, nacks, retries, seeks, has everything
redelivered, breaks off, closes and reopens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from magnetar import ConsumerType, InitialPosition, Message, MessageId, aio
from magnetar.exceptions import MagnetarException, Timeout
from magnetar_testing.randomness import SeededRandomness
from tests.sim.service.errors import check_error
from tests.sim.service.history import ConsumerSeen
from tests.sim.service.plan import ConsumerPlan
from tests.sim.world.host import Host

if TYPE_CHECKING:
    from tests.sim.service.application import Application

__all__ = ["TYPES", "consume", "random_start"]

TYPES: Final = {
    "EXCLUSIVE": ConsumerType.Exclusive,
    "FAILOVER": ConsumerType.Failover,
    "SHARED": ConsumerType.Shared,
    "KEY_SHARED": ConsumerType.KeyShared,
}
_RECEIVE_MS: Final = 500
# Where a subscription begins that this consumer creates.
_STARTS: Final = (InitialPosition.Earliest, InitialPosition.Earliest, InitialPosition.Latest)


async def consume(host: Application, client: aio.Client, plan: ConsumerPlan, chance: SeededRandomness) -> None:
    world = host.world
    await host.topic_is_there(plan.topic)
    while not world.quiet:
        is_reader = plan.kind == "READER"
        name = host.new_name()
        start = world.chance.stream("starts", name).choice(_STARTS)
        seen = ConsumerSeen(
            name,
            plan.topic.name,
            f"reader {name}" if is_reader else plan.subscription,
            "EXCLUSIVE" if is_reader else plan.kind,
            durable=not is_reader,
            partitioned=plan.topic.partitions > 0,
            is_reader=is_reader,
            by_message=plan.options.get("batch_index_ack_enabled", True),
        )
        consumer: aio.Consumer | aio.Reader
        try:
            if is_reader:
                consumer = await client.create_reader(plan.topic.name, MessageId.earliest, **plan.options)
            else:
                consumer = await client.subscribe(
                    plan.topic.name,
                    plan.subscription,
                    TYPES[plan.kind],
                    consumer_name=name,
                    initial_position=start,
                    **plan.options,
                )
        except MagnetarException as error:
            host.trace(f"no consumer of {plan.topic.name} {plan.subscription}: {type(error).__name__}: {error}")
            check_error(world, "no consumer", error, seen)
            await host.clock.sleep(0.2 + chance.random())
            continue
        host.trace(f"has consumer {name} of {plan.topic.name} {plan.subscription}")
        host.consumers[seen] = None
        world.judged(world.history.consumer_opened, seen)
        try:
            await _Consuming(host, consumer, plan, seen, chance).run()
        finally:
            if host.consumers.pop(seen, seen) is None:
                world.judged(world.history.consumer_ended, seen)


def random_start(host: Host, chance: SeededRandomness) -> MessageId | int:
    """Return a position to which a subscription may be moved: an end, or a time not long ago."""
    positions: tuple[MessageId | int, ...] = (
        MessageId.earliest,
        MessageId.latest,
        host.clock.time_ms() - int(5_000 * chance.random()),
    )
    return chance.choice(positions)


class _Consuming:
    def __init__(
        self,
        host: Application,
        consumer: aio.Consumer | aio.Reader,
        plan: ConsumerPlan,
        seen: ConsumerSeen,
        chance: SeededRandomness,
    ) -> None:
        self._host = host
        self._world = host.world
        self._consumer = consumer
        self._plan = plan
        self._seen = seen
        self._chance = chance
        # Received, and neither acknowledged nor refused.
        self._unacknowledged: list[MessageId] = []
        self._redeliveries = host.world.chance.stream("redeliveries", seen.name)
        self._redelivers = self._redeliveries.choice((0.0, 0.0, 0.03, 0.1))

    async def run(self) -> None:
        host, chance = self._host, self._chance
        ends = host.clock.monotonic() + chance.random() * chance.choice((2.0, 10.0, 40.0))
        try:
            while not self._world.quiet and host.clock.monotonic() < ends:
                message = await self._receive()
                if message is not None:
                    await self._took(message)
                    self._redeliver_all()
                elif self._plan.seeks and chance.random() < self._plan.seeks:
                    await self._seek()
                if self._plan.longest_pause_s:
                    await host.clock.sleep(chance.random() * self._plan.longest_pause_s)
        except MagnetarException as error:
            host.trace(f"consumer {self._seen.name} ends: {type(error).__name__}: {error}")
            check_error(self._world, "consumer ended", error, self._seen)
        try:
            await self._consumer.close()
        except MagnetarException as error:
            check_error(self._world, "consumer not closed", error, self._seen)

    async def _receive(self) -> Message | None:
        if self._plan.cancels and self._chance.random() < self._plan.cancels:
            return await self._receive_or_break_off()
        try:
            if isinstance(self._consumer, aio.Reader):
                return await self._consumer.read_next(_RECEIVE_MS)
            return await self._consumer.receive(_RECEIVE_MS)
        except Timeout:
            return None

    async def _receive_or_break_off(self) -> Message | None:
        """CON-2: a receive that is cancelled loses no message."""
        consumer = self._consumer
        work: Coroutine[Any, Any, Message]
        work = consumer.read_next() if isinstance(consumer, aio.Reader) else consumer.receive()
        task = asyncio.get_running_loop().create_task(work)
        # Its messages are reported at once.
        await asyncio.wait([task], timeout=self._chance.random() * self._chance.choice((0.0, 0.01, 0.3)))
        task.cancel()
        await asyncio.wait([task])
        return None if task.cancelled() else task.result()

    async def _took(self, message: Message) -> None:
        world, chance, plan = self._world, self._chance, self._plan
        message_id = message.message_id()
        payload = message.data()
        if self._host.world.trace.on:
            self._host.trace(f"{self._seen.name} is given {payload!r} at {message_id}")
        world.count("messages delivered")
        properties = message.properties()
        world.judged(world.history.delivered, self._seen, payload, message_id, properties, message.partition_key())
        consumer = self._consumer
        if isinstance(consumer, aio.Reader):
            if chance.random() < plan.seeks:
                await self._seek(message_id)
            return
        draw = chance.random()
        if draw < plan.refuses:
            world.judged(world.history.refused, self._seen, message_id)
            await consumer.negative_acknowledge(message)
        elif draw < plan.refuses + plan.retries:
            await self._retry(message)
        elif draw < plan.refuses + plan.retries + plan.seeks:
            await self._seek(message_id)
        elif draw < plan.refuses + plan.retries + plan.seeks + plan.keeps:
            self._unacknowledged.append(message_id)
        elif chance.random() < plan.cumulative:
            self._unacknowledged.clear()
            await self._acknowledge([message_id], cumulative=True)
        else:
            also = [] if chance.random() < 0.7 else self._unacknowledged[-1 - chance.below(5) :]
            del self._unacknowledged[len(self._unacknowledged) - len(also) :]
            await self._acknowledge([*also, message_id], cumulative=False)

    def _redeliver_all(self) -> None:
        """Not with letters: this would count as a delivery of messages that the application has not received."""
        consumer = self._consumer
        if isinstance(consumer, aio.Reader) or self._plan.retries or self._redeliveries.random() >= self._redelivers:
            return
        self._host.trace(f"{self._seen.name} has everything redelivered")
        self._world.count("redeliveries of everything")
        consumer.redeliver_unacknowledged_messages()

    async def _retry(self, message: Message) -> None:
        world, seen, consumer = self._world, self._seen, self._consumer
        assert isinstance(consumer, aio.Consumer)
        world.judged(world.history.refused, seen, message.message_id(), alone=True)
        try:
            await consumer.reconsume_later(message, self._chance.choice((0, 0, 300)))
        except MagnetarException as error:
            self._host.trace(f"{seen.name} could not retry {message.message_id()}: {type(error).__name__}: {error}")
            check_error(world, "retrying failed", error, seen)
            world.judged(world.history.refused, seen, message.message_id())  # so it is redelivered
        else:
            world.count("messages retried")

    async def _acknowledge(self, message_ids: Sequence[MessageId], *, cumulative: bool) -> None:
        receipt = self._chance.random() < self._plan.receipts
        work = self._acknowledged(message_ids, cumulative=cumulative, receipt=receipt)
        if receipt and self._chance.random() < 0.7:
            self._host.spawn(work)
        else:
            await work

    async def _acknowledged(self, message_ids: Sequence[MessageId], *, cumulative: bool, receipt: bool) -> None:
        world, history, consumer, seen = self._world, self._world.history, self._consumer, self._seen
        assert isinstance(consumer, aio.Consumer)
        world.judged(history.acknowledging, seen, message_ids, cumulative=cumulative, receipt=receipt)
        try:
            if cumulative:
                await consumer.acknowledge_cumulative(message_ids[0], receipt=receipt)
            else:
                await consumer.acknowledge(list(message_ids), receipt=receipt)
        except MagnetarException as error:
            self._host.trace(f"{seen.name} could not acknowledge: {type(error).__name__}: {error}")
            check_error(world, "acknowledging failed", error, seen)
            world.judged(history.acknowledge_failed, seen, message_ids, error, cumulative=cumulative)
            return
        if receipt:
            if world.trace.on:
                self._host.trace(f"{seen.name} has {list(map(str, message_ids))} acknowledged")
            world.count("acknowledgements receipted")
            world.judged(history.acknowledged, seen, message_ids, cumulative=cumulative)

    async def _seek(self, received: MessageId | None = None) -> None:
        to: MessageId | int
        if received is not None and not self._seen.partitioned and self._chance.random() < 0.6:
            to = received
        else:
            to = random_start(self._host, self._chance)
        world, seen = self._world, self._seen
        self._unacknowledged.clear()
        self._host.trace(f"{seen.name} seeks {to}")
        number = world.judged(world.history.moving, seen.topic, seen.subscription, to) or 0
        try:
            await self._consumer.seek(to)
        except MagnetarException as error:
            self._host.trace(f"{seen.name} could not seek: {type(error).__name__}: {error}")
            check_error(world, "seek failed", error, seen)
            world.judged(world.history.move_failed, number, error)
        else:
            world.count("seeks")
            world.judged(world.history.moved, number)
