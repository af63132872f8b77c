"""Opens a partition's consumer at the broker that has the topic, and reopens it until it is closed.

**Openings.** A consumer is opened at the broker that serves the topic, under an id of the stream's. The opening ends
when the stream breaks, or when the broker closes the consumer, since the topic has moved. Then the consumer is
reopened: at once, and after growing pauses if that fails, until it succeeds. The application may still acknowledge
messages that it received before (`EpochTracker`). A durable subscription continues with what is not acknowledged, so
the receiver queue is cleared. A subscription that is not durable ends with its opening, and retention may trim what was
delivered. So its queue is retained, and the next opening begins behind it.

**A topic that was deleted** (INCARNATION_CHANGED, TOPIC_NOT_FOUND): the queue and the acknowledgements are dropped, and
those who wait for a receipt get IncarnationChanged. The consumer continues with the topic that exists now, or that the
broker creates on its request, from the first message. If it must not be created, the consumer ends with TopicNotFound;
a pattern's consumer goes on without it (`pattern_topics.py`).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from magnetar._acknowledging.ack_grouping import AckGroupingTracker
from magnetar._acknowledging.ack_timeouts import AckTimeoutTracker
from magnetar._acknowledging.negative_acks import NegativeAcksTracker
from magnetar._acknowledging.pending_acks import EpochTracker, PendingAcks
from magnetar._acknowledging.unacked_chunks import UnackedChunks
from magnetar._client_core import ClientCore, client_version
from magnetar._connections.broker_stream import check_open_size
from magnetar._connections.operations import Backoff
from magnetar._consuming.consume_stream import ConsumeStream, RequestBuilder
from magnetar._consuming.consumer_options import ConsumerOptions
from magnetar._consuming.consumer_requests import OutboundRequests, PendingRequests
from magnetar._consuming.mixed_batch_warning import MixedBatchWarning
from magnetar._enums import ConsumerType
from magnetar._errors import from_problem, from_transport, may_reopen_consumer
from magnetar._letters.letters import Letters
from magnetar._prefetching.chunk_assembly import ChunkBudget
from magnetar._prefetching.read_position import ReadPosition, Start
from magnetar._prefetching.receiver_queue import ReceiverQueue
from magnetar._values.value_encoder import to_wire
from magnetar.exceptions import IncarnationChanged, MagnetarException, ServiceUnitNotReady, TopicNotFound
from magnetar_protos.broker_pb2 import (
    ConsumerOpened,
    Delivery,
    Done,
    EpochBegan,
    OpenConsumer,
    Problem,
    ReachedEnd,
    StartAt,
    SubscriptionType,
)
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import TransportError

__all__ = ["ConsumerContext", "ReconnectingConsumer"]

log = logging.getLogger("magnetar")


@dataclass(slots=True, kw_only=True)
class ConsumerContext:
    """What all partitions of one consumer share."""

    # The same at all partitions and in all openings: the partitions of a Failover subscription are distributed among
    # its consumers by their names.
    name: str
    options: ConsumerOptions
    durable: bool
    client: ClientCore
    queue: ReceiverQueue
    acks: AckGroupingTracker
    nacks: NegativeAcksTracker
    chunk_budget: ChunkBudget
    # No permits are granted.
    is_paused: bool = False
    # None: messages don't go to retry or dead letter topics.
    letters: Letters | None
    # None: messages don't time out.
    timeouts: AckTimeoutTracker | None
    # None: the subscription is not Key_Shared.
    mixed_batches: MixedBatchWarning | None
    # Called when a partition can't be reopened.
    on_failed: Callable[[ReconnectingConsumer, MagnetarException], object]
    # Called when a partition of a Failover subscription begins or ceases to be delivered to this consumer.
    on_active_changed: Callable[[ReconnectingConsumer], object] | None = None
    # Called with a topic and its number of partitions, when new ones were opened.
    on_partitions_changed: Callable[[str, int], object] | None = None
    # Called with the number of partitions if a topic has more; with 0 if that may be so.
    report_growth: Callable[[int], object] = lambda _: None
    # Called when messages were delivered.
    on_delivered: Callable[[], object] | None = None


class ReconnectingConsumer(ABC):
    """A `ConsumeChannel` of the stream by which it is connected. What is delivered is up to `PartitionConsumer`."""

    # Where the topic is read.
    position: ReadPosition

    def __init__(self, name: TopicName, context: ConsumerContext) -> None:
        self.topic = str(name)
        self.partition = name.partition_index
        self.is_connected = False
        # Of a Failover subscription: the partition is delivered to this consumer.
        self.is_active = False
        self.is_closed = False
        # The consumer has the topic because it matches a pattern. It is not created, and leaves when it is deleted.
        self.is_of_pattern = False
        self._context = context
        self._options = context.options
        self._client = context.client
        self._clock = context.client.clock
        self._unacked_chunks = UnackedChunks()
        self.acks = PendingAcks(by_message=context.options.batch_index_ack_enabled, chunks=self._unacked_chunks)
        self.epochs = EpochTracker()
        self._pending = PendingRequests()
        self._outbound = OutboundRequests(self.acks, self._pending)
        self._incarnation = ""
        self._stream: ConsumeStream | None = None
        self._consumer_id = 0
        self._opened_at = 0.0
        self._backoff = Backoff(context.client.randomness)
        self.reopening: asyncio.Task[None] | None = None
        # The answer to the opening, and to the closing.
        self._open_answer: asyncio.Future[None] | None = None
        self._close_answer: asyncio.Future[None] | None = None

    @property
    def incarnation(self) -> str:
        """The topic's incarnation, which messages are of that are delivered now."""
        return self._incarnation

    @property
    def connection(self) -> tuple[ConsumeStream, int] | None:
        """The stream that it is open on, and its id there: a different pair for each opening.

        The torture records it, so that its judge knows over which connection a message came.
        """
        return (self._stream, self._consumer_id) if self._stream is not None and self.is_connected else None

    # What is delivered.

    @abstractmethod
    def _begin_opening(self, answer: ConsumerOpened) -> None:
        """Begin the first epoch of an opening."""

    @abstractmethod
    def _clear_queue(self) -> None:
        """Drop what is delivered and not handed out."""

    @abstractmethod
    def delivered(self, delivery: Delivery, entries: Sequence[bytes]) -> None: ...

    @abstractmethod
    def take_delivered(self) -> None: ...

    @abstractmethod
    def epoch_began(self, epoch: EpochBegan) -> None: ...

    @abstractmethod
    def reached_end(self, reached: ReachedEnd) -> None: ...

    @abstractmethod
    def fill(self, builder: RequestBuilder) -> bool: ...

    @abstractmethod
    def done(self, answer: Done) -> None: ...

    # Opening.

    async def open(self) -> None:
        """Open the consumer for the first time. Raises the broker's error, or Timeout after the operation's time."""
        await self._client.operations.retry(self._try_open)

    async def _try_open(self) -> None:
        address = await self._client.lookup.find_owner(self.topic, was_open=self.epochs.opening > 0)
        stream = self._client.pool.stream(address, ConsumeStream)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._consumer_id = stream.attach(self)
        except TransportError as error:
            raise from_transport(error) from error
        self._stream, self._open_answer = stream, answer
        try:
            self._outbound.opening = self._make_open_request()
            stream.mark_ready(self._consumer_id)
            await self._client.lookup.wait_opened(answer, self.topic, stream, "a consumer")
        except BaseException:
            if not self.is_connected:
                self._abandon()
            raise
        finally:
            self._open_answer = None

    def _make_open_request(self) -> OpenConsumer:
        options = self._options
        request = OpenConsumer(
            consumer_id=self._consumer_id,
            topic=self.topic,
            subscription=options.subscription_name,
            type=SubscriptionType.Name(options.consumer_type.value),
            consumer_name=self._context.name,
            priority_level=options.priority_level,
            durable=self._context.durable,
            start=self.position.start,
            broker_metadata=True,
            accepts_gaps=True,
            incarnation=self._incarnation,
            properties=dict(options.properties),
            subscription_properties=dict(options.subscription_properties),
            client_version=client_version(),
            schema=to_wire(options.value_schema),
            must_exist=self.is_of_pattern,
        )
        if (policy := options.key_shared_policy) is not None:
            request.key_shared.CopyFrom(policy.to_wire())
        check_open_size(request, self.topic)
        return request

    def opened(self, answer: ConsumerOpened) -> None:
        if self.is_connected or self._open_answer is None or self._open_answer.done():
            return
        if self._incarnation and answer.incarnation != self._incarnation:
            self._forget_incarnation()
        self._incarnation = answer.incarnation
        self.is_connected = True
        if self.partition == 0 and self.epochs.opening:
            self._context.report_growth(0)  # a report may have been lost with the connection
        self._opened_at = self._clock.monotonic()
        self._begin_opening(answer)
        self._open_answer.set_result(None)
        self.active_changed(answer.active)

    def active_changed(self, active: bool) -> None:
        if self.is_connected and active != self.is_active:
            self.is_active = active
            notify = self._context.on_active_changed
            if notify is not None and self._options.consumer_type is ConsumerType.Failover:
                notify(self)

    def _abandon(self) -> None:
        """End the opening at once, and have the broker close the consumer."""
        stream, self._stream = self._stream, None
        self.is_connected = False
        if stream is not None:
            stream.abandon(self._consumer_id)
        if self._close_answer is not None and not self._close_answer.done():
            self._close_answer.set_result(None)  # it will not come

    def topic_grew(self, partitions: int) -> None:
        self._context.report_growth(partitions)

    # When an opening ends.

    def disconnected(self, error: TransportError) -> None:
        self._end_opening(from_transport(error))

    def ended(self, problem: Problem | None) -> None:
        if problem is None:
            self._end_opening(ServiceUnitNotReady(f"the broker closed the consumer of {self.topic}"))
        else:
            self._end_opening(from_problem(problem))

    def _end_opening(self, error: MagnetarException) -> None:
        """The stream has detached the consumer. Reopen it, unless it is to be closed or can't be reopened."""
        self._stream = None
        if self._open_answer is not None and not self._open_answer.done():
            self._open_answer.set_exception(error)
        if not self.is_connected:
            return
        self.is_connected = False
        if self._context.durable:
            self._clear_queue()
        else:
            self.position.resume()
        self.acks.resend_unanswered()
        self._context.nacks.forget_partition(self)
        self._pending.fail(error)
        if self._close_answer is not None:
            if not self._close_answer.done():
                self._close_answer.set_result(None)
        elif not (self.is_closed or self._pending.is_unsubscribed):
            if not may_reopen_consumer(error):
                self._fail(error)
                return
            log.info("the consumer of %s is reopened: %s", self.topic, error)
            self.reopening = asyncio.get_running_loop().create_task(self._reopen())

    async def _reopen(self) -> None:
        if pause_s := self._backoff.after(self._clock.monotonic() - self._opened_at):
            await self._clock.sleep(pause_s)
        while True:
            try:
                await self._try_open()
                return
            except MagnetarException as error:
                if self._incarnation and self.is_of_pattern and isinstance(error, TopicNotFound):
                    self._forget_incarnation()
                    self._fail(error)
                    return
                if self._incarnation and isinstance(error, IncarnationChanged | TopicNotFound):
                    log.warning("%s was deleted: the consumer reads the next topic of this name: %s", self.topic, error)
                    self._forget_incarnation()
                elif not may_reopen_consumer(error) or isinstance(error, TopicNotFound):
                    self._fail(error)
                    return
                else:
                    log.info("the consumer of %s could not be reopened: %s", self.topic, error)
            await self._clock.sleep(self._backoff.next())

    def _forget_incarnation(self) -> None:
        self._incarnation = ""
        self._clear_queue()
        self.position.set_start(Start(StartAt(earliest=True)))
        self.epochs.expire_all()
        self._unacked_chunks.clear()
        self.acks.fail(
            IncarnationChanged(f"{self.topic} was deleted and recreated: the message belongs to the deleted topic")
        )

    def _fail(self, error: MagnetarException) -> None:
        self.is_closed = True
        self.acks.fail(error)
        self._context.on_failed(self, error)

    async def wait_ended(self) -> None:
        """Return when an ended consumer's tasks have ended."""
        if self.reopening is not None:
            await asyncio.wait([self.reopening])
