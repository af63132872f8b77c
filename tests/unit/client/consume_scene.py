"""A broker with real subscriptions and consume sessions, on logs and cursors in memory; and asyncio clients of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

from magnetar import aio
from magnetar._consuming.multi_topic_consumer import MultiTopicConsumer
from magnetar._message import Message
from magnetar.aio._consumer import Consumer
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.chunk_search import find_ends
from magnetar_broker.managed_ledger.log_entry import LogEntry, get_chunk
from magnetar_broker.position import Position
from magnetar_broker.server.grpc.consume_stream import ConsumeStream
from magnetar_broker.settings.delivery import SubscriptionSettings
from magnetar_broker.topics.consumer import Consumer as BrokerConsumer
from magnetar_broker.topics.consumer import ConsumerSink
from magnetar_broker.topics.dispatch.delivery_capacity import OutboxBudget
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_protos.broker_pb2 import (
    ConsumeRequest,
    ErrorCode,
    FirstChunk,
    LastMessage,
    LastMessageAnswer,
    LastMessageRequest,
    OpenConsumer,
)
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_testing.clock import ManualClock
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.batch import encode_batch, encode_message
from magnetar_wire.entry import add_broker_metadata, decode_entry_metadata
from magnetar_wire.errors import MalformedEntry
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.messages import Messages
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import Stream
from tests.unit.broker.fake_cursors import FakeCursorTable
from tests.unit.broker.fake_log import FakeLog
from tests.unit.client.lookup_broker import ADDRESS, LookupBroker

__all__ = ["ADDRESS", "MemoryBroker", "MemoryTopic", "client_of", "core_of", "payloads", "receive", "receive_all"]

R = TypeVar("R")


class MemoryTopic:
    def __init__(self, name: TopicName, incarnation: str, options: SubscriptionSettings) -> None:
        self.name = name
        self.log = FakeLog(per_ledger=1000, incarnation=incarnation)
        self.cursors = FakeCursorTable(self.log)
        self._options = options
        self.reload()

    def reload(self) -> None:
        """Reopen the topic as another broker does: with the same log and cursors."""
        self.subscriptions = Subscriptions(
            self.name, self.log, self.cursors, self._options, ManualClock(), SeededRandomness(1)
        )
        self.log.on_appended = self.subscriptions.appended

    async def subscribe(self, opened: OpenConsumer, sink: ConsumerSink) -> BrokerConsumer:
        return await self.subscriptions.subscribe(opened, sink)

    def publish(
        self,
        *payloads: bytes | None,
        batch: bool = False,
        time_ms: int = 0,
        schema_version: bytes | None = None,
        **columns: Any,
    ) -> Position:
        """One entry."""
        shared = MessageMetadata(producer_name="p", sequence_id=len(self.log.order), publish_time=1)
        if schema_version is not None:
            shared.schema_version = schema_version
        messages = Messages(list(payloads), **columns)
        batch = batch or len(payloads) > 1
        entry = encode_batch(messages, shared) if batch else encode_message(messages, shared)
        return self.store(entry, len(payloads), batch=batch, time_ms=time_ms)

    def store(self, entry: bytes, messages: int = 1, *, batch: bool = False, time_ms: int = 0) -> Position:
        stored = add_broker_metadata(entry, time_ms, self.log.next_index + messages - 1)
        chunk = None
        with contextlib.suppress(MalformedEntry):  # a test stores a damaged one
            chunk = None if batch else get_chunk(decode_entry_metadata(stored)[1])
        return self.log.add(messages, batch=batch, payload=stored, time_ms=time_ms, chunk=chunk)


class MemoryBroker(LookupBroker):
    """Serves consumers with the real sessions and subscriptions, on logs in memory."""

    def __init__(self, address: str = ADDRESS, **options: Any) -> None:
        super().__init__(address)
        self.topics: dict[str, MemoryTopic] = {}
        # Every ConsumeRequest, in order; and how many streams there were.
        self.requests: list[ConsumeRequest] = []
        self.streams = 0
        self._options = SubscriptionSettings(**options)
        self._made = 0

    def topic(self, name: str) -> MemoryTopic:
        full = str(TopicName.parse(name))
        if full not in self.topics:
            self._made += 1
            self.topics[full] = MemoryTopic(TopicName.parse(name), f"incarnation-{self._made}", self._options)
        return self.topics[full]

    async def unload(self, name: str) -> None:
        """Close the topic's consumers, which look it up again."""
        topic = self.topic(name)
        old = topic.subscriptions
        topic.reload()
        await old.close(BrokerError(ErrorCode.SERVICE_NOT_READY, "unloaded by the test"))

    async def delete(self, name: str) -> None:
        topic = self.topics.pop(str(TopicName.parse(name)))
        self.schemas.pop(str(topic.name), None)
        await topic.subscriptions.close(BrokerError(ErrorCode.SERVICE_NOT_READY, "deleted by the test"))

    def answer_call(self, method: str, request: bytes) -> bytes:
        if method != "last_message":
            return super().answer_call(method, request)
        parsed = LastMessageRequest.FromString(request)
        log = self.topic(parsed.topic).log
        answer = LastMessageAnswer(incarnation=log.incarnation)
        if log.entries:
            last = log.entries[log.last]
            ends = None
            if parsed.find_first_chunk and last.chunk is not None:
                ends = _run_at_once(find_ends(last, partial(_read, log), partial(_find_before, log)))
            at = log.last if ends is None else ends.last
            answer.last.CopyFrom(LastMessage(ledger_id=at[0], entry_id=at[1], batch_size=last.batch_size))
            if ends is not None:
                answer.last.first_chunk.CopyFrom(FirstChunk(ledger_id=ends.first[0], entry_id=ends.first[1]))
        return answer.SerializeToString()

    async def serve_stream(self, method: str, stream: Stream) -> None:
        if method != "consume":
            return await super().serve_stream(method, stream)
        self.streams += 1
        return await ConsumeStream(
            _RecordingStream(stream, self.requests, self.answering), self._find, budget=OutboxBudget(2**30)
        ).serve()

    async def _find(self, name: TopicName, incarnation: str, create: bool) -> MemoryTopic:
        problem = self.problem(str(name))
        if problem is not None:
            raise BrokerError(problem.code, problem.text)
        if incarnation and str(name) not in self.topics:
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"{name} was deleted")
        return self.topic(str(name))


