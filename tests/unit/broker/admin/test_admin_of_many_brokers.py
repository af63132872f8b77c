"""Admin calls to any of several brokers, which the owners of the topics carry out."""

from __future__ import annotations

import asyncio

import pytest

from magnetar import exceptions
from magnetar.admin import AsyncAdmin, AutoTopicCreation, MessagePosition, NamespacePolicies
from magnetar.schema import SchemaInfo, SchemaType
from magnetar_broker import paths
from magnetar_wire.message_id import MessageId
from magnetar_wire.topic_name import NamespaceName
from tests.running import until
from tests.unit.broker.admin.many_brokers import admins, is_deleted, publish, serving, spread, topic_at
from tests.unit.broker.cluster_scene import kill, running_brokers


async def test_any_broker_forwards_topic_calls_to_the_owner() -> None:
    """SUB-9: also stats, peek, skip, reset, truncate, unload and delete at a broker that does not have it."""

    async with running_brokers() as scene, admins(scene) as (_, admin), scene.client() as client:
        await spread(scene, admin)
        topic = topic_at(scene, scene["b1"])
        await admin.topics.create(topic)
        with pytest.raises(exceptions.AlreadyExists):
            await admin.topics.create(topic)
        await admin.subscriptions.create(topic, "s", MessageId.earliest)
        await publish(client, topic, *(b"%d" % number for number in range(5)))
        stats = await admin.topics.stats(topic)
        assert (stats.owner_broker, stats.received.messages) == ("b1", 5)
        assert (await admin.topics.internal_stats(topic)).incarnation == stats.incarnation
        assert await admin.subscriptions.skip(topic, "s", 2) == 2
        assert [one.payload for one in await admin.subscriptions.peek(topic, "s", 2)] == [b"2", b"3"]
        await admin.subscriptions.skip_all(topic, "s")
        await admin.subscriptions.reset(topic, "s", MessageId.earliest)
        assert (await admin.topics.stats(topic)).subscription("s").backlog_entries == 5
        await admin.subscriptions.expire(topic, "s", 3600)
        assert await admin.subscriptions.list(topic) == ["s"]
        await admin.topics.truncate(topic)
        assert (await admin.topics.stats(topic)).stored_entries == 0
        with pytest.raises(exceptions.SubscriptionNotFound):
            await admin.subscriptions.skip_all(topic, "none")
        await admin.subscriptions.delete(topic, "s")
        assert serving(scene, topic) == ["b1"]
        await admin.topics.unload(topic)
        assert serving(scene, topic) == []
        producer = await client.create_producer(topic)
        with pytest.raises(exceptions.NotAllowedError, match="with force"):
            await admin.topics.delete(topic)
        await producer.close()
        await admin.topics.delete(topic)
        with pytest.raises(exceptions.TopicNotFound):
            await admin.topics.stats(topic)


@pytest.mark.parametrize("call", ["plan", "stats", "create", "delete"])
async def test_an_owner_that_was_killed_and_restarted_does_calls_of_other_brokers(call: str) -> None:
    """OWN-2: a broker that gets a forwarded call claims the bundles of its stale session, and the call does not wait
    until that session is over."""

    # The session lasts longer than a call is tried.
    async with (
        running_brokers(admin_forward_timeout_seconds=5.0) as scene,
        admins(scene) as (_, admin),
        scene.client() as client,
    ):
        await spread(scene, admin)
        topic = topic_at(scene, scene["b1"])
        await publish(client, topic, b"0")
        killed = scene["b1"]
        await kill(killed)
        await scene.another(1).broker.start()
        scene.brokers.remove(killed)
        match call:
            case "plan":
                plan = await admin.reading.plan(topic, start=MessagePosition(0, 0, 0))
                assert plan.messages == 1
            case "stats":
                assert (await admin.topics.stats(topic)).owner_broker == "b1"
            case "create":
                with pytest.raises(exceptions.AlreadyExists):
                    await admin.topics.create(topic)
            case "delete":
                await admin.topics.delete(topic, force=True)
        assert scene["b1"].ownership.list_owned()


