"""Only the owner deletes a topic. A broker that has lost the topic, and has not noticed yet, does not know its users
(CHK-30)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar import MessageId, aio
from magnetar.aio import Client
from magnetar_broker import paths
from magnetar_broker.errors import BrokerError, RequestNotStarted
from magnetar_metadata.compare_and_set import change
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import InactiveTopics, Policies
from magnetar_protos.managed_ledger_pb2 import ManagedLedgerNode, TopicState
from magnetar_wire.bundles import bundle_hash
from magnetar_wire.randomness import SystemRandomness
from magnetar_wire.topic_name import TopicName
from tests.running import until
from tests.unit.broker.cluster_scene import ClusterScene, OneBroker, running_brokers

NAME = TopicName.parse("orders")
# No periodic verification of bundles during these tests.
_UNAWARE: dict[str, Any] = {"bundle_check_interval_seconds": 600.0}


async def moved_unnoticed(scene: ClusterScene) -> tuple[OneBroker, OneBroker]:
    """Return the broker that has loaded the topic and believes to own it, and the owner."""
    async with scene.client() as client:
        producer = await client.create_producer(str(NAME))
        await producer.send(b"0")
    former = next(one for one in scene.brokers if one.broker_session.topics.get_loaded(NAME) is not None)
    owner = next(one for one in scene.brokers if one is not former)
    await lose_unnoticed(scene, former)
    bundle = await claim(owner)
    assert bundle == owner.broker_id
    return former, owner


async def lose_unnoticed(scene: ClusterScene, former: OneBroker) -> None:
    (bundle,) = [one.bundle for one in former.ownership.list_owned() if is_of(one.namespace, one.bundle)]
    path = paths.owner(NAME.namespace_name, bundle)
    node = await scene.registry.get(path)
    assert node is not None
    await scene.registry.delete(path, node.version)


def is_of(namespace: object, bundle: object) -> bool:
    return namespace == NAME.namespace_name and bundle_hash(NAME) in bundle  # type: ignore[operator]


async def claim(owner: OneBroker) -> str:
    for bundle, _ in await owner.ownership.list_bundles(NAME.namespace_name):
        if bundle_hash(NAME) in bundle:
            return (await owner.ownership.claim_bundle(NAME.namespace_name, bundle)).broker_id
    raise AssertionError


async def used_at(scene: ClusterScene, owner: OneBroker) -> tuple[Client, aio.Producer]:
    client = aio.Client(f"magnetar://{owner.address}", _transport=scene.transport)
    producer = await client.create_producer(str(NAME))
    await producer.send(b"1")
    return client, producer


async def all_is_there(client: Client, producer: aio.Producer) -> None:
    """Check that what was published at the owner can be read. Closed ledgers may have been trimmed."""
    await producer.send(b"last")
    reader = await client.create_reader(str(NAME), MessageId.earliest)
    read = [(await reader.read_next()).data()]
    while read[-1] != b"last":
        read.append((await reader.read_next()).data())
    assert b"1" in read
    await client.close()


@pytest.mark.parametrize("force", [False, True])
async def test_a_former_owner_deletes_nothing(force: bool) -> None:
    """CHK-30: it refuses the deletion, and nothing was done."""

    async with running_brokers(**_UNAWARE) as scene:
        former, owner = await moved_unnoticed(scene)
        client, producer = await used_at(scene, owner)
        with pytest.raises(RequestNotStarted):
            await former.broker_session.topics.delete(NAME, force=force)
        await all_is_there(client, producer)


async def test_a_former_owner_that_has_it_not_loaded_deletes_nothing() -> None:
    """CHK-30."""

    async with running_brokers(**_UNAWARE) as scene:
        former, owner = await moved_unnoticed(scene)
        await former.broker_session.topics.unload(NAME)
        client, producer = await used_at(scene, owner)
        with pytest.raises(RequestNotStarted):
            await former.broker_session.topics.delete(NAME, force=False)
        await all_is_there(client, producer)


async def test_former_owner_does_not_delete_topic_as_inactive() -> None:
    """CHK-30: the users have moved with the topic."""

    async with running_brokers(
        **_UNAWARE,
        broker_delete_inactive_topics_enabled=True,
        broker_delete_inactive_topics_max_inactive_duration_seconds=600.0,
        topic_housekeeping_interval_seconds=0.05,
    ) as scene:
        former, owner = await moved_unnoticed(scene)
        client, producer = await used_at(scene, owner)
        topic = former.broker_session.topics.get_loaded(NAME)
        assert topic is not None
        topic.live_settings.update(Policies(inactive_topics=InactiveTopics(delete_while_inactive=True)))
        await until(
            lambda: former.broker_session.topics.get_loaded(NAME) is None, "the former owner has tried, and noticed"
        )
        await all_is_there(client, producer)


def interrupted(scene: ClusterScene, at: OneBroker, deed: Callable[[], Awaitable[None]]) -> None:
    """Run `deed` once, right after the broker has verified that it owns the topic."""
    verify_owned, done = at.ownership.verify_owned, False

    async def verified(topic: TopicName) -> None:
        nonlocal done
        await verify_owned(topic)
        if not done:
            done = True
            await deed()

    at.ownership.verify_owned = verified  # type: ignore[method-assign]


@pytest.mark.parametrize("loaded", [True, False])
async def test_topic_taken_over_during_deletion_check_is_not_deleted(loaded: bool) -> None:
    """CHK-30: the node has another owner epoch by then, and the deletion begins only in the one that was checked."""

    async with running_brokers(**_UNAWARE) as scene:
        async with scene.client() as client:
            await (await client.create_producer(str(NAME))).send(b"0")
        former = next(one for one in scene.brokers if one.broker_session.topics.get_loaded(NAME) is not None)
        owner = next(one for one in scene.brokers if one is not former)
        users: list[tuple[Client, aio.Producer]] = []
        if not loaded:
            await former.broker_session.topics.unload(NAME)

        async def take() -> None:
            await lose_unnoticed(scene, former)
            await claim(owner)
            users.append(await used_at(scene, owner))

        interrupted(scene, former, take)
        with pytest.raises(RequestNotStarted):
            await former.broker_session.topics.delete(NAME, force=False)
        await all_is_there(*users[0])


async def test_a_topic_that_is_used_while_it_is_judged_is_not_deleted() -> None:
    async with running_brokers() as scene:
        async with scene.client() as client:
            await (await client.create_producer(str(NAME))).send(b"0")
        owner = next(one for one in scene.brokers if one.broker_session.topics.get_loaded(NAME) is not None)
        users: list[tuple[Client, aio.Producer]] = []

        async def use() -> None:
            users.append(await used_at(scene, owner))

        interrupted(scene, owner, use)
        with pytest.raises(BrokerError) as refused:
            await owner.broker_session.topics.delete(NAME, force=False)
        assert refused.value.code == ErrorCode.NOT_ALLOWED
        await all_is_there(*users[0])
        # The caller's condition is checked again at the last moment.
        with pytest.raises(RequestNotStarted):
            await owner.broker_session.topics.delete(NAME, force=False, only_if=lambda topic: False)
        assert owner.broker_session.topics.get_loaded(NAME) is not None
        await owner.broker_session.topics.delete(NAME, force=False)
        assert await scene.registry.get(paths.topic(NAME)) is None


async def test_a_deletion_that_was_begun_is_finished_without_force() -> None:
    """TOP-7: also if no broker has loaded the topic."""

    async with running_brokers() as scene:
        async with scene.client() as client:
            await (await client.create_producer(str(NAME))).send(b"0")
        owner = next(one for one in scene.brokers if one.broker_session.topics.get_loaded(NAME) is not None)
        await owner.broker_session.topics.unload(NAME)
        session = owner.broker_session

        def marked(payload: bytes | None) -> bytes:
            assert payload is not None
            node = ManagedLedgerNode.FromString(payload)
            node.state, node.owner_epoch = TopicState.DELETING, b""
            return node.SerializeToString()

        # As by a broker that was killed then.
        await change(scene.registry, paths.topic(NAME), marked, clock=scene.clock, randomness=SystemRandomness())
        await session.topics.delete(NAME, force=False)
        assert await scene.registry.get(paths.topic(NAME)) is None
        # Nothing is done if there is no topic.
        await session.topics.delete(NAME, force=False)
