"""Bundles and brokers, seen and moved by an administrator at any of them."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar import exceptions
from magnetar.admin import OwnedBundle
from magnetar_wire.bundles import BundleRange, bundle_hash, default_bundles
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.admin.many_brokers import admins, publish, serving, spread, topic_at
from tests.unit.broker.cluster_scene import ClusterScene, running_brokers


async def test_namespace_unload_makes_few_store_reads_per_bundle() -> None:
    """The number of reads grows with the bundles, not with their square."""

    async def requests(bundles: int) -> int:
        reads = 0

        async def body(scene: ClusterScene) -> None:
            nonlocal reads
            async with admins(scene) as (one, _):
                await one.namespaces.create("public/shop", bundles=bundles)
                await spread(scene, one, "public/shop")
                for broker in scene.brokers:
                    store = broker.session
                    receive = store.get

                    async def counted(path: str, receive: Any = receive) -> Any:
                        nonlocal reads
                        reads += 1
                        return await receive(path)

                    store.get = counted  # type: ignore[method-assign]
                await one.namespaces.unload("public/shop")

        scene = ClusterScene(2)
        await scene.start()
        try:
            await body(scene)
        finally:
            await scene.close()
        return reads

    few, many = (await requests(4)), (await requests(64))
    assert many <= 6 * 64
    assert many <= few * 64 / 4 + 64


async def test_any_broker_lists_brokers_bundles_and_owners() -> None:
    """OWN-1."""

    async with running_brokers(brokers=3) as scene, admins(scene) as every:
        await spread(scene, every[0])
        for admin, broker in zip(every, scene.brokers, strict=True):
            assert (await admin.brokers.info()).broker_id == broker.broker_id
            shown = await admin.brokers.list()
            assert [one.broker_id for one in shown] == ["b1", "b2", "b3"]
            assert shown[1].listeners == {"internal": "b2:6652", "external": "out2:6652"}
            assert shown[1].version
            assert shown[1].started_ms
            bundles = await admin.namespaces.bundles("public/default")
            assert [one.bundle for one in bundles] == [str(bundle) for bundle in default_bundles(4)]
            assert [one.broker_id for one in bundles] == ["b1", "b2", "b3", "b1"]
            assert bundles[1].address == "b2:6652"
            topic = topic_at(scene, scene["b2"])
            await admin.topics.create(topic)
            owner = await admin.topics.lookup(topic)
            assert (owner.topic, owner.broker_id, owner.address) == (f"persistent://{topic}", "b2", "b2:6652")
            assert owner.bundle == bundles[1].bundle
            assert (await admin.topics.lookup(topic, "external")).address == "out2:6652"
            with pytest.raises(exceptions.InvalidArgument, match="listener"):
                await admin.topics.lookup(topic, "none")
            with pytest.raises(exceptions.InvalidArgument, match="no partitions"):
                await admin.topics.lookup_partitioned(topic)
            owned = [one for one in await admin.brokers.bundles("b2") if one.namespace == "public/default"]
            assert owned == [OwnedBundle("public/default", bundles[1].bundle, 1)]
            mine = [one.bundle for one in await admin.brokers.bundles() if one.namespace == "public/default"]
            assert mine == [one.bundle for one in bundles if one.broker_id == broker.broker_id]
            await admin.topics.delete(topic)
            with pytest.raises(exceptions.NotFound, match="b1, b2, b3"):
                await admin.brokers.bundles("b9")
            with pytest.raises(exceptions.NotFound):
                await admin.namespaces.bundles("public/none")
            with pytest.raises(exceptions.TopicNotFound):
                await admin.topics.lookup("none")


async def test_manual_bundle_unload_moves_its_clients() -> None:
    """OWN-1, OWN-3: unload to a named broker, or to any, by calls to any broker."""

    async with running_brokers(brokers=3) as scene, admins(scene) as (one, two, three), scene.client() as client:
        await spread(scene, one)
        topic = topic_at(scene, scene["b1"])
        consumer = await client.subscribe(topic, "s")
        producer = await client.create_producer(topic, batching_enabled=False)
        bundle = (await one.topics.lookup(topic)).bundle
        for admin, destination in ((one, "b2"), (one, "b3"), (two, "b1"), (three, "b1")):
            await admin.namespaces.unload("public/default", bundle, destination)
            assert (await two.topics.lookup(topic)).broker_id == destination
            payload = destination.encode()
            await producer.send(payload)
            message = await consumer.receive()
            assert message.data() == payload
            await consumer.acknowledge(message)
            assert serving(scene, topic) == [destination]
        await three.namespaces.unload("public/default", bundle)
        await producer.send(b"moved")
        assert (await consumer.receive()).data() == b"moved"
        # One that nobody has is given to whom it is to go to, or left alone.
        other = next(one.bundle for one in await one.namespaces.bundles("public/default") if one.bundle != bundle)
        await one.namespaces.create("public/empty")
        empty = await one.namespaces.bundles("public/empty")
        assert [one.broker_id for one in empty] == ["", "", "", ""]
        await two.namespaces.unload("public/empty", empty[0].bundle)
        assert (await two.namespaces.bundles("public/empty"))[0].broker_id == ""
        await two.namespaces.unload("public/empty", empty[0].bundle, "b3")
        assert (await one.namespaces.bundles("public/empty"))[0].broker_id == "b3"
        for wrong, kind in (
            (one.namespaces.unload("public/default", other, "b9"), exceptions.NotFound),
            (one.namespaces.unload("public/default", "0x00000000_0x00000001"), exceptions.NotFound),
            (one.namespaces.unload("public/default", "everything"), exceptions.InvalidArgument),
            (one.namespaces.unload("public/none"), exceptions.NotFound),
            (one.namespaces.unload("public/default", destination="b1"), exceptions.InvalidArgument),
        ):
            with pytest.raises(kind):
                await wrong


async def test_a_namespace_is_unloaded_whole() -> None:
    """OWN-3."""

    async with running_brokers() as scene, admins(scene) as (one, two):
        await two.namespaces.create("public/shop", bundles=20)
        await spread(scene, one, "public/shop")
        topics = [topic_at(scene, broker, "public/shop") for broker in scene.brokers]
        for topic in topics:
            await one.topics.create(topic)
        await two.namespaces.unload("public/shop")
        assert {bundle.broker_id for bundle in await one.namespaces.bundles("public/shop")} == {""}
        assert not any(serving(scene, topic) for topic in topics)
        for topic in topics:
            assert (await one.topics.stats(topic)).owner_broker


async def test_bundle_is_split_manually() -> None:
    """OWN-1, OWN-3: by its range, by its topics, at a hash, by calls to any broker, and without an owner."""

    async with running_brokers() as scene, admins(scene) as (one, two), scene.client() as client:
        await one.namespaces.create("public/shop", bundles=1)
        whole = str(default_bundles(1)[0])
        assert await two.namespaces.split_bundle("public/shop", whole) == (
            "0x00000000_0x80000000",
            "0x80000000_0xffffffff",
        )
        topics = [f"public/shop/t{number}" for number in range(9)]
        for topic in topics:
            await publish(client, topic, b"one")
        hashes = sorted(bundle_hash(TopicName.parse(topic)) for topic in topics)
        upper = [one for one in hashes if one >= 0x8000_0000]
        assert len(upper) > 2  # or the next one shows nothing
        _, added = await one.namespaces.split_bundle(
            "public/shop", "0x80000000_0xffffffff", "topic_count_equally_divide"
        )
        in_added = sum(topic_hash in BundleRange.parse(added) for topic_hash in upper)
        assert abs(2 * in_added - len(upper)) <= 1
        assert await two.namespaces.split_bundle("public/shop", "0x00000000_0x80000000", at=16) == (
            "0x00000000_0x00000010",
            "0x00000010_0x80000000",
        )
        bundles = await one.namespaces.bundles("public/shop")
        assert len(bundles) == 4
        assert bundles[-1].bundle == added
        assert (bundles[0].bundle, bundles[0].broker_id) == ("0x00000000_0x00000010", bundles[1].broker_id)
        # Nothing is lost of any topic, and one part moves without the other.
        await one.namespaces.unload("public/shop", bundles[0].bundle, "b2")
        for topic in topics:
            await publish(client, topic, b"two")
            assert (await two.topics.stats(topic)).messages_ever == 2


async def test_invalid_split_is_refused_and_changes_nothing() -> None:
    """OWN-1."""

    async with running_brokers(load_balancer_namespace_maximum_bundles=4) as scene, admins(scene) as (one, two):
        await one.namespaces.create("public/shop", bundles=3)
        first = (await one.namespaces.bundles("public/shop"))[0].bundle
        split = two.namespaces.split_bundle
        for wrong, kind, words in (
            (split("public/shop", "0x00000000_0x40000000"), exceptions.NotFound, first),
            (split("public/shop", first, at=0), exceptions.InvalidArgument, "0x00000000"),
            (split("public/shop", first, at=0xFFFF_0000), exceptions.InvalidArgument, "inside it"),
            (split("public/shop", first, at=-1), exceptions.InvalidArgument, "0xffffffff"),
            (split("public/shop", first, "by_mood"), exceptions.InvalidArgument, "range_equally_divide"),
            (split("public/shop", first, "range_equally_divide", at=9), exceptions.InvalidArgument, "at"),
            (split("public/shop", first, "specified_positions_divide"), exceptions.InvalidArgument, "at"),
            (split("public/shop", first, "topic_count_equally_divide"), exceptions.NotAllowedError, "no two"),
            (split("public/none", first), exceptions.NotFound, "public/none"),
            (split("public/shop", "0x0_0x1"), exceptions.InvalidArgument, "0x00000000_0x40000000"),
        ):
            with pytest.raises(kind, match=words):
                await wrong
        low, _ = await split("public/shop", first, at=1)
        with pytest.raises(exceptions.InvalidArgument):
            await split("public/shop", low)
        with pytest.raises(exceptions.NotAllowedError, match="load_balancer_namespace_maximum_bundles"):
            await split("public/shop", "0x00000001_" + first.partition("_")[2])
        assert len(await one.namespaces.bundles("public/shop")) == 4
        for count in (0, 5, 2**31):
            with pytest.raises(exceptions.InvalidArgument):
                await one.namespaces.create("public/many", bundles=count)
        with pytest.raises(exceptions.NotFound):
            await one.namespaces.bundles("public/many")