async def test_a_partitioned_topic_is_administered_over_its_brokers() -> None:
    """TOP-3."""

    async with running_brokers(brokers=3) as scene, admins(scene) as (one, two, three), scene.client() as client:
        await spread(scene, one)
        await one.topics.create_partitioned("events", 12, {"owner": "amy"})
        await two.subscriptions.create("events", "s", MessageId.earliest, {"color": "red"})
        for index in range(12):
            await publish(client, f"events-partition-{index}", b"%d" % index)
        for admin in (one, two, three):
            stats = await admin.topics.stats("events")
            assert (stats.partitions, stats.received.messages, stats.owner_broker) == (12, 12, "")
            assert (stats.producers, stats.subscription("s").consumers) == ([], [])
            assert stats.subscription("s").backlog_entries == 12
            assert await admin.subscriptions.list("events") == ["s"]
        owners = await three.topics.lookup_partitioned("events")
        assert {owner.broker_id for owner in owners.values()} == {"b1", "b2", "b3"}
        for name, owner in owners.items():
            assert serving(scene, name) == [owner.broker_id]
        with pytest.raises(exceptions.InvalidArgument, match="lookup_partitioned"):
            await one.topics.lookup("events")
        # New partitions, made by another broker, get what the others have.
        await three.topics.update_partitioned("events", 16)
        assert (await one.topics.get_partitioned("events")).partitions == 16
        await publish(client, "events-partition-15", b"fifteen")
        assert (await two.topics.stats("events")).subscription("s").backlog_entries == 13
        assert await two.subscriptions.skip_all("events", "s") == 13
        assert (await one.topics.stats("events")).subscription("s").backlog_entries == 0
        await three.topics.unload("events")
        assert not any(serving(scene, name) for name in owners)
        # One consumer, on any partition, prevents its deletion without force.
        consumer = await client.subscribe("events-partition-3", "s")
        for admin in (one, two, three):
            with pytest.raises(exceptions.NotAllowedError, match="partition-3"):
                await admin.topics.delete_partitioned("events")
        assert len(await one.topics.list("public/default")) == 16
        await consumer.close()
        await two.topics.truncate("events")
        await two.subscriptions.delete("events", "s")
        # Also where nobody has them open, though none may be opened any more when their deletion has begun.
        await three.topics.unload("events")
        await one.topics.delete_partitioned("events")
        assert await two.topics.list("public/default") == []
        with pytest.raises(exceptions.NotFound):
            await three.topics.get_partitioned("events")


async def test_a_deleted_namespace_leaves_nothing_in_the_metadata_store() -> None:
    async with running_brokers() as scene, admins(scene) as (one, two):
        for number in range(3):
            namespace = NamespaceName("public", f"n{number}")
            await one.namespaces.create(str(namespace))
            await spread(scene, two, str(namespace))
            await two.namespaces.delete(str(namespace))
            assert await scene.registry.children(paths.owners(namespace)) == []
            assert await is_deleted(scene, paths.owners(namespace))


