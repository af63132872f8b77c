"""Registrations and reads of schemas while brokers are killed, answers are lost, and bookies or the store are away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from magnetar_bookie import paths as bookie_paths
from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas import compatibility, definitions
from magnetar_broker.schemas.bounded_cache import BoundedCache
from magnetar_broker.schemas.definition_ledgers import DefinitionDeleted, DefinitionLedgers
from magnetar_broker.schemas.schema_registry import SchemaRegistry
from magnetar_broker.schemas.schema_rules import SchemaRules
from magnetar_broker.schemas.shared_reads import SharedReads
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import SchemaCompatibility
from magnetar_protos.schema_pb2 import StoredSchema
from magnetar_testing.metadata.server import Fault
from tests.unit.broker.admin.catalog_scene import code_of
from tests.unit.broker.schemas.registry_scene import (
    FULL,
    TOPIC,
    PausedStore,
    RegistryScene,
    running_registry_scene,
    schema,
)

LONG_S = 100_000.0


async def _check_versions(scene: RegistryScene, registry: SchemaRegistry, *fields: str) -> None:
    """Check that these are the versions, and that their ledgers are the only ones with an owner."""
    found = await registry.list_versions(TOPIC)
    assert [(one.version, one.schema) for one in found] == [(at, schema(field)) for at, field in enumerate(fields)]
    assert await scene.ledgers() == {one.ledger_id for one in await registry.describe(TOPIC)}


@pytest.mark.parametrize("made", [False, True], ids=["before", "after"])
async def test_a_killed_registration_is_repeated_at_another_broker(made: bool) -> None:
    """SCH-1: the version is there once, completely or not at all."""

    async def killed_after(changes: int) -> bool:
        async with running_registry_scene() as scene:
            registry = await scene.start_broker()
            await registry.register(TOPIC, schema("a"), FULL)
            store = scene.killed_after(changes, made=made)
            refused = await code_of((await scene.start_broker(store=store)).register(TOPIC, schema("b"), FULL))
            assert refused == (ErrorCode.SERVICE_NOT_READY if store.died else None)
            is_there = await registry.find_version(TOPIC, schema("b"))
            assert is_there in (None, 1)
            assert await registry.register(TOPIC, schema("b"), FULL) == 1
            await _check_versions(scene, registry, "a", "b")
            return store.died

    changes = 0
    while await killed_after(changes):
        changes += 1
    assert changes == 4


async def test_a_registration_without_an_answer_is_never_done_twice() -> None:
    """SCH-1: whichever answer of the store is lost."""

    async def lost_at(request: int) -> bool:
        async with running_registry_scene() as scene:
            store = scene.cluster.server.connect(LONG_S)
            registry = await scene.start_broker(store=store)
            scene.cluster.server.queue_faults(store, *[None] * request, Fault.LOSE_ANSWER)
            adding = asyncio.ensure_future(code_of(registry.register(TOPIC, schema("a"), FULL)))
            while not adding.done() and store.session.state.name == "CONNECTED":
                await asyncio.sleep(0)
            was_lost = store.session.state.name != "CONNECTED"
            if was_lost:
                scene.cluster.server.resume(store)
            else:
                await asyncio.wait([adding])
                link = scene.cluster.server.find_session(store)
                assert link is not None
                link.faults.clear()
            assert await adding in (None, ErrorCode.METADATA_ERROR)
            other = await scene.start_broker()
            assert await other.register(TOPIC, schema("a"), FULL) == 0
            assert await registry.register(TOPIC, schema("a"), FULL) == 0
            await _check_versions(scene, other, "a")
            return was_lost

    request = 0
    while await lost_at(request):
        request += 1
    assert request >= 8


async def test_a_registration_that_was_too_slow_writes_another_ledger() -> None:
    """SCH-1: its first one was deleted as a ledger without an owner."""

    async with running_registry_scene() as scene:
        # Before the transaction that adds the version. Those before create and close the ledger.
        slow = PausedStore(scene.cluster.server.connect(LONG_S), requests=1, changes=3)
        registry = await scene.start_broker(store=slow)
        registering = asyncio.ensure_future(registry.register(TOPIC, schema("a"), FULL))
        await slow.wait_until_paused(registering)
        client = scene.cluster.client
        (ledger_id,) = await client.ledgers.list_ledger_ids(bookie_paths.INTENTS)
        await client.delete(ledger_id)
        await client.ledgers.store.delete(bookie_paths.intent(ledger_id), 0)
        slow.continues.set()
        assert await registering == 0
        await _check_versions(scene, registry, "a")
        assert (await registry.describe(TOPIC))[0].ledger_id != ledger_id


async def test_nothing_is_half_done_while_bookies_are_away() -> None:
    """SCH-1: a known schema needs no bookie, and what was read once is cached."""

    async with running_registry_scene() as scene:
        registry, other = await scene.start_broker(), await scene.start_broker()
        await registry.register(TOPIC, schema("a"), FULL)
        for bookie in scene.cluster.bookies.values():
            bookie.failing.update(("add", "read"))
        for attempt in (
            other.register(TOPIC, schema("b"), FULL),
            registry.register(TOPIC, schema("b"), FULL),
            other.get(TOPIC, 0),
        ):
            assert await code_of(attempt) == ErrorCode.PERSISTENCE_ERROR
        assert await other.register(TOPIC, schema("a"), FULL) == 0
        assert (await registry.get(TOPIC, 0)).schema == schema("a")
        for bookie in scene.cluster.bookies.values():
            bookie.failing.clear()
        assert await other.register(TOPIC, schema("b"), FULL) == 1
        await _check_versions(scene, registry, "a", "b")


async def test_nothing_is_half_done_while_the_store_is_away() -> None:
    async with running_registry_scene() as scene:
        store = scene.cluster.server.connect(LONG_S)
        registry = await scene.start_broker(store=store)
        await registry.register(TOPIC, schema("a"), FULL)
        scene.cluster.server.suspend(store)
        for attempt in (
            registry.register(TOPIC, schema("b"), FULL),
            registry.get(TOPIC, 0),
            registry.has_schema(TOPIC),
            registry.delete(TOPIC),
        ):
            assert await code_of(attempt) == ErrorCode.METADATA_ERROR
        scene.cluster.server.resume(store)
        assert await registry.register(TOPIC, schema("b"), FULL) == 1
        await _check_versions(scene, registry, "a", "b")


@pytest.mark.parametrize("strategy", SchemaCompatibility.values())
async def test_consumers_with_the_topic_s_schema_need_no_bookie(strategy: SchemaCompatibility) -> None:
    """SCH-1, SCH-2: nor is anything compared, except by strategies that count all versions."""

    async with running_registry_scene() as scene:
        await (await scene.start_broker()).register(TOPIC, schema("a"), FULL)
        registry = await scene.start_broker()
        for bookie in scene.cluster.bookies.values():
            bookie.failing.add("read")
        rules = SchemaRules(strategy, allow_auto_update=True, validation_enforced=False)
        refused = await code_of(registry.check_readable(TOPIC, schema("a"), rules))
        needs_it = (
            SchemaCompatibility.BACKWARD_TRANSITIVE,
            SchemaCompatibility.FULL_TRANSITIVE,
            SchemaCompatibility.ALWAYS_INCOMPATIBLE,
        )
        assert refused == (ErrorCode.PERSISTENCE_ERROR if strategy in needs_it else None)


def _note_rules(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each rule that is applied to definitions."""
    done: list[str] = []
    for module, name in (
        (definitions, "examine"),
        (compatibility, "check_compatible"),
        (compatibility, "check_readable"),
    ):
        rule = getattr(module, name)

        def noted(*arguments: Any, name: str = name, rule: Callable[..., Any] = rule) -> Any:
            done.append(name)
            return rule(*arguments)

        monkeypatch.setattr(module, name, noted)
    return done


