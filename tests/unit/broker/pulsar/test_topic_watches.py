"""Clients that are notified when topics of a namespace are created and deleted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from magnetar_broker.server import topic_list_rules, topic_names, topic_watches
from magnetar_broker.server.pulsar import topic_lists
from magnetar_broker.server.pulsar.replies import frame, topic_update_frame
from magnetar_broker.server.pulsar.topic_lists import PulsarTopicWatcher
from magnetar_broker.server.topic_list_rules import Listing
from magnetar_metadata.store import ABSENT, ANY
from magnetar_protos.pulsar_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
    CommandWatchTopicListSuccess,
    CommandWatchTopicUpdate,
    ServerError,
)
from magnetar_wire.topic_name import TopicName
from tests.running import until
from tests.unit.broker.pulsar.pulsar_client import PulsarClient
from tests.unit.broker.pulsar.pulsar_scene import running_pulsar_broker

_NS = "persistent://public/default/"
_SOON = {"topic_list_watch_interval_seconds": 0.02}


async def _ask_to_watch(client: PulsarClient, watcher_id: int = 1, **fields: Any) -> BaseCommand:
    parts = {"namespace": "public/default", "topics_pattern": _NS + "a.*"} | fields
    command = CommandWatchTopicList(request_id=client.request_id(), watcher_id=watcher_id, **parts)
    return await client.ask(BaseCommand.WATCH_TOPIC_LIST, watch_topic_list=command)


async def _watch(client: PulsarClient, watcher_id: int = 1, **fields: Any) -> CommandWatchTopicListSuccess:
    answer = await _ask_to_watch(client, watcher_id, **fields)
    assert answer.type == BaseCommand.WATCH_TOPIC_LIST_SUCCESS, answer
    return answer.watch_topic_list_success


class _Known:
    """The topics that a client knows from its notifications."""

    def __init__(self, client: PulsarClient, answer: CommandWatchTopicListSuccess) -> None:
        self._client = client
        self._began = set(answer.topic)
        self._watcher_id = answer.watcher_id
        self.updates = 0
        self.hash = answer.topics_hash

    def names(self) -> set[str]:
        names = set(self._began)
        self.updates = 0
        for one in self._client.answers_of(BaseCommand.WATCH_TOPIC_UPDATE):
            update = one.watch_topic_update
            if update.watcher_id == self._watcher_id:
                assert names.isdisjoint(update.new_topics)
                assert names.issuperset(update.deleted_topics)
                names = (names - set(update.deleted_topics)) | set(update.new_topics)
                self.updates += 1
                self.hash = update.topics_hash
        return names

    async def wait(self, *names: str) -> None:
        wanted = {_NS + name for name in names}
        await until(lambda: self.names() == wanted, f"the client knows {wanted}, and not {self.names()}")
        assert self.hash == Listing.of(wanted).hash


async def test_watcher_is_notified_of_created_and_deleted_topics() -> None:
    """WIRE-1, SUB-8. Clients are notified of partitions before they are used."""

    async with running_pulsar_broker(**_SOON) as scene:
        client = await scene.pulsar_client()
        await scene.admin.topics.create("a1")
        await scene.admin.topics.create("b")
        known = _Known(client, await _watch(client))
        await known.wait("a1")
        await client.open_producer(topic="a2")
        await known.wait("a1", "a2")
        await scene.admin.topics.create_partitioned("a3", 2)
        await known.wait("a1", "a2", "a3-partition-0", "a3-partition-1")
        updates = known.updates
        await client.open_producer(2, topic="a3-partition-1")
        await client.open_producer(3, topic="b2")
        await scene.admin.topics.delete("a1")
        await known.wait("a2", "a3-partition-0", "a3-partition-1")
        assert known.updates == updates + 1
        await scene.admin.topics.delete_partitioned("a3", force=True)
        await known.wait("a2")


async def test_changes_within_an_interval_are_sent_in_one_update() -> None:
    async with running_pulsar_broker(topic_list_watch_interval_seconds=3600) as scene:
        client = await scene.pulsar_client()
        known = _Known(client, await _watch(client))
        for name in ("a1", "a2"):
            await scene.admin.topics.create(name)
        assert not known.names()
        answer = await _watch(client, 2, topics_pattern=".*")
        assert len(answer.topic) == 2
        await known.wait("a1", "a2")
        assert known.updates == 1


async def test_a_hash_that_is_right_spares_the_list() -> None:
    """WIRE-1."""

    async with running_pulsar_broker(**_SOON) as scene:
        client = await scene.pulsar_client()
        await scene.admin.topics.create("a1")
        answer = await _watch(client)
        assert list(answer.topic) == [_NS + "a1"]
        again = await _watch(client, 2, topics_hash=answer.topics_hash)
        assert not again.topic
        assert again.topics_hash == answer.topics_hash
        assert list((await _watch(client, 3, topics_hash="00000000")).topic) == [_NS + "a1"]


async def test_watchers_of_a_namespace_share_the_metadata_watches() -> None:
    """For any number of topics. None is left when the last watcher is closed."""

    async with running_pulsar_broker(**_SOON) as scene:
        assert scene.store is not None
        watched = scene.store.flags._nodes

        def watches() -> int:
            return sum(len(flags) for path, flags in watched.items() if path.startswith(("/topics/", "/partitioned/")))

        for number in range(5):
            await scene.admin.topics.create(f"a{number}")
        clients = [await scene.pulsar_client() for _ in range(3)]
        for client in clients:
            await _watch(client, 1)
            await _watch(client, 2, topics_pattern=".*")
        assert watches() == 4
        close = CommandWatchTopicListClose(request_id=clients[0].request_id(), watcher_id=1)
        answer = await clients[0].ask(BaseCommand.WATCH_TOPIC_LIST_CLOSE, watch_topic_list_close=close)
        assert answer.type == BaseCommand.SUCCESS
        other = _Known(clients[0], (await _watch(clients[0], 3)))
        await scene.admin.topics.create("a9")
        await other.wait(*(f"a{number}" for number in (*range(5), 9)))
        assert {one.watch_topic_update.watcher_id for one in clients[0].answers_of(BaseCommand.WATCH_TOPIC_UPDATE)} == {
            2,
            3,
        }
        for client in clients:
            client.cut()
        await until(lambda: not watches(), "nobody watches any more")
        assert not scene.context.server.topic_watches._followers
        assert not scene.context.server.topic_watches._watchers


async def test_watcher_is_notified_of_changes_during_session_loss() -> None:
    async with running_pulsar_broker(**_SOON) as scene:
        client = await scene.pulsar_client()
        for name in ("a1", "a2"):
            await scene.admin.topics.create(name)
        known = _Known(client, await _watch(client))
        lost = scene.store
        assert lost is not None
        scene.metadata.expire(lost)
        await until(lambda: scene.store is not lost and scene.broker.session is not None, "there is another session")
        await scene.admin.topics.delete("a1")
        await scene.admin.topics.create("a3")
        await known.wait("a2", "a3")
        assert not client.is_disconnected


async def test_watcher_is_notified_of_added_unused_partitions() -> None:
    """Where no topic has a subscription, no partition is stored by that, and so is none after a deletion."""

    async def nothing(partitions: object) -> None:
        """There are no subscriptions to be made."""

    async with running_pulsar_broker(**_SOON) as scene:
        client = await scene.pulsar_client()
        await scene.admin.topics.create_partitioned("a", 1)
        known = _Known(client, await _watch(client))
        await known.wait("a-partition-0")
        await scene.broker_session.catalog.partitioned.grow(TopicName.parse("a"), 3, nothing)
        await known.wait(*(f"a-partition-{index}" for index in range(3)))
        await scene.admin.topics.delete_partitioned("a")
        await scene.admin.topics.create_partitioned("a", 2)
        await known.wait("a-partition-0", "a-partition-1")


@pytest.mark.parametrize("seed", range(3))
async def test_watcher_converges_after_topic_changes_and_session_losses(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent twice or left out, no matter where the search is cancelled."""
    chance = random.Random(seed)

    async def filter_names(names: Iterable[str], means: Callable[[str], bool]) -> list[str]:
        await asyncio.sleep(chance.choice((0, 0.002)))
        return [name for name in names if means(name)]

    monkeypatch.setattr(topic_watches, "filter_names", filter_names)

    async with running_pulsar_broker(topic_list_watch_interval_seconds=0.002) as scene:
        client = await scene.pulsar_client()
        known = _Known(client, await _watch(client))
        other = scene.metadata.connect()
        there: set[str] = set()
        for _ in range(60):
            name = f"a{chance.randrange(8)}"
            path = f"/topics/public/default/persistent/{name}"
            if name in there:
                await other.delete(path, ANY)
            else:
                await other.put(path, b"", ABSENT)
            there ^= {name}
            await asyncio.sleep(chance.choice((0, 0, 0.001, 0.003)))
            if chance.random() < 0.1 and scene.store is not None:
                scene.metadata.expire(scene.store)
        await known.wait(*there)
        await other.close()