async def test_namespace_deletion_removes_topics_and_bundles_on_all_brokers() -> None:
    """A namespace with topics at several brokers is deleted with its bundles."""

    async with (
        running_brokers(bundle_check_interval_seconds=0.2) as scene,
        admins(scene) as (one, two),
        scene.client() as client,
    ):
        await one.tenants.create("acme")
        await two.namespaces.create("acme/shop", bundles=6)
        await spread(scene, one, "acme/shop")
        topics = [f"acme/shop/t{number}" for number in range(8)]
        for topic in topics:
            await publish(client, topic, b"one")
        await two.topics.create_partitioned("acme/shop/events", 4)
        with pytest.raises(exceptions.NotAllowedError, match="topics"):
            await two.namespaces.delete("acme/shop")
        producer = await client.create_producer(topics[0])
        await one.tenants.delete("acme", force=True)
        await producer.close()
        assert not any(serving(scene, topic) for topic in topics)

        # The last lookup of a producer may have had a bundle assigned: it is released soon.
        def all_are_released() -> bool:
            owned = [held.namespace for broker in scene.brokers for held in broker.ownership.list_owned()]
            return NamespaceName("acme", "shop") not in owned

        await until(all_are_released, "no broker owns a bundle of the namespace")
        # The parent of the owner nodes is deleted, too.
        parent = paths.owners(NamespaceName("acme", "shop"))
        await until(lambda: is_deleted(scene, parent), "the owner nodes' parent is deleted")
        # Recreated, it has nothing of the old one.
        await two.tenants.create("acme")
        await two.namespaces.create("acme/shop")
        assert len(await one.namespaces.bundles("acme/shop")) == 4
        assert await one.topics.list("acme/shop") == []
        await publish(client, topics[0], b"new")
        assert (await two.topics.stats(topics[0])).messages_ever == 1


async def test_policies_that_are_changed_at_one_broker_hold_at_another() -> None:
    """Policies take effect when a topic is opened next, also where the broker has read others a moment ago."""

    async with running_brokers() as scene, admins(scene) as (one, two), scene.client() as client:
        await one.namespaces.create("public/shop")
        await spread(scene, one, "public/shop")
        topics = [topic_at(scene, broker, "public/shop") for broker in scene.brokers]
        await two.namespaces.set_policies(
            "public/shop", NamespacePolicies(auto_topic_creation=AutoTopicCreation(allowed=False))
        )
        for topic in topics:
            with pytest.raises(exceptions.TopicNotFound):
                await client.create_producer(topic)
        await one.namespaces.set_policies("public/shop", NamespacePolicies())
        for topic in topics:
            await publish(client, topic, b"one")


async def test_a_call_waits_for_the_next_owner_when_its_topics_broker_has_died() -> None:
    """OWN-2: it is answered as soon as somebody else may have the topic."""

    async with running_brokers() as scene, admins(scene) as (_, two), scene.client() as client:
        await spread(scene, two)
        topic = topic_at(scene, scene["b1"])
        await publish(client, topic, b"one", b"two")
        await two.subscriptions.create(topic, "s", MessageId.earliest)
        scene["b1"].broker._is_closing = True  # it refuses everything from here on, and its nodes stand
        stats = asyncio.create_task(two.topics.stats(topic))
        skip = asyncio.create_task(two.subscriptions.skip(topic, "s", 1))
        await asyncio.sleep(0.2)
        assert not stats.done()
        assert not skip.done()
        scene.metadata.expire(scene["b1"].session)
        assert (await stats).owner_broker == "b2"
        await skip
        assert (await two.topics.stats(topic)).subscription("s").backlog_entries == 1


async def test_admin_skips_broker_with_suspended_metadata_session() -> None:
    """OWN-2: clients call another one, also for changes. It still answers calls of other brokers about its open
    topics."""

    async with running_brokers() as scene, admins(scene) as (one, two), scene.client() as client:
        await spread(scene, one)
        topic = topic_at(scene, scene["b1"])
        await publish(client, topic, b"one")
        both = AsyncAdmin(scene.service_url, transport=scene.transport)
        alone = AsyncAdmin("magnetar://b1:6652", 0.3, transport=scene.transport)
        async with both, alone:
            scene.metadata.suspend(scene["b1"].session)
            await both.tenants.create("acme")
            assert (await both.topics.stats(topic)).owner_broker == "b1"
            assert (await two.topics.internal_stats(topic)).state == "written"
            assert serving(scene, topic) == ["b1"]
            with pytest.raises(exceptions.ConnectError, match="suspended"):
                await alone.tenants.create("globex")
            assert (await alone.brokers.info()).broker_id == "b1"
            # Who has nobody else to ask waits until it goes on.
            waiting = asyncio.create_task(one.tenants.create("globex"))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            scene.metadata.resume(scene["b1"].session)
            await waiting
            assert await two.tenants.list() == ["acme", "globex", "public"]