async def _read(log: FakeLog, position: Position) -> LogEntry | None:
    return log.entries.get(position)


def _find_before(log: FakeLog, position: Position) -> Position | None:
    return max((one for one in log.entries if one < position), default=None)


def _run_at_once(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: R = done.value
        return result
    raise AssertionError("it waits")


class _RecordingStream:
    """A stream that records requests, and holds answers back while `answering` is not set."""

    def __init__(self, stream: Stream, requests: list[ConsumeRequest], answering: asyncio.Event) -> None:
        self._requests = requests
        self._stream = stream
        self._answering = answering
        self.in_process_api = stream.in_process_api
        self.finish = stream.finish
        self.cancel = stream.cancel

    async def send(self, message: bytes) -> None:
        await self._answering.wait()
        await self._stream.send(message)

    async def receive(self) -> bytes | None:
        message = await self._stream.receive()
        if message is not None:
            self._requests.append(ConsumeRequest.FromString(message))
        return message


@asynccontextmanager
async def client_of(
    broker: MemoryBroker | None = None, **options: Any
) -> AsyncIterator[tuple[MemoryBroker, aio.Client]]:
    """A broker, started, and an asyncio client of it."""
    transport = InProcessTransport()
    broker = await (broker or MemoryBroker()).start(transport)
    async with aio.Client(f"magnetar://{ADDRESS}", _transport=transport, **options) as client:
        yield broker, client
    await broker.stop()


def core_of(consumer: Any) -> MultiTopicConsumer:
    """Return the part of a consumer that both clients share."""
    core: MultiTopicConsumer = consumer._core
    return core


async def receive(consumer: Consumer[Any], count: int) -> list[Message[Any]]:
    return [await consumer.receive(60_000) for _ in range(count)]


async def receive_all(consumer: Consumer[Any]) -> list[Message[Any]]:
    """Receive all messages that are available."""
    messages = []
    core = core_of(consumer)
    while core.queue or (await core.has_message_available()):
        messages.append(await consumer.receive(60_000))
    return messages


def payloads(messages: Sequence[Message[Any]]) -> list[bytes]:
    return [message.data() for message in messages]