async def test_watch_fails_during_store_outage_and_resumes_after_it() -> None:
    async with running_pulsar_broker(**_SOON) as scene:
        client = await scene.pulsar_client()
        known = _Known(client, await _watch(client))
        assert scene.store is not None
        scene.metadata.suspend(scene.store)
        refused = await _ask_to_watch(client, 2, namespace="public/other")
        assert refused.error.error == ServerError.METADATA_ERROR
        scene.metadata.resume(scene.store)
        await _watch(client, 2, namespace="public/other")
        await scene.admin.topics.create("a1")
        await known.wait("a1")


async def test_slow_watcher_receives_coalesced_updates_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs nothing in the meantime, and delays no other client."""
    monkeypatch.setattr(topic_lists, "_MAX_WAITING_BYTES", 100)

    async with running_pulsar_broker(**_SOON) as scene:
        slow, quick = await scene.pulsar_client(), await scene.pulsar_client()
        slow_known, quick_known = _Known(slow, await _watch(slow)), _Known(quick, await _watch(quick))
        slow.stop_reading()
        names = [f"a{number}" for number in range(6)]
        for count, name in enumerate(names, 1):
            await scene.admin.topics.create(name)
            await quick_known.wait(*names[:count])
        assert slow.session.waiting_bytes < 1000
        slow.read_on()
        await slow_known.wait(*names)
        assert slow_known.updates < 6 == quick_known.updates


async def test_list_difference_is_computed_once_for_all_watchers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many watch: nothing else at the broker stands still for that."""
    found: list[int] = []
    turns = 0
    turns_of_updates: list[int] = []
    differences, send = topic_list_rules.differences, PulsarTopicWatcher.send

    def counted(before: Any, after: Any, max_bytes: int) -> Any:
        found.append(len(after))
        return differences(before, after, max_bytes)

    def noted(watcher: PulsarTopicWatcher, *update: Any) -> None:
        turns_of_updates.append(turns)
        send(watcher, *update)

    monkeypatch.setattr(topic_list_rules, "differences", counted)
    monkeypatch.setattr(PulsarTopicWatcher, "send", noted)

    async with running_pulsar_broker(**_SOON) as scene:

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        clients = [await scene.pulsar_client() for _ in range(3)]
        known = [_Known(client, await _watch(client, number)) for client in clients for number in (0, 300)]
        counting = asyncio.create_task(count_turns())
        await scene.admin.topics.create("a1")
        for one in known:
            await one.wait("a1")
        counting.cancel()
        assert found == [1]
        assert len(set(turns_of_updates)) == len(known)


