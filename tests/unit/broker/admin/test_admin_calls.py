"""Administration as a client of it sees it: a whole broker on honest bookies."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
from typing import Any, Final

import pytest

from magnetar import aio, exceptions
from magnetar.admin import (
    AsyncAdmin,
    AutoSubscriptionCreation,
    AutoTopicCreation,
    BacklogQuota,
    DispatchRate,
    NamespacePolicies,
    PartitionedTopic,
    Persistence,
    Retention,
    TenantSettings,
    TopicPolicies,
)
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.message_id import MessageId
from magnetar_wire.transport import Code, Rejected
from tests.running import until
from tests.unit.broker.broker_scene import URL, BrokerScene, running_broker
from tests.unit.broker.http.admin_scene import running_over

PROTOCOLS: Final = ("grpc", "http")


async def publish(client: aio.Client, topic: str, *payloads: bytes) -> list[MessageId]:
    producer = await client.create_producer(topic, batching_enabled=False)
    ids = [await producer.send(payload) for payload in payloads]
    await producer.close()
    return ids


async def backlog(admin: AsyncAdmin, topic: str, subscription: str) -> int:
    return (await admin.topics.stats(topic)).subscription(subscription).backlog_entries


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_broker_knows_its_own_cluster(protocol: str) -> None:
    """ADM-1."""
    async with running_over(protocol, pulsar=True) as scene:
        assert await scene.admin.clusters.list() == ["standalone"]
        found = await scene.admin.clusters.get("standalone")
        http = f"http://{scene.broker.http_address}" if scene.broker.http_address else ""
        assert (found.service_url, found.broker_service_url) == (http, f"pulsar://{scene.broker.pulsar_addresses[0]}")
        with pytest.raises(exceptions.NotFound, match="this one is 'standalone'"):
            await scene.admin.clusters.get("another")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_tenants_and_namespaces(protocol: str) -> None:
    async with running_over(protocol) as scene:
        admin = scene.admin
        await admin.tenants.create("acme", TenantSettings(admin_roles=["amy"]))
        assert await admin.tenants.list() == ["acme", "public"]
        await admin.tenants.update("acme", TenantSettings(["bob"], ["standalone"]))
        assert await admin.tenants.get("acme") == TenantSettings(["bob"], ["standalone"])
        policies = NamespacePolicies(
            Persistence(2, 2, 1), AutoTopicCreation(False), AutoSubscriptionCreation(allowed=False)
        )
        await admin.namespaces.create("acme/shop", policies)
        assert await admin.namespaces.list("acme") == ["acme/shop"]
        assert await admin.namespaces.policies("acme/shop") == policies
        await admin.namespaces.set_policies("acme/shop", NamespacePolicies())
        assert await admin.namespaces.policies("acme/shop") == NamespacePolicies()
        with pytest.raises(exceptions.AlreadyExists):
            await admin.namespaces.create("acme/shop")
        with pytest.raises(exceptions.NotFound):
            await admin.namespaces.create("nobody/shop")
        with pytest.raises(exceptions.InvalidArgument):
            await admin.namespaces.create("acme")
        with pytest.raises(exceptions.InvalidArgument, match="an ack quorum of 3"):
            await admin.namespaces.set_policies("acme/shop", NamespacePolicies(Persistence(1, 2, 3)))
        with pytest.raises(exceptions.NotAllowedError, match="1 namespaces"):
            await admin.tenants.delete("acme")
        await admin.topics.create("acme/shop/t")
        await admin.topics.create_partitioned("acme/shop/p", 2)
        with pytest.raises(exceptions.NotAllowedError, match="topics"):
            await admin.namespaces.delete("acme/shop")
        await admin.tenants.delete("acme", force=True)
        with pytest.raises(exceptions.NotFound):
            await admin.topics.list("acme/shop")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_namespaces_policies_hold_for_its_topics(protocol: str) -> None:
    """TOP-4."""

    async with running_over(protocol) as scene:
        admin = scene.admin
        policies = NamespacePolicies(Persistence(1, 1, 1), AutoTopicCreation(False), AutoSubscriptionCreation(False))
        await admin.namespaces.create("public/shop", policies)
        topic = "public/shop/orders"
        async with scene.client() as client:
            with pytest.raises(exceptions.TopicNotFound):
                await client.create_producer(topic)
            await admin.topics.create(topic)
            (placed,) = await publish(client, topic, b"one")
            striping = (await scene.broker_session.client.ledgers.read_metadata(placed.ledger_id())).striping
            assert (striping.ensemble_size, striping.write_quorum, striping.ack_quorum) == (1, 1, 1)
            with pytest.raises(exceptions.SubscriptionNotFound):
                await client.subscribe(topic, "s")
            await admin.subscriptions.create(topic, "s")
            await (await client.subscribe(topic, "s")).close()
            # Others have what the broker's options say.
            (placed,) = await publish(client, "orders", b"one")
            assert (
                await scene.broker_session.client.ledgers.read_metadata(placed.ledger_id())
            ).striping.ensemble_size == 2
            # A change holds when the topic is opened next.
            await admin.namespaces.set_policies("public/shop", NamespacePolicies())
            await admin.topics.unload(topic)
            (placed,) = await publish(client, topic, b"two")
            assert (
                await scene.broker_session.client.ledgers.read_metadata(placed.ledger_id())
            ).striping.ensemble_size == 2
            await (await client.subscribe(topic, "another")).close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_policies_are_set_changed_and_removed(protocol: str) -> None:
    """TOP-4, ADM-1: also those that Pulsar's API has no request to remove."""
    async with running_over(protocol) as scene:
        namespaces, topics = scene.admin.namespaces, scene.admin.topics
        policies = NamespacePolicies(
            message_ttl_seconds=60,
            retention=Retention(10, 5),
            backlog_quota_size=BacklogQuota("producer_exception", limit_size_bytes=1000),
            dispatch_rate=DispatchRate(messages=5),
            encryption_required=True,
            subscription_types_enabled=("Shared",),
            properties={"a": "b"},
        )
        warnings = await namespaces.create("public/shop", policies)
        assert any("encryptionRequired" in warning for warning in warnings)
        assert await namespaces.policies("public/shop") == policies
        changed = NamespacePolicies(message_ttl_seconds=90, max_producers_per_topic=7)
        await namespaces.change_policies("public/shop", changed, ["retention", "encryption_required", "properties"])
        found = await namespaces.policies("public/shop")
        assert (found.message_ttl_seconds, found.max_producers_per_topic) == (90, 7)
        assert (found.retention, found.encryption_required or None, found.properties or None) == (None, None, None)
        assert found.dispatch_rate == policies.dispatch_rate
        await namespaces.set_policies("public/shop", changed)
        assert dataclasses.replace(await namespaces.policies("public/shop"), encryption_required=None) == changed
        assert await namespaces.change_properties("public/shop", {"a": "1", "b": "2"}) == {}
        assert await namespaces.change_properties("public/shop", {"c": "3"}, ["a"]) == {"a": "1"}
        assert await namespaces.properties("public/shop") == {"b": "2", "c": "3"}

        await topics.create("public/shop/t")
        own = TopicPolicies(message_ttl_seconds=5, max_consumers_per_topic=3)
        await topics.change_policies("public/shop/t", own)
        assert await topics.policies("public/shop/t") == own
        applied = await topics.policies("public/shop/t", applied=True, only=["max_producers_per_topic"])
        assert applied == TopicPolicies(max_producers_per_topic=7)
        await topics.change_policies("public/shop/t", TopicPolicies(), ["message_ttl_seconds"])
        assert await topics.policies("public/shop/t") == TopicPolicies(max_consumers_per_topic=3)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_topics_are_made_listed_and_deleted(protocol: str) -> None:
    """TOP-2, TOP-7."""

    async with running_over(protocol) as scene:
        admin = scene.admin
        await admin.topics.create("orders")
        with pytest.raises(exceptions.AlreadyExists):
            await admin.topics.create("orders")
        with pytest.raises(exceptions.InvalidTopicName):
            await admin.topics.create("a/b")
        with pytest.raises(exceptions.NotAllowedError):
            await admin.topics.create("__change_events")
        assert await admin.topics.list("public/default") == ["persistent://public/default/orders"]
        before = (await admin.topics.internal_stats("orders")).incarnation
        async with scene.client() as client:
            producer = await client.create_producer("orders")
            with pytest.raises(exceptions.NotAllowedError, match="with force"):
                await admin.topics.delete("orders")
            await admin.topics.delete("orders", force=True)
            await producer.send(b"for the next one, which the producer asks for")
            assert (await admin.topics.internal_stats("orders")).incarnation != before
        await admin.topics.delete("orders", force=True)
        assert await admin.topics.list("public/default") == []
        for missing in (
            admin.topics.stats("orders"),
            admin.topics.delete("orders"),
            admin.topics.delete("orders", force=True),
            admin.topics.truncate("orders"),
            admin.topics.unload("orders"),
            admin.subscriptions.list("orders"),
        ):
            with pytest.raises(exceptions.TopicNotFound):
                await missing
        await admin.topics.create("orders")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_truncate_deletes_stored_messages_and_topic_stays_usable(protocol: str) -> None:
    """TOP-7."""

    async with running_over(protocol) as scene:
        admin = scene.admin
        async with scene.client() as client:
            await admin.topics.create("orders")
            await admin.subscriptions.create("orders", "s", MessageId.earliest)
            await publish(client, "orders", b"one", b"two")
            assert await backlog(admin, "orders", "s") == 2
            await admin.topics.truncate("orders")
            stats = await admin.topics.stats("orders")
            assert (stats.stored_entries, stats.subscription("s").backlog_entries) == (0, 0)
            await publish(client, "orders", b"three")
            (message,) = await admin.subscriptions.peek("orders", "s", 10)
            assert message.payload == b"three"
            assert (await admin.topics.stats("orders")).messages_ever == 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_partitioned_topic_grows_and_its_subscriptions_miss_nothing(protocol: str) -> None:
    """TOP-3."""

    async with running_over(protocol) as scene:
        admin = scene.admin
        await admin.topics.create_partitioned("events", 2, {"owner": "amy"})
        await admin.subscriptions.create("events", "s", properties={"color": "red"})
        await admin.topics.update_partitioned("events", 4)
        assert await admin.topics.get_partitioned("events") == PartitionedTopic(4, {"owner": "amy"})
        assert await admin.topics.list_partitioned("public/default") == ["persistent://public/default/events"]
        async with scene.client() as client:
            await publish(client, "events-partition-3", b"first")
            assert await backlog(admin, "events-partition-3", "s") == 1
            stats = await admin.topics.stats("events")
            assert (stats.partitions, stats.received.messages) == (4, 1)
            assert stats.subscription("s").backlog_entries == 1
            assert stats.subscription("s").properties == {"color": "red"}
            assert "no consumer" in stats.subscription("s").blocked_by
            with pytest.raises(exceptions.TopicNotFound):
                await publish(client, "events-partition-4", b"nowhere")
        with pytest.raises(exceptions.NotAllowedError, match="can't shrink"):
            await admin.topics.update_partitioned("events", 3)
        with pytest.raises(exceptions.NotAllowedError, match="as one"):
            await admin.topics.delete("events")
        with pytest.raises(exceptions.NotAllowedError):
            await admin.topics.internal_stats("events")
        await admin.topics.delete_partitioned("events")
        assert await admin.topics.list("public/default") == []
        with pytest.raises(exceptions.NotFound):
            await admin.topics.get_partitioned("events")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_subscriptions_are_moved_by_an_administrator(protocol: str) -> None:
    """SUB-9: reset_cursor, skip, skip_all, clear_backlog, expire."""

    async with running_over(protocol) as scene:
        admin = scene.admin
        await admin.topics.create("orders")
        await admin.subscriptions.create("orders", "s", MessageId.earliest)
        with pytest.raises(exceptions.AlreadyExists):
            await admin.subscriptions.create("orders", "s")
        async with scene.client() as client:
            ids = await publish(client, "orders", *(b"%d" % number for number in range(10)))
        assert await backlog(admin, "orders", "s") == 10
        assert await admin.subscriptions.skip("orders", "s", 3) == 3
        assert [one.payload for one in await admin.subscriptions.peek("orders", "s", 2)] == [b"3", b"4"]
        assert await admin.subscriptions.skip_all("orders", "s") == 7
        assert await admin.subscriptions.skip("orders", "s", 50) == 0
        assert await backlog(admin, "orders", "s") == 0
        await admin.subscriptions.reset("orders", "s", MessageId.earliest)
        assert await backlog(admin, "orders", "s") == 10
        await admin.subscriptions.reset("orders", "s", ids[6])
        (message,) = await admin.subscriptions.peek("orders", "s")
        assert message.payload == b"6"
        await admin.subscriptions.reset("orders", "s", datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC))
        assert await backlog(admin, "orders", "s") == 10
        assert await admin.subscriptions.expire("orders", "s", 3600) == 0
        assert await backlog(admin, "orders", "s") == 10
        await admin.subscriptions.expire("orders", "s", 0)
        await until(lambda: _is(backlog(admin, "orders", "s"), 0), "all has expired")
        await admin.subscriptions.reset("orders", "s", MessageId.latest)
        assert await admin.subscriptions.list("orders") == ["s"]
        for refused in (
            admin.subscriptions.skip("orders", "none", 1),
            admin.subscriptions.skip_all("orders", "none"),
            admin.subscriptions.expire("orders", "none", 1),
            admin.subscriptions.reset("orders", "none", MessageId.earliest),
            admin.subscriptions.delete("orders", "none"),
        ):
            with pytest.raises(exceptions.SubscriptionNotFound):
                await refused
        await admin.subscriptions.delete("orders", "s")
        assert await admin.subscriptions.list("orders") == []
        with pytest.raises(exceptions.SubscriptionNotFound):
            await admin.subscriptions.peek("orders", "s")


