"""What the consumer of one partition, or of a topic without partitions, is delivered, and what it requests.

Entries are decoded into messages, which wait in the receiver queue, while the broker has permits to send more. The
consumer is a `ReconnectingConsumer`: the broker may close it, or its connection may break, at any time.

**Epochs.** A seek, a redelivery of everything or a take-over by another consumer begins an epoch. Messages of earlier
epochs are dropped, in the queue and when they arrive, and permits are granted again. If the application requests a
redelivery of everything, its own thread drops the messages at once (`ReceiverQueue.close_partition`). Acknowledgements
that are not sent yet are sent before anything that causes a redelivery, in the same message.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any

from magnetar._acknowledging.ack_timeout_wheel import AckTimeoutWheel
from magnetar._connections.operations import CLOSE_TIMEOUT_S
from magnetar._consuming.consume_stream import RequestBuilder
from magnetar._consuming.entry_decoder import EntryDecoder
from magnetar._consuming.reconnecting_consumer import ConsumerContext, ReconnectingConsumer
from magnetar._enums import DecodeFailureAction
from magnetar._letters.letter_stage import LetterStage
from magnetar._message import DeliveryEpoch, Message
from magnetar._prefetching.chunk_assembly import ChunkAssembler
from magnetar._prefetching.chunk_expiry import ChunkExpiry
from magnetar._prefetching.partition_queue import PartitionQueue
from magnetar._prefetching.permits import Permits
from magnetar._prefetching.read_position import ReadPosition, Start, get_position
from magnetar._values.value_decoder import VersionDecoders
from magnetar.exceptions import AlreadyClosed, ConnectError, MagnetarException, MemoryBufferIsFull, StaleEpoch, Timeout
from magnetar_protos.broker_pb2 import (
    ConsumerOpened,
    Delivery,
    Done,
    EpochBegan,
    ReachedEnd,
    Seek,
    StartAt,
    Unsubscribe,
)
from magnetar_wire.topic_name import TopicName

__all__ = ["PartitionConsumer"]

log = logging.getLogger("magnetar")


class PartitionConsumer(ReconnectingConsumer):
    """A `MessageOrigin`."""

    def __init__(self, name: TopicName, context: ConsumerContext, start: Start) -> None:
        super().__init__(name, context)
        # Otherwise nothing is stored, so nothing is redelivered.
        self.is_persistent = name.is_persistent
        # The topic is terminated, and everything in it is acknowledged.
        self.has_reached_end = False
        options = context.options
        # The report is made by the receiving thread, with the queue's lock held.
        self.partition_queue = PartitionQueue(lambda: context.client.call_soon(self._fetch_debt))
        # What the application has received and not acknowledged. Without acknowledgement timeouts it is empty.
        self.received = AckTimeoutWheel()
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
        self._in_order = options.delivers_in_order
        self._queue = context.queue
        schema = options.value_schema
        self._versions = (
            None if schema is None else VersionDecoders(schema, self.topic, context.client, self._take_delivered)
        )
        # None: chunks are not joined.
        assembler: ChunkAssembler | None = None
        self._chunk_expiry: ChunkExpiry | None = None
        if options.delivers_in_order:
            assembler = ChunkAssembler(
                context.chunk_budget,
                lambda *discarded, **how: self._decoder.discard_chunks(*discarded, **how),
                max_messages=options.max_pending_chunked_message,
                expire_after_s=options.expire_time_of_incomplete_chunked_message_ms / 1000,
                acks_dropped=options.auto_ack_oldest_chunked_message_on_queue_full,
                on_lost=self._on_message_lost,
            )
            self._chunk_expiry = ChunkExpiry(assembler, self._clock, self._may_get_chunks, self._decode_pending)
        stage: LetterStage | None = None
        if context.letters is not None:
            queues = (self._queue, self.partition_queue)
            stage = LetterStage(self.topic, context.letters, self._clock, self.permits, *queues, self._take_delivered)
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
            assembler=assembler,
            unacked_chunks=self._unacked_chunks,
            mixed_batches=context.mixed_batches,
            letters=stage,
        )
        # The target of a seek that is not answered.
        self._sought: Start | None = None

    # Epochs.

    def _begin_opening(self, answer: ConsumerOpened) -> None:
        if self._versions is not None:
            self._versions.set_incarnation(answer.incarnation)
        self.epochs.start_opening(answer.epoch, answer.moves)
        self._forget_stale_chunks()
        self.position.start_epoch(answer)
        self._context.acks.distribute()  # so that they are sent before the permits, and are not redelivered
        self._start_epoch(keep_queued=not self._context.durable)

    def epoch_began(self, epoch: EpochBegan) -> None:
        if not self.is_connected:
            return
        self._clear_queue()
        self.epochs.start_epoch(epoch.epoch, epoch.acknowledged_from, epoch.moves)
        self._forget_stale_chunks()
        self.position.start_epoch(epoch, self._sought)
        self._context.nacks.forget_partition(self)
        self._start_epoch()

    def _start_epoch(self, *, keep_queued: bool = False) -> None:
        self.epoch = DeliveryEpoch(self, self.epochs.opening, self.epochs.number)
        self.has_reached_end = False
        self._queue.reopen_partition(self.partition_queue)
        self.permits.start_epoch(keep_queued=keep_queued)
        self._outbound.start_epoch()
        self.grant_permits()
        self._mark_ready()

    def _clear_queue(self) -> None:
        self._queue.clear(self.partition_queue)
        self._decoder.clear()
        self.received.clear()
        self.permits.start_epoch()

    def _forget_stale_chunks(self) -> None:
        """Forget which chunks were delivered in the last epoch, if they can't be acknowledged any more."""
        if self.epochs.find_epoch(self.epoch.opening, self.epoch.number) is None:
            self._unacked_chunks.clear()

    # What is delivered.

    def delivered(self, delivery: Delivery, entries: Sequence[bytes]) -> None:
        if not self.is_connected or delivery.epoch != self.epoch.number:
            return
        self._backoff.reset()
        self._decoder.add_delivery(self.epoch, delivery, entries, self._clock.monotonic())

    def take_delivered(self) -> None:
        if not self.is_connected or self.is_closed:  # it may have failed by what was delivered
            return
        self._take_delivered()
        if self._chunk_expiry is not None:
            self._chunk_expiry.watch()

    def _take_delivered(self) -> None:
        """Entries were delivered, or the schema version is known for which they waited."""
        self._decode_pending()
        if self._context.on_delivered is not None:
            self._context.on_delivered()
        self.position.wake()
        if self._queue.batches_waiting and self.permits.outstanding <= 0:
            self._queue.request_more()

    def _on_message_lost(self, first: tuple[int, int]) -> None:
        if not self._context.durable and not self.is_closed:
            text = (
                f"a message of {self.topic} in chunks, from entry {first[0]}:{first[1]} on, can't be handed out: it "
                "was dropped, since incomplete messages are limited; raise max_pending_chunked_bytes (or "
                "max_pending_chunked_message), and begin again, at the latest with that entry"
            )
            self._fail(MemoryBufferIsFull(text))

    def _may_get_chunks(self) -> bool:
        """Whether missing chunks could come: the broker is connected, and the application receives messages."""
        return self.is_connected and self.permits.outstanding > 0

    def _decode_pending(self) -> None:
        self._decoder.decode_pending()
        if self._context.timeouts is not None:
            self._context.timeouts.watch()
        if self.acks.has_unsent:  # of damaged entries and markers
            self._context.acks.send_soon()
        self.grant_permits()

    def _has_queued(self) -> bool:
        """Whether a message can be handed out, or will be when its schema version is known. Otherwise all that was
        delivered is handed out or skipped."""
        self._decoder.decode_pending()
        return self._decoder.waits_for_schema or self._queue.has_messages_of(self.partition_queue)

    def _fetch_debt(self) -> None:
        if self._context.timeouts is not None:
            self._context.timeouts.find_received()
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
        if not self.is_connected or self._context.is_paused:
            return
        if permits := self.permits.grant(waiting=self._queue.waiting > 0, eager=eager):
            self._outbound.permits += permits
            self._mark_ready()

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
            self.received.clear()
        elif outbound.redeliver is not None:
            outbound.redeliver.update(dict.fromkeys(positions))
            self.received.forget(outbound.redeliver)
            # No epoch begins, so drop what will be redelivered.
            self._decoder.drop_entries(outbound.redeliver)
            self.permits.count_handed_out(self._queue.drop_entries(self.partition_queue, outbound.redeliver))
            self._decode_pending()
        self._mark_ready()

    async def seek(self, target: Start) -> None:
        """Move the subscription. Returns when the new epoch has begun."""

        async def attempt() -> None:
            self._sought = target
            try:
                await self._request_seek(target.at)
                self.position.start = target.at
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
        if self._chunk_expiry is not None:
            self._chunk_expiry.stop()
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
        if self._chunk_expiry is not None:
            self._chunk_expiry.stop()
        if self._versions is not None:
            self._versions.end()
        if self.reopening is not None:
            self.reopening.cancel()
        self._abandon()
        self._decoder.stop()
        self.position.wake(error)
        self._pending.fail(error)
        self.acks.close(error)

    async def wait_ended(self) -> None:
        """Return when an ended consumer's tasks have ended."""
        await super().wait_ended()
        if self._versions is not None:
            await self._versions.wait_ended()
