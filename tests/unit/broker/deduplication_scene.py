"""A broker with deduplication, and raw producers on both of its listeners, which send the entries that a test makes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from magnetar_broker.cursors.cursor_table import CursorTable
from magnetar_broker.cursors.durable_cursor import DurableCursor
from magnetar_broker.cursors.subscription_limits import DEDUPLICATION_CURSOR
from magnetar_broker.errors import TopicUnloaded
from magnetar_broker.position import Position
from magnetar_broker.topics.topic import Topic
from magnetar_protos.entry_pb2 import CompressionType, MessageMetadata
from magnetar_protos.pulsar_pb2 import BaseCommand
from magnetar_wire.batch import Messages, decode_messages, encode_batch
from magnetar_wire.entry import decode_entry
from magnetar_wire.topic_name import TopicName
from tests.produce_client import ProduceClient, entry
from tests.running import until
from tests.unit.broker.broker_scene import BrokerScene
from tests.unit.broker.pulsar.pulsar_client import PulsarClient, sent
from tests.unit.broker.pulsar.pulsar_scene import PulsarScene, running_pulsar_broker

__all__ = ["DUPLICATE", "WIRES", "GrpcProducer", "PulsarProducer", "RawProducer", "Wire", "batch", "chunk", "running"]

DUPLICATE = (-1, -1)
_instances = itertools.count(1)


def batch(
    *sequence_ids: int, producer: str = "p", compression: CompressionType = CompressionType.NONE, **metadata: Any
) -> bytes:
    """Return a batch of messages with these ids, with its highest one; the payloads are the ids."""
    shared = MessageMetadata(producer_name=producer, sequence_id=0, publish_time=1, **metadata)
    messages = Messages([b"%d" % one for one in sequence_ids], sequence_ids=list(sequence_ids))
    return encode_batch(messages, shared, compression)


def chunk(sequence_id: int, number: int, chunks: int, uuid: str = "u", producer: str = "p") -> bytes:
    more: dict[str, Any] = {"uuid": uuid, "chunk_id": number, "num_chunks_from_msg": chunks}
    return entry(sequence_id, b"%s %d" % (uuid.encode(), number), producer, **more, total_chunk_msg_size=chunks)


class RawProducer:
    """A producer with a name, on a connection of its own. `last_sequence_id` is what it got when it was opened."""

    last_sequence_id: int

    async def send(self, *entries: bytes) -> list[tuple[int, int] | str]:
        """Send entries in one piece. Return where each is stored, `DUPLICATE`, or why it is refused, in order."""
        self.send_nowait(*entries)
        return await self.results(len(entries))

    def send_nowait(self, *entries: bytes) -> None:
        raise NotImplementedError

    async def results(self, count: int) -> list[tuple[int, int] | str]:
        """Return the results of the first `count` entries whose results were not returned yet."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Close the connection, not the producer."""
        raise NotImplementedError


class GrpcProducer(RawProducer):
    def __init__(self, scene: BrokerScene) -> None:
        self.connection = scene.transport.connect(scene.address)
        self.client = ProduceClient(self.connection.open_stream("produce"))
        self._sent = self._returned = 0
        self._sending: list[asyncio.Task[None]] = []

    async def open(self, name: str, topic: str) -> None:
        opened = await self.client.open(1, name, topic, instance=b"%d" % next(_instances))
        self.last_sequence_id = opened.last_sequence_id

    def send_nowait(self, *entries: bytes) -> None:
        self._sending.append(asyncio.create_task(self.client.send((1, self._sent, list(entries)))))
        self._sent += len(entries)

    async def results(self, count: int) -> list[tuple[int, int] | str]:
        numbers = range(self._returned, self._returned + count)
        self._returned += count

        def find(number: int) -> tuple[int, int] | str | None:
            refused = next((one.problem.text for one in self.client.refused if one.number == number), None)
            return refused or self.client.receipts.get((1, number))

        await until(lambda: None not in map(find, numbers) or bool(self.client.ended), "all entries have results")
        return [find(number) or "ended" for number in numbers]

    async def leave(self) -> None:
        self.client.stream.cancel()
        await self.connection.close()


