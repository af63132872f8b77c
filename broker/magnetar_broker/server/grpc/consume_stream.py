"""One `consume` stream: the broker's end of many consumers.

What the client sends is taken in one step per message, in the order of its fields; what waits for something (opening,
seeking, unsubscribing, receipts) goes on beside it, and the stream is not read on while too much of that waits. What
goes out is gathered (consume_outbox.py) and sent by one task; consumers that find no room there are told when there is
some.

When the stream breaks, its consumers leave at once, and what they had goes to others. Nothing that a client sends is
trusted: what can't be read, or is more than anybody needs, ends the stream as INVALID_ARGUMENT; what can't be done is
answered with its problem; and what is for a consumer that has ended is passed over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from itertools import chain
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError

from magnetar_broker.core.counters import BrokerCounters
from magnetar_broker.errors import BrokerError
from magnetar_broker.server.grpc.consume_options import ConsumeOptions
from magnetar_broker.server.grpc.consume_outbox import ConsumeOutbox
from magnetar_broker.server.grpc.consumer_channel import ConsumerChannel
from magnetar_broker.server.outbox_budget import OutboxBudget
from magnetar_broker.topic.subscriptions import Subscriptions
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
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import Code, Peer, Refusal, Stream, TransportError

__all__ = ["ConsumeSession", "FindTopic", "ServedTopic"]

_log = logging.getLogger(__name__)


class ServedTopic(Protocol):
    @property
    def subscriptions(self) -> Subscriptions: ...


# The topic, served here: its name, the incarnation that it must have (empty: any), and whether it may be made. Raises
# `BrokerError`.
FindTopic = Callable[[TopicName, str, bool], Awaitable[ServedTopic]]

_Part = OpenConsumer | Acknowledge | Redeliver | Seek | Flow | Unsubscribe | CloseConsumer

# Of one message, without a turn for others.
_LONG_S: Final = 0.005
_DEFAULT: Final = ConsumeOptions()
_UNKNOWN: Final = Peer("unknown")


class ConsumeSession:
    def __init__(
        self,
        stream: Stream,
        find_topic: FindTopic,
        *,
        peer: Peer = _UNKNOWN,
        options: ConsumeOptions = _DEFAULT,
        budget: OutboxBudget | None = None,
        counters: BrokerCounters | None = None,
    ) -> None:
        self.stream = stream
        self._find_topic = find_topic
        self._options = options
        self.address = peer.address
        self.outbox = ConsumeOutbox(options.max_queued_bytes_per_stream, budget, counters)
        # Those that are opening or open.
        self._channels: dict[int, ConsumerChannel] = {}
        # Those whose consumers found no room, in that order.
        self._starved: dict[ConsumerChannel, None] = {}
        # What is being opened, moved and deleted; oldest first.
        self._tasks: dict[asyncio.Task[None], None] = {}
        # Receipts that are not decided.
        self._receipts = 0
        # The client is gone, and nothing more can be said.
        self.broken = False
        # A message is on its way.
        self._sending = False
        self._told_to_end = asyncio.Event()
        # What the sender waits for, and what the receiver does.
        self._to_send: asyncio.Future[None] | None = None
        self._progress: asyncio.Future[None] | None = None

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        sender = loop.create_task(self._send())
        receiver = loop.create_task(self._receive())
        told = loop.create_task(self._told_to_end.wait())
        try:
            await asyncio.wait([receiver, told], return_when=asyncio.FIRST_COMPLETED)
            if receiver.done():
                receiver.result()
            receiver.cancel()
            self._all_leave()
            while (self._tasks or self._receipts or self.outbox or self._sending) and not self.broken:
                await self._wait_progress()
        finally:
            self.break_off()
            tasks = [sender, receiver, told, *self._tasks]
            for task in tasks:
                task.cancel()
            for task in tasks:
                await asyncio.wait([task])
            for task in (sender, receiver):
                if not task.cancelled():
                    task.exception()  # the stream broke, which one of them has told
            self.outbox.close()

    def end(self) -> None:
        """Takes nothing more; `serve` returns when all is told."""
        self._told_to_end.set()

    async def _receive(self) -> None:
        while (message := await self.stream.receive()) is not None:
            await self._take(self._decode(message))
            while self._too_much_waits and not self.broken:
                await self._wait_progress()

    # Sending.

    def wake_sender(self) -> None:
        if self._to_send is not None and not self._to_send.done():
            self._to_send.set_result(None)

    def room_for(self, channel: ConsumerChannel) -> int:
        room = 0 if self.broken else self.outbox.room_bytes
        if room <= 0:
            self._starved[channel] = None
        return room

    async def _send(self) -> None:
        try:
            while True:
                message = self.outbox.compose()
                self._feed_starved()  # what they put in is read while this message is on its way
                if message is not None:
                    self._sending = True
                    await self.stream.send(message)
                    self._sending = False
                elif not self.outbox:
                    self._to_send = asyncio.get_running_loop().create_future()
                    self._wake_receiver()
                    await self._to_send
                self._wake_receiver()
        except TransportError:
            raise  # the receiver meets it too
        except Exception:
            _log.exception("a consume stream could not be sent to")
            self.stream.cancel()  # else the client would wait for ever
            raise
        finally:
            self.break_off()

    def _feed_starved(self) -> None:
        if not self._starved or self.outbox.room_bytes <= 0:
            return
        starved, self._starved = self._starved, {}
        for channel in starved:
            if self.outbox.room_bytes <= 0:
                self._starved[channel] = None
            elif channel.consumer is not None and not channel.closed:
                channel.consumer.room_again()

    def break_off(self) -> None:
        """Have all consumers leave at once: nothing can be sent to the client any more."""
        if not self.broken:
            self.broken = True
            self._all_leave()
            self._wake_receiver()

    def _all_leave(self) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.closed = True  # what one has had must not go to another that is about to leave
        for channel in channels.values():
            channel.leave()

    # Receiving.

    @property
    def _too_much_waits(self) -> bool:
        waiting = self.outbox.waiting_answers + self._receipts + len(self._tasks)
        return waiting > self._options.max_waiting_answers_per_stream

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
            raise Refusal(Code.INVALID_ARGUMENT, f"what a consumer asks can't be read: {error}") from None
        parts = len(request.open) + len(request.seek) + len(request.flow)
        parts += len(request.unsubscribe) + len(request.close)
        parts += sum(1 + len(one.entries) + len(one.messages) for one in request.acknowledge)
        parts += sum(1 + len(one.entries) for one in request.redeliver)
        if parts > self._options.max_parts_per_consume_request:
            raise Refusal(
                Code.INVALID_ARGUMENT,
                f"one message has {parts} parts, and at most {self._options.max_parts_per_consume_request} are taken: "
                "send more messages",
            )
        return request

    async def _take(self, request: ConsumeRequest) -> None:
        """In the order of the fields; others have their turn in between, where that takes long."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
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
            self._take_part(part)
            if loop.time() - begun > _LONG_S:
                await asyncio.sleep(0)
                begun = loop.time()

    def _take_part(self, part: _Part) -> None:
        match part:
            case OpenConsumer():
                self._open(part)
                return
            case Acknowledge():
                self._acknowledge(part)
                return
        channel = self._channels.get(part.consumer_id)
        consumer = None if channel is None else channel.consumer
        if channel is not None and isinstance(part, CloseConsumer):
            self.forget(channel)
            self._close(channel)
        elif channel is None or consumer is None:
            if isinstance(part, Seek | Unsubscribe):
                self._done(part.consumer_id, part.request_id, _not_open(part.consumer_id))
        elif isinstance(part, Flow):
            consumer.flow(part.epoch, part.permits)
        elif isinstance(part, Seek):
            moves = part.moves if part.HasField("moves") else None
            self._spawn(self._ask(part.consumer_id, part.request_id, consumer.seek(part.to, moves)))
        elif isinstance(part, Unsubscribe):
            self._spawn(self._unsubscribe(channel, part.request_id))
        elif isinstance(part, Redeliver):
            try:
                consumer.redeliver(part.epoch, part.entries)
            except BrokerError as error:
                channel.log_once("a redelivery", error)

    def _open(self, opened: OpenConsumer) -> None:
        if opened.consumer_id in self._channels:
            raise Refusal(
                Code.INVALID_ARGUMENT, f"consumer {opened.consumer_id} is open already: every one has an id of its own"
            )
        channel = ConsumerChannel(self, opened.consumer_id, opened.broker_metadata)
        most = self._options.max_consumers_per_stream
        if len(self._channels) >= most:
            text = f"one stream has {most} consumers at most: use another connection"
            channel.ended(Problem(code=ErrorCode.TOO_MANY_REQUESTS, text=text))
            return
        self._channels[opened.consumer_id] = channel
        channel.opening = self._spawn(self._open_channel(channel, opened))

    async def _open_channel(self, channel: ConsumerChannel, opened: OpenConsumer) -> None:
        try:
            topic = await self._find_topic(TopicName.parse(opened.topic), opened.incarnation, True)
            await topic.subscriptions.subscribe(opened, channel)
        except BrokerError as error:
            channel.ended(error.problem)
        except InvalidTopicName as error:
            channel.ended(Problem(code=ErrorCode.INVALID_TOPIC_NAME, text=str(error)))
        except Exception:  # noqa: BLE001 (one consumer's trouble is not the others')
            _log.exception("a consumer of %s could not be opened", opened.topic)
            channel.ended(_unknown_error())
        finally:
            channel.opening = None

    def forget(self, channel: ConsumerChannel) -> None:
        if self._channels.get(channel.consumer_id) is channel:
            del self._channels[channel.consumer_id]
        self._starved.pop(channel, None)

    def _acknowledge(self, request: Acknowledge) -> None:
        channel = self._channels.get(request.consumer_id)
        if channel is None or channel.consumer is None:
            self._done(request.consumer_id, request.request_id, _not_open(request.consumer_id))
            return
        try:
            channel.consumer.acknowledge(request)
        except BrokerError as error:
            if request.request_id:
                self._done(request.consumer_id, request.request_id, error.problem)
            else:
                channel.log_once("an acknowledgement", error)
            return
        if request.request_id:
            self._receipts += 1
            consumer_id, request_id = request.consumer_id, request.request_id
            channel.consumer.when_saved(lambda error: self._receipt(consumer_id, request_id, error))

    def _receipt(self, consumer_id: int, request_id: int, error: BrokerError | None) -> None:
        self._receipts -= 1
        self._done(consumer_id, request_id, None if error is None else error.problem)
        self._wake_receiver()

    def _close(self, channel: ConsumerChannel) -> None:
        consumer = channel.consumer
        if consumer is None:
            channel.leave()
            channel.ended(None)
            return
        self._receipts += 1

        def saved(error: BrokerError | None) -> None:
            self._receipts -= 1
            channel.ended(None)
            self._wake_receiver()

        consumer.when_saved(saved)
        channel.leave()

    async def _ask(self, consumer_id: int, request_id: int, asked: Coroutine[Any, Any, None]) -> None:
        problem = None
        try:
            await asked
        except BrokerError as error:
            problem = error.problem
        except Exception:  # noqa: BLE001 (the client waits for an answer)
            _log.exception("request %d of consumer %d failed", request_id, consumer_id)
            problem = _unknown_error()
        self._done(consumer_id, request_id, problem)

    async def _unsubscribe(self, channel: ConsumerChannel, request_id: int) -> None:
        assert channel.consumer is not None
        consumer = channel.consumer
        await self._ask(channel.consumer_id, request_id, consumer.unsubscribe())
        if consumer.left:
            channel.ended(None)

    def _done(self, consumer_id: int, request_id: int, problem: Problem | None) -> None:
        if request_id and not self.broken:
            self.outbox.tell_behind(Done(consumer_id=consumer_id, request_id=request_id, problem=problem))
            self.wake_sender()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a consume stream failed within", exc_info=error)
        self._wake_receiver()


def _not_open(consumer_id: int) -> Problem:
    return Problem(code=ErrorCode.NOT_FOUND, text=f"consumer {consumer_id} is not open on this stream: open it first")


def _unknown_error() -> Problem:
    return Problem(code=ErrorCode.UNKNOWN_ERROR, text="the broker met an error of its own: its log says which")
