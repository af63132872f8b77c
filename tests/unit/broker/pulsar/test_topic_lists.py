"""Topics of a namespace, as a client asks for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar_broker.server.topic_list_rules import Listing
from magnetar_metadata.store import ABSENT
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandGetTopicsOfNamespaceResponse,
    CommandWatchTopicList,
    ServerError,
)
from magnetar_wire.topic_name import TopicName
from tests.running import until
from tests.unit.broker.pulsar.pulsar_client import PulsarClient
from tests.unit.broker.pulsar.pulsar_scene import PulsarScene, running_pulsar_broker

_NS = "persistent://public/default/"
_STORED = [_NS + "orders", _NS + "other"]
_PARTITIONS = [f"{_NS}parted-partition-{index}" for index in range(3)]


async def topics_of(client: PulsarClient, namespace: str = "public/default", **options: Any) -> BaseCommand:
    command = CommandGetTopicsOfNamespace(request_id=client.request_id(), namespace=namespace, **options)
    return await client.ask(BaseCommand.GET_TOPICS_OF_NAMESPACE, get_topics_of_namespace=command)


async def _listed(client: PulsarClient, **options: Any) -> CommandGetTopicsOfNamespaceResponse:
    answer = await topics_of(client, **options)
    assert answer.type == BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE, answer
    return answer.get_topics_of_namespace_response


async def _make_topics(scene: PulsarScene) -> None:
    for name in ("orders", "other", "__change_events"):
        await scene.broker_session.topics.get(TopicName.parse(name), create=True, explicit=True)
    await scene.admin.topics.create_partitioned("parted", 3)


async def test_all_topics_of_a_namespace_are_listed_with_partitions_that_nobody_has_used() -> None:
    """WIRE-1."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await _make_topics(scene)
        response = await _listed(client)
        assert sorted(response.topics) == sorted(_STORED + _PARTITIONS)
        assert response.changed
        assert not response.filtered
        assert response.topics_hash == Listing.of(response.topics).hash
        await client.open_producer(topic=_PARTITIONS[1])
        other = "non-persistent://public/default/live"
        await client.open_producer(2, other)
        assert other in (await _listed(client, mode=CommandGetTopicsOfNamespace.ALL)).topics
        assert list((await _listed(client, mode=CommandGetTopicsOfNamespace.NON_PERSISTENT)).topics) == [other]
        assert list((await _listed(client)).topics) == list(response.topics)
        await scene.admin.topics.delete_partitioned("parted", force=True)
        assert sorted((await _listed(client)).topics) == _STORED
        assert not (await _listed(client, namespace="pulsar/system")).topics
        assert not (await _listed(client, namespace="nobody/knows")).topics


async def test_a_list_is_as_new_as_the_question() -> None:
    """However far this broker's session is behind what others have made."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await _listed(client)
        assert scene.store is not None
        scene.metadata.lag(scene.store)
        other = scene.metadata.connect()
        await other.put("/topics/public/default/persistent/elsewhere", b"", ABSENT)
        assert list((await _listed(client)).topics) == [_NS + "elsewhere"]
        await other.close()


async def test_a_pattern_filters_and_a_hash_spares_the_list() -> None:
    """WIRE-1."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await _make_topics(scene)
        response = await _listed(client, topics_pattern=_NS + "(par|ord).*")
        assert list(response.topics) == [_STORED[0], *_PARTITIONS]
        assert response.filtered
        again = await _listed(client, topics_pattern=_NS + "(par|ord).*", topics_hash=response.topics_hash)
        assert not again.changed
        assert not again.topics
        assert again.topics_hash == response.topics_hash
        other = await _listed(client, topics_pattern=_NS + "o.*", topics_hash=response.topics_hash)
        assert other.changed
        assert list(other.topics) == _STORED


async def test_a_pattern_that_the_broker_does_not_take_leaves_filtering_to_the_client() -> None:
    async with running_pulsar_broker(subscription_pattern_max_length=25) as scene:
        client = await scene.pulsar_client()
        await _make_topics(scene)
        for pattern in ("o(?=r).*", _NS + "o" * 30, "("):
            response = await _listed(client, topics_pattern=pattern)
            assert not response.filtered
            assert len(response.topics) == 5
        assert (await _listed(client, topics_pattern=_NS + "o" * 3)).filtered


async def test_topic_list_above_max_message_size_is_refused() -> None:
    async with running_pulsar_broker(max_message_size=200000) as scene:
        client = await scene.pulsar_client()
        for number in range(6):
            await scene.admin.topics.create_partitioned("x" * 700 + str(number), 100)
        refused = await topics_of(client)
        assert refused.error.error == ServerError.NOT_ALLOWED_ERROR
        assert "max_message_size" in refused.error.message
        assert len((await _listed(client, topics_pattern=".*3")).topics) == 100
        bad = await topics_of(client, namespace="one")
        assert bad.error.error == ServerError.INVALID_TOPIC_NAME
        assert not client.is_disconnected


async def test_lists_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four are made at a time, and at most as many as lookups are allowed."""

    async with running_pulsar_broker(max_concurrent_lookup_request=7) as scene:
        client = await scene.pulsar_client()
        go_on = asyncio.Event()
        begun = 0

        async def sync() -> None:
            nonlocal begun
            begun += 1
            await go_on.wait()

        monkeypatch.setattr(scene.broker_session.catalog, "sync", sync)
        waiting = [asyncio.create_task(topics_of(client)) for _ in range(6)]
        watch = CommandWatchTopicList(
            request_id=client.request_id(), watcher_id=1, namespace="public/default", topics_pattern=".*"
        )
        waiting.append(asyncio.create_task(client.ask(BaseCommand.WATCH_TOPIC_LIST, watch_topic_list=watch)))
        await until(lambda: scene.context.server.lookup_limit.in_flight == 7, "they wait")
        await until(lambda: begun == 5, "four lists and the watch's are begun")
        assert (await topics_of(client)).error.error == ServerError.TOO_MANY_REQUESTS
        watch.request_id, watch.watcher_id = client.request_id(), 2
        refused = await client.ask(BaseCommand.WATCH_TOPIC_LIST, watch_topic_list=watch)
        assert refused.error.error == ServerError.TOO_MANY_REQUESTS
        assert begun == 5
        go_on.set()
        assert BaseCommand.ERROR not in {one.type for one in await asyncio.gather(*waiting)}


async def test_unread_topic_lists_cause_too_many_requests() -> None:
    """What one connection waits with stays below a bound, however many lists it asks for."""

    async with running_pulsar_broker() as scene:
        client = await scene.pulsar_client()
        await scene.admin.topics.create_partitioned("x" * 700, 1000)
        client.stop_reading()
        for _ in range(20):
            command = CommandGetTopicsOfNamespace(request_id=client.request_id(), namespace="public/default")
            client.send(BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE, get_topics_of_namespace=command))
        other = await scene.pulsar_client()
        assert len((await _listed(other)).topics) == 1000
        client.read_on()
        await client.answer(20)
        client.read_on()
        refused = [one.error.error for one in client.answers_of(BaseCommand.ERROR)]
        assert refused
        assert set(refused) == {ServerError.TOO_MANY_REQUESTS}
        assert len(client.answers_of(BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)) + len(refused) == 20
        assert client.answers_of(BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)