async def _is(value: Any, expected: int) -> bool:
    return bool(await value == expected)


async def test_listings_are_paged() -> None:
    async with running_broker(admin_max_names=3) as scene:
        names = sorted(f"persistent://public/default/t{number}" for number in range(7))
        await asyncio.gather(*(scene.admin.topics.create(name) for name in names))
        assert await scene.admin.topics.list("public/default") == names
        request = pb.NamesRequest(within="public/default", after=names[2], limit=1000)
        answer = pb.NamesAnswer.FromString(await _call(scene, "topics", request.SerializeToString()))
        assert list(answer.names) == names[3:6]
        assert answer.more


async def _call(scene: BrokerScene, method: str, request: bytes) -> bytes:
    connection = scene.transport.connect(URL.removeprefix("magnetar://"))
    try:
        return await connection.call(f"admin.{method}", request, timeout_s=30.0)
    finally:
        await connection.close()


async def test_malformed_or_unknown_requests_are_refused() -> None:
    async with running_broker() as scene:
        with pytest.raises(Rejected) as refused:
            await _call(scene, "format_disk", b"")
        assert refused.value.code is Code.UNIMPLEMENTED
        with pytest.raises(Rejected) as refused:
            await _call(scene, "topics", b"\xff")
        assert refused.value.code is Code.INVALID_ARGUMENT
        # Field 99 of the request: what it asks for would not be done.
        for method, request in (
            ("create_namespace", pb.NamespaceRequest(namespace="public/n")),
            ("create_partitioned", pb.PartitionsRequest(topic="t", partitions=1)),
            ("create_subscription", pb.SubscriptionRequest(topic="t", subscription="s")),
            ("create_tenant", pb.TenantRequest(tenant="t")),
        ):
            done = pb.Done.FromString(await _call(scene, method, request.SerializeToString() + b"\x98\x06\x01"))
            assert done.problem.code == ErrorCode.UNSUPPORTED
        await scene.admin.topics.create("t")
        for method, odd in (
            ("skip", pb.SkipRequest(topic="t", subscription="s")),
            ("skip", pb.SkipRequest(topic="t", subscription="s", entries=1, all=True)),
            ("reset_subscription", pb.SubscriptionRequest(topic="t", subscription="s")),
            ("peek", pb.PeekRequest(topic="t", subscription="s", entries=101)),
            ("create_subscription", pb.SubscriptionRequest(topic="t")),
        ):
            problem = pb.Done.FromString(await _call(scene, method, odd.SerializeToString())).problem
            assert problem.code == ErrorCode.INVALID_ARGUMENT, method


