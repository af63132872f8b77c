"""Leases on namespaces: which topics are made with leases, and when a lease has lapsed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from magnetar_broker import paths
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger import topic_node
from magnetar_broker.managed_ledger.namespace_leases import (
    LapseDetector,
    NamespaceLeaseSweeper,
    end_lease,
    hold_lease,
    leases_for_topic,
    read_leases_for,
    remove_lapsed,
)
from magnetar_metadata import compare_and_set
from magnetar_metadata.store import ANY, Change, ChangeResult, Delete
from magnetar_metadata.undecodable_nodes import UndecodableNodes
from magnetar_protos.admin_pb2 import TenantSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_protos.managed_ledger_pb2 import NamespaceLease, NamespaceLeases
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.topic_name import NamespaceName, TopicName
from tests.unit.broker.log_scene import TOPIC, Scene, numbered, running_log_scene

ONE, OTHER = bytes([1]) * 16, bytes([2]) * 16
_TEN_MIN_MS = 600_000
_PATH = paths.namespace_leases(TOPIC.namespace_name)
_TENANT, _NAMESPACE = "acme", NamespaceName("acme", "shop")
_IN_SHOP = TopicName.parse("persistent://acme/shop/orders")


def lease(lease_id: bytes = ONE, prefix: str = "", renewal: bytes = b"1") -> NamespaceLease:
    return NamespaceLease(
        lease_id=lease_id, name_prefix=prefix, lease_ms=_TEN_MIN_MS, holder="a query", renewal=renewal
    )


def node(*leases: NamespaceLease) -> NamespaceLeases:
    return NamespaceLeases(leases=leases)


def ids_for(there: NamespaceLeases, name: str) -> list[bytes]:
    return [one.lease_id for one in leases_for_topic(there, TopicName.parse(name), 7)]


# ── the rules ──


def test_new_topic_gets_the_leases_matching_its_name() -> None:
    """SPK-5, TOP-3: partitions too; each from the first ledger on. Topics of the system are none of a reader's."""
    there = node(lease(ONE, "orders-"), lease(OTHER))
    assert ids_for(there, "orders-a") == [ONE, OTHER]
    assert ids_for(there, "orders-a-partition-3") == [ONE, OTHER]
    assert ids_for(there, "order") == [OTHER]
    assert ids_for(there, "__change_events") == []
    [made, _] = leases_for_topic(there, TopicName.parse("orders-a"), 7)
    assert (made.from_ledger_id, made.lease_ms, made.holder, made.written_ms) == (0, _TEN_MIN_MS, "a query", 7)


def test_renewed_lease_replaces_itself_and_needs_no_capacity() -> None:
    """SPK-5, CHK-49: of so many at most; one that is renewed needs no further capacity."""
    there = node()
    assert hold_lease(there, lease(ONE), 2) is True
    assert hold_lease(there, lease(OTHER), 2) is True
    assert hold_lease(there, lease(bytes([3]) * 16), 2) is None
    assert hold_lease(there, lease(ONE, renewal=b"2"), 2) is False
    assert [(one.lease_id, one.renewal) for one in there.leases] == [(ONE, b"2"), (OTHER, b"1")]
    end_lease(there, ONE)
    end_lease(there, ONE)
    assert [one.lease_id for one in there.leases] == [OTHER]


def test_a_lease_lapses_when_it_was_not_renewed_for_all_of_its_time() -> None:
    """SPK-5: by the clock of who looks, from when it saw the renewal first; one that is renewed before it is removed
    stays."""
    detector = LapseDetector()
    assert detector.lapsed(node(lease(ONE), lease(OTHER)), 1000.0) == []
    assert detector.lapsed(node(lease(ONE), lease(OTHER, renewal=b"2")), 1599.0) == []
    assert detector.lapsed(node(lease(ONE), lease(OTHER, renewal=b"2")), 1600.0) == [lease(ONE)]
    assert detector.lapsed(node(lease(ONE, renewal=b"2")), 1700.0) == []
    assert detector.lapsed(node(), 3000.0) == []
    assert detector.lapsed(node(lease(ONE, renewal=b"2")), 3000.0) == []
    there = node(lease(ONE, renewal=b"3"), lease(OTHER))
    assert remove_lapsed(there, [lease(ONE, renewal=b"2"), lease(OTHER)]) == 1
    assert list(there.leases) == [lease(ONE, renewal=b"3")]


