"""The broker's end of one `produce` stream: many producers, frames of entries in, ranges of receipts out.

A message is taken as a whole: opens, entries, closes. Then the stream is read on as soon as there is room: for the
entries of this stream that are not decided, for those of the whole broker, and for the answers that its client has not
taken. So no client makes the broker hold more than that. Full topics pause their own producers alone
(producer_channel.py, server/grpc/stream_budget.py). Entries that became durable together are answered in one message.

When the stream breaks its producers are gone with it, at once. What they sent and the topics have taken is stored or
not, as it comes; their clients do not know, and send it again on another stream, in a higher epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError

from magnetar_broker.core.system_topics import is_system_topic
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.server.grpc.produce_answers import ProduceAnswers
from magnetar_broker.server.grpc.producer_channel import ProducerChannel
from magnetar_broker.server.grpc.stream_budget import StreamBudget
from magnetar_broker.topic.options import TopicOptions
from magnetar_broker.topic.publish_budget import PublishBudget
from magnetar_broker.topic.topic import Topic
from magnetar_protos.broker_pb2 import ErrorCode, OpenProducer, ProduceRequest
from magnetar_wire.entry_memory import count_entry_memory
from magnetar_wire.errors import InvalidTopicName, WireError
from magnetar_wire.frame import DecodedRun, decode_frame
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import MAX_TRANSPORT_BYTES, Code, Refusal, Stream, TransportError

__all__ = ["FindTopic", "ProduceSession"]

FindTopic = Callable[[TopicName, str, bool], Awaitable[Topic]]

# So many are opened or closed in one turn of the loop.
_AT_ONCE: Final = 100
_GONE: Final = TopicUnloaded("its stream has ended")


class ProduceSession:
    """Is its channels' `ChannelOwner`."""

    def __init__(
        self, stream: Stream, find_topic: FindTopic, budget: PublishBudget, options: TopicOptions, address: str = ""
    ) -> None:
        self.answers = ProduceAnswers()
        self.stream_budget = StreamBudget(options.max_pending_publish_bytes_per_connection)
        self.stream = stream
        self._find_topic = find_topic
        self._budget = budget
        self._options = options
        # Of the client.
        self._address = address
        # Those whose end was not told yet, by id.
        self._channels: dict[int, ProducerChannel] = {}
        self._sending = False
        # While it is served.
        self._tasks: OrderedTaskGroup | None = None
        self._told_to_end = asyncio.Event()
        # The sender waits for answers; the receiver for room, or for the end.
        self._to_send: asyncio.Future[None] | None = None
        self._changed: asyncio.Future[None] | None = None

    async def serve(self) -> None:
        """Until the client has finished, or `end`, and all is told; or the stream breaks. Raises `Refusal`."""
        try:
            async with OrderedTaskGroup() as tasks:
                self._tasks = tasks
                sender = tasks.create_task(self._send())
                receiver = tasks.create_task(self._receive(tasks))
                told = tasks.create_task(self._told_to_end.wait())
                await asyncio.wait([receiver, told], return_when=asyncio.FIRST_COMPLETED)
                receiver.cancel()
                told.cancel()
                await asyncio.wait([receiver])  # one task at a time may wait in `_change`
                for channel in list(self._channels.values()):
                    self._close(channel, tasks)
                while self._channels or len(self.answers) or self._sending:
                    await self._change()
                sender.cancel()
        except BaseExceptionGroup as errors:
            raise _decisive(errors) from None
        finally:
            for channel in list(self._channels.values()):
                channel.broken(_GONE)
            self._channels.clear()

    def end(self) -> None:
        """Takes nothing more; `serve` returns when all is told."""
        self._told_to_end.set()

    def undecided_sizes(self) -> list[int]:
        """Return the bytes of each entry that was received and is not decided.

        The simulation compares them with the bounds, which go by counters.
        """
        return [size for channel in self._channels.values() for size in channel.undecided_sizes()]

    # ── what comes ──

    async def _receive(self, tasks: OrderedTaskGroup) -> None:
        while (message := await self.stream.receive()) is not None:
            request, runs = self._decode(message)
            for at, asked in enumerate(request.open, 1):
                self._open(asked, tasks)
                if at % _AT_ONCE == 0:  # others have their turn
                    await asyncio.sleep(0)
            for run in runs:
                self._take_run(run)
            for at, close in enumerate(request.close, 1):
                if (channel := self._channels.get(close.producer_id)) is not None:
                    self._close(channel, tasks)
                if at % _AT_ONCE == 0:
                    await asyncio.sleep(0)
            await self._room()

    def _decode(self, message: bytes) -> tuple[ProduceRequest, list[DecodedRun]]:
        try:
            request = ProduceRequest.FromString(message)
            # A large entry is refused by itself: see accept_entry.
            runs = decode_frame(request.frame, max_entry_bytes=MAX_TRANSPORT_BYTES)
        except (DecodeError, WireError) as error:
            raise Refusal(Code.INVALID_ARGUMENT, f"what was to be published can't be read: {error}") from None
        parts = len(request.open) + len(request.close) + len(runs)
        limit = self._options.max_parts_per_produce_request
        if parts > limit:
            raise Refusal(Code.INVALID_ARGUMENT, f"one message has {parts} parts, and at most {limit} are taken")
        return request, runs

    def _take_run(self, run: DecodedRun) -> None:
        channel = self._channels.get(run.channel)
        if channel is None:  # it has ended
            return
        channel.expect(run)
        size = count_entry_memory(run.entries)
        self.stream_budget.used_bytes += size
        self._budget.take(size)
        channel.take(run, size)

    def _open(self, asked: OpenProducer, tasks: OrderedTaskGroup) -> None:
        if asked.producer_id in self._channels:
            raise Refusal(Code.INVALID_ARGUMENT, f"producer id {asked.producer_id} is taken on this stream")
        channel = self._channels[asked.producer_id] = ProducerChannel(asked.producer_id, self)
        limit = self._options.max_producers_per_stream
        if len(self._channels) > limit:
            channel.fail(
                BrokerError(
                    ErrorCode.TOO_MANY_REQUESTS,
                    f"this stream has {limit} producers, as many as max_producers_per_stream allows: use another one",
                )
            )
            return
        channel.opening = tasks.create_task(self._open_channel(channel, asked))

    async def _open_channel(self, channel: ProducerChannel, asked: OpenProducer) -> None:
        try:
            name = TopicName.parse(asked.topic)
            if is_system_topic(name):
                raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} is a system topic: servers alone write to it")
            topic = await self._find_topic(name, asked.incarnation, True)
            await channel.open(asked, topic, self._address, self._options.max_message_size)
        except InvalidTopicName as error:
            channel.fail(BrokerError(ErrorCode.INVALID_TOPIC_NAME, str(error)))
        except BrokerError as error:
            channel.fail(error)

    def _close(self, channel: ProducerChannel, tasks: OrderedTaskGroup) -> None:
        if not channel.closing:
            channel.closing = True
            tasks.create_task(self._close_channel(channel, channel.opening))

    async def _close_channel(self, channel: ProducerChannel, opening: asyncio.Task[None] | None) -> None:
        if opening is not None:
            await asyncio.wait([opening])
        await channel.close()

    async def _room(self) -> None:
        while self.stream_budget.full or len(self.answers) > self._options.max_waiting_publish_answers:
            await self._change()
        await self._budget.room()

    # ── what goes ──

    async def _send(self) -> None:
        while True:
            while not len(self.answers):
                self._to_send = asyncio.get_running_loop().create_future()
                await self._to_send
            self._sending = True
            await self.stream.send(self.answers.take().SerializeToString())
            self._sending = False
            self._tell_receiver()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self._tasks is not None
        return self._tasks.create_task(work)

    def wake(self) -> None:
        if self._to_send is not None and not self._to_send.done():
            self._to_send.set_result(None)

    def decided(self, memory_bytes: int) -> None:
        self.stream_budget.used_bytes -= memory_bytes
        self._budget.give_back(memory_bytes)
        self._tell_receiver()

    def channel_over(self, channel: ProducerChannel) -> None:
        if self._channels.get(channel.producer_id) is channel:
            del self._channels[channel.producer_id]
        self._tell_receiver()

    async def _change(self) -> None:
        """Returns when something was decided, told or ended."""
        self._changed = asyncio.get_running_loop().create_future()
        try:
            await self._changed
        finally:
            self._changed = None

    def _tell_receiver(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)


def _decisive(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """What the client is told: what it did wrong, before how the stream broke."""
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
