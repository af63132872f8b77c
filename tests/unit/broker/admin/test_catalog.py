"""Tenants, namespaces, partitioned topics, and what may be made where."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from magnetar_broker import paths
from magnetar_broker.admin.admin_service import check_known_fields
from magnetar_broker.catalog.policies import PolicyLimits, check_policies
from magnetar_broker.errors import BrokerError
from magnetar_broker.settings.administration import CatalogSettings
from magnetar_broker.system_topics import heartbeat_topic, is_system_topic
from magnetar_metadata.store import ABSENT
from magnetar_protos.admin_pb2 import NamespaceRequest, TenantSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import (
    AutoSubscriptionCreation,
    AutoTopicCreation,
    DispatchRate,
    Persistence,
    Policies,
    PublishRate,
    SubscribeRate,
)
from magnetar_wire.topic_name import NamespaceName, TopicName
from tests.unit.broker.admin.catalog_scene import NAMESPACE, CatalogScene, code_of

TOPIC = TopicName.parse("acme/shop/orders")


async def test_tenants_have_roles_and_clusters_and_outlive_the_broker(scene: CatalogScene) -> None:
    settings = TenantSettings(admin_roles=["amy", "bob"], allowed_clusters=["standalone"])
    await scene.catalog.tenants.create("globex", settings)
    other = scene.another()
    assert await other.tenants.get_settings("globex") == settings
    assert await other.tenants.list_names() == ["acme", "globex", "public", "pulsar"]
    await other.tenants.update("globex", TenantSettings(admin_roles=["eve"]))
    assert (await scene.catalog.tenants.get_settings("globex")).admin_roles == ["eve"]
    assert await code_of(other.tenants.create("globex", settings)) == ErrorCode.ALREADY_EXISTS
    assert await code_of(other.tenants.update("nobody", settings)) == ErrorCode.NOT_FOUND
    elsewhere = TenantSettings(allowed_clusters=["mars"])
    assert await code_of(other.tenants.create("initech", elsewhere)) == ErrorCode.INVALID_ARGUMENT
    assert await code_of(other.tenants.create("a b", settings)) == ErrorCode.INVALID_ARGUMENT


async def test_a_tenant_with_namespaces_is_deleted_by_force_only(scene: CatalogScene) -> None:
    await scene.make_topic(TOPIC)
    assert await code_of(scene.catalog.delete_tenant("acme", None)) == ErrorCode.NOT_ALLOWED
    assert await code_of(scene.catalog.delete_tenant("public", None)) == ErrorCode.NOT_ALLOWED
    await scene.catalog.delete_tenant("acme", lambda name: scene.delete_all(scene.catalog, name))
    assert "acme" not in await scene.catalog.tenants.list_names()
    assert await code_of(scene.catalog.check_topic(TOPIC)) == ErrorCode.NOT_FOUND
    assert await code_of(scene.catalog.delete_tenant("acme", None)) == ErrorCode.NOT_FOUND


async def test_namespaces_need_their_tenant(scene: CatalogScene) -> None:
    nowhere = NamespaceName("nobody", "n")
    assert await code_of(scene.catalog.namespaces.create(nowhere, Policies())) == ErrorCode.NOT_FOUND
    assert await code_of(scene.catalog.namespaces.create(NAMESPACE, Policies())) == ErrorCode.ALREADY_EXISTS
    assert await code_of(scene.catalog.namespaces.list_names("nobody")) == ErrorCode.NOT_FOUND
    for no_name in ("", "acme/shop", "..", "a b", "x" * 129):
        assert await code_of(scene.catalog.namespaces.list_names(no_name)) == ErrorCode.INVALID_ARGUMENT
        assert await code_of(scene.catalog.delete_tenant(no_name, None)) == ErrorCode.INVALID_ARGUMENT
    assert await scene.catalog.namespaces.list_names("acme") == ["shop"]
    assert await code_of(scene.catalog.check_topic(TopicName.parse("acme/none/t"))) == ErrorCode.NOT_FOUND


async def test_policies_hold_for_the_namespace(scene: CatalogScene) -> None:
    """TOP-2: a namespace's policies go before the brokers' options."""
    policies = Policies(
        persistence=Persistence(ensemble_size=3, write_quorum=2, ack_quorum=2),
        auto_topic_creation=AutoTopicCreation(allowed=False),
        auto_subscription_creation=AutoSubscriptionCreation(allowed=False),
    )
    await scene.catalog.update_policies(NAMESPACE, policies)
    assert await scene.catalog.check_topic(TOPIC) == policies
    assert await code_of(scene.catalog.resolve_partitions(TOPIC, True)) == ErrorCode.TOPIC_NOT_FOUND
    assert await code_of(scene.catalog.prepare_creation(TOPIC)) == ErrorCode.TOPIC_NOT_FOUND
    assert await code_of(scene.catalog.prepare_creation(TOPIC, explicit=True)) is None
    await scene.catalog.update_policies(NAMESPACE, Policies())
    assert await scene.catalog.resolve_partitions(TOPIC, True) == 0


async def test_another_brokers_change_is_seen_after_the_cache_has_aged(scene: CatalogScene) -> None:
    other = scene.another()
    await other.check_topic(TOPIC)
    await scene.catalog.update_policies(NAMESPACE, Policies(auto_topic_creation=AutoTopicCreation(allowed=False)))
    # Where something is made nothing old counts.
    assert await code_of(other.prepare_creation(TOPIC)) == ErrorCode.TOPIC_NOT_FOUND
    scene.clock.advance(5.0)
    assert await code_of(other.resolve_partitions(TOPIC, True)) == ErrorCode.TOPIC_NOT_FOUND


def test_policies_that_cannot_hold_are_refused() -> None:
    limits = PolicyLimits(max_partitions=10, max_message_bytes=1000, cluster="standalone")
    for sizes in ((1, 2, 1), (2, 1, 2), (3, 3, 0), (0, 0, 0), (101, 1, 1)):
        ensemble, write, ack = sizes
        policies = Policies(persistence=Persistence(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack))
        with pytest.raises(BrokerError) as refused:
            check_policies(policies, limits)
        assert refused.value.code == ErrorCode.INVALID_ARGUMENT
    with pytest.raises(BrokerError, match="11 partitions"):
        check_policies(Policies(auto_topic_creation=AutoTopicCreation(allowed=True, partitions=11)), limits)
    for rate, text in (
        (Policies(publish_rate=PublishRate(messages_per_s=-5)), "publishRate: messages_per_s = -5"),
        (Policies(publish_rate=PublishRate(bytes_per_s=-2)), "publishRate: bytes_per_s = -2"),
        (Policies(dispatch_rate=DispatchRate(messages=-5)), "dispatchRate: messages = -5"),
        (Policies(subscribe_rate=SubscribeRate(per_consumer=-5)), "subscribeRate: per_consumer = -5"),
        (Policies(subscribe_rate=SubscribeRate(period_seconds=-1)), "subscribeRate: a period of -1 seconds"),
    ):
        with pytest.raises(BrokerError, match=text):
            check_policies(rate, limits)
    check_policies(Policies(publish_rate=PublishRate(messages_per_s=-1, bytes_per_s=-1)), limits)


def test_a_policy_that_this_broker_does_not_know_is_refused() -> None:
    """A policy that is not stored must not be reported as set."""
    request = NamespaceRequest(namespace="a/b", policies=Policies(persistence=Persistence(ensemble_size=1)))
    check_known_fields(request, "update_namespace")
    # Field 99 of the policies, and of the persistence in them: a varint each.
    for extra in (b"\x98\x06\x01", b"\x0a\x03\x98\x06\x01"):
        request.policies.MergeFromString(extra)
        with pytest.raises(BrokerError, match="does not know field 99") as refused:
            check_known_fields(request, "update_namespace")
        assert refused.value.code == ErrorCode.UNSUPPORTED
        request.policies.DiscardUnknownFields()
    check_known_fields(request, "update_namespace")


async def test_a_topic_is_made_on_first_use(scene: CatalogScene) -> None:
    """TOP-2: with or without partitions, depending on the setting, unless creation on first use is off."""
    assert await code_of(scene.catalog.resolve_partitions(TOPIC, False)) == ErrorCode.TOPIC_NOT_FOUND
    assert await scene.catalog.resolve_partitions(TOPIC, True) == 0
    await scene.make_topic(TOPIC)
    assert await scene.catalog.resolve_partitions(TOPIC, False) == 0
    await scene.catalog.update_policies(
        NAMESPACE, Policies(auto_topic_creation=AutoTopicCreation(allowed=True, partitions=3))
    )
    events = TopicName.parse("acme/shop/events")
    counts = await asyncio.gather(*(scene.catalog.resolve_partitions(events, True) for _ in range(5)))
    assert counts == [3] * 5
    assert await scene.catalog.resolve_partitions(TOPIC, True) == 0


async def test_the_option_makes_partitioned_topics() -> None:
    """TOP-2."""
    scene = CatalogScene(CatalogSettings(allow_auto_topic_creation_type="partitioned", default_num_partitions=2))
    await scene.start()
    assert await scene.catalog.resolve_partitions(TOPIC, True) == 2


async def test_the_option_makes_no_topics() -> None:
    scene = CatalogScene(CatalogSettings(allow_auto_topic_creation=False))
    await scene.start()
    assert await code_of(scene.catalog.resolve_partitions(TOPIC, True)) == ErrorCode.TOPIC_NOT_FOUND
    assert await code_of(scene.make_topic(TOPIC)) == ErrorCode.TOPIC_NOT_FOUND
    await scene.make_topic(TOPIC, explicit=True)
    # A partition of a topic that somebody has made is made when it is first used.
    events = TopicName.parse("acme/shop/events")
    await scene.catalog.partitioned.create(events, 2, {})
    await scene.make_topic(events.partition(1))


async def _prepare_nothing(partitions: Sequence[TopicName]) -> None:
    pass


async def test_namespace_topic_count_is_limited() -> None:
    scene = CatalogScene(CatalogSettings(max_topics_per_namespace=2))
    await scene.start()
    await scene.make_topic(TOPIC)
    await scene.make_topic(TopicName.parse("acme/shop/__change_events"), explicit=True)
    events = TopicName.parse("acme/shop/events")
    assert await code_of(scene.catalog.partitioned.create(events, 2, {})) == ErrorCode.NOT_ALLOWED
    await scene.catalog.partitioned.create(events, 1, {})
    await scene.make_topic(events.partition(0))
    assert await code_of(scene.make_topic(TopicName.parse("acme/shop/more"))) == ErrorCode.NOT_ALLOWED
    assert await code_of(scene.catalog.partitioned.grow(events, 2, _prepare_nothing)) == ErrorCode.NOT_ALLOWED
    await scene.make_topic(TopicName.parse("elsewhere"))
    await scene.delete_topic(TOPIC)
    await scene.make_topic(TopicName.parse("acme/shop/more"))


@pytest.mark.parametrize("first", ["plain", "partitioned", "grown"])
async def test_topics_created_at_the_same_time_do_not_exceed_the_limit(first: str) -> None:
    """Each creator, at whichever broker, counts again if another one was faster."""
    scene = CatalogScene(CatalogSettings(max_topics_per_namespace=2))
    await scene.start()
    other, events = scene.another(), TopicName.parse("acme/shop/events")
    await scene.catalog.partitioned.create(events, 1, {})
    along = await other.prepare_creation(TopicName.parse("acme/shop/more"))
    if first == "plain":
        await scene.make_topic(TOPIC)
    elif first == "partitioned":
        await scene.catalog.partitioned.create(TOPIC, 1, {})
    else:
        await scene.catalog.partitioned.grow(events, 2, _prepare_nothing)
    assert await code_of(scene.put_topic(TopicName.parse("acme/shop/more"), along)) == ErrorCode.SERVICE_NOT_READY
    assert await code_of(scene.make_topic(TopicName.parse("acme/shop/more"), other)) == ErrorCode.NOT_ALLOWED
    many = [TopicName.parse(f"public/default/t{number}") for number in range(8)]
    created = await asyncio.gather(
        *(
            catalog.partitioned.create(name, 1, {})
            for name, catalog in zip(many, [scene.catalog, other] * 4, strict=True)
        ),
        return_exceptions=True,
    )
    assert [one for one in created if one is None] == [None, None]
    assert {one.code for one in created if isinstance(one, BrokerError)} == {ErrorCode.NOT_ALLOWED}


async def test_the_policy_of_a_namespace_replaces_the_brokers_limit_of_topics() -> None:
    scene = CatalogScene(CatalogSettings(max_topics_per_namespace=1))
    await scene.start()
    await scene.make_topic(TOPIC)
    for limit, allowed in ((0, True), (2, False), (3, True)):
        await scene.catalog.change_policies(NAMESPACE, Policies(max_topics_per_namespace=limit), [])
        making = scene.make_topic(TopicName.parse(f"acme/shop/t{limit}"))
        assert await code_of(making) == (None if allowed else ErrorCode.NOT_ALLOWED)
    await scene.catalog.change_policies(NAMESPACE, Policies(), ["max_topics_per_namespace"])
    assert await code_of(scene.make_topic(TopicName.parse("acme/shop/last"))) == ErrorCode.NOT_ALLOWED


async def test_partitions_are_topics_of_a_partitioned_topic(scene: CatalogScene) -> None:
    """TOP-3."""
    assert await code_of(scene.make_topic(TOPIC.partition(0))) == ErrorCode.TOPIC_NOT_FOUND
    await scene.catalog.partitioned.create(TOPIC, 3, {"owner": "amy"})
    assert await scene.another().resolve_partitions(TOPIC, False) == 3
    assert (await scene.catalog.partitioned.get(TOPIC)).properties == {"owner": "amy"}
    await scene.make_topic(TOPIC.partition(2))
    assert await code_of(scene.make_topic(TOPIC.partition(3))) == ErrorCode.TOPIC_NOT_FOUND
    assert await code_of(scene.catalog.check_topic(TOPIC.partition(3))) == ErrorCode.TOPIC_NOT_FOUND
    assert await scene.catalog.resolve_partitions(TOPIC.partition(1), False) == 0
    # The name belongs to the partitioned topic.
    assert await code_of(scene.make_topic(TOPIC, explicit=True)) == ErrorCode.NOT_ALLOWED
    assert await code_of(scene.catalog.partitioned.create(TOPIC, 3, {})) == ErrorCode.ALREADY_EXISTS
    assert await code_of(scene.catalog.partitioned.create(TOPIC.partition(0), 3, {})) == ErrorCode.INVALID_TOPIC_NAME
    for bad, code in ((0, ErrorCode.NOT_ALLOWED), (4097, ErrorCode.INVALID_ARGUMENT)):
        assert await code_of(scene.catalog.partitioned.grow(TOPIC, bad, _nothing)) == code


async def test_partitioned_topic_creation_is_refused_for_existing_topic(scene: CatalogScene) -> None:
    await scene.make_topic(TOPIC)
    assert await code_of(scene.catalog.partitioned.create(TOPIC, 2, {})) == ErrorCode.ALREADY_EXISTS
    assert await scene.catalog.resolve_partitions(TOPIC, False) == 0


async def test_new_partition_count_is_visible_only_after_preparation(scene: CatalogScene) -> None:
    """TOP-3: N can grow, and never falls."""
    await scene.catalog.partitioned.create(TOPIC, 2, {})
    prepared: list[TopicName] = []

    async def prepare(new: object) -> None:
        assert isinstance(new, list)
        for name in new:
            await scene.make_topic(name)
        prepared.extend(new)
        assert await scene.another().resolve_partitions(TOPIC, False) == 2

    await scene.catalog.partitioned.grow(TOPIC, 4, prepare)
    assert prepared == [TOPIC.partition(2), TOPIC.partition(3)]
    assert await scene.another().resolve_partitions(TOPIC, False) == 4
    assert await code_of(scene.catalog.partitioned.grow(TOPIC, 3, _nothing)) == ErrorCode.NOT_ALLOWED
    await scene.catalog.partitioned.grow(TOPIC, 4, _nothing)


async def test_listings_hide_system_topics(scene: CatalogScene) -> None:
    """Users can't create system topics, and listings show them only if requested."""
    await scene.make_topic(TOPIC)
    await scene.catalog.partitioned.create(TopicName.parse("acme/shop/größe 1"), 1, {})
    system = TopicName.parse("acme/shop/__change_events")
    assert await code_of(scene.make_topic(system)) == ErrorCode.NOT_ALLOWED
    await scene.make_topic(system, explicit=True)
    for slip in ("%zz", "a%2Fb"):
        await scene.store.put(f"{paths.TOPICS}/acme/shop/persistent/{slip}", b"an operator's slip", ABSENT)
    assert await scene.catalog.list_topics(NAMESPACE) == [str(TOPIC)]
    assert await scene.catalog.list_topics(NAMESPACE, include_system=True) == [str(system), str(TOPIC)]
    assert await scene.catalog.list_partitioned_topics(NAMESPACE) == ["persistent://acme/shop/größe 1"]


def test_which_topics_are_the_systems() -> None:
    assert is_system_topic(TopicName.parse("__change_events"))
    assert is_system_topic(TopicName.parse("a/b/__transaction_buffer_snapshot-partition-1"))
    assert is_system_topic(heartbeat_topic("broker/1:6652"))
    assert not is_system_topic(TopicName.parse("_orders"))
    assert not is_system_topic(TopicName.parse("pulsar/other/t"))


async def test_catalog_reports_unavailable_metadata_store(scene: CatalogScene) -> None:
    scene.server.suspend(scene.store)
    catalog = scene.another(scene.store)
    assert await code_of(catalog.check_topic(TOPIC)) == ErrorCode.METADATA_ERROR
    scene.server.resume(scene.store)
    await catalog.check_topic(TOPIC)
    scene.server.expire(scene.store)
    assert await code_of(catalog.tenants.list_names()) == ErrorCode.SERVICE_NOT_READY
    assert await code_of(catalog.check_topic(TopicName.parse("acme/none/t"))) == ErrorCode.SERVICE_NOT_READY


async def _nothing(_: object) -> None:
    pass
