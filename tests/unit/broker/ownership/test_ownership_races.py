"""Races between brokers that have not noticed yet what others did, and the cost of many topics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar import aio
from magnetar_broker import paths
from magnetar_broker.errors import BrokerError, RequestNotStarted, TopicUnloaded
from magnetar_metadata.errors import StoreFull
from magnetar_metadata.store import ANY, Put, SessionState
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.ownership_pb2 import BrokerRegistration, Listener, LoadReport
from magnetar_wire.bundles import BundleRange, bundle_hash, default_bundles
from magnetar_wire.topic_name import NamespaceName, TopicName
from tests.running import until, within
from tests.unit.broker.cluster_scene import running_brokers

NAMESPACE = NamespaceName("public", "default")
OTHER = NamespaceName("pulsar", "system")
BUNDLES = default_bundles(4)
TOPIC = TopicName.parse("t0")
BUNDLE = next(bundle for bundle in BUNDLES if bundle_hash(TOPIC) in bundle)
NODE = paths.owner(NAMESPACE, BUNDLE)


async def test_claim_during_split_keeps_topics_open() -> None:
    """The owner node of a half is of this session, and the split is not answered yet."""

    async with running_brokers(brokers=1) as scene:
        one = scene["b1"]
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)
        topic = await one.broker_session.topics.get(TOPIC, create=True)
        middle = (BUNDLE.lower + BUNDLE.upper) // 2
        half = BundleRange(BUNDLE.lower, middle)
        for delays in range(6):
            splitting = asyncio.create_task(one.ownership.split_bundle(NAMESPACE, BUNDLE, middle))
            scene.metadata.delay_answers(one.session, 0.02)
            for _ in range(delays):
                await asyncio.sleep(0)
            claiming = [asyncio.create_task(one.ownership._claim(NAMESPACE, half)) for _ in range(3)]
            await asyncio.wait([splitting, *claiming])
            scene.metadata.delay_answers(one.session, 0.0)
            if delays == 0:
                await splitting
            assert topic.ended is None
            assert one.broker.counters.bundles_lost == 0
            assert (await one.ownership.claim_bundle(NAMESPACE, half)).broker_id == "b1"


async def test_a_claim_that_meets_the_node_of_its_own_session_holds_it() -> None:
    """As after an operation with an unknown outcome."""

    async with running_brokers() as scene:
        one = scene["b1"]
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)
        value = await one.session.get(NODE)
        assert value is not None
        await one.ownership.unload_bundle(NAMESPACE, BUNDLE)
        await one.session.put(NODE, value.value, -1, ephemeral=True)
        assert (await scene.lookup("b2", str(TOPIC))).address == one.address
        assert one.ownership.list_owned() == []
        assert (await one.ownership.claim_bundle(NAMESPACE, BUNDLE)).broker_id == "b1"
        assert [owned.bundle for owned in one.ownership.list_owned()] == [BUNDLE]
        await one.broker_session.topics.get(TOPIC, create=True)


async def test_split_during_unload_reports_nothing_done() -> None:
    """OWN-1: so the client may repeat the call at the next owner."""

    async with running_brokers() as scene:
        one = scene["b1"]
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)
        scene.metadata.delay_answers(one.session, 0.02)
        unloading = asyncio.create_task(one.ownership.unload_bundle(NAMESPACE, BUNDLE))
        await until(lambda: not one.ownership.list_owned()[0].is_serving, "it is being unloaded")
        with pytest.raises(RequestNotStarted):
            await one.ownership.split_bundle(NAMESPACE, BUNDLE)
        await unloading


async def test_full_metadata_store_is_reported_without_retries() -> None:
    async with running_brokers(brokers=1) as scene:
        one = scene["b1"]
        transact, requests = one.session.transaction, 0

        async def full(changes: Any) -> Any:
            nonlocal requests
            if any(isinstance(change, Put) and change.path.startswith(paths.OWNERS) for change in changes):
                requests += 1
                raise StoreFull("the disk is full", changes[0].path)
            return await transact(changes)

        one.session.transaction = full  # type: ignore[method-assign]
        answer = await within(scene.lookup("b1", str(TOPIC)), "an answer")
        assert answer.problem.code == ErrorCode.METADATA_ERROR
        assert "the disk is full" in answer.problem.text
        assert requests == 1
        one.session.transaction = transact  # type: ignore[method-assign]
        assert not (await scene.lookup("b1", str(TOPIC))).HasField("problem")


async def test_a_release_that_is_refused_leaves_the_bundle_served() -> None:
    async with running_brokers(brokers=1) as scene:
        one = scene["b1"]
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)

        async def full(path: str, expected: int) -> None:
            raise StoreFull("the disk is full", path)

        deletes, one.session.delete = one.session.delete, full  # type: ignore[method-assign]
        with pytest.raises(BrokerError, match="the disk is full"):
            await one.ownership.unload_bundle(NAMESPACE, BUNDLE)
        await until(lambda: [owned.is_serving for owned in one.ownership.list_owned()] == [True], "it is served again")
        await one.broker_session.topics.get(TOPIC, create=True)
        one.session.delete = deletes  # type: ignore[method-assign]
        await one.ownership.unload_bundle(NAMESPACE, BUNDLE)


async def test_failure_in_one_namespace_does_not_prevent_verification_of_others() -> None:
    async with running_brokers(brokers=1, bundle_check_interval_seconds=0.05) as scene:
        one = scene["b1"]
        await one.ownership.claim_bundle(OTHER, BUNDLES[0])
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)
        await scene.registry.put(paths.namespace(OTHER), b"no node", ANY)
        await scene.registry.delete(NODE, 0)
        await until(
            lambda: [owned.namespace for owned in one.ownership.list_owned()] == [OTHER],
            "the other one's loss is found out",
        )


async def test_unload_fails_when_third_broker_claims_the_bundle_first() -> None:
    async with running_brokers(brokers=3) as scene:
        await scene["b1"].ownership.claim_bundle(NAMESPACE, BUNDLE)
        assigner = scene["b1"].ownership._assigner
        asks = assigner.assign_to

        async def slower(*of: Any) -> Any:
            await scene["b3"].ownership.claim_bundle(NAMESPACE, BUNDLE)
            return await asks(*of)

        assigner.assign_to = slower  # type: ignore[method-assign, assignment]
        with pytest.raises(BrokerError, match="acquired by broker b3 first") as refused:
            await scene["b1"].ownership.unload_bundle(NAMESPACE, BUNDLE, "b2")
        assert refused.value.code == ErrorCode.NOT_ALLOWED
        assert (await scene.lookup("b1", str(TOPIC))).address == scene["b3"].address


@pytest.mark.parametrize("cpu", [float("nan"), float("inf"), -float("inf"), 1e300, -1.0])
async def test_invalid_load_report_does_not_block_bundle_assignment(cpu: float) -> None:
    async with running_brokers(brokers=1, bundle_claim_timeout_seconds=0.2) as scene:
        for number, address in enumerate(["", "no address", "::", "nobody:1"]):
            registration = BrokerRegistration(
                listeners=[Listener(name="x", address=address)],
                load=LoadReport(cpu=cpu, loop_lag_s=cpu, bundles=2**32 - 1),
            )
            await scene.registry.put(paths.broker(f"a{number}"), registration.SerializeToString(), ANY)
        answer = await within(scene.lookup("b1", str(TOPIC)), "a broker serves it")
        assert answer.address == scene["b1"].address


async def test_splits_that_race_make_no_more_bundles_than_may_be() -> None:
    async with running_brokers(load_balancer_namespace_maximum_bundles=5) as scene:
        for number, bundle in enumerate(BUNDLES):
            await scene.brokers[number % 2].ownership.claim_bundle(NAMESPACE, bundle)
        outcomes = await asyncio.gather(
            *(
                scene.brokers[number % 2].ownership.split_bundle(NAMESPACE, bundle)
                for number, bundle in enumerate(BUNDLES)
            ),
            return_exceptions=True,
        )
        refused = [one for one in outcomes if isinstance(one, BaseException)]
        assert len(refused) == 3
        for one in refused:
            assert isinstance(one, BrokerError)
            assert one.code == ErrorCode.NOT_ALLOWED
            assert "load_balancer_namespace_maximum_bundles is 5" in str(one)
        assert len(await scene["b1"].ownership.list_bundles(NAMESPACE)) == 5
        await until(
            lambda: [owned.is_serving for o in scene.brokers for owned in o.ownership.list_owned()] == [True] * 5,
            "all do",
        )


@pytest.mark.parametrize("judged", [True, False])
async def test_a_broker_that_does_not_know_that_it_lost_a_topic_does_not_delete_it(judged: bool) -> None:
    """CHK-30, OWN-2: only the owner knows the topic's users, so the deletion checks the owner epoch in its node."""

    async with running_brokers(bundle_check_interval_seconds=1000.0) as scene:
        one, other = scene["b1"], scene["b2"]
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)
        stale = await one.broker_session.topics.get(TOPIC, create=True)
        await scene.registry.delete(NODE, 0)
        await other.ownership.claim_bundle(NAMESPACE, BUNDLE)
        client = aio.Client(f"magnetar://{other.address}", _transport=scene.transport)
        consumer = await client.subscribe(str(TOPIC), "s")
        producer = await client.create_producer(str(TOPIC))
        await producer.send(b"first")
        assert (one.broker_session.topics.get_loaded(TOPIC), stale.in_use, stale.ended) == (stale, False, None)
        with pytest.raises(RequestNotStarted):
            await one.broker_session.topics.delete(
                TOPIC, force=False, only_if=(lambda found: found is stale) if judged else None
            )
        await producer.send(b"too")
        assert [(await within(consumer.receive(), "all of it")).data() for _ in range(2)] == [b"first", b"too"]
        await until(lambda: one.ownership.list_owned() == [], "it has found out that it has lost the bundle")
        with pytest.raises(BrokerError) as used:
            await other.broker_session.topics.delete(TOPIC, force=False)
        assert used.value.code == ErrorCode.NOT_ALLOWED
        await client.close()
        topic = other.broker_session.topics.get_loaded(TOPIC)
        assert topic is not None
        await until(lambda: not topic.in_use, "it is unused")
        await other.broker_session.topics.unload(TOPIC)
        # The topic was unloaded since it was checked.
        with pytest.raises(RequestNotStarted):
            await other.broker_session.topics.delete(TOPIC, force=False, only_if=lambda found: found is topic)
        await other.broker_session.topics.delete(TOPIC, force=False)
        with pytest.raises(BrokerError) as missing:
            await other.broker_session.topics.get(TOPIC, create=False)
        assert missing.value.code == ErrorCode.TOPIC_NOT_FOUND


