"""One `consume` stream: many consumers, requests in, entries and answers out.

The parts of a request are handled in the order of its fields. A part that has to wait (open, seek, unsubscribe, a
receipt of an acknowledgement) runs in a task, and the stream is not read while too many of them are pending. Entries
and answers are gathered (consume_outbox.py) and sent by one task. Consumers that find the outbox full are delivered
more when there is capacity again.

When the stream breaks, its consumers leave at once, and their messages go to others. A request that can't be decoded,
or exceeds a limit, ends the stream as INVALID_ARGUMENT. One that can't be fulfilled is answered with its problem. A
part for a consumer that has ended is ignored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from itertools import chain
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError

from magnetar_broker.counters import BrokerCounters
from magnetar_broker.errors import BrokerError
from magnetar_broker.server.grpc.consume_session import ConsumeSession
from magnetar_broker.server.grpc.stream_consumer import StreamConsumer
from magnetar_broker.server.request_errors import as_broker_error
from magnetar_broker.settings.delivery import ConsumeSettings
from magnetar_broker.topics.consumer import Consumer, ConsumerSink
from magnetar_broker.topics.dispatch.delivery_capacity import OutboxBudget
from magnetar_protos.broker_pb2 import (
    Acknowledge,
    CloseConsumer,
    ConsumeRequest,
    Done,
    ErrorCode,
    Flow,
    OpenConsumer,
    Problem,
    Redeliver,
    Seek,
    Unsubscribe,
)
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import Code, Refusal, Stream, TransportError

__all__ = ["ConsumeStream", "FindTopic", "ServedTopic"]

_log = logging.getLogger(__name__)


class ServedTopic(Protocol):
    """A topic, as far as consumers need it."""

    async def subscribe(self, opened: OpenConsumer, sink: ConsumerSink) -> Consumer: ...


# Finds a topic of this broker by its name and its required incarnation (empty: any). The flag allows creating it.
# Raises `BrokerError`.
FindTopic = Callable[[TopicName, str, bool], Awaitable[ServedTopic]]

_Part = OpenConsumer | Acknowledge | Redeliver | Seek | Flow | Unsubscribe | CloseConsumer

# The longest turn of one stream.
_MAX_TURN_S: Final = 0.005
_MAX_OPENING_BYTES: Final = 8 * 1024 * 1024
_DEFAULT: Final = ConsumeSettings()


class ConsumeStream:
    """Implements `client_streams.ClientStream`."""

    def __init__(
        self,
        stream: Stream,
        find_topic: FindTopic,
        *,
        address: str = "unknown",
        settings: ConsumeSettings = _DEFAULT,
        budget: OutboxBudget,
        counters: BrokerCounters | None = None,
    ) -> None:
        """`address`: of the client."""
        self.stream = stream
        self._find_topic = find_topic
        self._settings = settings
        self._session = ConsumeSession(address, settings.max_queued_bytes_per_stream, budget, counters)
        self.outbox = self._session.outbox
        # Consumers that are opening or open.
        self._consumers: dict[int, StreamConsumer] = {}
        # Pending requests, oldest first.
        self._tasks: dict[asyncio.Task[None], None] = {}
        # Requested receipts of acknowledgements that are not durable yet.
        self._pending_receipts = 0
        # Size of the requests of consumers that are being opened: each may have a schema of a megabyte.
        self._opening_bytes = 0
        self._is_sending = False
        self._end_requested = asyncio.Event()
        # The receiver waits for this.
        self._progress: asyncio.Future[None] | None = None

    async def serve(self) -> None:
        """Return when the client has ended the stream, or after `end`, once all answers are sent. Raises `Refusal`."""
        loop = asyncio.get_running_loop()
        sender = loop.create_task(self._send())
        receiver = loop.create_task(self._receive())
        end_requested = loop.create_task(self._end_requested.wait())
        try:
            await asyncio.wait([receiver, end_requested], return_when=asyncio.FIRST_COMPLETED)
            if receiver.done():
                receiver.result()
            receiver.cancel()
            self._all_leave()
            while (self._tasks or self._pending_receipts or self.outbox or self._is_sending) and not self.is_broken:
                await self._wait_progress()
        finally:
            self.break_off()
            tasks = [sender, receiver, end_requested, *self._tasks]
            for task in tasks:
                task.cancel()
            try:
                await asyncio.wait(tasks)
            finally:
                self.outbox.close()
            for task in (sender, receiver):
                if not task.cancelled():
                    task.exception()  # retrieved, so that asyncio does not log it: the stream has broken

    def end(self) -> None:
        """Accept nothing more. `serve` returns when all answers are sent."""
        self._end_requested.set()

    @property
    def is_broken(self) -> bool:
        return self._session.is_broken

    async def _receive(self) -> None:
        while (message := await self.stream.receive()) is not None:
            await self._handle(self._decode(message))
            while self._must_pause and not self.is_broken:
                await self._wait_progress()

    # Sending.

    async def _send(self) -> None:
        try:
            while True:
                message = self.outbox.compose()
                self._session.outbox_capacity.offer()  # their entries are read while this message is in flight
                if message is not None:
                    self._is_sending = True
                    await self.stream.send(message)
                    self._is_sending = False
                elif not self.outbox:
                    self._wake_receiver()
                    await self._session.wait_to_send()
                self._wake_receiver()
        except TransportError:
            raise  # the receiver gets it too
        except Exception:
            _log.exception("Sending on a consume stream failed")
            self.stream.cancel()  # else the client would wait for ever
            raise
        finally:
            self.break_off()

    def break_off(self) -> None:
        """Close all consumers at once, because nothing can be sent to the client."""
        if not self._session.is_broken:
            self._session.is_broken = True
            self._all_leave()
            self._wake_receiver()

    def _all_leave(self) -> None:
        consumers = list(self._consumers.values())
        self._consumers.clear()
        self._session.outbox_capacity.close()  # messages of one must not be dispatched to another that leaves too
        for stream_consumer in consumers:
            stream_consumer.leave()

    # Receiving.

    @property
    def _must_pause(self) -> bool:
        """Whether too many requests are pending, or answers not sent, to read the next message."""
        pending = self.outbox.waiting_answers + self._pending_receipts + len(self._tasks)
        return pending > self._settings.max_waiting_answers_per_stream or self._opening_bytes > _MAX_OPENING_BYTES

    async def _wait_progress(self) -> None:
        self._progress = asyncio.get_running_loop().create_future()
        await self._progress

    def _wake_receiver(self) -> None:
        if self._progress is not None and not self._progress.done():
            self._progress.set_result(None)

    def _decode(self, message: bytes) -> ConsumeRequest:
        try:
            request = ConsumeRequest.FromString(message)
        except DecodeError as error:
            raise Refusal(Code.INVALID_ARGUMENT, f"the consume request can't be decoded: {error}") from None
        parts = len(request.open) + len(request.seek) + len(request.flow)
        parts += len(request.unsubscribe) + len(request.close)
        parts += sum(1 + len(one.entries) + len(one.messages) for one in request.acknowledge)
        parts += sum(1 + len(one.entries) for one in request.redeliver)
        if parts > self._settings.max_parts_per_consume_request:
            raise Refusal(
                Code.INVALID_ARGUMENT,
                f"the consume request has {parts} parts, more than max_parts_per_consume_request = "
                f"{self._settings.max_parts_per_consume_request}: send more requests",
            )
        return request

    async def _handle(self, request: ConsumeRequest) -> None:
        """Handle the parts in the order of their fields. Other streams get turns in between if that takes long."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        parts: Iterator[Any] = chain(
            request.open,
            request.acknowledge,
            request.redeliver,
            request.seek,
            request.flow,
            request.unsubscribe,
            request.close,
        )
        for part in parts:
            self._handle_part(part)
            if loop.time() - began_at > _MAX_TURN_S:
                await asyncio.sleep(0)
                began_at = loop.time()

    def _handle_part(self, part: _Part) -> None:
        match part:
            case OpenConsumer():
                self._open(part)
                return
            case Acknowledge():
                self._acknowledge(part)
                return
        stream_consumer = self._consumers.get(part.consumer_id)
        consumer = None if stream_consumer is None else stream_consumer.consumer
        if stream_consumer is not None and isinstance(part, CloseConsumer):
            stream_consumer.forget()
            self._close(stream_consumer)
        elif stream_consumer is None or consumer is None:
            if isinstance(part, Seek | Unsubscribe):
                self._send_done(part.consumer_id, part.request_id, _not_open(part.consumer_id))
        elif isinstance(part, Flow):
            consumer.flow(part.epoch, part.permits)
        elif isinstance(part, Seek):
            moves = part.moves if part.HasField("moves") else None
            self._spawn(self._answer(part.consumer_id, part.request_id, consumer.seek(part.to, moves)))
        elif isinstance(part, Unsubscribe):
            self._spawn(self._unsubscribe(stream_consumer, part.request_id))
        elif isinstance(part, Redeliver):
            try:
                consumer.redeliver(part.epoch, part.entries)
            except BrokerError as error:
                stream_consumer.log_once("A redelivery request", error)

    def _open(self, opening: OpenConsumer) -> None:
        if opening.consumer_id in self._consumers:
            raise Refusal(
                Code.INVALID_ARGUMENT, f"consumer {opening.consumer_id} is open on this stream: use another id"
            )
        stream_consumer = StreamConsumer(
            self._session,
            self._consumers,
            opening.consumer_id,
            broker_metadata=opening.broker_metadata,
            accepts_gaps=opening.accepts_gaps,
        )
        limit = self._settings.max_consumers_per_stream
        if len(self._consumers) >= limit:
            text = f"this stream has {limit} consumers, the maximum of max_consumers_per_stream: use another stream"
            stream_consumer.ended(Problem(code=ErrorCode.TOO_MANY_REQUESTS, text=text))
            return
        self._consumers[opening.consumer_id] = stream_consumer
        size_bytes = opening.ByteSize()
        self._opening_bytes += size_bytes
        stream_consumer.opening = self._spawn(self._open_consumer(stream_consumer, opening))
        stream_consumer.opening.add_done_callback(lambda _: self._finish_opening(size_bytes))

    def _finish_opening(self, size_bytes: int) -> None:
        self._opening_bytes -= size_bytes
        self._wake_receiver()

    async def _open_consumer(self, stream_consumer: StreamConsumer, opening: OpenConsumer) -> None:
        try:
            with as_broker_error(f"Opening a consumer of {opening.topic}"):
                name = TopicName.parse(opening.topic)
                topic = await self._find_topic(name, opening.incarnation, name.is_partition or not opening.must_exist)
                await topic.subscribe(opening, stream_consumer)
        except BrokerError as error:
            stream_consumer.ended(error.problem)
        finally:
            stream_consumer.opening = None

    def _acknowledge(self, request: Acknowledge) -> None:
        stream_consumer = self._consumers.get(request.consumer_id)
        if stream_consumer is None or stream_consumer.consumer is None:
            self._send_done(request.consumer_id, request.request_id, _not_open(request.consumer_id))
            return
        try:
            stream_consumer.consumer.acknowledge(request)
        except BrokerError as error:
            if request.request_id:
                self._send_done(request.consumer_id, request.request_id, error.problem)
            else:
                stream_consumer.log_once("An acknowledgement", error)
            return
        if request.request_id:
            self._pending_receipts += 1
            consumer_id, request_id = request.consumer_id, request.request_id
            stream_consumer.consumer.when_saved(lambda error: self._send_receipt(consumer_id, request_id, error))

    def _send_receipt(self, consumer_id: int, request_id: int, error: BrokerError | None) -> None:
        self._pending_receipts -= 1
        self._send_done(consumer_id, request_id, None if error is None else error.problem)
        self._wake_receiver()

    def _close(self, stream_consumer: StreamConsumer) -> None:
        consumer = stream_consumer.consumer
        if consumer is None:
            stream_consumer.leave()
            stream_consumer.ended(None)
            return
        self._pending_receipts += 1

        def saved(error: BrokerError | None) -> None:
            self._pending_receipts -= 1
            stream_consumer.ended(None)
            self._wake_receiver()

        consumer.when_saved(saved)
        stream_consumer.leave()

    async def _answer(self, consumer_id: int, request_id: int, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` and answer the request with its result."""
        problem = None
        try:
            with as_broker_error(f"Request {request_id} of consumer {consumer_id}"):
                await work
        except BrokerError as error:
            problem = error.problem
        self._send_done(consumer_id, request_id, problem)

    async def _unsubscribe(self, stream_consumer: StreamConsumer, request_id: int) -> None:
        assert stream_consumer.consumer is not None
        consumer = stream_consumer.consumer
        await self._answer(stream_consumer.consumer_id, request_id, consumer.unsubscribe())
        if consumer.has_left:
            stream_consumer.ended(None)

    def _send_done(self, consumer_id: int, request_id: int, problem: Problem | None) -> None:
        if request_id and not self.is_broken:
            self._session.send_after_entries(Done(consumer_id=consumer_id, request_id=request_id, problem=problem))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("A request of a consume stream failed", exc_info=error)
        self._wake_receiver()


def _not_open(consumer_id: int) -> Problem:
    return Problem(code=ErrorCode.NOT_FOUND, text=f"consumer {consumer_id} is not open on this stream: open it first")
