"""System topics: protected from users, hidden from lists, and no obstacle to deleting a namespace."""

from __future__ import annotations

import pytest

from magnetar import MessageId, exceptions
from magnetar.admin.models import TenantSettings
from magnetar_broker.admin.topic_policy_rpc import TopicPolicyRpc
from magnetar_broker.system_topics import events_topic
from magnetar_broker.topics.topic import Topic
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandProducer, ServerError
from magnetar_wire.topic_name import NamespaceName, TopicName
from tests.unit.broker.broker_scene import BrokerScene
from tests.unit.broker.http.admin_scene import running_http
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker

_NAMESPACE = NamespaceName("acme", "shop")
_EVENTS = str(events_topic(_NAMESPACE))
_PATH = _EVENTS.replace("://", "/")
# Of transactions; they do not exist.
_PENDING = "persistent://acme/shop/orders-s__transaction_pending_ack"


async def _make_events_topic(scene: BrokerScene) -> Topic:
    await scene.admin.tenants.create("acme", TenantSettings())
    await scene.admin.namespaces.create(str(_NAMESPACE))
    return await scene.broker_session.topics.get(TopicName.parse(_EVENTS), create=True, explicit=True)


async def test_users_can_not_change_system_topics() -> None:
    """TOP-6: on gRPC and on HTTP. They can be read."""
    async with running_http() as scene:
        await _make_events_topic(scene.broker)
        topics = scene.broker.admin.topics
        for verb, path, body in (
            ("PUT", _PATH, None),
            ("PUT", f"{_PATH}/partitions", 2),
            ("DELETE", f"{_PATH}?force=true", None),
            ("DELETE", f"{_PATH}/partitions?force=true", None),
            ("DELETE", f"{_PATH}/truncate", None),
            ("POST", f"{_PATH}/terminate", None),
            ("PUT", f"{_PATH}/properties", {"a": "b"}),
            ("PUT", _PENDING.replace("://", "/"), None),
        ):
            answer = await scene.ask(verb, path, body)
            assert 400 <= answer.status < 500, path
            assert "system topic" in answer.reason, answer
        for change in (
            topics.create(_EVENTS),
            topics.create(_PENDING),
            topics.create_partitioned("acme/shop/__transaction_log", 2),
            topics.update_partitioned("acme/shop/__transaction_log", 2),
            topics.delete(_EVENTS, force=True),
            topics.delete_partitioned(_EVENTS, force=True),
            topics.truncate(_EVENTS),
            topics.terminate(_EVENTS),
        ):
            with pytest.raises(exceptions.NotAllowedError, match="system topic"):
                await change
        client = scene.broker.client()
        for name in (_EVENTS, _PENDING):
            with pytest.raises(exceptions.NotAllowedError, match="system topic"):
                await client.create_producer(name)
        async with await client.create_reader(_EVENTS, MessageId.earliest) as reader:
            assert not await reader.has_message_available()
        await client.close()


async def test_clients_of_pulsars_protocol_can_not_write_system_topics() -> None:
    """TOP-6, WIRE-1"""
    async with running_pulsar_broker() as scene:
        await _make_events_topic(scene)
        client = await scene.pulsar_client()
        opening = CommandProducer(topic=_EVENTS, producer_id=1, request_id=client.request_id())
        refused = await client.ask(BaseCommand.PRODUCER, producer=opening)
        assert refused.error.error == ServerError.NOT_ALLOWED_ERROR
        await client.subscribe(topic=_EVENTS)


async def test_system_topics_are_listed_only_if_that_is_requested() -> None:
    """TOP-6: nor do they count in limits."""
    async with running_http(max_topics_per_namespace=1) as scene:
        await _make_events_topic(scene.broker)
        topics = scene.broker.admin.topics
        await topics.create("acme/shop/orders")
        plain = "persistent://acme/shop/orders"
        assert await topics.list("acme/shop") == await scene.get("persistent/acme/shop") == [plain]
        everything = [_EVENTS, plain]
        assert await topics.list("acme/shop", include_system_topic=True) == everything
        assert await scene.get("persistent/acme/shop?includeSystemTopic=true") == everything


@pytest.mark.parametrize("by", ["topic", "namespace"])
async def test_policies_are_not_removed_one_by_one_with_their_namespace(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TOP-4: only with a topic that is deleted by itself: its deletion waits for that."""
    forgotten: list[TopicName] = []

    async def forget(_: TopicPolicyRpc, name: TopicName) -> None:
        forgotten.append(name)

    monkeypatch.setattr(TopicPolicyRpc, "forget", forget)
    async with running_http() as scene:
        await _make_events_topic(scene.broker)
        admin = scene.broker.admin
        await admin.topics.create("acme/shop/orders")
        if by == "topic":
            await admin.topics.delete("acme/shop/orders")
        else:
            await admin.namespaces.delete("acme/shop", force=True)
        assert len(forgotten) == (by == "topic")


async def test_a_namespace_with_nothing_but_system_topics_can_be_deleted() -> None:
    """TOP-6: without force, and they are deleted with it."""
    async with running_http() as scene:
        await _make_events_topic(scene.broker)
        admin = scene.broker.admin
        await admin.topics.create("acme/shop/orders")
        with pytest.raises(exceptions.NotAllowedError, match="1 topics, among them persistent://acme/shop/orders"):
            await admin.namespaces.delete("acme/shop")
        assert len(await admin.topics.list("acme/shop", include_system_topic=True)) == 2
        await admin.topics.delete("acme/shop/orders")
        await admin.namespaces.delete("acme/shop")
        await admin.namespaces.create("acme/shop")
        assert await admin.topics.list("acme/shop", include_system_topic=True) == []
