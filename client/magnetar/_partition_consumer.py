"""The consumer of one topic without partitions, or of one partition. It talks to the broker.

**Openings.** A consumer is opened at the broker that serves the topic, under an id of the stream's. The opening ends
when the stream breaks, or when the broker closes the consumer, since the topic has moved. Then the consumer is
reopened: at once, and after growing pauses if that fails, until it succeeds. The application may still acknowledge
messages that it received before (`EpochTracker`). A durable subscription continues with what is not acknowledged, so
the receiver queue is cleared. A subscription that is not durable ends with its opening, and retention may trim what was
delivered. So its queue is retained, and the next opening begins behind it.

**Epochs.** A seek, a redelivery of everything or a take-over by another consumer begins an epoch. Messages of earlier
epochs are dropped, in the queue and when they arrive, and permits are granted again. If the application requests a
redelivery of everything, its own thread drops the messages at once (`ReceiverQueue.close_partition`). Acknowledgements
that are not sent yet are sent before anything that causes a redelivery, in the same message.

**A topic that was deleted** (INCARNATION_CHANGED, TOPIC_NOT_FOUND): the queue and the acknowledgements are dropped, and
those who wait for a receipt get IncarnationChanged. The consumer continues with the topic that exists now, or that the
broker creates on its request, from the first message. If it must not be created, the consumer ends with TopicNotFound.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from magnetar._acknowledgments import AckGroupingTracker
from magnetar._broker_stream import check_open_size
from magnetar._chunk_assembly import ChunkAssembler, ChunkBudget
from magnetar._client_core import ClientCore, client_version
from magnetar._consume_stream import ConsumeStream, RequestBuilder
from magnetar._consumer_options import ConsumerOptions
from magnetar._consumer_requests import OutboundRequests, PendingRequests
from magnetar._entry_decoder import EntryDecoder
from magnetar._enums import ConsumerType, DecodeFailureAction
from magnetar._errors import from_problem, from_transport, may_reopen_consumer
from magnetar._message import DeliveryEpoch, Message
from magnetar._negative_acks import NegativeAcksTracker
from magnetar._operations import CLOSE_TIMEOUT_S, Backoff
from magnetar._pending_acks import EpochTracker, PendingAcks
from magnetar._permits import Permits
from magnetar._read_position import ReadPosition, get_position
from magnetar._receiver_queue import PartitionQueue, ReceiverQueue
from magnetar._unacked_chunks import UnackedChunks
from magnetar._value_decoder import VersionDecoders
from magnetar._value_encoder import to_wire
from magnetar.exceptions import (
    AlreadyClosed,
    ConnectError,
    IncarnationChanged,
    MagnetarException,
    ServiceUnitNotReady,
    StaleEpoch,
    Timeout,
    TopicNotFound,
)
from magnetar_protos.broker_pb2 import (
    ConsumerOpened,
    Delivery,
    Done,
    EpochBegan,
    OpenConsumer,
    Problem,
    ReachedEnd,
    Seek,
    StartAt,
    SubscriptionType,
    Unsubscribe,
)
from magnetar_wire.clock import Timer
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import TransportError

__all__ = ["ConsumerContext", "PartitionConsumer"]

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
    # Called when a partition can't be reopened.
    on_failed: Callable[[PartitionConsumer, MagnetarException], object]
    # Called when a partition of a Failover subscription begins or ceases to be delivered to this consumer.
    on_active_changed: Callable[[PartitionConsumer], object] | None = None
    # Called with the number of partitions if a topic has more; with 0 if that may be so.
    report_growth: Callable[[int], object] = lambda _: None
    # Called when messages were delivered.
    on_delivered: Callable[[], object] | None = None


class PartitionConsumer:
    """A `ConsumeChannel`, and a `MessageOrigin`."""

    def __init__(self, name: TopicName, context: ConsumerContext, start: StartAt) -> None:
        self.topic = str(name)
        self.partition = name.partition_index
        # Otherwise nothing is stored, so nothing is redelivered.
        self.is_persistent = name.is_persistent
        self.is_connected = False
        # The topic is terminated, and everything in it is acknowledged.
        self.has_reached_end = False
        # Of a Failover subscription: the partition is delivered to this consumer.
        self.is_active = False
        options = context.options
        # The report is made by the receiving thread, with the queue's lock held.
        self.partition_queue = PartitionQueue(lambda: context.client.call_soon(self._fetch_debt))
        self._unacked_chunks = UnackedChunks()
        self.acks = PendingAcks(by_message=options.batch_index_ack_enabled, chunks=self._unacked_chunks)
        self.epochs = EpochTracker()
        # The epoch of what is delivered now.
        self.epoch = DeliveryEpoch(self, 0, 0)
        sizes = (options.receiver_queue_size, options.receiver_queue_bytes)
        self.permits = (
            Permits(*sizes) if self.is_persistent else Permits(*sizes, first_window=options.receiver_queue_size)
        )
        self.position = ReadPosition(
            self.topic,
            start,
            context.client,
            context.queue,
            self._has_queued,
            lambda: self.grant_permits(eager=True),
        )
        self._context = context
        self._options = options
        self._in_order = options.delivers_in_order
        self._client = context.client
        self._clock = context.client.clock
        self._queue = context.queue
        schema = options.value_schema
        self._versions = (
            None if schema is None else VersionDecoders(schema, self.topic, context.client, self._take_delivered)
        )
        # None: chunks are not joined.
        self._assembler: ChunkAssembler | None = None
        if options.delivers_in_order:
            self._assembler = ChunkAssembler(
                context.chunk_budget,
                lambda *discarded, **how: self._decoder.discard_chunks(*discarded, **how),
                max_messages=options.max_pending_chunked_message,
                expire_after_s=options.expire_time_of_incomplete_chunked_message_ms / 1000,
                acks_dropped=options.auto_ack_oldest_chunked_message_on_queue_full,
            )
        self._chunk_timer: Timer | None = None
        self._decoder: EntryDecoder = EntryDecoder(
            self.topic,
            self._queue,
            self.partition_queue,
            self.permits,
            self.acks,
            self.position,
            durable=context.durable,
            versions=self._versions,
            skips_undecodable=options.decode_failure_action is DecodeFailureAction.SKIP,
            assembler=self._assembler,
            unacked_chunks=self._unacked_chunks,
        )
        # The target of a seek that is not answered.
        self._sought: StartAt | None = None
        self._incarnation = ""
        self._stream: ConsumeStream | None = None
        self._consumer_id = 0
        self._opened_at = 0.0
        self._backoff = Backoff(context.client.randomness)
        self.reopening: asyncio.Task[None] | None = None
        self._pending = PendingRequests()
        self._outbound = OutboundRequests(self.acks, self._pending)
        # The answer to the opening, and to the closing.
        self._open_answer: asyncio.Future[None] | None = None
        self._close_answer: asyncio.Future[None] | None = None
        self.is_closed = False

    @property
    def connection(self) -> tuple[ConsumeStream, int] | None:
        """The stream that it is open on, and its id there: a different pair for each opening.

        The torture records it, so that its judge knows over which connection a message came.
        """
        return (self._stream, self._consumer_id) if self._stream is not None and self.is_connected else None

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
            await self._client.lookup.wait_opened(answer, self.topic, address, "a consumer")
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
            incarnation=self._incarnation,
            properties=dict(options.properties),
            subscription_properties=dict(options.subscription_properties),
            client_version=client_version(),
            schema=to_wire(options.value_schema),
        )
        check_open_size(request, self.topic)
        return request

    def opened(self, answer: ConsumerOpened) -> None:
        if self.is_connected or self._open_answer is None or self._open_answer.done():
            return
        if self._incarnation and answer.incarnation != self._incarnation:
            self._forget_incarnation()
        self._incarnation = answer.incarnation
        if self._versions is not None:
            self._versions.set_incarnation(answer.incarnation)
        self.is_connected = True
        if self.partition == 0 and self.epochs.opening:
            self._context.report_growth(0)  # a report may have been lost with the connection
        self._opened_at = self._clock.monotonic()
        self.epochs.start_opening(answer.epoch, answer.moves)
        self._forget_stale_chunks()
        self.position.start_epoch(answer)
        self._context.acks.distribute()  # so that they are sent before the permits, and are not redelivered
        self._start_epoch(keep_queued=not self._context.durable)
        self._open_answer.set_result(None)
        self.active_changed(answer.active)

    def _start_epoch(self, *, keep_queued: bool = False) -> None:
        self.epoch = DeliveryEpoch(self, self.epochs.opening, self.epochs.number)
        self.has_reached_end = False
        self._queue.reopen_partition(self.partition_queue)
        self.permits.start_epoch(keep_queued=keep_queued)
        self._outbound.start_epoch()
        self.grant_permits()
        self._mark_ready()

    def _abandon(self) -> None:
        """End the opening at once, and have the broker close the consumer."""
        stream, self._stream = self._stream, None
        self.is_connected = False
        if stream is not None:
            stream.abandon(self._consumer_id)

    # When the connection breaks.

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

    def _clear_queue(self) -> None:
        self._queue.clear(self.partition_queue)
        self._decoder.clear()
        self.permits.start_epoch()

    async def _reopen(self) -> None:
        if pause_s := self._backoff.after(self._clock.monotonic() - self._opened_at):
            await self._clock.sleep(pause_s)
        while True:
            try:
                await self._try_open()
                return
            except MagnetarException as error:
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
        self.position.set_start(StartAt(earliest=True))
        self.epochs.expire_all()
        self._unacked_chunks.clear()
        self.acks.fail(
            IncarnationChanged(f"{self.topic} was deleted and recreated: the message belongs to the deleted topic")
        )

    def _fail(self, error: MagnetarException) -> None:
        self.is_closed = True
        self.acks.fail(error)
        self._context.on_failed(self, error)

    def topic_grew(self, partitions: int) -> None:
        self._context.report_growth(partitions)

    # What is delivered.

    def delivered(self, delivery: Delivery, entries: Sequence[bytes]) -> None:
        if not self.is_connected or delivery.epoch != self.epoch.number:
            return
        self._backoff.reset()
        self._decoder.add_delivery(self.epoch, delivery, entries, self._clock.monotonic())
        self._take_delivered()
        self._watch_chunks()

    def _take_delivered(self) -> None:
        """Entries were delivered, or the schema version is known for which they waited."""
        self._decode_pending()
        if self._context.on_delivered is not None:
            self._context.on_delivered()
        self.position.wake()
        if self._queue.batches_waiting and self.permits.outstanding <= 0:
            self._queue.request_more()

    def _watch_chunks(self) -> None:
        """Set the timer for incomplete messages, unless it is set or there is none."""
        if self._chunk_timer is None and self._assembler is not None and (due := self._assembler.next_due) is not None:
            self._chunk_timer = self._clock.call_later(due - self._clock.monotonic(), self._expire_chunks)

    def _expire_chunks(self) -> None:
        """Discard messages whose chunks have not come in time, if they could come: the broker is connected, and the
        application receives messages."""
        self._chunk_timer = None
        if self._assembler is None or self.is_closed:
            return
        now = self._clock.monotonic()
        if self.is_connected and self.permits.outstanding > 0:
            self._assembler.expire(now)
            self._decode_pending()
        else:
            self._assembler.postpone(now)
        self._watch_chunks()

    def _decode_pending(self) -> None:
        self._decoder.decode_pending()
        if self.acks.has_unsent:  # of damaged entries and markers
            self._context.acks.send_soon()
        self.grant_permits()

    def _has_queued(self) -> bool:
        """Whether a message can be handed out, or will be when its schema version is known. Otherwise all that was
        delivered is handed out or skipped."""
        self._decoder.decode_pending()
        return self._decoder.waits_for_schema or self._queue.has_messages_of(self.partition_queue)

    def _fetch_debt(self) -> None:
        if debt := self._queue.fetch_debt(self.partition_queue):
            self.permits.count_handed_out(debt)
            if not self._context.durable:
                self._acknowledge_handed_out()
        self._decode_pending()

    def _acknowledge_handed_out(self) -> None:
        """A reader doesn't acknowledge. Only the broker's count of unacknowledged messages depends on this."""
        last = self.partition_queue.last_handed_out
        if last is not None and last._entry.epoch is self.epoch:
            ledger_id, entry_id, index = get_position(last)
            self.acks.add_cumulative(self.epoch, ledger_id, entry_id, index, last._entry.batch_size)
            self.send_acks()

    def grant_permits(self, *, eager: bool = False) -> None:
        """Grant what is due. `eager`: the application waits for more messages than there are."""
        if eager:
            self.permits.count_handed_out(self._queue.fetch_debt(self.partition_queue))
        if not self.is_connected:
            return
        if permits := self.permits.grant(waiting=self._queue.waiting > 0, eager=eager):
            self._outbound.permits += permits
            self._mark_ready()

    def epoch_began(self, epoch: EpochBegan) -> None:
        if not self.is_connected:
            return
        self._clear_queue()
        self.epochs.start_epoch(epoch.epoch, epoch.acknowledged_from, epoch.moves)
        self._forget_stale_chunks()
        self.position.start_epoch(epoch, self._sought)
        self._context.nacks.forget_partition(self)
        self._start_epoch()

    def _forget_stale_chunks(self) -> None:
        """Forget which chunks were delivered in the last epoch, if they can't be acknowledged any more."""
        if self.epochs.find_epoch(self.epoch.opening, self.epoch.number) is None:
            self._unacked_chunks.clear()

    def active_changed(self, active: bool) -> None:
        if self.is_connected and active != self.is_active:
            self.is_active = active
            notify = self._context.on_active_changed
            if notify is not None and self._options.consumer_type is ConsumerType.Failover:
                notify(self)

    def reached_end(self, reached: ReachedEnd) -> None:
        if self.is_connected and reached.epoch == self.epoch.number:
            self.has_reached_end = True

    def acknowledge_handed_out(self) -> Message[Any] | None:
        """Have the broker know which messages a reader has handed out: it reports the end of a terminated topic when it
        knows of all. Return the last of them that is known."""
        if not self.has_reached_end:
            self._queue.count_handed_out()
            self._acknowledge_handed_out()
        return self.partition_queue.last_handed_out

    # Requests.

    def fill(self, builder: RequestBuilder) -> bool:
        return self._outbound.fill(builder, self._consumer_id, self.epochs if self.is_connected else None)

    def _mark_ready(self) -> None:
        if self._stream is not None:
            self._stream.mark_ready(self._consumer_id)

    def done(self, answer: Done) -> None:
        if not self.acks.handle_done(answer):
            self._pending.handle_done(answer)

    def send_acks(self) -> None:
        """Send pending acknowledgements now, or in the next opening."""
        self.acks.drop_stale(self.epochs)
        if self.acks.has_unsent and self.is_connected:
            self._mark_ready()

    def redeliver(self, positions: Iterable[tuple[int, int]] | None) -> None:
        """Request the redelivery of entries; None: of everything that is not acknowledged.

        Without a connection they are redelivered anyway.
        """
        if not (self.is_connected and self.is_persistent):
            return
        outbound = self._outbound
        if positions is None or self._in_order:
            outbound.redeliver = None
        elif outbound.redeliver is not None:
            outbound.redeliver.update(dict.fromkeys(positions))
        if not self._in_order:  # no epoch begins, so drop what will be redelivered
            if outbound.redeliver is None:
                self._queue.clear(self.partition_queue)
                self._queue.reopen_partition(self.partition_queue)
                self._decoder.clear()
                self.permits.queued = 0
            else:
                self._decoder.drop_entries(outbound.redeliver)
                self.permits.count_handed_out(self._queue.drop_entries(self.partition_queue, outbound.redeliver))
            self._decode_pending()
        self._mark_ready()

    async def seek(self, target: StartAt) -> None:
        """Move the subscription. Returns when the new epoch has begun."""

        async def attempt() -> None:
            self._sought = target
            try:
                await self._request_seek(target)
                self.position.start = target
            finally:
                self._sought = None

        await self._client.operations.retry(attempt)

    async def _request_seek(self, target: StartAt) -> None:
        """If another client has moved the subscription in the meantime, repeat the request: the last seek counts."""
        while True:
            moves = self.epochs.moves
            try:
                return await self._request(Seek(to=target, moves=moves), "moved the subscription")
            except StaleEpoch:
                if self.epochs.moves == moves:
                    raise

    async def unsubscribe(self) -> None:
        """Delete the subscription."""
        await self._client.operations.retry(lambda: self._request(Unsubscribe(), "deleted the subscription"))

    async def _request(self, request: Seek | Unsubscribe, action: str) -> None:
        if not self.is_connected:
            raise AlreadyClosed("the consumer is closed") if self.is_closed else ConnectError("not connected now")
        answer = self._pending.add_request(request, self._consumer_id, self.acks.next_request_id())
        self._mark_ready()
        await self._client.operations.wait_for(answer, f"the broker has not {action} of {self.topic}")

    # Closing.

    async def close(self) -> None:
        """Close the consumer at the broker, after all acknowledgements are sent. Never raises the broker's errors.

        A broker that does not answer is left after the operation's time, or sooner if no acknowledgement is unsent or
        waits for its receipt.
        """
        self.is_closed = True
        if self.reopening is not None:
            self.reopening.cancel()
            await asyncio.wait([self.reopening])
        if self.is_connected and self._close_answer is None:
            self._close_answer = asyncio.get_running_loop().create_future()
            self._outbound.is_closing = True
            most_s = math.inf if self.acks.has_pending else CLOSE_TIMEOUT_S
            self._mark_ready()
            try:
                await self._client.operations.wait_for(self._close_answer, "the broker has not closed it", most_s)
            except Timeout as error:
                log.info("the consumer of %s is closed without the broker's answer: %s", self.topic, error)
        self._abandon()
        self._clear_queue()
        self.acks.fail(AlreadyClosed(f"the consumer of {self.topic} is closed"))

    def end(self, error: MagnetarException) -> None:
        """Close the consumer at once, without waiting for the broker."""
        self.is_closed = True
        if self._chunk_timer is not None:
            self._chunk_timer.cancel()
            self._chunk_timer = None
        if self._versions is not None:
            self._versions.end()
        if self.reopening is not None:
            self.reopening.cancel()
        self._abandon()
        self._decoder.clear()
        self.position.wake(error)
        self._pending.fail(error)
        self.acks.fail(error)

    async def wait_ended(self) -> None:
        """Return when an ended consumer's tasks have ended."""
        if self.reopening is not None:
            await asyncio.wait([self.reopening])
        if self._versions is not None:
            await self._versions.wait_ended()
