"""Administrators of several brokers, and topics that are spread over those."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from magnetar import aio
from magnetar.admin import AsyncAdmin
from magnetar_wire.bundles import bundle_hash
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.cluster_scene import ClusterScene, OneBroker


@asynccontextmanager
async def admins(scene: ClusterScene) -> AsyncIterator[list[AsyncAdmin]]:
    """One at each broker, in their order, who knows no other."""
    made = [AsyncAdmin(f"magnetar://{one.address}", transport=scene.transport) for one in scene.brokers]
    try:
        yield made
    finally:
        for one in made:
            await one.close()


async def spread(scene: ClusterScene, admin: AsyncAdmin, namespace: str = "public/default") -> None:
    """Has the namespace's bundles at all brokers in turn."""
    for number, bundle in enumerate(await admin.namespaces.bundles(namespace)):
        broker = scene.brokers[number % len(scene.brokers)]
        await admin.namespaces.unload(namespace, bundle.bundle, broker.broker_id)


def serving(scene: ClusterScene, topic: str) -> list[str]:
    """Where it is loaded."""
    name = TopicName.parse(topic)
    return [one.broker_id for one in scene.brokers if one.broker_session.topics.get_loaded(name) is not None]


def topic_at(scene: ClusterScene, broker: OneBroker, namespace: str = "public/default") -> str:
    """The name of a topic in a bundle that the broker has."""
    for number in range(10_000):
        name = TopicName.parse(f"{namespace}/t{number}")
        if any(
            str(one.namespace) == namespace and bundle_hash(name) in one.bundle for one in broker.ownership.list_owned()
        ):
            return f"{namespace}/t{number}"
    raise AssertionError(f"{broker.broker_id} has no bundle of {namespace}")


async def publish(client: aio.Client, topic: str, *payloads: bytes) -> None:
    producer = await client.create_producer(topic, batching_enabled=False)
    for payload in payloads:
        await producer.send(payload)
    await producer.close()


async def is_deleted(scene: ClusterScene, path: str) -> bool:
    return await scene.registry.exists(path) is None