@pytest.mark.parametrize("watcher_id", [0, 127, 128, 2**64 - 1])
def test_updates_are_written_as_others_write_them(watcher_id: int) -> None:
    fields: dict[str, Any] = {"new_topics": ["a" * 200], "deleted_topics": ["b"], "topics_hash": "c"}
    whole = CommandWatchTopicUpdate(watcher_id=watcher_id, **fields)
    part = CommandWatchTopicUpdate(**fields).SerializePartialToString()
    command = BaseCommand(type=BaseCommand.WATCH_TOPIC_UPDATE, watch_topic_update=whole)
    assert topic_update_frame(watcher_id, part) == frame(command)


async def test_watches_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that are refused ask now and then instead; what they have goes on."""

    async with running_pulsar_broker(max_topic_watchers_per_connection=2, **_SOON) as scene:
        one, other = await scene.pulsar_client(), await scene.pulsar_client()
        known = _Known(one, await _watch(one))
        await _watch(one, 2)
        refused = await _ask_to_watch(one, 3)
        assert refused.error.error == ServerError.NOT_ALLOWED_ERROR
        assert "max_topic_watchers_per_connection" in refused.error.message
        await _watch(one, 2)  # it had stopped waiting for the answer
        await _watch(other)
        monkeypatch.setattr(topic_watches, "_MAX_PATTERNS", 1)
        assert (await _ask_to_watch(other, 2, topics_pattern=".*")).type == BaseCommand.ERROR
        assert (await _ask_to_watch(other, 2, namespace="public/x")).type == BaseCommand.ERROR
        await _watch(other, 2)
        monkeypatch.setattr(topic_watches, "_MAX_PATTERNS", 10)
        monkeypatch.setattr(topic_watches, "_MAX_LISTED_NAMES", 1)
        await scene.admin.topics.create("a1")
        await known.wait("a1")
        await _ask_to_watch(other, 1, topics_pattern="nothing")
        assert (await _ask_to_watch(other, 2, topics_pattern=".*")).type == BaseCommand.ERROR
        await scene.admin.topics.create("a2")
        await known.wait("a1", "a2")


async def test_a_list_of_too_many_partitions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few nodes may stand for more names than the broker has memory for. What clients have goes on."""
    monkeypatch.setattr(topic_names, "MAX_LISTED_PARTITIONS", 10)
    async with running_pulsar_broker(**_SOON) as scene:
        client = await scene.pulsar_client()
        await scene.admin.topics.create_partitioned("a", 6)
        known = _Known(client, await _watch(client))
        await scene.admin.topics.create_partitioned("b", 6)
        refused = await _ask_to_watch(client, 2, topics_pattern="nothing")
        assert refused.error.error == ServerError.NOT_ALLOWED_ERROR
        assert "12 partitions" in refused.error.message
        request = CommandGetTopicsOfNamespace(request_id=client.request_id(), namespace="public/default")
        answer = await client.ask(BaseCommand.GET_TOPICS_OF_NAMESPACE, get_topics_of_namespace=request)
        assert "12 partitions" in answer.error.message
        await scene.admin.topics.delete_partitioned("b")
        await scene.admin.topics.create("a1")
        await known.wait("a1", *(f"a-partition-{number}" for number in range(6)))