class PulsarProducer(RawProducer):
    def __init__(self, scene: PulsarScene) -> None:
        self._scene = scene
        self._client: PulsarClient
        self._returned = 0

    async def open(self, name: str, topic: str) -> None:
        self._client = await self._scene.pulsar_client()
        self._client.answers_pings = True
        opened = await self._client.open_producer(topic=topic, producer_name=name)
        self.last_sequence_id = opened.last_sequence_id

    def send_nowait(self, *entries: bytes) -> None:
        ids = [decode_entry(one, verify=False).metadata.sequence_id for one in entries]  # some are damaged
        self._client.send_bytes(b"".join(sent(1, number, one) for number, one in zip(ids, entries, strict=True)))

    async def results(self, count: int) -> list[tuple[int, int] | str]:
        first, self._returned = self._returned, self._returned + count
        kinds = (BaseCommand.SEND_RECEIPT, BaseCommand.SEND_ERROR, BaseCommand.CLOSE_PRODUCER)

        def found() -> list[BaseCommand]:
            return [one for one in self._client.answers if one.type in kinds]

        await until(lambda: len(found()) >= self._returned, "all entries have results")
        return [self._result(one) for one in found()[first : self._returned]]

    def _result(self, answer: BaseCommand) -> tuple[int, int] | str:
        if answer.type == BaseCommand.CLOSE_PRODUCER:
            return "ended"
        if answer.type == BaseCommand.SEND_ERROR:
            return answer.send_error.message
        position = answer.send_receipt.message_id
        none = 2**64 - 1  # as stock clients get -1
        return DUPLICATE if position.ledgerId == position.entryId == none else (position.ledgerId, position.entryId)

    async def leave(self) -> None:
        self._client.cut()


class Wire:
    """The scene, and how producers reach it."""

    def __init__(self, scene: PulsarScene, make: Callable[[Any], GrpcProducer | PulsarProducer]) -> None:
        self.scene = scene
        self._make = make

    async def producer(self, name: str = "p", topic: str = "t") -> RawProducer:
        producer = self._make(self.scene)
        await producer.open(name, topic)
        return producer

    def topic(self, name: str = "t") -> Topic:
        topic = self.scene.broker_session.topics.get_loaded(TopicName.parse(name))
        assert topic is not None
        return topic

    async def stored(self, name: str = "t") -> list[bytes]:
        """Return the payloads of all messages of the topic, in order. Chunks count as messages."""
        topic = await self.scene.broker_session.topics.get(TopicName.parse(name), create=False)
        found: list[bytes] = []
        position = topic.log.before_first
        while position < topic.log.last:
            for one in await topic.log.read(topic.log.first_after(position), 1_000, 2**24):
                decoded = decode_entry(one.stored)
                found += (
                    [decoded.payload]
                    if decoded.is_chunk
                    else [bytes(x or b"") for x in decode_messages(decoded).payloads]
                )
                position = one.position
        return found

    async def crash(self, name: str = "t") -> None:
        """End the topic as if its broker had crashed: nothing is saved, and the log is recovered by the next owner."""
        topic = self.topic(name)
        topic.abort(TopicUnloaded("crashed"))
        await until(lambda: topic not in self.scene.broker_session.topics.loaded(), "the topic is closed")

    async def unload(self, name: str = "t") -> None:
        await self.scene.broker_session.topics.unload(TopicName.parse(name))

    def cursor(self, name: str = "t") -> DurableCursor | None:
        cursors = self.topic(name).cursors
        assert isinstance(cursors, CursorTable)
        return cursors.get_internal(DEDUPLICATION_CURSOR)

    def snapshot_position(self, name: str = "t") -> Position:
        cursor = self.cursor(name)
        assert cursor is not None
        return cursor.saved_mark_delete


WIRES: Sequence[Any] = (GrpcProducer, PulsarProducer)


@asynccontextmanager
async def running(
    make: Callable[[Any], GrpcProducer | PulsarProducer] = GrpcProducer, *, logs_errors: bool = False, **options: Any
) -> AsyncIterator[Wire]:
    """`logs_errors`: the broker may log errors."""
    settings = {"broker_deduplication_enabled": True} | options
    if not logs_errors:
        async with running_pulsar_broker(**settings) as scene:
            yield Wire(scene, make)
        return
    scene = PulsarScene(**settings)
    await scene.start()
    try:
        yield Wire(scene, make)
    finally:
        await scene.close()
