"""Bundles of a broker whose address refuses connections: because it is dead, or although it is alive."""

from __future__ import annotations

import asyncio

from magnetar_broker import paths
from magnetar_broker.ownership.dead_owners import _Process
from magnetar_metadata.store import SessionState
from magnetar_wire.bundles import BundleRange, default_bundles
from magnetar_wire.topic_name import NamespaceName, TopicName
from tests.running import until, within
from tests.unit.broker.cluster_scene import ClusterScene, OneBroker, kill, running_brokers
from tests.unit.broker.ownership.test_ownership_faults import believed_owners, node_of, wait_consistent

NAMESPACE = NamespaceName("public", "default")
BUNDLES = default_bundles(4)
TOPIC = TopicName.parse("t0")
(BUNDLE,) = (bundle for bundle in BUNDLES if str(bundle) == "0x80000000_0xc0000000")


def refuse(source: OneBroker, *targets: OneBroker) -> None:
    """Refuse connections of one broker to the others from now on, although they are alive."""
    peers = source.broker._peers
    call, refuses = peers.call, peers.refuses_connections
    refused = [target.address for target in targets]

    async def refused_call(address: str, method: str, request: bytes, timeout_s: float) -> bytes:
        return await call("nobody:1" if address in refused else address, method, request, timeout_s)

    async def is_refused(address: str, timeout_s: float) -> bool:
        return address in refused or await refuses(address, timeout_s)

    peers.call, peers.refuses_connections = refused_call, is_refused  # type: ignore[method-assign]


async def probe_again(scene: ClusterScene) -> None:
    """Let the next lookups probe owners again, without cached results."""
    for one in scene.brokers:
        for process in _processes(one):
            process.valid_until = 0.0


async def test_bundles_of_dead_broker_are_taken_over_before_session_expiry() -> None:
    """OWN-2: its address refuses connections, so its nodes are replaced at once, and outlive its session."""

    async with running_brokers() as scene:
        one, other, session = scene["b1"], scene["b2"], scene["b1"].session
        for bundle in BUNDLES:
            await one.ownership.claim_bundle(NAMESPACE, bundle)
        client = scene.client()
        producer = await client.create_producer(str(TOPIC))
        await producer.send(b"0")
        await kill(one)
        await within(producer.send(b"1"), "publishing goes on")
        assert session.session.state is SessionState.CONNECTED
        assert await node_of(scene) == ("b2", other.session.session.id)
        # Bundles that were not looked up still have the old owner.
        assert [b for b in BUNDLES if (await node_of(scene, b))[0] == "b1"] == [b for b in BUNDLES if b != BUNDLE]
        assert [broker_id for broker_id, _ in await other.ownership.list_brokers()] == ["b2"]
        assert other.broker.counters.bundle_take_overs == 1
        scene.brokers.remove(one)
        scene.metadata.expire(session)
        await until(lambda: _unowned(scene, BUNDLES[0]), "the old session's nodes are deleted")
        assert await node_of(scene) == ("b2", other.session.session.id)
        await within(producer.send(b"2"), "publishing goes on")
        await other.ownership.split_bundle(NAMESPACE, BUNDLE)
        await wait_consistent(scene)
        await client.close()


async def _unowned(scene: ClusterScene, bundle: BundleRange) -> bool:
    return await node_of(scene, bundle) == ("", 0)


async def test_unresponsive_broker_keeps_its_bundles() -> None:
    """OWN-2: a timeout proves nothing."""

    async with running_brokers(bundle_claim_timeout_seconds=0.1) as scene:
        one = scene["b1"]
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)

        async def hang(*_: object) -> bytes:
            await asyncio.Event().wait()
            raise AssertionError

        one.broker.service.call = hang  # type: ignore[assignment,method-assign]
        for _ in range(3):
            assert (await within(scene.lookup("b2", str(TOPIC)), "it is answered")).address == one.address
            await probe_again(scene)
        assert await believed_owners(scene) == ["b1"]


async def test_concurrent_takeovers_assign_each_bundle_once() -> None:
    """OWN-2: by compare-and-set on the owner's node, so no broker takes what another one has just taken."""

    async with running_brokers(brokers=3) as scene:
        one, others = scene["b1"], [scene["b2"], scene["b3"]]
        for bundle in BUNDLES:
            await one.ownership.claim_bundle(NAMESPACE, bundle)
        await kill(one)
        scene.brokers.remove(one)
        claims = [other.ownership.claim_bundle(NAMESPACE, bundle) for bundle in BUNDLES for other in others]
        owners = [owner.broker_id for owner in await within(asyncio.gather(*claims), "all are claimed")]
        assert owners[::2] == owners[1::2]
        assert sum(other.broker.counters.bundle_take_overs for other in others) == len(BUNDLES)
        assert sum(other.broker.counters.bundles_lost for other in others) == 0
        await wait_consistent(scene)


async def test_wrongly_suspected_broker_reregisters_and_keeps_other_bundles() -> None:
    """OWN-2, CHK-30: it unloads the bundle that was taken, loses nothing, and later refusals are ignored."""

    async with running_brokers(bundle_check_interval_seconds=0.05) as scene:
        one, other = scene["b1"], scene["b2"]
        for bundle in BUNDLES:
            await one.ownership.claim_bundle(NAMESPACE, bundle)
        client = scene.client()
        consumer = await client.subscribe(str(TOPIC), "s")
        producer = await client.create_producer(str(TOPIC))
        await producer.send(b"0")
        refuse(other, one)
        registration = await scene.registry.get(paths.broker("b1"))
        assert (await scene.lookup("b2", str(TOPIC))).address == other.address
        await within(producer.send(b"1"), "publishing goes on")
        assert {(await within(consumer.receive(), "all of it")).data() for _ in range(2)} <= {b"0", b"1"}
        await until(lambda: _registered_again(scene, "b1", registration), "it registers again")
        await probe_again(scene)
        for bundle in BUNDLES:
            if bundle != BUNDLE:
                assert (await other.ownership.claim_bundle(NAMESPACE, bundle)).broker_id == "b1"
        assert other.broker.counters.bundle_take_overs == 1
        await wait_consistent(scene)
        await client.close()


async def _registered_again(scene: ClusterScene, broker_id: str, before: object) -> bool:
    await scene.registry.sync()
    return await scene.registry.get(paths.broker(broker_id)) not in (None, before)


async def test_brokers_that_refuse_each_other_do_not_take_bundles_from_each_other_for_ever() -> None:
    async with running_brokers(bundle_check_interval_seconds=0.05, bundle_claim_timeout_seconds=0.2) as scene:
        one, other = scene["b1"], scene["b2"]
        refuse(one, other)
        refuse(other, one)
        await one.ownership.claim_bundle(NAMESPACE, BUNDLE)

        async def look_up() -> int:
            for broker_id in ("b2", "b1"):
                await within(scene.lookup(broker_id, str(TOPIC)), "it is answered")
                await probe_again(scene)
            return sum(broker.broker.counters.bundle_take_overs for broker in scene.brokers)

        async def one_is_contradicted() -> bool:
            await look_up()
            return any(process.is_contradicted for broker in (one, other) for process in _processes(broker))

        await until(one_is_contradicted, "a broker has registered again")
        await look_up()
        taken = await look_up()
        for _ in range(20):
            assert await look_up() == taken
            await asyncio.sleep(0.01)
        await wait_consistent(scene)


def _processes(broker: OneBroker) -> list[_Process]:
    return list(broker.ownership._dead_owners._processes.values())