async def test_a_watch_that_can_not_be_is_refused() -> None:
    async with running_pulsar_broker(subscription_pattern_max_length=25, **_SOON) as scene:
        client = await scene.pulsar_client()
        for pattern in ("(", "a(?=b)", "a" * 26):
            refused = await _ask_to_watch(client, topics_pattern=pattern)
            assert refused.error.error == ServerError.NOT_ALLOWED_ERROR
        assert (await _ask_to_watch(client, namespace="x")).error.error == ServerError.INVALID_TOPIC_NAME
        assert (await _ask_to_watch(client, namespace="no/body", topics_pattern=".*")).type != BaseCommand.ERROR
        assert not client.is_disconnected


async def test_a_watch_that_is_closed_before_it_began_is_answered() -> None:
    async with running_pulsar_broker(**_SOON) as scene:
        client = await scene.pulsar_client()
        assert scene.store is not None
        scene.metadata.cut_silently(scene.store)
        asking = asyncio.create_task(_ask_to_watch(client))
        await until(lambda: bool(scene.context.server.topic_watches._watchers), "it waits for the list")
        close = CommandWatchTopicListClose(request_id=client.request_id(), watcher_id=1)
        answer = await client.ask(BaseCommand.WATCH_TOPIC_LIST_CLOSE, watch_topic_list_close=close)
        assert answer.type == BaseCommand.SUCCESS
        assert (await asking).error.error == ServerError.NOT_ALLOWED_ERROR
        leaver = await scene.pulsar_client()
        leaving = asyncio.create_task(_ask_to_watch(leaver))
        await until(lambda: bool(scene.context.server.topic_watches._watchers), "it waits for the list")
        leaver.cut()
        await until(lambda: not scene.context.server.topic_watches._watchers, "it waits no more")
        leaving.cancel()
        scene.metadata.heal(scene.store)
        await asyncio.wait([leaving])
