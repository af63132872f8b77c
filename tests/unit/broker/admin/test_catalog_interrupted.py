"""The catalog's changes, with the process killed at each step, and with others who change the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from magnetar_broker import paths
from magnetar_broker.catalog.catalog import Catalog
from magnetar_protos.admin_pb2 import TenantSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import AutoTopicCreation, Policies
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.topic_name import NamespaceName, TopicName
from tests.unit.broker.admin.catalog_scene import NAMESPACE, CatalogScene, code_of, no_schema

TOPIC = TopicName.parse("acme/shop/orders")
PLAIN = TopicName.parse("acme/shop/plain")
NEW = NamespaceName("acme", "new")

Operation = Callable[[CatalogScene, Catalog], Awaitable[None]]
Holds = Callable[[CatalogScene], Awaitable[bool]]


async def _create_tenant(scene: CatalogScene, catalog: Catalog) -> None:
    await catalog.tenants.create("globex", TenantSettings())


async def _create_namespace(scene: CatalogScene, catalog: Catalog) -> None:
    await catalog.namespaces.create(NEW, Policies())


async def _create_partitioned(scene: CatalogScene, catalog: Catalog) -> None:
    await catalog.partitioned.create(TopicName.parse("acme/shop/new"), 3, {})


async def _grow(scene: CatalogScene, catalog: Catalog) -> None:
    async def prepare(new: Sequence[TopicName]) -> None:
        for name in new:
            if await scene.store.get(paths.topic(name)) is None:
                await scene.make_topic(name, catalog)

    await catalog.partitioned.grow(TOPIC, 5, prepare)


async def _delete_partitioned(scene: CatalogScene, catalog: Catalog) -> None:
    await catalog.partitioned.delete(TOPIC, scene.delete_topics, no_schema)


async def _delete_namespace(scene: CatalogScene, catalog: Catalog) -> None:
    await catalog.delete_namespace(NAMESPACE, lambda name: scene.delete_all(catalog, name))


async def _delete_tenant(scene: CatalogScene, catalog: Catalog) -> None:
    await catalog.delete_tenant("acme", lambda name: scene.delete_all(catalog, name))


async def _tenant_there(scene: CatalogScene) -> bool:
    return "globex" in await scene.another().tenants.list_names()


async def _namespace_there(scene: CatalogScene) -> bool:
    return await code_of(scene.another().check_topic(TopicName.parse("acme/new/t"))) is None


async def _partitioned_there(scene: CatalogScene) -> bool:
    return await scene.another().resolve_partitions(TopicName.parse("acme/shop/new"), False) == 3


async def _grown(scene: CatalogScene) -> bool:
    assert await scene.store.get(paths.topic(TOPIC.partition(4))) is not None
    return await scene.another().resolve_partitions(TOPIC, False) == 5


async def _is_partitioned_deleted(scene: CatalogScene) -> bool:
    assert await scene.another().list_topics(NAMESPACE) == [str(PLAIN)]
    return await code_of(scene.another().partitioned.get(TOPIC)) == ErrorCode.NOT_FOUND


async def _is_namespace_deleted(scene: CatalogScene) -> bool:
    assert await scene.another().list_topics(NAMESPACE) == []
    assert await scene.another().list_partitioned_topics(NAMESPACE) == []
    return await code_of(scene.another().namespaces.get(NAMESPACE)) == ErrorCode.NOT_FOUND


async def _is_tenant_deleted(scene: CatalogScene) -> bool:
    assert await _is_namespace_deleted(scene)
    return "acme" not in await scene.another().tenants.list_names()


@pytest.mark.parametrize("made", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("operation", "holds"),
    [
        (_create_tenant, _tenant_there),
        (_create_namespace, _namespace_there),
        (_create_partitioned, _partitioned_there),
        (_grow, _grown),
        (_delete_partitioned, _is_partitioned_deleted),
        (_delete_namespace, _is_namespace_deleted),
        (_delete_tenant, _is_tenant_deleted),
    ],
)
async def test_repeated_call_completes_a_killed_operation(operation: Operation, holds: Holds, made: bool) -> None:
    """TOP-3: killed before, or right after, each of its changes."""

    async def killed_after(changes: int) -> bool:
        """Whether there was such a change."""
        scene = CatalogScene()
        await scene.start()
        await scene.catalog.partitioned.create(TOPIC, 2, {})
        for name in (TOPIC.partition(0), TOPIC.partition(1), PLAIN):
            await scene.make_topic(name)
        catalog, store = scene.killed_after(changes, made=made)
        refused = await code_of(operation(scene, catalog))
        assert store.died or refused is None
        again = await code_of(operation(scene, scene.another()))
        assert again in (None, ErrorCode.ALREADY_EXISTS, ErrorCode.NOT_FOUND)
        assert await holds(scene)
        if not store.died:
            assert again is not None or operation is _grow
        return store.died

    changes = 0
    while await killed_after(changes):
        changes += 1
    assert changes > 0


async def test_nothing_is_made_in_a_namespace_that_is_being_deleted(scene: CatalogScene) -> None:
    """What was allowed before the mark is refused behind it, and what was made before it is found."""
    along = await scene.catalog.prepare_creation(PLAIN)
    found: list[list[str]] = []

    async def delete_topics(name: NamespaceName) -> None:
        found.append(await scene.catalog.list_topics(name))
        assert await code_of(scene.put_topic(TOPIC, along)) == ErrorCode.SERVICE_NOT_READY
        assert await code_of(scene.another().prepare_creation(TOPIC)) == ErrorCode.NOT_ALLOWED
        assert await code_of(scene.another().partitioned.create(TOPIC, 2, {})) == ErrorCode.NOT_ALLOWED
        assert await code_of(scene.another().check_topic(PLAIN)) == ErrorCode.NOT_ALLOWED
        assert await code_of(scene.another().namespaces.create(name, Policies())) == ErrorCode.NOT_ALLOWED
        await scene.delete_all(scene.catalog, name)

    await scene.put_topic(PLAIN, along)
    await scene.another().delete_namespace(NAMESPACE, delete_topics)
    assert found == [[str(PLAIN)]]
    assert await code_of(scene.put_topic(TOPIC, along)) == ErrorCode.SERVICE_NOT_READY


async def test_a_deletion_that_finds_topics_leaves_the_namespace_as_it_was(scene: CatalogScene) -> None:
    await scene.make_topic(PLAIN)
    assert await code_of(scene.catalog.delete_namespace(NAMESPACE, None)) == ErrorCode.NOT_ALLOWED
    await scene.make_topic(TOPIC)


async def test_namespace_creation_removes_mark_of_interrupted_deletion(scene: CatalogScene) -> None:
    await scene.make_topic(PLAIN)
    catalog, store = scene.killed_after(1, made=False)  # the mark is made, and not taken away
    await code_of(catalog.delete_namespace(NAMESPACE, None))
    assert store.died
    assert await code_of(scene.another().check_topic(PLAIN)) == ErrorCode.NOT_ALLOWED
    assert await code_of(scene.catalog.namespaces.create(NAMESPACE, Policies())) == ErrorCode.ALREADY_EXISTS
    await scene.another().check_topic(PLAIN)


async def test_a_deletion_does_not_go_on_under_somebody_elses_mark(scene: CatalogScene) -> None:
    """Its own is taken away while it looks; then a topic is made; then another deletion marks the namespace again."""
    looked = asyncio.Event()
    go_on = asyncio.Event()
    listing = scene.catalog.list_topics

    async def slow_topics(namespace: NamespaceName, **options: Any) -> list[str]:
        found = await listing(namespace, **options)
        looked.set()
        await go_on.wait()
        return found

    scene.catalog.list_topics = slow_topics  # type: ignore[method-assign]
    deleting = asyncio.create_task(scene.catalog.delete_namespace(NAMESPACE, None))
    await looked.wait()
    await code_of(scene.another().namespaces.create(NAMESPACE, Policies()))
    await scene.make_topic(PLAIN, scene.another())
    killed, _ = scene.killed_after(1, made=False)
    await code_of(killed.delete_namespace(NAMESPACE, None))  # leaves its mark
    go_on.set()
    assert await code_of(deleting) == ErrorCode.NOT_ALLOWED
    assert await scene.another().namespaces.get(NAMESPACE)


async def test_a_tenant_in_which_a_namespace_is_just_being_made_stays(scene: CatalogScene) -> None:
    await scene.catalog.tenants.create("globex", TenantSettings())
    names = scene.catalog._nodes.list_children
    first = True

    async def slow_names(path: str) -> list[str]:
        nonlocal first
        found = await names(path)
        if first:
            first = False
            await scene.another().namespaces.create(NamespaceName("globex", "n"), Policies())
        return found

    scene.catalog._nodes.list_children = slow_names  # type: ignore[method-assign]
    assert await code_of(scene.catalog.delete_tenant("globex", None)) == ErrorCode.NOT_ALLOWED
    assert await scene.another().namespaces.list_names("globex") == ["n"]


@pytest.mark.parametrize("seed", range(30))
async def test_a_name_is_never_both_a_topic_and_a_partitioned_one(seed: int) -> None:
    """TOP-3: made by two at the same time, in many orders; and no partition outlives its partitioned topic."""
    scene = CatalogScene()
    await scene.start()
    randomness = SeededRandomness(seed)

    async def later(work: Callable[[], Awaitable[None]]) -> None:
        for _ in range(randomness.below(12)):
            await asyncio.sleep(0)
        for _ in range(5):
            code = await code_of(work())
            if code not in (ErrorCode.SERVICE_NOT_READY, ErrorCode.METADATA_ERROR):
                return

    one, two, three = scene.another(), scene.another(), scene.another()
    await asyncio.gather(
        later(lambda: scene.make_topic(TOPIC, one)),
        later(lambda: two.partitioned.create(TOPIC, 2, {})),
    )
    topics, partitioned = (
        await scene.catalog.list_topics(NAMESPACE),
        await scene.catalog.list_partitioned_topics(NAMESPACE),
    )
    assert len(topics) + len(partitioned) <= 1
    events = TopicName.parse("acme/shop/events")
    await scene.catalog.partitioned.create(events, 2, {})
    await asyncio.gather(
        later(lambda: scene.make_topic(events.partition(0), one)),
        later(lambda: scene.make_topic(events.partition(1), two)),
        later(lambda: three.partitioned.delete(events, scene.delete_topics, no_schema)),
    )
    left = [name for name in await scene.catalog.list_topics(NAMESPACE) if "events" in name]
    assert not left


async def test_a_topic_is_not_made_under_policies_that_forbid_it_by_now(scene: CatalogScene) -> None:
    along = await scene.catalog.prepare_creation(PLAIN)
    await scene.catalog.update_policies(NAMESPACE, Policies(auto_topic_creation=AutoTopicCreation(allowed=False)))
    assert await code_of(scene.put_topic(PLAIN, along)) == ErrorCode.SERVICE_NOT_READY


@pytest.mark.parametrize("turns", range(0, 60, 2))
async def test_an_empty_partitioned_topic_is_not_deleted_under_a_new_partition(scene: CatalogScene, turns: int) -> None:
    """TOP-2, CHK-69: a partition is created while a broker deletes the topic: one of the two is refused."""
    name = TopicName.parse("acme/shop/empty")
    await scene.catalog.partitioned.create(name, 12, {})
    deleting = asyncio.create_task(scene.another().partitioned.begin_deletion_if_empty(name))
    for _ in range(turns):
        await asyncio.sleep(0)
    refused = await code_of(scene.make_topic(name.partition(0), scene.another()))
    assert (await deleting) == (refused is not None)
    if refused is not None:
        assert refused in (ErrorCode.TOPIC_NOT_FOUND, ErrorCode.SERVICE_NOT_READY)
    else:
        await scene.make_topic(name.partition(1))
        assert not await scene.catalog.partitioned.begin_deletion_if_empty(name)


async def test_a_partition_is_created_after_a_deletion_of_an_empty_topic_was_interrupted(scene: CatalogScene) -> None:
    """TOP-2: the broker that was about to delete the topic has died."""
    name = TopicName.parse("acme/shop/empty")
    await scene.catalog.partitioned.create(name, 2, {})
    catalog, store = scene.killed_after(1, made=False)
    assert await code_of(catalog.partitioned.begin_deletion_if_empty(name)) is not None
    assert store.died
    await scene.make_topic(name.partition(1), scene.another())
    found = await scene.catalog.partitioned.find(name)
    assert found is not None
    assert not found.node.has_no_partitions
