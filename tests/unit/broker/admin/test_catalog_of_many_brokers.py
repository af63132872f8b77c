"""What was changed at one broker holds at every other one, also where its metadata server lags behind."""

from __future__ import annotations

from magnetar_broker import paths
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.settings.administration import CatalogSettings
from magnetar_protos.admin_pb2 import TenantSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import AutoTopicCreation, Policies
from magnetar_wire.bundles import default_bundles
from magnetar_wire.topic_name import NamespaceName, TopicName
from tests.unit.broker.admin.catalog_scene import NAMESPACE, CatalogScene, code_of, no_schema

TOPIC = TopicName.parse("acme/shop/orders")


def lagging(scene: CatalogScene) -> Catalog:
    """A broker whose metadata server shows what there was until now, and no more."""
    store = scene.server.connect()
    other = scene.another(store)
    scene.server.lag(store)
    return other


async def test_policies_hold_at_the_next_opening_at_any_broker(scene: CatalogScene) -> None:
    """The policies are read afresh, although a cache has others and the metadata server lags."""
    store = scene.server.connect()
    other = scene.another(store)
    assert await other.check_topic(TOPIC) == Policies()
    scene.server.lag(store)
    policies = Policies(auto_topic_creation=AutoTopicCreation(allowed=False))
    await scene.catalog.update_policies(NAMESPACE, policies)
    assert await other.check_topic(TOPIC) == policies
    assert await code_of(other.prepare_creation(TOPIC)) == ErrorCode.TOPIC_NOT_FOUND


async def test_created_resources_are_visible_at_every_broker(scene: CatalogScene) -> None:
    """TOP-3."""
    # A partitioned topic: no client creates one without partitions instead.
    other = lagging(scene)
    await scene.catalog.partitioned.create(TOPIC, 3, {})
    assert await other.resolve_partitions(TOPIC, True) == 3
    other = lagging(scene)
    await scene.catalog.partitioned.grow(TOPIC, 5, _nothing)
    assert await other.resolve_partitions(TOPIC.partition(4), False) == 0
    other = lagging(scene)
    await scene.catalog.partitioned.grow(TOPIC, 6, _nothing)
    await other.check_topic(TOPIC.partition(5))
    # A topic without partitions, a namespace, a tenant.
    other = lagging(scene)
    plain = TopicName.parse("acme/shop/plain")
    await scene.make_topic(plain)
    assert await other.resolve_partitions(plain, False) == 0
    other = lagging(scene)
    await scene.catalog.namespaces.create(NamespaceName("acme", "new"), Policies())
    assert await other.resolve_partitions(TopicName.parse("acme/new/t"), True) == 0
    other = lagging(scene)
    await scene.catalog.tenants.create("globex", TenantSettings())
    await scene.catalog.namespaces.create(NamespaceName("globex", "n"), Policies())
    assert "globex" in await other.tenants.list_names()
    other = lagging(scene)
    await scene.catalog.namespaces.create(NamespaceName("globex", "m"), Policies())
    assert await other.namespaces.list_names("globex") == ["m", "n"]


async def _nothing(names: object) -> None: ...


async def test_deletion_at_one_broker_is_visible_at_lagging_broker(scene: CatalogScene) -> None:
    await scene.catalog.partitioned.create(TOPIC, 2, {})
    other = lagging(scene)
    await scene.catalog.partitioned.delete(TOPIC, scene.delete_topics, no_schema)
    assert await code_of(other.check_topic(TOPIC.partition(0))) == ErrorCode.TOPIC_NOT_FOUND
    assert await code_of(other.resolve_partitions(TOPIC, False)) == ErrorCode.TOPIC_NOT_FOUND


async def test_removed_deletion_mark_no_longer_blocks_other_brokers(scene: CatalogScene) -> None:
    await scene.make_topic(TOPIC)
    other = scene.another()

    async def while_marked(name: NamespaceName) -> list[TopicName]:
        assert await code_of(other.resolve_partitions(TOPIC, False)) == ErrorCode.NOT_ALLOWED
        return [TOPIC]

    assert await code_of(scene.catalog.namespaces.delete(NAMESPACE, while_marked, None)) == ErrorCode.NOT_ALLOWED
    # It is within its cache's time, and is looked at afresh before it is refused.
    assert await other.resolve_partitions(TOPIC, False) == 0


async def test_a_namespace_is_made_with_bundles() -> None:
    """OWN-1."""
    scene = CatalogScene(
        CatalogSettings(default_number_of_namespace_bundles=8, load_balancer_namespace_maximum_bundles=16)
    )
    await scene.start()
    starts = (await scene.catalog.get_namespace(NAMESPACE)).node.bundle_starts
    assert list(starts) == [bundle.lower for bundle in default_bundles(8)]
    await scene.catalog.namespaces.create(NamespaceName("acme", "one"), Policies(), 1)
    assert list((await scene.catalog.get_namespace(NamespaceName("acme", "one"))).node.bundle_starts) == [0]
    await scene.catalog.namespaces.create(NamespaceName("acme", "many"), Policies(), 16)
    assert len((await scene.catalog.get_namespace(NamespaceName("acme", "many"))).node.bundle_starts) == 16
    too_many = scene.catalog.namespaces.create(NamespaceName("acme", "more"), Policies(), 17)
    assert await code_of(too_many) == ErrorCode.INVALID_ARGUMENT
    # Policies leave them as they are.
    await scene.catalog.update_policies(NAMESPACE, Policies(auto_topic_creation=AutoTopicCreation(allowed=False)))
    assert list((await scene.catalog.get_namespace(NAMESPACE, fresh=True)).node.bundle_starts) == list(starts)


async def test_four_bundles_are_the_default(scene: CatalogScene) -> None:
    """OWN-1."""
    starts = (await scene.catalog.get_namespace(NAMESPACE)).node.bundle_starts
    assert list(starts) == [0, 0x4000_0000, 0x8000_0000, 0xC000_0000]


async def test_bundles_are_released_before_namespace_is_deleted(scene: CatalogScene) -> None:
    there: list[bool] = []

    async def release(name: NamespaceName) -> None:
        there.append(await scene.store.exists(paths.namespace(name)) is not None)

    await scene.make_topic(TOPIC)
    assert await code_of(scene.catalog.delete_namespace(NAMESPACE, None, release)) == ErrorCode.NOT_ALLOWED
    assert there == []

    async def delete_topics(name: NamespaceName) -> None:
        await scene.delete_all(scene.catalog, name)

    await scene.catalog.delete_namespace(NAMESPACE, delete_topics, release)
    assert there == [True]
    assert await scene.store.exists(paths.namespace(NAMESPACE)) is None