async def test_the_same_schemas_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """SCH-2: for clients that come again. Another strategy, use or version is another comparison."""
    done = _note_rules(monkeypatch)
    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        full = SchemaRules(SchemaCompatibility.FULL_TRANSITIVE, allow_auto_update=True, validation_enforced=False)
        await registry.register(TOPIC, schema("a"), full)
        done.clear()
        for _ in range(3):
            assert await code_of(registry.register(TOPIC, schema("unfit"), full)) == ErrorCode.INCOMPATIBLE_SCHEMA
            with pytest.raises(BrokerError, match="version 0") as error:
                await registry.check_readable(TOPIC, schema("unfit"), full)
            assert (error.value.code, error.value.about) == (ErrorCode.INCOMPATIBLE_SCHEMA, "schema")
            await registry.check_readable(TOPIC, schema("a"), full)
        assert done == ["examine", "check_compatible", "check_readable", "check_readable"]
        await registry.check_readable(TOPIC, schema("other"), FULL)
        await registry.check_readable(TOPIC, schema("other"), full)
        await registry.register(TOPIC, schema("b"), full)
        done.clear()
        await registry.check_readable(TOPIC, schema("other"), full)
        assert done == ["check_readable"]


async def test_a_lost_definition_affects_its_version_only() -> None:
    """SCH-1: producers of known versions go on. What would have to be compared with it is refused."""

    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        for field in ("a", "b"):
            await registry.register(TOPIC, schema(field), FULL)
        for bookie in scene.cluster.bookies.values():
            bookie.ledger((await registry.describe(TOPIC))[1].ledger_id).records.clear()
        other = await scene.start_broker()
        assert (await other.get(TOPIC, 0)).schema == schema("a")
        with pytest.raises(BrokerError, match="version 1 of the schema of persistent://public/default/orders is lost"):
            await other.get(TOPIC, 1)
        for field, version in (("a", 0), ("b", 1)):
            assert await other.register(TOPIC, schema(field), FULL) == version
        assert await code_of(other.register(TOPIC, schema("c"), FULL)) == ErrorCode.CHECKSUM_ERROR
        always = SchemaRules(SchemaCompatibility.ALWAYS_COMPATIBLE, allow_auto_update=True, validation_enforced=False)
        assert await other.register(TOPIC, schema("c"), always) == 2
        assert await other.register(TOPIC, schema("d"), FULL) == 3  # compared with the last one
        transitive = SchemaRules(SchemaCompatibility.FULL_TRANSITIVE, allow_auto_update=True, validation_enforced=False)
        assert await code_of(other.register(TOPIC, schema("e"), transitive)) == ErrorCode.CHECKSUM_ERROR
        await other.delete(TOPIC)
        assert await other.register(TOPIC, schema("e"), transitive) == 5