async def test_broker_info_reports_address_cluster_and_topic_count() -> None:
    async with running_broker() as scene:
        await scene.admin.topics.create("t")
        info = await scene.admin.brokers.info()
        assert (info.address, info.cluster, info.loaded_topics) == ("broker:6652", "standalone", 1)
        assert info.version
        await scene.admin.topics.unload("t")
        assert (await scene.admin.brokers.info()).loaded_topics == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_brokers_are_described_with_their_bundles(protocol: str) -> None:
    """ADM-1."""
    async with running_over(protocol) as scene:
        admin = scene.admin
        await admin.topics.create("t")
        (broker,) = await admin.brokers.list()
        assert broker.broker_id
        owned = await admin.brokers.bundles(broker.broker_id)
        (owner,) = await admin.topics.owners("t") if protocol == "grpc" else [None]
        bundles = {one.bundle: one.broker_id for one in await admin.namespaces.bundles("public/default")}
        mine = [one.bundle for one in owned if one.namespace == "public/default"]
        assert mine
        assert mine == [bundle for bundle, broker_id in bundles.items() if broker_id == broker.broker_id]
        assert owner is None or owner.bundle in mine
        lower, upper = await admin.namespaces.split_bundle("public/default", mine[0])
        now = [one.bundle for one in await admin.namespaces.bundles("public/default")]
        assert now[now.index(lower) + 1] == upper
        assert set(now) == {*bundles, lower, upper} - {mine[0]}
        info = await admin.brokers.info()
        assert (info.cluster, bool(info.version)) == ("standalone", True)
        assert (await admin.brokers.health()).healthy


