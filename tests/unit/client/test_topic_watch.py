"""How a pattern's consumer follows what brokers list: in parts, over broken streams, and from brokers that err."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest

from magnetar import aio
from magnetar.exceptions import UnknownError
from magnetar_protos.broker_pb2 import TopicsUpdate, WatchTopics, WatchTopicsAnswer, WatchTopicsRequest
from magnetar_wire.transport import Stream
from tests.running import until
from tests.unit.client.consume_scene import MemoryBroker, client_of, core_of

_NS = "persistent://public/default/"


class _ListingBroker(MemoryBroker):
    """Lists `names`, each in a part of its own."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names
        self.hash = "1"
        self.watches: list[WatchTopics] = []
        self._watch: Stream | None = None

    async def serve_stream(self, method: str, stream: Stream) -> None:
        if method != "watch_topics":
            return await super().serve_stream(method, stream)
        self._watch = stream
        while (message := await stream.receive()) is not None:
            for request in WatchTopicsRequest.FromString(message).watch:
                self.watches.append(request)
                is_list = request.hash != self.hash
                for name in self.names if is_list else ():
                    await self.send(added=[name], is_list=True)
                await self.send(is_list=is_list, hash=self.hash, time_ms=5)
        return None

    async def send(self, **fields: Any) -> None:
        assert self._watch is not None
        update = TopicsUpdate(watch_id=self.watches[-1].watch_id, **fields)
        await self._watch.send(WatchTopicsAnswer(updates=[update]).SerializeToString())


def _topics(consumer: aio.Consumer[Any]) -> set[str]:
    return {one.topic.removeprefix(_NS) for one in core_of(consumer).partitions}


async def _wait(consumer: aio.Consumer[Any], names: Iterable[str]) -> None:
    wanted = set(names)
    await until(lambda: _topics(consumer) == wanted, f"it has {wanted}")
    await until(consumer.is_connected, "they are open")


async def test_parts_take_effect_together_and_a_list_holds_over_a_broken_stream() -> None:
    """SUB-8. Names that can't be are left out. A client that has the list names its hash."""
    broker = _ListingBroker(_NS + "a", "no://name", _NS + "b")
    async with client_of(broker) as (_, client):
        consumer = await client.subscribe(re.compile(".*"), "s")
        assert _topics(consumer) == {"a", "b"}
        await broker.send(added=[_NS + "c"])
        broker.break_streams()  # the change was not complete
        await until(lambda: len(broker.watches) == 2, "it watches again")
        assert [one.hash for one in broker.watches] == ["", "1"]
        assert _topics(consumer) == {"a", "b"}
        broker.names, broker.hash = (_NS + "a", _NS + "d"), "2"
        broker.break_streams()
        await _wait(consumer, ["a", "b", "d"])  # "b" leaves when its own broker reports the deletion
        await broker.send(added=[_NS + "e"])
        await broker.send(added=[_NS + "f"], hash="3")
        await _wait(consumer, ["a", "b", "d", "e", "f"])
        starts = {
            one.topic.removeprefix(_NS): one.start.WhichOneof("at")
            for request in broker.requests
            for one in request.open
        }
        assert starts == {"a": "latest", "b": "latest", "d": "earliest", "e": "earliest", "f": "earliest"}
        assert all(one.must_exist for request in broker.requests for one in request.open)
        await consumer.close()


async def test_a_list_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """SUB-8."""
    monkeypatch.setattr("magnetar._patterns.topic_watch.MAX_NAMES", 3)
    async with client_of(_ListingBroker(*(f"{_NS}{number}" for number in range(4)))) as (_, client):
        with pytest.raises(UnknownError, match="more than 3 topics"):
            await client.subscribe(re.compile(".*"), "s")