async def test_bundles_move_and_split_while_administrators_are_at_work() -> None:
    """OWN-1: no call is lost or done twice."""

    async with running_brokers(brokers=3) as scene, admins(scene) as every, scene.client() as client:
        await every[0].namespaces.create("public/shop", bundles=2)
        topics = [f"public/shop/t{number}" for number in range(6)]
        for topic in topics:
            await every[0].topics.create(topic)
            await every[1].subscriptions.create(topic, "s", MessageId.earliest)
            await publish(client, topic, *(b"%d" % number for number in range(20)))
        ended = asyncio.Event()
        moved = 0

        async def move() -> None:
            nonlocal moved
            turn = 0
            while not ended.is_set():
                turn += 1
                admin = every[turn % 3]
                bundles = await admin.namespaces.bundles("public/shop")
                bundle = bundles[turn % len(bundles)]
                try:
                    if turn % 5 == 0 and len(bundles) < 20:
                        await admin.namespaces.split_bundle("public/shop", bundle.bundle)
                    else:
                        await admin.namespaces.unload("public/shop", bundle.bundle, f"b{turn % 3 + 1}")
                    moved += 1
                except (exceptions.NotFound, exceptions.NotAllowedError):
                    pass  # somebody else was faster

        async def work(topic: str, number: int) -> int:
            """How many entries may have been skipped, besides those that surely were."""
            unknown = 0
            for turn in range(10):
                admin = every[(turn + number) % 3]
                assert (await admin.topics.stats(topic)).subscription("s").subscription == "s"
                try:
                    await admin.subscriptions.skip(topic, "s", 1)
                except exceptions.UnknownError:
                    unknown += 1
            return unknown

        moving = [asyncio.create_task(move()) for _ in range(2)]
        unknown = await asyncio.gather(*(work(topic, number) for number, topic in enumerate(topics)))
        ended.set()
        await asyncio.gather(*moving)
        assert moved > 10
        for topic, open_ended in zip(topics, unknown, strict=True):
            left = (await every[0].topics.stats(topic)).subscription("s").backlog_entries
            assert 10 <= left <= 10 + open_ended


async def test_any_broker_adds_versions_to_a_schema() -> None:
    """SCH-1: at a broker that does not have the topic, by the namespace's policies as they are; the topic is created at
    its owner. Concurrent uploads of one schema get one version."""
    first, second = (
        SchemaInfo(SchemaType.AVRO, "R", b'{"type":"record","name":"R","fields":[{"name":"%s","type":"int"}]}' % name)
        for name in (b"a", b"b")
    )
    async with running_brokers() as scene, admins(scene) as (one, other):
        await spread(scene, one)
        topic = topic_at(scene, scene["b1"])
        assert (
            await asyncio.gather(*(admin.schemas.upload(topic, first) for admin in (one, other, one, other))) == [0] * 4
        )
        assert await one.topics.list("public/default") == [f"persistent://{topic}"]
        for admin, strategy in ((one, "ALWAYS_COMPATIBLE"), (other, "FULL"), (one, "ALWAYS_COMPATIBLE")):
            await admin.namespaces.change_policies("public/default", NamespacePolicies(schema_compatibility=strategy))
            assert (await other.schemas.check(topic, second)).strategy == strategy
        assert await other.schemas.upload(topic, second) == 1
        assert [found.version for found in await one.schemas.list(topic)] == [0, 1]
        await one.schemas.delete(topic)
        assert await other.schemas.list(topic) == []
        await other.topics.delete(topic)
        assert await one.schemas.metadata(topic) == []