# ── the making of a topic ──


async def hold(scene: Scene, *leases: NamespaceLease) -> None:
    payload = node(*leases).SerializeToString()
    await compare_and_set.change(
        scene.registry, _PATH, lambda _: payload, clock=scene.clock, randomness=SeededRandomness("a reader")
    )


async def make_namespace(scene: Scene) -> Catalog:
    catalog = Catalog(scene.registry, scene.clock, SeededRandomness("a broker"))
    await catalog.bootstrap()
    await catalog.tenants.create(_TENANT, TenantSettings())
    await catalog.namespaces.create(_NAMESPACE, Policies())
    return catalog


async def incarnation_of(catalog: Catalog) -> bytes:
    return (await catalog.namespaces.get(_NAMESPACE)).node.incarnation


async def leases_of(scene: Scene) -> list[bytes]:
    stored = await compare_and_set.read(scene.registry, paths.topic(TOPIC), fresh=True)
    assert stored is not None
    return [one.lease_id for one in topic_node.decode_topic("", stored.payload).leases]


async def test_a_topic_that_is_made_under_a_lease_loses_nothing() -> None:
    """SPK-5, RET-1: though all that it has is acknowledged, and it is trimmed, before anybody has found it."""

    async with running_log_scene() as scene:
        await hold(scene, lease(ONE, "orders"), lease(OTHER, "another"))
        log = await scene.open()
        await scene.append(log, *numbered(7))
        await scene.patiently(log.trim(lambda: log.last))
        assert log.before_first.entry_id == -1
        assert log.ledger_list.entries == 7
        assert await leases_of(scene) == [ONE]
        scene.clock.advance(_TEN_MIN_MS / 1000 + 1)
        assert await scene.patiently(log.trim(lambda: log.last))
        assert log.ledger_list.entries == 1


async def test_lease_added_during_topic_creation_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPK-5: its reader may have listed the topics before this one was there"""

    async with running_log_scene() as scene:
        rounds = 0

        async def slowly(*args: Any) -> Any:
            nonlocal rounds
            found = await read_leases_for(*args)
            rounds += 1
            if rounds <= 2:
                await hold(scene, *[lease(ONE), lease(OTHER)][:rounds])
            return found

        monkeypatch.setattr("magnetar_broker.managed_ledger.topic_node.read_leases_for", slowly)
        await scene.open()
        assert rounds == 3
        assert await leases_of(scene) == [ONE, OTHER]


async def test_existing_topic_gets_no_namespace_lease() -> None:
    """A reader finds it in its list, and takes a lease by itself."""

    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(1))
        await scene.patiently(log.close())
        await hold(scene, lease())
        await scene.open()
        assert await leases_of(scene) == []


async def test_a_topic_is_not_made_in_a_later_namespace_of_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPK-5: both nodes of the later one are at the versions that were read of the earlier one, and a reader has
    a lease on it by then. Its maker is refused, and makes it with that lease when it tries again."""

    async with running_log_scene() as scene:
        catalog = await make_namespace(scene)
        rounds = 0

        async def slowly(*args: Any) -> Any:
            nonlocal rounds
            found = await read_leases_for(*args)
            rounds += 1
            if rounds == 1:
                await catalog.delete_namespace(_NAMESPACE, None)
                await catalog.namespaces.create(_NAMESPACE, Policies())
                later = await incarnation_of(catalog)
                await catalog.namespace_leases.hold(_NAMESPACE, later, "", ONE, _TEN_MIN_MS, "a query")
            return found

        monkeypatch.setattr("magnetar_broker.managed_ledger.topic_node.read_leases_for", slowly)
        with pytest.raises(BrokerError) as refused:
            await scene.open(name=_IN_SHOP, along=await catalog.prepare_creation(_IN_SHOP, explicit=True))
        assert refused.value.code == ErrorCode.SERVICE_NOT_READY
        await scene.open(name=_IN_SHOP, along=await catalog.prepare_creation(_IN_SHOP, explicit=True))
        stored = await compare_and_set.read(scene.registry, paths.topic(_IN_SHOP), fresh=True)
        assert stored is not None
        assert [one.lease_id for one in topic_node.decode_topic("", stored.payload).leases] == [ONE]


