"""Deletions of schemas: by an administrator, and with their topics; killed at each step, or much too late."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from magnetar_broker import paths
from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas.definition_ledgers import DefinitionLedgers
from magnetar_broker.schemas.schema_deletion import prepare_schema_deletion
from magnetar_broker.schemas.schema_node import read_topic_checks
from magnetar_broker.schemas.schema_registry import SchemaRegistry
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_metadata.errors import BadVersion, NoNode
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.admin.catalog_scene import code_of
from tests.unit.broker.schemas.registry_scene import (
    FULL,
    PARTITIONED,
    TOPIC,
    PausedStore,
    RegistryScene,
    running_registry_scene,
    schema,
)

BOTH = [pytest.param(TOPIC, id="plain"), pytest.param(PARTITIONED, id="partitioned")]
LONG_S = 100_000.0


async def test_deleted_versions_are_not_found_and_do_not_count() -> None:
    """SCH-1, as in Pulsar: a new version marks the deletion. Nothing is compared with the versions before it, and a
    definition that was deleted gets a new version."""

    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        await registry.register(TOPIC, schema("unfit_1"), FULL)
        assert await registry.delete(TOPIC) == 1
        assert not await registry.has_schema(TOPIC)
        assert await registry.find_latest(TOPIC) is None
        for version in (0, 1):
            assert await code_of(registry.get(TOPIC, version)) == ErrorCode.NOT_FOUND
        assert await registry.delete(TOPIC) == 2
        assert await registry.register(TOPIC, schema("unfit_2"), FULL) == 3
        assert [one.version for one in await registry.list_versions(TOPIC) if one.schema is None] == [2]
        await registry.delete(TOPIC)
        assert await registry.register(TOPIC, schema("unfit_1"), FULL) == 5
        assert (await registry.get(TOPIC, 5)).schema == schema("unfit_1")


async def test_a_deletion_by_force_removes_definitions_and_does_not_repeat_versions() -> None:
    """SCH-1: a message that was encoded with a removed version is never decoded with another one."""

    async with running_registry_scene() as scene:
        registry, other = await scene.start_broker(), await scene.start_broker()
        for field in ("a", "b"):
            await registry.register(TOPIC, schema(field), FULL)
        assert (await other.get(TOPIC, 1)).schema == schema("b")
        assert await registry.delete(TOPIC, force=True) == 2
        assert await scene.ledgers() == set()
        assert await code_of(other.get(TOPIC, 1)) == ErrorCode.NOT_FOUND
        assert await other.register(TOPIC, schema("c"), FULL) == 3


@pytest.mark.parametrize("made", [False, True], ids=["before", "after"])
async def test_a_killed_deletion_by_force_is_finished_by_the_next_change(made: bool) -> None:
    """SCH-1: no ledger is left behind."""

    async def killed_after(changes: int) -> bool:
        async with running_registry_scene() as scene:
            registry = await scene.start_broker()
            for field in ("a", "b"):
                await registry.register(TOPIC, schema(field), FULL)
            store = scene.killed_after(changes, made=made)
            await code_of((await scene.start_broker(store=store)).delete(TOPIC, force=True))
            is_deleted = not await registry.has_schema(TOPIC)
            version = await registry.register(TOPIC, schema("c"), FULL)
            assert version == (3 if is_deleted else 2)
            node = await scene.node()
            assert node is not None
            assert not node.deleting
            assert await scene.ledgers() == {one.ledger_id for one in node.versions if one.ledger_id}
            return store.died

    changes = 0
    while await killed_after(changes):
        changes += 1
    assert changes >= 4


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("made", [False, True], ids=["before", "after"])
async def test_a_deleted_topic_takes_its_schema_with_it(name: TopicName, made: bool) -> None:
    """SCH-1, TOP-7: also if the broker that deletes it is killed at any step. A later topic begins without one."""

    async def killed_after(changes: int) -> bool:
        async with running_registry_scene(topic=False) as scene:
            await scene.create(name)
            registry = await scene.start_broker()
            for field in ("a", "b"):
                await registry.register(name, schema(field), FULL)
            await registry.delete(name)
            store = scene.killed_after(changes, made=made)
            refused = await code_of(scene.delete_topic(name, store))
            assert store.died or refused is None
            assert await code_of(scene.delete_topic(name)) in (None, ErrorCode.NOT_FOUND)
            assert await scene.ledgers() == set()
            assert await scene.schema_paths() == []
            await scene.create(name)
            assert await registry.find_latest(name) is None
            assert await registry.register(name, schema("unfit"), FULL) == 0
            return store.died

    changes = 0
    while await killed_after(changes):
        changes += 1
    assert changes >= 4


async def test_a_partition_that_is_deleted_leaves_the_schema_of_its_topic() -> None:
    async with running_registry_scene(topic=False) as scene:
        await scene.create(PARTITIONED)
        await scene.create_topic(PARTITIONED.partition(0))
        registry = await scene.start_broker()
        await registry.register(PARTITIONED, schema(), FULL)
        await scene.delete_topic(PARTITIONED.partition(0))
        assert (await registry.get(PARTITIONED, 0)).schema == schema()


async def _paused_at_each_request(
    name: TopicName, work: Callable[[RegistryScene, PausedStore], Awaitable[object]], changes: int = 0
) -> None:
    """Pause `work` before each of its requests after these changes, delete the topic, create it with another schema,
    and continue `work`. Each time the later topic has its schema."""

    async def paused_at(request: int) -> bool:
        async with running_registry_scene(topic=False) as scene:
            await scene.create(name)
            registry = await scene.start_broker()
            await registry.register(name, schema("old"), FULL)
            store = PausedStore(scene.cluster.server.connect(LONG_S), request, changes)
            late = asyncio.ensure_future(work(scene, store))
            await store.wait_until_paused(late)
            with suppress(BrokerError):
                await scene.delete_topic(name)
            await scene.create(name)
            assert await registry.register(name, schema("new"), FULL) == 0
            store.continues.set()
            with suppress(BrokerError):
                await late
            await _check_schemas(scene, registry, name)
            await scene.delete_topic(name)
            assert await scene.ledgers() == set()
            assert await scene.schema_paths() == []
            return store.is_paused

    request = 0
    while await paused_at(request):
        request += 1
    assert request >= 5


async def _check_schemas(scene: RegistryScene, registry: SchemaRegistry, name: TopicName) -> None:
    assert (await registry.get(name, 0)).schema == schema("new")
    node = await scene.node(name)
    assert node is not None
    assert [one.version for one in node.versions] == list(range(len(node.versions)))
    for one in node.versions:
        await registry.get(name, one.version)
    assert await scene.ledgers() == {one.ledger_id for one in node.versions}


@pytest.mark.parametrize("name", BOTH)
async def test_a_late_deletion_of_a_topic_leaves_the_schema_of_a_later_topic(name: TopicName) -> None:
    """SCH-1, TOP-7: at whichever request it was paused after it had marked the topic."""

    async def delete(scene: RegistryScene, store: PausedStore) -> None:
        await scene.delete_topic(name, store)

    await _paused_at_each_request(name, delete, changes=1)


@pytest.mark.parametrize("name", BOTH)
async def test_a_late_registration_is_no_version_of_a_deleted_topic(name: TopicName) -> None:
    """SCH-1: it is refused, or is a version of the later topic like any other. No ledger is left behind."""

    async def register(scene: RegistryScene, store: PausedStore) -> None:
        await (await scene.start_broker(store=store)).register(name, schema("late"), FULL)

    await _paused_at_each_request(name, register)


async def _damage(scene: RegistryScene, name: TopicName) -> None:
    store = scene.cluster.server.connect()
    node = await store.get(paths.schema(name))
    assert node is not None
    await store.put(paths.schema(name), b"damaged", node.version)


async def test_a_damaged_node_is_replaced_by_force() -> None:
    """SCH-1: versions are not used again, though the earlier ones are not known any more."""

    async with running_registry_scene() as scene:
        registry = await scene.start_broker()
        await registry.register(TOPIC, schema(), FULL)
        await _damage(scene, TOPIC)
        for attempt in (registry.get(TOPIC, 0), registry.register(TOPIC, schema(), FULL), registry.delete(TOPIC)):
            assert await code_of(attempt) == ErrorCode.CHECKSUM_ERROR
        mark = await registry.delete(TOPIC, force=True)
        assert mark > 0
        assert not await registry.has_schema(TOPIC)
        assert await registry.register(TOPIC, schema(), FULL) == mark + 1
        await scene.delete_topic(TOPIC)
        assert await scene.schema_paths() == []


@pytest.mark.parametrize("name", BOTH)
async def test_a_damaged_node_does_not_keep_its_topic(name: TopicName) -> None:
    async with running_registry_scene(topic=False) as scene:
        await scene.create(name)
        registry = await scene.start_broker()
        await registry.register(name, schema(), FULL)
        await _damage(scene, name)
        await scene.delete_topic(name)
        assert await scene.schema_paths() == []
        await scene.create(name)
        assert await registry.register(name, schema("b"), FULL) == 0


@pytest.mark.parametrize("name", BOTH)
async def test_a_registration_that_arrives_after_the_deletion_is_refused(name: TopicName) -> None:
    async with running_registry_scene(topic=False) as scene:
        await scene.create(name)
        # Before the transaction that adds the version. Those before create and close the ledger.
        slow = PausedStore(scene.cluster.server.connect(LONG_S), requests=1, changes=3)
        late = asyncio.ensure_future((await scene.start_broker(store=slow)).register(name, schema(), FULL))
        await slow.wait_until_paused(late)
        await scene.delete_topic(name)
        slow.continues.set()
        assert await code_of(late) == ErrorCode.TOPIC_NOT_FOUND
        assert await scene.schema_paths() == []


async def test_a_registration_that_is_very_late_leaves_no_schema_without_a_topic() -> None:
    """SCH-1: a later topic of the name, which is being deleted, has the version at which the registration has read the
    earlier one. At each request of that deletion the registration's transaction arrives."""

    async def arrives_at(request: int) -> bool:
        async with running_registry_scene(topic=False) as scene:
            await scene.create(PARTITIONED)
            await scene.catalog().partitioned.update_properties(PARTITIONED, {"its version": "is 1"}, [])
            connect = scene.cluster.server.connect
            # Before the transaction that adds the version. Those before create and close the ledger.
            slow = PausedStore(connect(LONG_S), requests=1, changes=3)
            late = asyncio.ensure_future((await scene.start_broker(store=slow)).register(PARTITIONED, schema(), FULL))
            await slow.wait_until_paused(late)
            await scene.delete_topic(PARTITIONED)
            await scene.create(PARTITIONED)
            store = PausedStore(connect(LONG_S), request, changes=1)
            deletion = asyncio.ensure_future(scene.delete_topic(PARTITIONED, store))
            await store.wait_until_paused(deletion)
            slow.continues.set()
            await code_of(late)
            store.continues.set()
            await deletion
            assert await scene.schema_paths() == []
            assert await scene.ledgers() == set()
            return store.is_paused

    request = 0
    while await arrives_at(request):
        request += 1
    assert request >= 5


