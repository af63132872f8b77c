"""Clients of the stream `watch_topics`, which are notified when topics of a namespace are created and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from magnetar_broker.server import topic_list_rules
from magnetar_broker.server.topic_list_rules import Listing
from magnetar_metadata.store import ABSENT
from magnetar_protos.broker_pb2 import (
    ErrorCode,
    TopicsMode,
    TopicsUpdate,
    WatchTopics,
    WatchTopicsAnswer,
    WatchTopicsRequest,
)
from magnetar_wire.transport import Code, Rejected, Stream
from tests.running import until
from tests.unit.broker.broker_scene import BrokerScene, running_broker

_NS = "persistent://public/default/"
_SOON = {"topic_list_watch_interval_seconds": 0.02}


class _Client:
    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.updates: list[TopicsUpdate] = []
        self.error: Exception | None = None

    async def watch(self, watch_id: int = 1, **fields: Any) -> None:
        parts: dict[str, Any] = {"namespace": "public/default", "pattern": "public/default/a.*"} | fields
        request = WatchTopicsRequest(watch=[WatchTopics(watch_id=watch_id, **parts)])
        await self.stream.send(request.SerializeToString())

    async def close_watch(self, watch_id: int) -> None:
        await self.stream.send(WatchTopicsRequest(close=[watch_id]).SerializeToString())

    async def receive(self) -> None:
        try:
            while (message := await self.stream.receive()) is not None:
                self.updates += WatchTopicsAnswer.FromString(message).updates
        except Rejected as error:
            self.error = error

    def of(self, watch_id: int) -> list[TopicsUpdate]:
        return [one for one in self.updates if one.watch_id == watch_id]

    def names(self, watch_id: int) -> set[str]:
        names: set[str] = set()
        for one in self.of(watch_id):
            assert names.isdisjoint(one.added)
            assert names.issuperset(one.deleted)
            names = (names - set(one.deleted)) | set(one.added)
        return names

    async def wait(self, *names: str, watch_id: int = 1) -> None:
        """Wait until the client knows just these names."""
        wanted = {name if "://" in name else _NS + name for name in names}
        listing = Listing.of(wanted)
        await until(
            lambda: bool(one := self.of(watch_id)) and one[-1].hash == listing.hash and self.names(watch_id) == wanted,
            f"it knows {wanted}, and not {self.names(watch_id)}",
        )

    async def refused(self, watch_id: int) -> Any:
        await until(lambda: any(one.HasField("problem") for one in self.of(watch_id)), "it is refused")
        return self.of(watch_id)[-1].problem


@asynccontextmanager
async def _client(scene: BrokerScene) -> AsyncIterator[_Client]:
    client = _Client(scene.transport.connect(scene.address).open_stream("watch_topics"))
    receiving = asyncio.create_task(client.receive())
    yield client
    client.stream.cancel()
    receiving.cancel()
    await asyncio.wait([receiving])


async def test_clients_are_notified_of_topics_that_appear_and_go() -> None:
    """SUB-8. By pattern and domain, partitions included; also of a growth, and of topics deleted and recreated."""
    async with running_broker(**_SOON) as scene, _client(scene) as client:
        await scene.admin.topics.create("a1")
        await scene.admin.topics.create("b")
        await client.watch()
        await client.watch(2, mode=TopicsMode.TOPICS_ALL, pattern="")
        await client.watch(3, mode=TopicsMode.TOPICS_NON_PERSISTENT)
        await client.wait("a1")
        await client.wait("a1", "b", watch_id=2)
        await client.wait(watch_id=3)
        assert client.of(1)[-1].time_ms > 0
        await scene.admin.topics.create_partitioned("a", 1)
        await client.wait("a1", "a-partition-0")
        await scene.admin.topics.update_partitioned("a", 2)
        await client.wait("a1", "a-partition-0", "a-partition-1")
        async with scene.client() as clients:
            await clients.create_producer("non-persistent://public/default/a2")
            await client.wait("non-persistent://public/default/a2", watch_id=3)
        await scene.admin.topics.delete("a1")
        await scene.admin.topics.delete_partitioned("a")
        await client.wait()
        await scene.admin.topics.create("a1")
        await client.wait("a1")
        await client.close_watch(1)
        await scene.admin.topics.create("a3")
        await client.wait("a1", "a3", "b", "non-persistent://public/default/a2", watch_id=2)
        assert client.names(1) == {_NS + "a1"}


async def test_a_list_that_the_client_has_is_not_sent_again() -> None:
    """SUB-8. A client that reconnects gets the list only if it has changed; one that polls does not watch."""
    async with running_broker(**_SOON) as scene, _client(scene) as client:
        await scene.admin.topics.create("a1")
        await client.watch(1, once=True)
        await client.wait("a1")
        await client.watch(2, hash=client.of(1)[-1].hash)
        await until(lambda: bool(client.of(2)), "it is answered")
        assert [(one.is_list, one.hash, list(one.added)) for one in client.of(2)] == [
            (False, client.of(1)[-1].hash, [])
        ]
        await scene.admin.topics.create("a2")
        await until(lambda: client.names(2) == {_NS + "a2"}, "it gets the change")
        assert client.names(1) == {_NS + "a1"}
        await client.watch(1, once=True)  # the id is free again
        await until(lambda: len(client.of(1)) > 3, "it is answered again")


async def test_long_lists_and_changes_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """SUB-8. No answer exceeds a bound, with any number of topics."""
    monkeypatch.setattr(topic_list_rules, "_UPDATE_BYTES", 1_000)
    monkeypatch.setattr(topic_list_rules.split_names, "__defaults__", (1_000,))
    async with running_broker(**_SOON) as scene, _client(scene) as client:
        store = scene.metadata.connect()

        async def create(first: int) -> None:
            for number in range(first, first + 100):
                await store.put(f"/topics/public/default/persistent/a{number}", b"", ABSENT)

        await create(0)
        await client.watch()
        await client.wait(*(f"a{number}" for number in range(100)))
        assert len(client.of(1)) > 4
        assert [one.hash != "" for one in client.of(1)] == [False] * (len(client.of(1)) - 1) + [True]
        await create(100)
        await client.wait(*(f"a{number}" for number in range(200)))
        assert max(one.ByteSize() for one in client.updates) < 1_200
        await store.close()


async def test_watches_that_can_not_be_are_refused() -> None:
    """SUB-8. No pattern, and no number of watches, takes unbounded time or memory; other watches go on."""
    settings = {"max_topic_watchers_per_connection": 2, "subscription_pattern_max_length": 30}
    async with running_broker(**settings, **_SOON) as scene, _client(scene) as client:
        await client.watch()
        for number, pattern in enumerate(("(", "a(?=b)", r"(a)\1", "a" * 31), 2):
            await client.watch(number, pattern=pattern)
            assert (await client.refused(number)).code == ErrorCode.UNSUPPORTED
        await client.watch(10, namespace="no name")
        assert (await client.refused(10)).code == ErrorCode.INVALID_TOPIC_NAME
        await client.watch(11, pattern="(a+)+(a+)+(a+)+$", mode=TopicsMode.TOPICS_ALL)
        await client.watch(12)
        problem = await client.refused(12)
        assert problem.code == ErrorCode.TOO_MANY_REQUESTS
        assert "max_topic_watchers_per_connection" in problem.text
        await scene.admin.topics.create("a" * 200)
        await client.wait("a" * 200)
        await client.watch(1)
        await until(lambda: client.error is not None, "an id was used twice")
        assert isinstance(client.error, Rejected)
        assert client.error.code is Code.INVALID_ARGUMENT
        await until(lambda: not scene.broker.server.topic_watches._followers, "nobody watches any more")


async def test_request_is_answered_if_something_that_it_waits_for_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the client would wait until its timeout."""
    async with running_broker() as scene, _client(scene) as client:

        async def wait_for_cancelled(*_: object) -> Listing:
            shared: asyncio.Future[Listing] = asyncio.get_running_loop().create_future()
            shared.cancel()
            return await shared

        monkeypatch.setattr(scene.broker.server.topic_watches, "watch", wait_for_cancelled)
        await client.watch()
        assert (await client.refused(1)).code == ErrorCode.SERVICE_NOT_READY
