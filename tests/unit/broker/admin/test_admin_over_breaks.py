"""Administration of several brokers while sessions and answers are lost and bundles are unloaded, by seed: a call that
was interrupted is completed by the same call at any broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from magnetar import exceptions
from magnetar.admin import AsyncAdmin
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import SessionState
from magnetar_testing.metadata.server import Fault
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.message_id import MessageId
from tests.running import within
from tests.unit.broker.cluster_scene import ClusterScene, running_brokers

NAMESPACE = "public/shop"
TOPIC = "public/shop/events"
QUICK = {
    "metadata_operation_timeout_seconds": 1.0,
    "topic_close_timeout_seconds": 0.2,
    "bundle_claim_timeout_seconds": 0.3,
    "bundle_wait_timeout_seconds": 1.0,
    "bundle_check_interval_seconds": 0.2,
}

Step = Callable[[AsyncAdmin], Awaitable[object]]


async def finished(admins: list[AsyncAdmin], step: Step, chance: SeededRandomness) -> None:
    """Repeat the call at any broker, until one reports that it is done."""
    while True:
        try:
            await step(admins[chance.below(len(admins))])
            return
        except (exceptions.AlreadyExists, exceptions.NotFound, exceptions.TopicNotFound):
            return
        except exceptions.SubscriptionNotFound:
            return
        except exceptions.MagnetarException:
            await asyncio.sleep(0.01)


async def breaks(scene: ClusterScene, admins: list[AsyncAdmin], chance: SeededRandomness) -> None:
    """Goes on until it is cancelled."""
    while True:
        await asyncio.sleep(0.01 * chance.random())
        one = scene.brokers[chance.below(len(scene.brokers))]
        if one.store is None or one.store.session.state is SessionState.LOST:
            continue
        if one.store.session.state is SessionState.SUSPENDED:
            scene.metadata.resume(one.store)
            continue
        kind = chance.below(4)
        if kind == 0:
            scene.metadata.expire(one.store)
        elif kind == 1:
            scene.metadata.queue_faults(one.store, Fault.LOSE_ANSWER)
        elif kind == 2:
            scene.metadata.lag(one.store)
        else:
            try:
                bundles = await admins[0].namespaces.bundles(NAMESPACE)
                bundle = bundles[chance.below(len(bundles))]
                await admins[0].namespaces.unload(NAMESPACE, bundle.bundle, one.broker_id)
            except exceptions.MagnetarException:
                pass


async def healed(scene: ClusterScene) -> None:
    """Return when all brokers have a working session: all requested faults have occurred by then."""
    for one in scene.brokers:
        answers = 0
        while answers < 3:
            await asyncio.sleep(0.005)
            if one.session.session.state is SessionState.SUSPENDED:
                scene.metadata.resume(one.session)
            try:
                await one.session.sync()
                answers += 1
            except MetadataError:
                answers = 0


@pytest.mark.parametrize("seed", range(5))
async def test_repeated_call_completes_an_interrupted_change(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """TOP-3, OWN-1: and none of it is a fault of ours, which would be logged as an error."""

    caplog.set_level(logging.ERROR)
    async with running_brokers(brokers=3, admin_forward_timeout_seconds=1.5, **QUICK) as scene:
        chance = SeededRandomness(seed)
        addresses = [one.address for one in scene.brokers]
        urls = ["magnetar://" + ",".join(addresses[turn:] + addresses[:turn]) for turn in range(len(addresses))]
        admins = [AsyncAdmin(url, 2.0, transport=scene.transport) for url in urls]
        parts = [f"persistent://{TOPIC}-partition-{index}" for index in range(6)]
        steps: list[Step] = [
            lambda admin: admin.namespaces.create(NAMESPACE, bundles=5),
            lambda admin: admin.topics.create_partitioned(TOPIC, 3),
            lambda admin: admin.subscriptions.create(TOPIC, "s", MessageId.earliest, {"color": "red"}),
            lambda admin: admin.topics.update_partitioned(TOPIC, 6),
        ]
        try:
            breaking = asyncio.create_task(breaks(scene, admins, chance))
            for step in steps:
                await within(finished(admins, step, chance), "a step", 30)
            breaking.cancel()
            await asyncio.wait([breaking])
            await healed(scene)
            for admin in admins:
                for part in parts:
                    stats = await admin.topics.stats(part)
                    assert stats.subscription("s").properties == {"color": "red"}
                assert await admin.topics.list(NAMESPACE) == parts
            breaking = asyncio.create_task(breaks(scene, admins, chance))
            await within(finished(admins, lambda admin: admin.topics.truncate(TOPIC), chance), "truncating", 30)
            await within(finished(admins, lambda admin: admin.subscriptions.delete(TOPIC, "s"), chance), "deleting", 30)
            remove: Step = lambda admin: admin.namespaces.delete(NAMESPACE, force=True)  # noqa: E731
            await within(finished(admins, remove, chance), "deleting all", 30)
            breaking.cancel()
            await asyncio.wait([breaking])
            await healed(scene)
            for admin in admins:
                with pytest.raises(exceptions.NotFound):
                    await admin.topics.list(NAMESPACE)
            await finished(admins, lambda admin: admin.namespaces.create(NAMESPACE), chance)
            assert await admins[1].topics.list(NAMESPACE) == []
        finally:
            await healed(scene)
            for admin in admins:
                await admin.close()
    assert [record.getMessage() for record in caplog.records] == []