async def test_any_of_the_addresses_does() -> None:
    async with running_broker() as scene:
        url = f"magnetar://nobody:1,{URL.removeprefix('magnetar://')}"
        async with AsyncAdmin(url, transport=scene.transport) as admin:
            await admin.tenants.create("acme")
            assert "acme" in await admin.tenants.list()
        async with AsyncAdmin("magnetar://nobody:1", 0.2, transport=InProcessTransport()) as admin:
            with pytest.raises(exceptions.ConnectError):
                await admin.tenants.list()
            with pytest.raises(exceptions.ConnectError):
                await admin.tenants.create("acme")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_invalid_subscription_start_is_refused(protocol: str) -> None:
    async with running_over(protocol) as scene:
        nonsense: list[Any] = ["earliest", 0, -5, True, None, 1.5]
        for one in nonsense:
            with pytest.raises(exceptions.InvalidArgument):
                await scene.admin.subscriptions.create("t", "s", one)


async def test_administration_that_runs_wild_is_held_back() -> None:
    async with running_broker(health_check_timeout_seconds=30.0, topic_close_timeout_seconds=0.1) as scene:
        assert scene.store is not None
        for bookie in scene.bookies:
            bookie.hanging.add("add")
        asking: list[asyncio.Task[bytes]] = []

        async def is_refused() -> bool:
            try:
                await _call(scene, "tenants", b"")
            except Rejected as error:
                return error.code is Code.RESOURCE_EXHAUSTED
            return False

        async def is_refused_or_one_more() -> bool:
            if await is_refused():
                return True
            asking.append(asyncio.create_task(_call(scene, "health", b"")))
            return False

        await until(is_refused_or_one_more, "all that may be served are served")
        assert len(asking) >= 64
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

        async def served() -> bool:
            return not await is_refused()

        await until(served, "none is being served any more")
        assert pb.NamesAnswer.FromString(await _call(scene, "tenants", b"")).names == ["public"]
