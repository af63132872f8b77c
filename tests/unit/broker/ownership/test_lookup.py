"""Ownership of bundles by several brokers: lookups, claims, unloads and splits."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_broker import paths
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.ownership.interface import OwnedBundle
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.bundles import BundleRange, bundle_hash, default_bundles
from magnetar_wire.topic_name import NamespaceName, TopicName
from tests.running import until, within
from tests.unit.broker.cluster_scene import ClusterScene, OneBroker, running_brokers

NAMESPACE = NamespaceName("public", "default")
BUNDLES = default_bundles(4)
TOPICS = [TopicName.parse(f"t{number}") for number in range(40)]


def bundle_of_topic(topic: TopicName) -> BundleRange:
    return next(bundle for bundle in BUNDLES if bundle_hash(topic) in bundle)


def owners(scene: ClusterScene) -> dict[BundleRange, list[str]]:
    """Return the brokers that believe to own each bundle of the default namespace."""
    found: dict[BundleRange, list[str]] = {}
    for one in scene.brokers:
        if one.broker.session is not None:
            for owned in one.ownership.list_owned():
                if owned.namespace == NAMESPACE:
                    found.setdefault(owned.bundle, []).append(one.broker_id)
    return found


def owner_of(scene: ClusterScene, topic: TopicName) -> OneBroker:
    (broker_id,) = owners(scene)[bundle_of_topic(topic)]
    return scene[broker_id]


def other_than(scene: ClusterScene, one: OneBroker) -> OneBroker:
    return next(other for other in scene.brokers if other is not one)


async def test_every_broker_answers_with_the_one_owner_of_a_topics_bundle() -> None:
    """OWN-1: all brokers give the same answer, and new bundles are spread evenly over idle brokers."""

    async with running_brokers() as scene:
        answers = {}
        for topic in TOPICS:
            found = [(await scene.lookup(one.broker_id, str(topic))).address for one in scene.brokers]
            assert len(set(found)) == 1
            answers[topic] = found[0]
        by_bundle = {bundle_of_topic(topic): address for topic, address in answers.items()}
        assert len(by_bundle) == 4
        assert all(by_bundle[bundle_of_topic(topic)] == address for topic, address in answers.items())
        assert sorted(map(len, owners(scene).values())) == [1, 1, 1, 1]
        assert sorted(len(one.ownership.list_owned()) for one in scene.brokers) == [2, 2]
        client = scene.client()
        for topic in TOPICS[:8]:
            producer = await client.create_producer(str(topic))
            await producer.send(b"x")
        for one in scene.brokers:
            for loaded in one.broker_session.topics.loaded():
                assert owner_of(scene, loaded.name) is one
        await client.close()


async def test_a_topic_is_opened_by_its_owner_alone() -> None:
    """OWN-1, OWN-2: another broker refuses the topic, so that the client looks it up again, and opens nothing."""

    async with running_brokers() as scene:
        await scene.lookup("b1", "t0")
        owner = owner_of(scene, TOPICS[0])
        with pytest.raises(TopicUnloaded, match=f"is owned by broker {owner.broker_id}"):
            await other_than(scene, owner).broker_session.topics.get(TOPICS[0], create=True)
        await owner.broker_session.topics.get(TOPICS[0], create=True)
        with pytest.raises(TopicUnloaded):
            await other_than(scene, owner).broker_session.topics.delete(TOPICS[0], force=True)


async def test_lookup_returns_address_of_requested_listener() -> None:
    """OWN-1: the error for an unknown listener names it and the advertised ones."""

    async with running_brokers() as scene:
        await scene.lookup("b1", "t0")
        owner = owner_of(scene, TOPICS[0])
        for one in scene.brokers:
            assert (await scene.lookup(one.broker_id, "t0")).address == owner.address
            assert (await scene.lookup(one.broker_id, "t0", "internal")).address == owner.address
            assert (await scene.lookup(one.broker_id, "t0", "external")).address == owner.external
            refused = (await scene.lookup(one.broker_id, "t0", "nowhere")).problem
            assert refused.code == ErrorCode.INVALID_ARGUMENT
            assert "'nowhere'" in refused.text
            assert "internal, external" in refused.text


async def test_many_lookups_at_once_read_the_owners_node_once_and_end_with_one_owner() -> None:
    async with running_brokers() as scene:
        reads: list[str] = []
        for one in scene.brokers:
            get = one.session.get

            async def counted(path: str, get=get) -> object:  # type: ignore[no-untyped-def]
                if path.startswith(paths.OWNERS):
                    reads.append(path)
                return await get(path)

            one.session.get = counted  # type: ignore[method-assign, assignment]
        answers = await asyncio.gather(
            *(scene.lookup(scene.brokers[number % 2].broker_id, "t0") for number in range(1000))
        )
        assert len({answer.address for answer in answers}) == 1
        assert len(owners(scene)) == 1
        assert len(reads) < 10


async def test_unloaded_bundle_is_closed_and_reopened_at_its_destination() -> None:
    """OWN-1, OWN-4: producers go on at the new owner, and ledgers are not moved."""

    async with running_brokers() as scene:
        client = scene.client()
        producer = await client.create_producer("t0")
        consumer = await client.subscribe("t0", "s")
        await producer.send(b"0")
        for number in range(1, 5):
            owner = owner_of(scene, TOPICS[0])
            goal = other_than(scene, owner)
            ledgers = [ledger.ledger_id for ledger in owner.broker_session.topics.loaded()[0].log.stats().ledgers]
            await owner.ownership.unload_bundle(NAMESPACE, bundle_of_topic(TOPICS[0]), goal.broker_id)
            assert TOPICS[0] not in [topic.name for topic in owner.broker_session.topics.loaded()]
            assert owner_of(scene, TOPICS[0]) is goal
            await within(producer.send(b"%d" % number), "publishing goes on")
            (topic,) = goal.broker_session.topics.loaded()
            assert [ledger.ledger_id for ledger in topic.log.stats().ledgers][: len(ledgers)] == ledgers
        got: dict[bytes, None] = {}
        while len(got) < 5:
            message = await within(consumer.receive(), "all that was published")
            got[message.data()] = None
            await consumer.acknowledge(message)
        assert list(got) == [b"%d" % number for number in range(5)]
        await client.close()


async def test_a_bundle_is_unloaded_to_a_broker_that_has_just_registered() -> None:
    """OWN-4: the list of brokers is cached for a second."""

    async with running_brokers() as scene:
        await scene["b1"].ownership.claim_bundle(NAMESPACE, BUNDLES[1])
        assert [broker_id for broker_id, _ in await scene["b1"].ownership.list_brokers()] == ["b1", "b2"]
        await scene.another(3).broker.start()
        await scene["b1"].ownership.unload_bundle(NAMESPACE, BUNDLES[1], "b3")
        assert scene["b3"].ownership.list_owned() == [OwnedBundle(NAMESPACE, BUNDLES[1], True)]
        with pytest.raises(BrokerError, match="there is no broker b4"):
            await scene["b3"].ownership.unload_bundle(NAMESPACE, BUNDLES[1], "b4")


async def test_a_lookup_waits_for_a_bundle_that_is_being_unloaded() -> None:
    """The answer is the next owner, not the one that unloads the bundle."""

    async with running_brokers() as scene:
        await scene.lookup("b1", "t0")
        owner = owner_of(scene, TOPICS[0])
        gate = asyncio.Event()
        unloads = owner.broker_session.topics.unload_bundle_topics

        async def slowly(*of: object) -> None:
            await gate.wait()
            await unloads(*of)  # type: ignore[arg-type]

        owner.broker_session.topics.unload_bundle_topics = slowly  # type: ignore[method-assign, assignment]
        goal = other_than(scene, owner)
        unloading = asyncio.create_task(
            owner.ownership.unload_bundle(NAMESPACE, bundle_of_topic(TOPICS[0]), goal.broker_id)
        )
        await until(lambda: not owner.ownership.list_owned()[0].is_serving, "it is being unloaded")
        looking = asyncio.create_task(scene.lookup(owner.broker_id, "t0"))
        opening = asyncio.create_task(owner.broker_session.topics.get(TOPICS[0], create=True))
        with pytest.raises(TopicUnloaded):
            owner.ownership.check_owned(TOPICS[0])
        await asyncio.sleep(0.05)
        assert not looking.done()
        assert not opening.done()
        gate.set()
        await unloading
        assert (await looking).address == goal.address
        with pytest.raises(TopicUnloaded, match=f"is owned by broker {goal.broker_id}"):
            await opening


async def test_bundle_split_keeps_topics_open_and_both_halves_local() -> None:
    """OWN-1: other brokers, which have cached the bundles of before, return the right owner."""

    async with running_brokers() as scene:
        client = scene.client()
        producer = await client.create_producer("t0")
        await producer.send(b"0")
        owner, whole = owner_of(scene, TOPICS[0]), bundle_of_topic(TOPICS[0])
        other = other_than(scene, owner)
        (topic,) = owner.broker_session.topics.loaded()
        halves = await owner.ownership.split_bundle(NAMESPACE, whole)
        assert (halves[0].lower, halves[0].upper, halves[1].upper) == (whole.lower, halves[1].lower, whole.upper)
        assert topic.ended is None
        assert owner.broker_session.topics.loaded() == [topic]
        assert [one.bundle for one in owner.ownership.list_owned() if one.bundle in halves] == list(halves)
        for one in TOPICS:
            assert (await scene.lookup("b1", str(one))).address == (await scene.lookup("b2", str(one))).address
        assert {bundle: who for bundle, who in owners(scene).items() if len(who) > 1} == {}
        assert len(await other.ownership.list_bundles(NAMESPACE)) == 5
        # The halves are unloaded one by one.
        await owner.ownership.unload_bundle(NAMESPACE, halves[0], other.broker_id)
        await owner.ownership.unload_bundle(NAMESPACE, halves[1], other.broker_id)
        await within(producer.send(b"1"), "publishing goes on")
        with pytest.raises(BrokerError) as refused:
            await other.ownership.claim_bundle(NAMESPACE, whole)
        assert refused.value.code == ErrorCode.NOT_FOUND
        with pytest.raises(BrokerError) as not_there:
            await other.ownership.split_bundle(NAMESPACE, whole)
        assert not_there.value.code == ErrorCode.SERVICE_NOT_READY
        await client.close()


@pytest.mark.parametrize("at", [0, 0x4000_0000, 0x5000_0000])
async def test_a_bundle_is_not_split_outside_of_it(at: int) -> None:
    async with running_brokers(brokers=1) as scene:
        await scene["b1"].ownership.claim_bundle(NAMESPACE, BUNDLES[0])
        with pytest.raises(BrokerError) as refused:
            await scene["b1"].ownership.split_bundle(NAMESPACE, BUNDLES[0], at)
        assert refused.value.code == ErrorCode.INVALID_ARGUMENT
        assert [one.bundle for one in scene["b1"].ownership.list_owned()] == [BUNDLES[0]]


async def test_graceful_shutdown_releases_bundles_to_other_brokers() -> None:
    """No broker assigns bundles to it, and its topics are open elsewhere before its streams end."""

    async with running_brokers() as scene:
        client = scene.client()
        producers = [await client.create_producer(str(topic)) for topic in TOPICS[:8]]
        for producer in producers:
            await producer.send(b"0")
        await within(scene["b1"].broker.close(), "it has ended")
        scene.brokers.remove(scene["b1"])
        assert [one for one, _ in await scene["b2"].ownership._registered._read()] == ["b2"]
        for producer in producers:
            await within(producer.send(b"1"), "publishing goes on")
        assert owners(scene) == {bundle_of_topic(topic): ["b2"] for topic in TOPICS[:8]}
        await client.close()


async def test_heartbeat_topic_is_always_served_by_its_own_broker() -> None:
    async with running_brokers() as scene:
        for one in scene.brokers:
            healthy, reasons = await one.broker.health.check()
            assert healthy, reasons
            assert [topic.name.local_name for topic in one.broker_session.topics.loaded()] == [
                f"__heartbeat-{one.broker_id}"
            ]
            for other in scene.brokers:
                answer = await scene.lookup(other.broker_id, f"pulsar/system/__heartbeat-{one.broker_id}")
                assert answer.address == one.address
        answer = await scene.lookup("b1", "pulsar/system/__heartbeat-nobody")
        assert answer.problem.code == ErrorCode.SERVICE_NOT_READY
        assert scene["b1"].ownership.list_owned() == []


async def test_bundle_owners_are_reported() -> None:
    async with running_brokers() as scene:
        owner = await scene["b1"].ownership.claim_bundle(NAMESPACE, BUNDLES[1])
        assert owner.broker_id == "b1"
        assert scene["b1"].ownership.list_owned() == [OwnedBundle(NAMESPACE, BUNDLES[1], True)]
        # A claim of an owned bundle returns the owner.
        assert (await scene["b2"].ownership.claim_bundle(NAMESPACE, BUNDLES[1])).broker_id == "b1"
        listed = await scene["b2"].ownership.list_bundles(NAMESPACE)
        assert [(bundle, owner.broker_id if owner else "") for bundle, owner in listed] == [
            (BUNDLES[0], ""),
            (BUNDLES[1], "b1"),
            (BUNDLES[2], ""),
            (BUNDLES[3], ""),
        ]
        assert [broker_id for broker_id, _ in await scene["b2"].ownership.list_brokers()] == ["b1", "b2"]
