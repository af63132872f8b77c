"""An administrator's process: it runs operations through the production's client, and reports them to the checks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from magnetar import MessageId
from magnetar.admin import AsyncAdmin
from magnetar.exceptions import AlreadyExists, MagnetarException
from magnetar_testing.randomness import SeededRandomness
from tests.sim.invariants.history import Violation
from tests.sim.service.consuming import random_start
from tests.sim.service.errors import is_damaged
from tests.sim.service.plan import TopicPlan
from tests.sim.world.host import Host

if TYPE_CHECKING:
    from tests.sim.service.world import ServiceWorld

__all__ = ["Operator", "admin_of", "check_destroyed", "mend"]

_MOST_PARTITIONS = 4
_MOST_BUNDLES = 12
_LATE_S = 4.0
_NAMESPACE = "public/default"


def admin_of(host: Host, chance: SeededRandomness) -> AsyncAdmin:
    world: ServiceWorld = host.world  # type: ignore[assignment]
    addresses = [broker.address for broker in world.brokers]
    chance.shuffle(addresses)
    url = "magnetar://" + ",".join(addresses)
    return AsyncAdmin(url, 5.0, transport=host.transport, _clock=host.clock, _randomness=chance)


class Operator(Host):
    world: ServiceWorld

    def __init__(self, world: ServiceWorld, name: str) -> None:
        super().__init__(world, name)
        self._orders: list[tuple[str, TopicPlan]] = []
        self._ordered: asyncio.Future[None] | None = None

    def order(self, what: str, topic: TopicPlan) -> None:
        self._orders.append((what, topic))
        if self._ordered is not None and not self._ordered.done():
            self._ordered.set_result(None)

    async def main(self) -> None:
        admin = admin_of(self, self.chance)
        for topic in self.world.service.topics:
            if topic.partitions:
                await self._until_done(admin, topic, self._make)
        while True:
            while not self._orders:
                self._ordered = asyncio.get_running_loop().create_future()
                await self._ordered
            what, topic = self._orders.pop(0)
            self.world.trace.line(self.name, f"is to {what} {topic.name}")
            try:
                await getattr(self, "_" + what.replace(" ", "_"))(admin, topic)
                self.world.count(f"admin: {what}")
            except MagnetarException as error:
                self.world.trace.line(self.name, f"could not {what} {topic.name}: {type(error).__name__}: {error}")
                self.world.count(f"admin could not {what}: {type(error).__name__}")

    async def _until_done(
        self, admin: AsyncAdmin, topic: TopicPlan, work: Callable[[AsyncAdmin, TopicPlan], Awaitable[None]]
    ) -> None:
        while not self.world.quiet:
            try:
                await work(admin, topic)
                return
            except MagnetarException as error:
                self.world.trace.line(self.name, f"{type(error).__name__}: {error}")
                await self.clock.sleep(0.3)

    async def _make(self, admin: AsyncAdmin, topic: TopicPlan) -> None:
        with contextlib.suppress(AlreadyExists):
            await admin.topics.create_partitioned(topic.name, topic.partitions)
        self.world.made_partitioned[topic.name] = None

    async def _unload(self, admin: AsyncAdmin, topic: TopicPlan) -> None:
        await admin.topics.unload(topic.name)

    async def _unload_a_bundle(self, admin: AsyncAdmin, topic: TopicPlan) -> None:
        bundle = self.chance.choice(await admin.namespaces.bundles(_NAMESPACE))
        to = self.chance.choice([None, None, *(broker.name for broker in self.world.brokers)])
        await admin.namespaces.unload(_NAMESPACE, bundle.bundle, to)

    async def _unload_the_namespace(self, admin: AsyncAdmin, topic: TopicPlan) -> None:
        await admin.namespaces.unload(_NAMESPACE)

    async def _split(self, admin: AsyncAdmin, topic: TopicPlan) -> None:
        bundles = await admin.namespaces.bundles(_NAMESPACE)
        if len(bundles) < _MOST_BUNDLES:
            await admin.namespaces.split_bundle(_NAMESPACE, self.chance.choice(bundles).bundle)

    async def _grow(self, admin: AsyncAdmin, topic: TopicPlan) -> None:
        if topic.partitions:
            known = await admin.topics.get_partitioned(topic.name)
            if known.partitions < _MOST_PARTITIONS:
                await admin.topics.update_partitioned(topic.name, known.partitions + 1)

    async def _truncate(self, admin: AsyncAdmin, topic: TopicPlan) -> None:
        self.world.judged(self.world.history.truncating, topic.name)
        self.world.retained.truncating(topic.name)
        await admin.topics.truncate(topic.name)
        assert self.process is not None
        self.process.spawn(self._truncated(topic.name))

    async def _truncated(self, topic: str) -> None:
        """When a request that the network delivered twice has come, too."""
        await self.clock.sleep(_LATE_S)
        self.world.judged(self.world.history.truncated, topic)

    async def _delete(self, admin: AsyncAdmin, topic: TopicPlan) -> None:
        """Its next user creates it again."""
        if topic.partitions:
            return
        self.world.judged(self.world.history.deleting, topic.name)
        await admin.topics.delete(topic.name, force=True)
        self.world.judged(self.world.history.deleted, topic.name)

    async def _unsubscribe(self, admin: AsyncAdmin, topic: TopicPlan) -> None:
        if topic.subscriptions:
            subscription, _ = self.chance.choice(topic.subscriptions)
            self.world.judged(self.world.history.unsubscribing, topic.name, subscription)
            await admin.subscriptions.delete(topic.name, subscription, force=True)
            self.world.judged(self.world.history.unsubscribed, topic.name, subscription)

    async def _reset(self, admin: AsyncAdmin, topic: TopicPlan) -> None:
        to = random_start(self, self.chance)
        await self._move(topic, to, lambda subscription: admin.subscriptions.reset(topic.name, subscription, to))

    async def _mend(self, admin: AsyncAdmin, topic: TopicPlan) -> None:
        """Resets the subscriptions whose cursor is damaged."""
        for one in (await admin.topics.stats(topic.name)).subscriptions:
            if one.damaged:
                await mend(self.world, admin, topic.name, one.subscription)

    async def _skip_all(self, admin: AsyncAdmin, topic: TopicPlan) -> None:
        async def skip(name: str) -> None:
            await admin.subscriptions.skip_all(topic.name, name)

        await self._move(topic, MessageId.latest, skip, voids=False)

    async def _move(
        self, topic: TopicPlan, to: MessageId | int, move: Callable[[str], Awaitable[None]], *, voids: bool = True
    ) -> None:
        if not topic.subscriptions:
            return
        history, judged = self.world.history, self.world.judged
        subscription, _ = self.chance.choice(topic.subscriptions)
        number = judged(history.moving, topic.name, subscription, to, voids=voids) or 0
        try:
            await move(subscription)
        except MagnetarException as error:
            judged(history.move_failed, number, error)
            raise
        judged(history.moved, number)


async def mend(world: ServiceWorld, admin: AsyncAdmin, topic: str, subscription: str) -> None:
    """Reset a damaged subscription: messages that it had acknowledged are redelivered."""
    world.judged(check_destroyed, world, topic, subscription)
    number = world.judged(world.history.moving, topic, subscription, MessageId.earliest) or 0
    try:
        await admin.subscriptions.reset(topic, subscription, MessageId.earliest)
    except MagnetarException as error:
        world.judged(world.history.move_failed, number, error)
        raise
    world.judged(world.history.moved, number)
    world.count("damaged cursors mended")


def check_destroyed(world: ServiceWorld, topic: str, subscription: str) -> None:
    """Raise `Violation` unless a record of the subscription was destroyed."""
    world.checker.history.look("67")
    if not is_damaged(world, topic, subscription):
        raise Violation(
            "67", f"subscription {subscription} of {topic} is reported as damaged, and no record of it was destroyed"
        )
