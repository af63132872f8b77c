"""One `produce` stream: many producers, frames of entries in, results as ranges out.

A message is handled as a whole: opened producers, entries, closed producers. The next message is read when there is
capacity: for the undecided entries of this stream and of the broker, and for answers that the client has not taken. So
no client makes the broker hold more than these limits. A full topic pauses its own producers only (stream_producer.py,
stream_budget.py). Entries that became durable together are answered in one message.

When the stream breaks, its producers are closed at once. Entries that their topics have accepted may still be stored.
Their client does not know, and resends them on another stream, in a higher epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.server.grpc.produce_session import ProduceSession
from magnetar_broker.server.grpc.stream_producer import StreamProducer
from magnetar_broker.server.request_errors import as_broker_error
from magnetar_broker.settings.topics import TopicSettings
from magnetar_broker.system_topics import is_system_topic
from magnetar_broker.topics.publish_budget import PublishBudget
from magnetar_broker.topics.topic import Topic
from magnetar_protos.broker_pb2 import ErrorCode, OpenProducer, ProduceRequest, StartAt
from magnetar_wire.entry_memory import count_entry_memory
from magnetar_wire.errors import WireError
from magnetar_wire.frame import DecodedRun, decode_frame
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import MAX_TRANSPORT_BYTES, Code, Refusal, Stream, TransportError

__all__ = ["FindTopic", "ProduceStream"]

# Producers that are opened or closed in one turn of the event loop.
_MAX_PER_TURN: Final = 100
_STREAM_ENDED: Final = TopicUnloaded("its stream has ended")


class FindTopic(Protocol):
    """Finds a topic of this broker by its name and its required incarnation (empty: any)."""

    async def __call__(self, name: TopicName, incarnation: str, create: bool, /, *, to_publish: bool) -> Topic:
        """`create` allows creating it. `to_publish`: its subscriptions need not be open yet. Raises `BrokerError`."""


class ProduceStream:
    """Implements `client_streams.ClientStream`."""

    def __init__(
        self, stream: Stream, find_topic: FindTopic, budget: PublishBudget, settings: TopicSettings, address: str = ""
    ) -> None:
        """`address`: of the client."""
        self.stream = stream
        self._find_topic = find_topic
        self._settings = settings
        self._address = address
        self.session = ProduceSession(
            budget, settings.max_pending_publish_bytes_per_connection, settings.max_waiting_producers_per_stream
        )
        # Producers whose end was not reported to the client, by id.
        self._producers: dict[int, StreamProducer] = {}
        self._is_sending = False
        self._end_requested = asyncio.Event()

    async def serve(self) -> None:
        """Return when the client has ended the stream, or after `end`, once all results are sent. Raises `Refusal`."""
        session = self.session
        try:
            async with OrderedTaskGroup() as tasks:
                session.tasks = tasks
                sender = tasks.create_task(self._send())
                receiver = tasks.create_task(self._receive())
                end_requested = tasks.create_task(self._end_requested.wait())
                await asyncio.wait([receiver, end_requested], return_when=asyncio.FIRST_COMPLETED)
                receiver.cancel()
                end_requested.cancel()
                await asyncio.wait([receiver])  # one task at a time may wait for a change
                for producer in list(self._producers.values()):
                    self._close(producer)
                while self._producers or len(session.answers) or self._is_sending:
                    await session.wait_change()
                sender.cancel()
        except BaseExceptionGroup as errors:
            raise _choose(errors) from None
        finally:
            for producer in list(self._producers.values()):
                producer.break_off(_STREAM_ENDED)
            self._producers.clear()

    def end(self) -> None:
        """Accept nothing more. `serve` returns when all results are sent."""
        self._end_requested.set()

    def undecided_sizes(self) -> list[int]:
        """Return the bytes of each entry that was received and is not decided.

        The simulation compares them with the limits, which the production code checks by counters.
        """
        return [size for producer in self._producers.values() for size in producer.undecided_sizes()]

    # Receiving.

    async def _receive(self) -> None:
        while (message := await self.stream.receive()) is not None:
            request, runs = self._decode(message)
            for at, opening in enumerate(request.open, 1):
                self._open(opening)
                if at % _MAX_PER_TURN == 0:  # other streams get their turns
                    await asyncio.sleep(0)
            for run in runs:
                self._publish(run)
            for at, close in enumerate(request.close, 1):
                if (producer := self._producers.get(close.producer_id)) is not None:
                    self._close(producer)
                if at % _MAX_PER_TURN == 0:
                    await asyncio.sleep(0)
            await self.session.wait_for_capacity(self._settings.max_waiting_publish_answers)

    def _decode(self, message: bytes) -> tuple[ProduceRequest, list[DecodedRun]]:
        try:
            request = ProduceRequest.FromString(message)
            # An entry above the maximum size is refused by itself, by `accept_entry`.
            runs = decode_frame(request.frame, max_entry_bytes=MAX_TRANSPORT_BYTES)
        except (DecodeError, WireError) as error:
            raise Refusal(Code.INVALID_ARGUMENT, f"the produce request can't be decoded: {error}") from None
        parts = len(request.open) + len(request.close) + len(runs)
        limit = self._settings.max_parts_per_produce_request
        if parts > limit:
            raise Refusal(
                Code.INVALID_ARGUMENT,
                f"the produce request has {parts} parts, more than max_parts_per_produce_request = {limit}: send more "
                "requests",
            )
        return request, runs

    def _publish(self, run: DecodedRun) -> None:
        producer = self._producers.get(run.channel)
        if producer is None:  # the producer has ended
            return
        producer.check_next(run)
        memory_bytes = count_entry_memory(run.entries)
        self.session.add_pending(memory_bytes)
        producer.publish(run, memory_bytes)

    def _open(self, opening: OpenProducer) -> None:
        if opening.producer_id in self._producers:
            raise Refusal(
                Code.INVALID_ARGUMENT, f"producer {opening.producer_id} is open on this stream: use another id"
            )
        producer = StreamProducer(opening.producer_id, self.session, self._producers)
        self._producers[opening.producer_id] = producer
        limit = self._settings.max_producers_per_stream
        if len(self._producers) > limit:
            producer.fail(
                BrokerError(
                    ErrorCode.TOO_MANY_REQUESTS,
                    f"this stream has {limit} producers, the maximum of max_producers_per_stream: use another stream",
                )
            )
            return
        # A schema may have a megabyte, and its registration takes its time.
        size_bytes = opening.schema.ByteSize()
        self.session.add_pending(size_bytes)
        producer.opening = self.session.spawn(self._open_producer(producer, opening))
        producer.opening.add_done_callback(lambda _: self.session.finish_pending(size_bytes))

    async def _open_producer(self, producer: StreamProducer, opening: OpenProducer) -> None:
        try:
            with as_broker_error(f"Opening a producer of {opening.topic}"):
                name = TopicName.parse(opening.topic)
                if is_system_topic(name):
                    raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} is a system topic: only servers publish to it")
                initial = "" if opening.incarnation else opening.initial_subscription
                topic = await self._find_topic(name, opening.incarnation, True, to_publish=not initial)
                if initial:
                    await topic.subscriptions.make_on_first_use(initial, StartAt(earliest=True))
                await producer.open(opening, topic, self._address, self._settings.max_message_size)
        except BrokerError as error:
            producer.fail(error)

    def _close(self, producer: StreamProducer) -> None:
        if not producer.is_closing:
            producer.begin_close()
            self.session.spawn(self._close_producer(producer, producer.opening))

    async def _close_producer(self, producer: StreamProducer, opening: asyncio.Task[None] | None) -> None:
        if opening is not None:
            await asyncio.wait([opening])
        await producer.close()

    # Sending.

    async def _send(self) -> None:
        session = self.session
        while True:
            await session.wait_for_answers()
            self._is_sending = True
            await self.stream.send(session.answers.compose().SerializeToString())
            self._is_sending = False
            session.report_change()


def _choose(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that the client gets: its own mistake rather than the way in which the stream broke."""
    leaves = list(_leaves(errors))
    for leaf in leaves:
        if isinstance(leaf, Refusal):
            return leaf
    return next((leaf for leaf in leaves if not isinstance(leaf, TransportError)), leaves[0])


def _leaves(errors: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