async def test_a_definition_whose_ledger_an_operator_has_deleted_is_lost() -> None:
    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        await registry.register(TOPIC, schema(), FULL)
        await scene.cluster.client.delete((await registry.describe(TOPIC))[0].ledger_id)
        assert await code_of((await scene.start_broker()).get(TOPIC, 0)) == ErrorCode.CHECKSUM_ERROR


async def test_concurrent_calls_share_reads_of_node_and_definition() -> None:
    """SCH-1: brokers cache definitions."""

    async with running_registry_scene() as scene:
        await (await scene.start_broker()).register(TOPIC, schema("a"), FULL)
        registry = await scene.start_broker()
        ledger_id = (await registry.describe(TOPIC))[0].ledger_id

        def reads() -> int:
            held = (bookie.reads() for bookie in scene.cluster.bookies.values())
            return sum(request.ledger_id == ledger_id for requests in held for request in requests)

        found = await asyncio.gather(*(registry.get(TOPIC, 0) for _ in range(50)))
        assert {one.version for one in found} == {0}
        assert reads() == 1


async def _idle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_call_joins_no_read_that_was_in_flight_before_it() -> None:
    """SCH-1: so each call sees what was written before it."""
    ends: list[asyncio.Future[int]] = []

    async def read(_: str) -> int:
        ends.append(asyncio.get_running_loop().create_future())
        return await ends[-1]

    shared = SharedReads[str, int](read)
    early = asyncio.ensure_future(shared.read("topic"))
    await _idle()
    late = [asyncio.ensure_future(shared.read("topic")) for _ in range(3)]
    await _idle()
    assert len(ends) == 1  # the next read begins when this one has ended
    ends[0].set_result(1)
    await _idle()
    assert await early == 1
    assert len(ends) == 2
    ends[1].set_result(2)
    assert await asyncio.gather(*late) == [2, 2, 2]
    closed = asyncio.ensure_future(shared.read("topic"))
    await _idle()
    await shared.close()
    assert await code_of(closed) == ErrorCode.SERVICE_NOT_READY


def test_cached_entries_are_bounded() -> None:
    """Those that were used last stay; a larger one than the bound is not cached."""
    cache = BoundedCache[int, str](1_000)
    for key in (1, 2):
        cache.put(key, f"value {key}", 300)
    assert cache.get(1) == "value 1"
    for key in (3, 4):
        cache.put(key, f"value {key}", 300)
    cache.put(5, "large", 1_001)
    assert [key for key in range(6) if key in cache] == [1, 3, 4]
    for key in range(1_000):
        cache.put(key % 100, "value", 10)
    assert cache.used_bytes == 1_000
    assert all(key in cache for key in range(100))
    cache.put(99, "large", 1_001)
    assert cache.get(99) is None
    assert cache.used_bytes == 990


async def test_cached_definitions_count_with_their_size() -> None:
    async with running_registry_scene() as scene:
        ledgers = DefinitionLedgers(await scene.client(), cache_bytes=5_000)
        for ledger_id in (1, 2, 3):
            ledgers.remember(ledger_id, StoredSchema(schema=schema(padding=800)))
        ledgers.remember(4, StoredSchema(schema=schema(padding=5_000)))
        for ledger_id, is_cached in ((1, False), (2, True), (3, True), (4, False)):
            if is_cached:
                assert (await ledgers.read(ledger_id, "it")).schema == schema(padding=800)
            else:
                with pytest.raises(DefinitionDeleted):
                    await ledgers.read(ledger_id, "it")


async def test_fingerprints_and_verdicts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many clients with schemas of their own: the first ones are forgotten."""
    done = _note_rules(monkeypatch)
    async with running_registry_scene() as scene:
        registry = await scene.start_broker(cache_bytes=2_000)
        await registry.register(TOPIC, schema("a"), FULL)
        for _ in range(2):
            done.clear()
            for number in range(10):
                await registry.check_readable(TOPIC, schema(f"f{number}"), FULL)
            assert done == ["examine", "check_readable"] * 10
        done.clear()
        await registry.check_readable(TOPIC, schema("f9"), FULL)
        assert not done


async def test_large_definitions_are_compared_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the broker goes on serving others. Errors are those of a small one."""
    threads = set()
    check = compatibility.check_compatible

    def noted(*arguments: Any) -> None:
        threads.add(threading.current_thread().name)
        check(*arguments)

    monkeypatch.setattr(compatibility, "check_compatible", noted)
    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        long = "x" * 40_000
        await registry.register(TOPIC, schema(long), FULL)
        threads.clear()
        assert await code_of(registry.register(TOPIC, schema("unfit"), FULL)) == ErrorCode.INCOMPATIBLE_SCHEMA
        assert threads == {"schemas_0"}