async def test_ending_with_many_topics_looks_at_each_bundles_own() -> None:
    """The cost of unloading a bundle depends on its own topics only, so the loop is not blocked."""

    async with running_brokers(brokers=1) as scene:
        topics = scene["b1"].broker_session.topics
        names = [TopicName.parse(f"many{number}") for number in range(2_000)]
        looked = 0

        for name in names:
            topics._by_hash.add(name)
        within_ = topics._by_hash.find_in_bundle

        def counted(*of: Any) -> Any:
            nonlocal looked
            found = within_(*of)
            looked += len(found)
            return found

        topics._by_hash.find_in_bundle = counted  # type: ignore[method-assign, assignment]
        bundles = default_bundles(128)
        for bundle in bundles:
            await topics.unload_bundle_topics(NAMESPACE, bundle, TopicUnloaded("x"))
            expected = [name for name in names if bundle_hash(name) in bundle]
            assert sorted(topics._find_names(NAMESPACE, bundle), key=str) == sorted(expected, key=str)
        assert looked <= 5 * len(names)
        for name in names:
            topics._by_hash.discard(name)
        assert len(topics._by_hash) == 0


async def test_unloaded_and_missing_topics_are_removed_from_hash_index() -> None:
    async with running_brokers(brokers=1) as scene:
        topics = scene["b1"].broker_session.topics
        for number in range(5):
            await topics.get(TopicName.parse(f"t{number}"), create=True)
            with pytest.raises(BrokerError):
                await topics.get(TopicName.parse(f"missing{number}"), create=False)
        await until(lambda: len(topics._by_hash) == 5, "missing topics are removed")
        for number in range(5):
            await topics.unload(TopicName.parse(f"t{number}"))
        await until(lambda: len(topics._by_hash) == 0, "all are")


async def test_closing_broker_while_it_aborts_a_lost_session_leaves_nothing() -> None:
    async with running_brokers(brokers=1) as scene:
        for steps in range(0, 30, 3):
            one = scene.another(10 + steps)
            await one.broker.start()
            store, session = one.session, one.broker_session
            await one.ownership.claim_bundle(NAMESPACE, BUNDLE)
            await one.broker_session.topics.get(TOPIC, create=True)
            # As if the store were silent for too long: the session exists, and is assumed to be over.
            one.broker._clock = _Late(scene.clock)
            scene.metadata.cut_silently(store, requests=False)
            scene.metadata.heal(store)
            scene.metadata.expire(store, notify=True) if steps % 2 else None
            for _ in range(steps):
                await asyncio.sleep(0)
            await within(one.broker.close(), "it has ended")
            assert store.session.state is SessionState.LOST
            assert session.topics.loaded() == []
            scene.brokers.remove(one)


class _Late:
    """A clock by which every session has been silent for too long."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock

    def monotonic(self) -> float:
        return float(self._clock.monotonic()) + 1e6

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)