async def test_deleted_namespace_gets_no_leases_node() -> None:
    """SPK-5: neither a reader's call nor the maker of a topic"""

    async with running_log_scene() as scene:
        catalog = await make_namespace(scene)
        earlier = await incarnation_of(catalog)
        along = await catalog.prepare_creation(_IN_SHOP, explicit=True)
        await catalog.delete_namespace(_NAMESPACE, None)
        leases = catalog.namespace_leases
        with pytest.raises(BrokerError) as refused:
            await leases.hold(_NAMESPACE, earlier, "", ONE, _TEN_MIN_MS, "")
        assert refused.value.code == ErrorCode.NOT_FOUND
        await leases.end(_NAMESPACE, earlier, ONE)
        with pytest.raises(BrokerError) as refused:
            await scene.open(name=_IN_SHOP, along=along)
        assert refused.value.code == ErrorCode.SERVICE_NOT_READY
        assert await scene.registry.get(paths.namespace_leases(_NAMESPACE)) is None


async def test_a_namespace_is_deleted_with_the_leases_that_readers_have_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPK-5, CHK-58: one that is taken while the namespace is deleted, too; nothing is left of the namespace"""

    async with running_log_scene() as scene:
        catalog = await make_namespace(scene)
        incarnation = await incarnation_of(catalog)
        await catalog.namespace_leases.hold(_NAMESPACE, incarnation, "", ONE, _TEN_MIN_MS, "")
        transaction, held = scene.registry.transaction, False

        async def while_it_is_deleted(changes: Sequence[Change]) -> list[ChangeResult]:
            nonlocal held
            if not held and Delete(paths.namespace_incarnation(incarnation), 0) in changes:
                held = True
                await catalog.namespace_leases.hold(_NAMESPACE, incarnation, "", OTHER, _TEN_MIN_MS, "")
            return await transaction(changes)

        monkeypatch.setattr(scene.registry, "transaction", while_it_is_deleted)
        await catalog.delete_namespace(_NAMESPACE, None)
        assert held
        for path in (
            paths.namespace(_NAMESPACE),
            paths.namespace_incarnation(incarnation),
            paths.namespace_leases(_NAMESPACE),
        ):
            assert await scene.registry.get(path) is None


# ── damage ──


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize("work", ["make", "hold", "end", "delete"])
async def test_leases_that_can_not_be_decoded_are_replaced(
    caplog: pytest.LogCaptureFixture, work: str, wrapped: bool
) -> None:
    """CHK-67, SPK-5: by the maker of a topic, and by a reader's next call; their bytes are logged. They keep no
    administrator from listing them or from deleting the namespace."""

    async with running_log_scene() as scene:
        catalog = await make_namespace(scene)
        leases, incarnation = catalog.namespace_leases, await incarnation_of(catalog)
        path, value = paths.namespace_leases(_NAMESPACE), b"\xff\xfe\xfd"
        if wrapped:
            value = compare_and_set.encode_first_value(value, SeededRandomness(3))
        await scene.registry.put(path, value, ANY)
        assert await leases.list(_NAMESPACE) == ()
        match work:
            case "make":
                await scene.open(name=_IN_SHOP, along=await catalog.prepare_creation(_IN_SHOP, explicit=True))
            case "hold":
                assert await leases.hold(_NAMESPACE, incarnation, "", ONE, _TEN_MIN_MS, "") is True
                assert [one.lease_id for one in await leases.list(_NAMESPACE)] == [ONE]
            case "end":
                await leases.end(_NAMESPACE, incarnation, ONE)
            case "delete":
                await catalog.delete_namespace(_NAMESPACE, None)
                assert await scene.registry.get(path) is None
                return
        stored = await compare_and_set.read(scene.registry, path, fresh=True)
        assert stored is not None
        assert stored.version >= 1
        NamespaceLeases.FromString(stored.payload)
        assert caplog.text.count("fffefd") == 1


# ── sweeping ──


async def test_a_sweeper_changes_no_leases_of_a_later_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPK-5: which stand at the version that it has read"""

    async with running_log_scene() as scene:
        catalog = await make_namespace(scene)
        leases = catalog.namespace_leases
        counted: list[int] = []
        store = scene.server.connect()
        sweeper = NamespaceLeaseSweeper(
            store, scene.clock, SeededRandomness(3), 1.0, UndecodableNodes(), counted.append
        )
        await leases.hold(_NAMESPACE, await incarnation_of(catalog), "", ONE, 1000, "")
        await sweeper.sweep()
        scene.clock.advance(2)
        transaction, deleted = store.transaction, False

        async def after_a_deletion(changes: Sequence[Change]) -> list[ChangeResult]:
            nonlocal deleted
            if not deleted:
                deleted = True
                await catalog.delete_namespace(_NAMESPACE, None)
                await catalog.namespaces.create(_NAMESPACE, Policies())
                await leases.hold(_NAMESPACE, await incarnation_of(catalog), "", OTHER, _TEN_MIN_MS, "")
            return await transaction(changes)

        monkeypatch.setattr(store, "transaction", after_a_deletion)
        await sweeper.sweep()
        assert deleted
        assert counted == []
        assert [one.lease_id for one in await leases.list(_NAMESPACE)] == [OTHER]