@pytest.mark.parametrize("name", BOTH)
async def test_nothing_is_added_to_a_topic_that_is_being_deleted(name: TopicName) -> None:
    async with running_registry_scene(topic=False) as scene:
        await scene.create(name)
        registry = await scene.start_broker()
        await code_of(scene.delete_topic(name, scene.killed_after(1, made=False)))
        assert await code_of(registry.register(name, schema(), FULL)) == ErrorCode.TOPIC_NOT_FOUND
        assert await code_of(registry.delete(name)) == ErrorCode.TOPIC_NOT_FOUND


async def test_a_topic_of_the_same_version_is_not_the_one_that_was_read() -> None:
    """SCH-1: a late version is not added to a later topic whose node has the same version by chance."""

    async with running_registry_scene() as scene:
        store = scene.cluster.server.connect()
        checks = await read_topic_checks(store, TOPIC)
        await store.transaction(checks)
        await scene.delete_topic()
        await scene.create_topic()
        (topic_check, *_), (read, *_) = await read_topic_checks(store, TOPIC), checks
        assert topic_check == read
        with pytest.raises((BadVersion, NoNode)):
            await store.transaction(checks)


@pytest.mark.parametrize("name", BOTH)
async def test_a_topic_created_elsewhere_a_moment_ago_gets_a_schema(name: TopicName) -> None:
    """Though the server of the store that the broker is connected to lags behind."""

    async with running_registry_scene(topic=False) as scene:
        store = scene.cluster.server.connect()
        scene.cluster.server.lag(store)
        await scene.create(name)
        assert await read_topic_checks(store, name)


