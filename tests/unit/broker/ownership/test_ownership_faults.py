"""Ownership under faults: lost answers, suspended and lost sessions, deleted nodes, hanging and restarted brokers,
cancellations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from magnetar.admin import AsyncAdmin
from magnetar_broker import paths
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_metadata.store import ABSENT, SessionState
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import NamespaceNode
from magnetar_protos.ownership_pb2 import BundleOwner, ClaimAnswer, ClaimRequest, Listener
from magnetar_testing.metadata import Fault
from magnetar_wire.bundles import BundleRange, bundle_hash, default_bundles
from magnetar_wire.topic_name import NamespaceName, TopicName
from magnetar_wire.transport import Code, Rejected
from tests.running import until, within
from tests.unit.broker.cluster_scene import ClusterScene, kill, running_brokers

NAMESPACE = NamespaceName("public", "default")
BUNDLES = default_bundles(4)
TOPIC = TopicName.parse("t0")
(BUNDLE,) = (bundle for bundle in BUNDLES if str(bundle) == "0x80000000_0xc0000000")
NODE = paths.owner(NAMESPACE, BUNDLE)


async def node_of(scene: ClusterScene, bundle: BundleRange = BUNDLE) -> tuple[str, int]:
    """Return the broker and the session of the owner node; ("", 0): there is none."""
    await scene.registry.sync()
    node = await scene.registry.get(paths.owner(NAMESPACE, bundle))
    return (BundleOwner.FromString(node.value).broker_id, node.stat.ephemeral_owner) if node else ("", 0)


async def believed_owners(scene: ClusterScene, bundle: BundleRange = BUNDLE) -> list[str]:
    return [
        one.broker_id
        for one in scene.brokers
        if one.broker.session
        and any(owned.bundle == bundle and owned.is_serving for owned in one.ownership.list_owned())
    ]


async def wait_consistent(scene: ClusterScene) -> None:
    """Wait until the broker of each owner node is the only one that believes to own the bundle."""

    async def agrees() -> bool:
        for bundle in BUNDLES:
            broker_id, session = await node_of(scene, bundle)
            if await believed_owners(scene, bundle) != ([broker_id] if broker_id else []):
                return False
            if broker_id and scene[broker_id].session.session.id != session:
                return False
        return True

    await until(agrees, "store and brokers agree")


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("after", [0, 1])
async def test_claim_is_settled_after_lost_response(fault: Fault, after: int) -> None:
    """Its node exists and is held, or does not exist, and a lookup is answered."""

    async with running_brokers() as scene:
        one = scene["b1"]
        scene.metadata.queue_faults(one.session, *([None] * after), fault)
        claiming = asyncio.create_task(one.ownership.claim_bundle(NAMESPACE, BUNDLE))
        await until(
            lambda: claiming.done() or one.session.session.state is SessionState.SUSPENDED, "the fault has occurred"
        )
        if not claiming.done():
            await asyncio.sleep(0)
            scene.metadata.resume(one.session)
            scene.metadata.release(one.session)
        await asyncio.wait([claiming])
        refused = claiming.exception()
        if refused is None:
            assert claiming.result().broker_id == "b1"
        else:
            assert isinstance(refused, BrokerError)
            assert refused.code in (ErrorCode.SERVICE_NOT_READY, ErrorCode.METADATA_ERROR)
        scene.metadata.resume(one.session)
        assert (await scene.lookup("b1", str(TOPIC))).address in (scene["b1"].address, scene["b2"].address)
        await wait_consistent(scene)


@pytest.mark.parametrize("fault", list(Fault))
async def test_release_is_settled_after_lost_response(fault: Fault) -> None:
    async with running_brokers() as scene:
        one = scene["b1"]
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)
        # After the sync and two reads.
        scene.metadata.queue_faults(one.session, None, None, None, fault)
        unloading = asyncio.create_task(one.ownership.unload_bundle(NAMESPACE, BUNDLE))
        await until(lambda: one.session.session.state is SessionState.SUSPENDED, "the fault has occurred")
        await asyncio.sleep(0.02)
        assert not unloading.done()
        with pytest.raises(TopicUnloaded):
            one.ownership.check_owned(TOPIC)
        scene.metadata.resume(one.session)
        scene.metadata.release(one.session)
        await within(unloading, "it is unloaded")
        assert await node_of(scene) == ("", 0)
        assert one.ownership.list_owned() == []


@pytest.mark.parametrize("fault", list(Fault))
@pytest.mark.parametrize("after", [0, 1])
async def test_split_is_settled_after_lost_response(fault: Fault, after: int) -> None:
    """Afterwards there are both halves: no hash is without an owner, or has two."""

    async with running_brokers() as scene:
        one = scene["b1"]
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)
        scene.metadata.queue_faults(one.session, *([None] * after), fault)
        splitting = asyncio.create_task(one.ownership.split_bundle(NAMESPACE, BUNDLE))
        await until(lambda: one.session.session.state is SessionState.SUSPENDED, "the fault has occurred")
        await asyncio.sleep(0.02)
        scene.metadata.resume(one.session)
        scene.metadata.release(one.session)
        halves = await within(splitting, "it is split")
        assert [owned.bundle for owned in one.ownership.list_owned()] == list(halves)
        assert await node_of(scene) == ("", 0)
        for half in halves:
            assert (await node_of(scene, half))[0] == "b1"
        assert [bundle for bundle, _ in await scene["b2"].ownership.list_bundles(NAMESPACE)] == sorted(
            [*(bundle for bundle in BUNDLES if bundle != BUNDLE), *halves]
        )


async def test_broker_with_suspended_session_keeps_bundles_and_claims_none() -> None:
    """CHK-40, OWN-2: its topics are served, and lookups of its bundles are answered."""

    async with running_brokers() as scene:
        one, other = scene["b1"], scene["b2"]
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)
        client = scene.client()
        producer = await client.create_producer(str(TOPIC))
        await producer.send(b"0")
        scene.metadata.suspend(one.session)
        await within(producer.send(b"1"), "an open topic goes on")
        assert (await scene.lookup("b1", str(TOPIC))).address == one.address
        with pytest.raises(BrokerError) as refused:
            await one.ownership.claim_bundle(NAMESPACE, BUNDLES[0])
        assert refused.value.code == ErrorCode.SERVICE_NOT_READY
        for bundle in BUNDLES:
            if bundle != BUNDLE:
                # Another broker skips it.
                assert (await other.ownership.claim_bundle(NAMESPACE, bundle)).broker_id == "b2"
        # It unloads nothing, since no other broker could claim it.
        with pytest.raises(BrokerError) as refused:
            await within(one.ownership.unload_bundle(NAMESPACE, BUNDLE), "it is refused")
        assert refused.value.code == ErrorCode.SERVICE_NOT_READY
        await within(producer.send(b"2"), "an open topic goes on")
        assert (await scene.lookup("b1", str(TOPIC))).address == one.address
        scene.metadata.resume(one.session)
        await within(producer.send(b"3"), "it goes on")
        assert (await believed_owners(scene)) == ["b1"]
        await client.close()


async def test_a_lost_session_loses_all_bundles_and_others_take_them() -> None:
    """OWN-2, CHK-40: the other broker opens the topics with all persisted messages, and publishing goes on."""

    async with running_brokers() as scene:
        one, other = scene["b1"], scene["b2"]
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)
        client = scene.client()
        consumer = await client.subscribe(str(TOPIC), "s")
        producer = await client.create_producer(str(TOPIC))
        await producer.send(b"0")
        before, gate = one.broker_session, asyncio.Event()
        opens = one.broker._open_metadata

        async def later() -> object:
            await gate.wait()
            return await opens()

        one.broker._open_metadata = later  # type: ignore[assignment]
        scene.metadata.expire(one.session)
        await within(producer.send(b"1"), "publishing goes on")
        assert await believed_owners(scene) == ["b2"]
        assert [topic.name for topic in other.broker_session.topics.loaded()] == [TOPIC]
        assert before.topics.loaded() == []
        gate.set()
        await until(lambda: one.broker.session is not None, "it has another session")
        assert one.ownership.list_owned() == []
        assert (await scene.lookup("b1", str(TOPIC))).address == other.address
        got: dict[bytes, None] = {}
        while len(got) < 2:
            got[(await within(consumer.receive(), "all of it")).data()] = None
        assert list(got) == [b"0", b"1"]
        await client.close()


async def test_deleted_ownership_node_unloads_its_topics() -> None:
    """The broker notices at the next verification, and another one may claim the bundle."""

    async with running_brokers(bundle_check_interval_seconds=0.05) as scene:
        one = scene["b1"]
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)
        topic = await one.broker_session.topics.get(TOPIC, create=True)
        await scene.registry.delete(NODE, 0)
        await until(lambda: one.ownership.list_owned() == [], "it is noticed")
        assert topic.ended is not None
        await until(lambda: one.broker_session.topics.loaded() == [], "its topics are unloaded")
        assert (await scene["b2"].ownership.claim_bundle(NAMESPACE, BUNDLE)).broker_id == "b2"
        assert (await scene.lookup("b1", str(TOPIC))).address == scene["b2"].address


async def test_two_brokers_that_both_believe_to_have_a_bundle_do_not_take_its_topics_from_each_other_for_long() -> None:
    """OWN-2, CHK-30: a broker that is fenced verifies its bundle at once, long before the next periodic
    verification."""

    async with running_brokers(bundle_check_interval_seconds=1000.0) as scene:
        one, other = scene["b1"], scene["b2"]
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)
        client = scene.client()
        producer = await client.create_producer(str(TOPIC))
        await producer.send(b"0")
        await scene.registry.delete(NODE, 0)
        await other.ownership.claim_bundle(NAMESPACE, BUNDLE)
        assert await believed_owners(scene) == ["b1", "b2"]
        await other.broker_session.topics.get(TOPIC, create=False)
        sent = [asyncio.create_task(producer.send(b"%d" % number)) for number in range(1, 20)]
        for one_sent in sent:
            await within(one_sent, "publishing goes on")
        assert await believed_owners(scene) == ["b2"]
        assert [topic.name for topic in one.broker_session.topics.loaded()] == []
        # One opening by b2, and no more than one in between.
        assert other.broker.counters.load_seconds.count <= 2
        await client.close()


async def test_a_broker_that_does_not_answer_is_passed_over() -> None:
    async with running_brokers(bundle_claim_timeout_seconds=0.1) as scene:
        calls = scene["b1"].broker.service.call
        requested: list[str] = []

        async def hangs(peer: object, method: str, request: bytes) -> bytes:
            if method != "claim":
                return await calls(peer, method, request)  # type: ignore[arg-type]
            requested.append(ClaimRequest.FromString(request).bundle)
            await asyncio.Event().wait()
            raise AssertionError

        scene["b1"].broker.service.call = hangs  # type: ignore[method-assign]
        for number in range(20):
            answer = await within(scene.lookup("b2", f"t{number}"), "somebody serves it")
            assert answer.address == scene["b2"].address
        assert 1 <= len(requested) <= 2
        assert len(scene["b2"].ownership.list_owned()) == 4


async def test_restarted_broker_removes_nodes_of_its_stale_session() -> None:
    """The nodes' address is that of the restarted broker, so no other process can be behind them. It does not wait for
    the expiry of the stale session."""

    async with running_brokers() as scene:
        one, session = scene["b1"], scene["b1"].session
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)
        # Its listeners are closed, its session stays.
        await kill(one)
        fresh = scene.another(1)
        await fresh.broker.start()
        scene.brokers.remove(one)
        assert session.session.state is SessionState.CONNECTED
        answer = await scene.lookup("b2", str(TOPIC))
        assert answer.address == fresh.address
        assert dict(await scene["b2"].ownership._registered._read())["b1"].instance == fresh.broker.instance
        client = scene.client()
        producer = await within(client.create_producer(str(TOPIC)), "it is served")
        await within(producer.send(b"0"), "it is served")
        await wait_consistent(scene)
        await client.close()


async def test_a_second_broker_of_the_same_name_leaves_the_first_ones_nodes_alone() -> None:
    """It serves, and claims bundles with its own address, but is not registered."""

    async with running_brokers(bundle_claim_timeout_seconds=0.2) as scene:
        one = scene["b1"]
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)
        twin = scene.another(3)
        twin.broker._broker_id = "b1"
        await twin.broker.start()
        assert (await twin.ownership.claim_bundle(NAMESPACE, BUNDLE)).instance == one.broker.instance
        assert dict(await twin.ownership.list_brokers())["b1"].instance == one.broker.instance
        assert (await twin.ownership.claim_bundle(NAMESPACE, BUNDLES[0])).instance == twin.broker.instance
        await twin.broker.close()
        assert await believed_owners(scene) == ["b1"]
        assert dict(await one.ownership.list_brokers())["b1"].instance == one.broker.instance
        scene.brokers.remove(twin)


async def test_bundles_of_deleted_namespace_are_released() -> None:
    async with running_brokers(bundle_check_interval_seconds=0.05) as scene:
        one = scene["b1"]
        admin = AsyncAdmin(scene.service_url, transport=scene.transport)
        await admin.namespaces.create("public/short")
        name = NamespaceName("public", "short")
        whole = BUNDLES[0]
        await one.ownership.claim_bundle(name, whole)
        # As by a broker that could not have the bundles released first.
        await scene["b2"].broker_session.catalog.delete_namespace(name, None)
        await until(lambda: one.ownership.list_owned() == [], "it is released")
        await until(lambda: _is_deleted(scene, paths.owners(name)), "all of its nodes are deleted")
        await admin.close()


async def test_a_namespace_that_is_made_again_with_other_bundles_has_the_owners_of_those() -> None:
    """CHK-57, OWN-1: a broker loses its bundles of the deleted namespace."""

    async with running_brokers(bundle_check_interval_seconds=1000.0) as scene:
        one = scene["b1"]
        admin = AsyncAdmin(scene.service_url, transport=scene.transport)
        await admin.namespaces.create("public/again")
        name = NamespaceName("public", "again")
        for bundle in default_bundles(4):
            await one.ownership.claim_bundle(name, bundle)
        await scene["b2"].broker_session.catalog.delete_namespace(name, None)
        node = NamespaceNode(incarnation=b"another", bundle_starts=[0, 0x9000_0000])
        await scene.registry.put(
            paths.namespace(name), one.broker_session.catalog._nodes.build_put("/x", node).value, ABSENT
        )
        upper = BundleRange(0x9000_0000, 0xFFFF_FFFF)
        await one.ownership.claim_bundle(name, upper)
        owned = [owned.bundle for owned in one.ownership.list_owned()]
        assert upper in owned
        assert BundleRange(0xC000_0000, 0xFFFF_FFFF) not in owned
        await admin.close()


async def _is_deleted(scene: ClusterScene, path: str) -> bool:
    await scene.registry.sync()
    return await scene.registry.exists(path) is None


@pytest.mark.parametrize("what", ["lookup", "claim", "unload", "split"])
async def test_cancelled_ownership_call_does_not_affect_concurrent_calls(what: str) -> None:
    """At any step: what was begun is completed, and the next call finds a consistent state."""

    async with running_brokers() as scene:
        one = scene["b1"]
        topics = [TopicName.parse(f"t{number}") for number in range(100)]

        def work(bundle: BundleRange) -> Callable[[], Awaitable[object]]:
            return {
                "lookup": lambda: one.ownership.find_owner(next(t for t in topics if bundle_hash(t) in bundle)),
                "claim": lambda: one.ownership.claim_bundle(NAMESPACE, bundle),
                "unload": lambda: one.ownership.unload_bundle(NAMESPACE, bundle, "b2"),
                "split": lambda: one.ownership.split_bundle(NAMESPACE, bundle),
            }[what]

        for steps in range(25):
            bundles = [bundle for bundle, _ in await one.ownership.list_bundles(NAMESPACE)]
            bundle = bundles[steps % len(bundles)]
            if what in ("unload", "split"):
                owner = await one.ownership.claim_bundle(NAMESPACE, bundle)
                if owner.broker_id != "b1":
                    await scene[owner.broker_id].ownership.unload_bundle(NAMESPACE, bundle, "b1")
            else:
                for broker in scene.brokers:
                    if any(owned.bundle == bundle for owned in broker.ownership.list_owned()):
                        await broker.ownership.unload_bundle(NAMESPACE, bundle)
            task = asyncio.ensure_future(work(bundle)())
            others = asyncio.ensure_future(work(bundle)())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await asyncio.wait([others])
            if not others.cancelled() and (error := others.exception()) is not None:
                assert isinstance(error, BrokerError)
                assert what in ("unload", "split")
        listed = await one.ownership.list_bundles(NAMESPACE)
        for bundle, _ in listed:
            owner = await within(one.ownership.claim_bundle(NAMESPACE, bundle), "it has an owner")
            held = [o.broker_id for o in scene.brokers if any(b.bundle == bundle for b in o.ownership.list_owned())]
            assert held == [owner.broker_id]


@pytest.mark.parametrize(
    "request_bytes",
    [
        ClaimRequest().SerializeToString(),
        ClaimRequest(namespace="public/default", bundle="0x00000000_0x00000001").SerializeToString(),
        ClaimRequest(namespace="public/nowhere", bundle=str(BUNDLE)).SerializeToString(),
        ClaimRequest(namespace="../..", bundle=str(BUNDLE)).SerializeToString(),
        ClaimRequest(namespace="public/default", bundle="0x80000000_0xC0000000/../x").SerializeToString(),
    ],
)
async def test_claim_of_invalid_bundle_is_refused(request_bytes: bytes) -> None:
    async with running_brokers(brokers=1) as scene:
        connection = scene.transport.connect(scene["b1"].address)
        answer = ClaimAnswer.FromString(await connection.call("claim", request_bytes, timeout_s=10))
        assert answer.problem.code in (ErrorCode.NOT_FOUND, ErrorCode.INVALID_ARGUMENT)
        assert scene["b1"].ownership.list_owned() == []
        with pytest.raises(Rejected) as undecodable:
            await connection.call("claim", b"\xff", timeout_s=10)
        assert undecodable.value.code is Code.INVALID_ARGUMENT
        await connection.close()


async def test_unreadable_ownership_node_is_reported() -> None:
    async with running_brokers(brokers=1) as scene:
        one = scene["b1"]
        await scene.registry.put(NODE, b"\xff\xff", ABSENT, ephemeral=True)
        assert (await scene.lookup("b1", str(TOPIC))).problem.code == ErrorCode.METADATA_ERROR
        listener = Listener(name="internal", address="nowhere:1")
        await scene.registry.put(paths.broker("x/y"), BundleOwner(listeners=[listener]).SerializeToString(), ABSENT)
        await scene.registry.put(f"{paths.BROKERS}/%", b"", ABSENT)
        brokers = await one.ownership._registered._read()
        assert "b1" in dict(brokers)