async def test_lapsed_leases_are_removed_and_counted_by_any_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPK-5, CHK-58: what a killed reader leaves; of two brokers one counts it. A node that is not ours holds up no
    other, nor do more namespaces than a round reads."""
    monkeypatch.setattr("magnetar_broker.managed_ledger.namespace_leases._READ_A_ROUND", 1)

    async with running_log_scene() as scene:
        counted: list[int] = []
        sweepers = [
            NamespaceLeaseSweeper(
                scene.server.connect(), scene.clock, SeededRandomness(number), 120.0, UndecodableNodes(), counted.append
            )
            for number in range(2)
        ]

        await Catalog(scene.registry, scene.clock, SeededRandomness("a broker")).bootstrap()

        async def sweep() -> None:
            for sweeper in sweepers * 2:
                await scene.patiently(sweeper.sweep())

        await compare_and_set.change(
            scene.registry,
            f"{paths.NAMESPACE_LEASES}/a%2Fb",
            lambda _: b"\xff\xff",
            clock=scene.clock,
            randomness=SeededRandomness("an operator"),
        )
        await hold(scene, lease(ONE), lease(OTHER))
        await sweep()
        scene.clock.advance(400)
        await hold(scene, lease(ONE), lease(OTHER, renewal=b"2"))
        await sweep()
        scene.clock.advance(201)
        await sweep()
        stored = await compare_and_set.read(scene.registry, _PATH, fresh=True)
        assert stored is not None
        assert [one.lease_id for one in NamespaceLeases.FromString(stored.payload).leases] == [OTHER]
        assert counted == [1]
        scene.clock.advance(400)
        await sweep()
        assert counted == [1, 1]


async def test_sweeper_continues_after_a_metadata_store_outage() -> None:
    """SPK-5"""

    async with running_log_scene() as scene:
        counted: list[int] = []
        store = scene.server.connect()
        sweeper = NamespaceLeaseSweeper(
            store, scene.clock, SeededRandomness(3), 1.0, UndecodableNodes(), counted.append
        )
        await Catalog(scene.registry, scene.clock, SeededRandomness("a broker")).bootstrap()
        await hold(scene, lease())
        sweeping = asyncio.ensure_future(sweeper.run())
        await scene.idle()
        scene.server.suspend(store)
        scene.clock.advance(2)
        await scene.idle()
        scene.server.resume(store)
        passed = 0
        while not counted:
            scene.clock.advance(2)
            await scene.idle()
            passed += 2
        assert 600 <= passed <= 620
        assert not sweeping.done()
        sweeping.cancel()
        await asyncio.wait([sweeping])