async def test_a_late_deletion_leaves_a_damaged_schema_of_a_later_topic() -> None:
    async with running_registry_scene() as scene:
        await (await scene.start_broker()).register(TOPIC, schema(), FULL)
        await _damage(scene, TOPIC)

        async def is_being_deleted() -> bool:
            return False

        client = await scene.client()
        with pytest.raises(BrokerError, match="changed at the same time"):
            await prepare_schema_deletion(
                TOPIC, client, scene.clock, SeededRandomness("late"), is_being_deleted, create=False
            )


async def test_a_version_removed_while_it_is_read_is_not_found() -> None:
    """SCH-1: and not lost."""

    async def removed_at(request: int) -> bool:
        async with running_registry_scene() as scene:
            registry = await scene.start_broker()
            await registry.register(TOPIC, schema(), FULL)
            store = PausedStore(scene.cluster.server.connect(LONG_S), request, changes=0)

            async def read() -> ErrorCode | None:
                return await code_of((await scene.start_broker(store=store)).get(TOPIC, 0))

            reading = asyncio.ensure_future(read())
            await store.wait_until_paused(reading)
            await registry.delete(TOPIC, force=True)
            store.continues.set()
            assert await reading in (None, ErrorCode.NOT_FOUND)
            return store.is_paused

    request = 0
    while await removed_at(request):
        request += 1
    assert request >= 2


async def test_removed_versions_count_until_their_ledgers_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise registrations and deletions in turn could fill the node while ledgers can't be deleted."""

    async def delete_none(*_: object) -> list[int]:
        return []

    async with running_registry_scene() as scene:
        registry = await scene.start_broker(BrokerServiceSettings(max_schema_versions_per_topic=2))
        for number in range(2):
            await registry.register(TOPIC, schema(f"f{number}"), FULL)
        with monkeypatch.context() as patched:
            patched.setattr(DefinitionLedgers, "delete", delete_none)
            await registry.delete(TOPIC, force=True)
            assert await code_of(registry.register(TOPIC, schema("f2"), FULL)) == ErrorCode.NOT_ALLOWED
        assert await registry.register(TOPIC, schema("f2"), FULL) == 3
