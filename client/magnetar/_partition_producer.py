"""A producer of one partition, or of a topic without partitions, on the client's event loop.

    look up the owner ──► its stream ──► OpenProducer ──opened──► send entries, get results
         ▲                                   │                            │
         └────────── after a pause ──────────┴─── disconnected, or ended ─┘   (at once, if it was open for a while)

Messages come through its `SendQueue`, as batches. `InFlight` holds these until they are answered. While the producer is
not open they wait. With each opening all of them are resent, in order, with a higher connection epoch and the same
`instance`, by which the broker recognizes the producer: it drops entries of earlier epochs that are still in flight.

**When an opening ends**, the producer is reopened, unless the error is not retryable. If the topic was deleted, pending
messages belonged to it and fail with `IncarnationChanged`. The producer goes on with the topic of the same name that
exists now or is created at its request. If there is none and none may be created, it ends with `TopicNotFound`. If
another producer has taken its name in the meantime, it retries until the name is free. If the topic was terminated, or
the producer's schema is not compatible with the topic's any more, it ends: whether messages are stored that were sent
before is unknown.

While a backlog quota of the topic is reached, the broker closes its producers, and refuses to reopen them. Messages
wait, as in any other pause between two openings; or, if the quota's policy is `producer_exception`, all pending
messages fail with each attempt to reopen.

**An exclusive producer** presents the topic's epoch when it is reopened. If another producer was admitted in the
meantime, it ends, and its pending messages fail with `ProducerFenced`: they are stored before the other producer's, or
never. Its epoch belongs to the topic's incarnation, so it ends, too, if the topic was deleted. While it waits for its
turn, its first opening has no timeout.

**The schema** is sent with each opening. The broker's answer has its version, with which entries are stamped when they
are encoded: those that were encoded before keep theirs.

When a batch is passed to the stream, it is encoded and numbered, and stays in `InFlight` until it is answered. A large
message is split into chunks before (`_chunks_in_flight.py`), which are sent like batches.

Results go to the callers that wait for them on the loop. Callbacks are called on the callback thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, cast

from magnetar import exceptions
from magnetar._broker_stream import check_open_size
from magnetar._chunks_in_flight import Chunk, split_batch
from magnetar._client_core import ClientCore, client_version
from magnetar._enums import ProducerAccessMode
from magnetar._errors import from_problem, from_transport, is_retryable
from magnetar._keyed_send_queue import KeyedSendQueue
from magnetar._operations import CLOSE_TIMEOUT_S, Backoff
from magnetar._options import ProducerOptions
from magnetar._produce_stream import ProduceStream
from magnetar._send_queue import SendLimits, SendQueue
from magnetar._send_queue_rules import Batch, InFlight, OutgoingEntry, StoredAt
from magnetar._value_encoder import to_wire
from magnetar.exceptions import AlreadyClosed, MagnetarException
from magnetar_protos.broker_pb2 import EntryRefused, OpenProducer, Problem, ProducerOpened, Receipt
from magnetar_protos.broker_pb2 import ProducerAccessMode as WireAccessMode
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.clock import Clock, Timer
from magnetar_wire.errors import TooLarge, WireError
from magnetar_wire.frame import FrameBuilder
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import TransportError

__all__ = ["PartitionProducer"]

log = logging.getLogger(__name__)
# A broker that ends an opening with these has stored nothing that it has not reported.
_NOT_STORED: Final = (
    exceptions.TopicTerminated,
    exceptions.ProducerBlockedQuotaExceededError,
    exceptions.ProducerBlockedQuotaExceededException,
)
# What fails because of these may have been stored before, in an earlier opening.
_FAIL_PENDING: Final = (
    exceptions.TopicTerminated,
    exceptions.IncompatibleSchema,
    exceptions.ProducerBlockedQuotaExceededException,
)

_EXCLUSIVITY_LOST: Final = (
    exceptions.ProducerFenced,
    exceptions.IncarnationChanged,
    exceptions.TopicNotFound,
)


class PartitionProducer:
    """A `ProduceChannel` of the stream by which it is connected."""

    def __init__(
        self,
        client: ClientCore,
        topic: TopicName,
        options: ProducerOptions,
        limits: SendLimits,
        report_growth: Callable[[int], object] = lambda _: None,
        on_lost_exclusivity: Callable[[MagnetarException], object] = lambda error: None,
    ) -> None:
        """`report_growth` is called with the number of partitions if the topic has more; with 0 if that may be so.

        `on_lost_exclusivity` is called if an exclusive producer was open, and another one may have been admitted.
        """
        self.topic = str(topic)
        # The topic's epoch. It is set before the first opening to present one that another partition has.
        self.topic_epoch: int | None = None
        # The epoch that the topic has, if the one that was presented was refused.
        self.current_epoch: int | None = None
        self.producer_name = options.producer_name or ""
        # The highest sequence id that is known to be persisted.
        self.last_sequence_id = -1 if options.initial_sequence_id is None else options.initial_sequence_id
        # Whether it was ever open. Then the first message's sequence id is known, and `queue` is replaced.
        self.was_opened = False
        self._limits = limits
        self._clock = client.clock
        self.queue: SendQueue = self._create_queue(limits, 0)
        self._client = client
        self._partition = topic.partition_index
        self._options = options
        self._report_growth = report_growth
        self._in_flight = InFlight()
        self._send_timeout = _SendTimeout(
            self._in_flight, self._clock, options.send_timeout_millis / 1000, self._fail_expired
        )
        self._access_mode = options.access_mode
        self._on_lost_exclusivity = on_lost_exclusivity
        # The broker has answered that this attempt at the opening waits for its turn, or an earlier one.
        self._is_queued = self._was_queued = False
        self._last_serial = 0
        # Identifies the producer: its instance, and the topic's incarnation. Each opening has a higher epoch.
        self._instance = client.randomness.token(16)
        self._incarnation = ""
        self._epoch = 0
        # The metadata that all entries have in common.
        self._shared = MessageMetadata()
        # The current opening: its stream, its channel id there (0: none), and whether the broker has agreed to it.
        self._stream: ProduceStream | None = None
        self._channel_id = 0
        self._open = False
        self._opened_at = 0.0
        # Whether entries were reported as persisted since.
        self._made_progress = False
        # Whether the broker has paused this opening, because the topic has no capacity.
        self._paused = False
        # Why the topic stores nothing at present, also while the broker opens it. Empty: it does.
        self._waiting_for = ""
        # The error that ended the last opening. None: none has ended, or it is open again.
        self._last_error: MagnetarException | None = None
        self._backoff = Backoff(client.randomness)
        # The broker's answer to the current opening, or closing.
        self._answer: asyncio.Future[None] | None = None
        self._reopening: asyncio.Task[None] | None = None
        # It is closed, or about to be, and is not reopened.
        self._closing = False
        self._batch_timer: Timer | None = None
        self._flushes: list[_Flush] = []

    @property
    def connected(self) -> bool:
        return self._open

    # From the queue to the stream.

    def _create_queue(self, limits: SendLimits, next_sequence_id: int) -> SendQueue:
        kind = KeyedSendQueue if limits.batch_by_key else SendQueue
        return kind(limits, next_sequence_id, self._wake, self._clock.monotonic, self._explain_pending)

    def _wake(self) -> None:
        """Have the loop take batches from the queue. Any thread may call this."""
        self._client.call_soon(self._take_batches)

    def _take_batches(self) -> None:
        clock = self._clock
        batches, due = self.queue.take_batches(clock.monotonic())
        self._add_batches(batches)
        if due is not None and self._batch_timer is None:
            self._batch_timer = clock.call_later(max(0.0, due - clock.monotonic()), self._on_batch_due)

    def _on_batch_due(self) -> None:
        self._batch_timer = None
        self._take_batches()

    def _add_batches(self, batches: list[Batch]) -> None:
        for batch in batches:
            self._last_serial = batch.serial = self._last_serial + 1
            if batch.is_large:
                self._add_chunks(batch)
            else:
                self._in_flight.append(batch)
        if batches:
            self._mark_ready()
            self._send_timeout.watch()

    def _add_chunks(self, batch: Batch) -> None:
        options, limits = self._options, self.queue.limits
        try:
            chunks = split_batch(
                batch, self._shared, self._clock.time_ms(), options.compression_type, limits.max_message_bytes
            )
        except WireError as error:
            self._complete_batch(batch, exceptions.InvalidMessage(str(error)))
            return
        for chunk in chunks:
            self._in_flight.append(chunk)

    def _mark_ready(self) -> None:
        """Have the stream call `fill`, if there is something to send."""
        if self._may_send and self._stream is not None and self._in_flight.first_waiting() is not None:
            self._stream.mark_ready(self._channel_id)

    @property
    def _may_send(self) -> bool:
        return self._open and not self._paused

    def fill(self, builder: FrameBuilder) -> bool:
        """Put waiting batches into the stream's next message. Return False if they do not all fit."""
        in_flight = self._in_flight
        while self._may_send and (waiting := in_flight.first_waiting()) is not None:
            if builder.is_full:  # a chunk would be encoded for nothing
                return False
            try:
                entry = waiting.encode(self._shared, self._clock.time_ms(), self._options.compression_type)
            except TooLarge as error:
                self._complete(in_flight.drop_first(), exceptions.MessageTooBig(str(error)))
                continue
            except WireError as error:
                self._complete(in_flight.drop_first(), exceptions.InvalidMessage(str(error)))
                continue
            if not builder.try_add_entry(self._channel_id, in_flight.next_number, entry):
                return False
            in_flight.mark_first_sent()
        return True

    # From the stream to the application.

    def received(self, receipt: Receipt) -> None:
        """Complete the batches that the broker has persisted."""
        self._made_progress = True
        was_stored_before = receipt.ledger_id < 0
        for offset, batch in self._in_flight.remove_received(receipt.first, receipt.count):
            entry_id = -1 if was_stored_before else receipt.first_entry_id + offset
            self._complete(
                batch, StoredAt(self.topic, self._partition, receipt.ledger_id, entry_id, duplicates=receipt.duplicates)
            )

    def refused(self, refusal: EntryRefused) -> None:
        """Fail a batch that the broker has refused."""
        batch = self._in_flight.remove_refused(refusal.number)
        if batch is not None:
            self._complete(batch, from_problem(refusal.problem))

    def topic_grew(self, partitions: int) -> None:
        self._report_growth(partitions)

    def set_flow(self, paused: bool, waiting_for: str) -> None:
        self._paused, self._waiting_for = paused, waiting_for
        self._mark_ready()

    def _complete(self, entry: OutgoingEntry, outcome: StoredAt | MagnetarException) -> None:
        """Complete a batch; of a chunk's message, complete the batch when the message is persisted, or has failed."""
        error = outcome if isinstance(outcome, MagnetarException) else None
        if isinstance(entry, Batch):
            self._complete_batch(entry, outcome)
        elif isinstance(entry, Chunk):
            self._complete_chunk(entry, outcome)
        self._count_flushed(entry, error)

    def _complete_chunk(self, chunk: Chunk, outcome: StoredAt | MagnetarException) -> None:
        message = chunk.message
        if message.is_completed:
            return
        if isinstance(outcome, StoredAt):
            whole = message.add_result(chunk, outcome)
            if whole is not None:
                message.is_completed = True
                self._complete_batch(message.batch, whole)
            return
        message.is_completed = True
        self._complete_batch(message.batch, outcome)
        for other in self._in_flight.remove_others(lambda one: isinstance(one, Chunk) and one.message is message):
            self._count_flushed(other, outcome)

    def _complete_batch(self, batch: Batch, outcome: StoredAt | MagnetarException) -> None:
        """Report a batch's outcome to everyone who waits for it, and release its capacity."""
        if not isinstance(outcome, MagnetarException):
            self.last_sequence_id = max(self.last_sequence_id, batch.last_sequence_id)
        batch.notify_waiters(outcome)
        self.queue.release_answered(batch)
        if batch.callbacks is not None:
            self._client.callbacks.call_later(partial(self._call_callbacks, batch, outcome))

    def _count_flushed(self, entry: OutgoingEntry, error: MagnetarException | None) -> None:
        if self._flushes:
            for flush in self._flushes:
                flush.count_entry(entry, error)
            self._flushes = [flush for flush in self._flushes if flush.entries_left]

    def _call_callbacks(self, batch: Batch, outcome: StoredAt | MagnetarException) -> None:
        """Call a batch's callbacks, on the callback thread."""
        try:
            batch.call_callbacks(outcome)
        finally:
            self.queue.release_called(batch)

    def _fail_pending(self, error: MagnetarException) -> None:
        for entry in self._in_flight.remove_all():
            is_unknown = entry.may_be_stored and isinstance(error, _FAIL_PENDING)
            self._complete(entry, _unknown(error) if is_unknown else error)

    def _fail_expired(self, entries: list[OutgoingEntry], timeout_s: float) -> None:
        text = (
            f"no result within {timeout_s:g} s (send_timeout_millis); the message may be stored; "
            f"{self._explain_pending() or 'the producer is connected'}"
        )
        for entry in entries:
            self._complete(entry, exceptions.Timeout(text))

    def _explain_pending(self) -> str:
        """Return why messages are not stored at present. Empty: no reason is known. Any thread may call this."""
        if not self._open:
            return (
                f"the producer is not connected: {self._last_error}"
                if self._last_error
                else "the producer is not connected"
            )
        return f"the producer is connected: {self._waiting_reason}" if self._waiting_reason else ""

    @property
    def _waiting_reason(self) -> str:
        return f"the topic waits: {self._waiting_for}" if self._waiting_for else ""

    # Opening and reopening.

    async def open(self) -> None:
        """Open the producer for the first time. Raises the broker's error, or the last one when the time is over."""
        try:
            while True:
                try:
                    await self._client.operations.retry(self._open_once)
                    return
                except MagnetarException as error:
                    # It may have waited for hours. From when it leaves the queue, the operation has its whole timeout.
                    was_queued, self._was_queued = self._was_queued, False
                    if not (was_queued and is_retryable(error)):
                        raise
        except BaseException:
            self._leave()
            raise

    async def raise_epoch(self, topic_epoch: int) -> None:
        """Reopen the producer, of which nothing was sent, with a higher epoch. Meets no other producer in between."""
        stream, self._stream, channel_id, self._channel_id = self._stream, None, self._channel_id, 0
        self._open = False
        if stream is not None:
            stream.detach(channel_id)  # the broker replaces it
        self.topic_epoch, self._incarnation = topic_epoch, ""
        await self.open()

    async def _open_once(self) -> None:
        client = self._client
        address = await client.lookup.find_owner(self.topic, was_open=self.was_opened)
        answer = self._answer = asyncio.get_running_loop().create_future()
        self._waiting_for, self._is_queued = "", False
        self._epoch += 1
        request = OpenProducer(
            topic=self.topic,
            producer_name=self.producer_name,
            instance=self._instance,
            connection_epoch=self._epoch,
            incarnation=self._incarnation,
            properties=dict(self._options.properties),
            client_version=client_version(),
            partial=True,
            schema=to_wire(self._options.value_schema),
            access_mode=cast(WireAccessMode, self._access_mode.value),
            topic_epoch=self.topic_epoch if self._is_exclusive else None,
        )
        check_open_size(request, self.topic)
        try:
            self._stream = client.pool.stream(address, ProduceStream)
            self._channel_id = self._stream.open(self, request)
        except TransportError as error:
            raise from_transport(error) from error
        try:
            await client.lookup.wait_opened(
                answer,
                self.topic,
                address,
                "a producer",
                lambda: self._waiting_reason,
                is_queued=lambda: self._is_queued,
            )
        finally:
            if not self._open:
                self._leave()

    @property
    def _is_exclusive(self) -> bool:
        return self._access_mode is not ProducerAccessMode.Shared

    def queued(self) -> None:
        if not self._open:
            self._is_queued = self._was_queued = True

    def opened(self, answer: ProducerOpened) -> None:
        if self._open or self._answer is None or self._answer.done():
            return
        if not self.was_opened:
            self._apply_first_opening(answer)
        elif self._partition == 0:
            self._report_growth(0)  # a report may have been lost with the connection
        self._incarnation = answer.incarnation
        self.topic_epoch = answer.topic_epoch if answer.HasField("topic_epoch") else None
        if answer.schema_version:
            self._shared.schema_version = answer.schema_version
        else:
            self._shared.ClearField("schema_version")
        self._open, self._paused, self._last_error = True, False, None
        self._opened_at, self._made_progress = self._clock.monotonic(), False
        self._answer.set_result(None)
        self._mark_ready()

    def _apply_first_opening(self, answer: ProducerOpened) -> None:
        if self._options.initial_sequence_id is None:
            self.last_sequence_id = answer.last_sequence_id
        limits = self._limits
        if 0 < answer.max_message_bytes < limits.max_message_bytes:
            limits = replace(limits, max_message_bytes=answer.max_message_bytes)
        self.queue = self._create_queue(limits, self.last_sequence_id + 1)
        self.producer_name = self._shared.producer_name = answer.producer_name
        self.was_opened = True

    def _leave(self) -> None:
        """End the opening, or the attempt at one. Batches that were sent and not answered are to be resent."""
        stream, self._stream, channel_id, self._channel_id = self._stream, None, self._channel_id, 0
        self._open = False
        if stream is not None:
            stream.close(channel_id)
            stream.detach(channel_id)
        self._in_flight.requeue_sent()

    def disconnected(self, error: TransportError) -> None:
        self._stream = None
        self._on_opening_ended(from_transport(error))

    def ended(self, problem: Problem | None, topic_epoch: int | None = None) -> None:
        self._stream = None
        self.current_epoch = topic_epoch
        if problem is None:
            self._on_opening_ended(AlreadyClosed(f"the broker has closed the producer {self.producer_name}"))
        else:
            self._on_opening_ended(from_problem(problem))

    def _on_opening_ended(self, error: MagnetarException) -> None:
        """Handle the end of the opening, or of the attempt at one."""
        was_open, self._open, self._channel_id = self._open, False, 0
        self._in_flight.requeue_sent(may_be_stored=not isinstance(error, _NOT_STORED))
        if not was_open or self._closing:  # `_open_once`, or `close`, waits for this
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(error)
            return
        self._react(error)
        # If entries were persisted, the next pause is short. If nothing, or too much, gets through, pauses get longer.
        if self._made_progress and not isinstance(error, exceptions.TooManyLookupRequestException):
            self._backoff.reset()
        if not self._closing:
            self._reopening = asyncio.get_running_loop().create_task(self._reopen())

    def _react(self, error: MagnetarException) -> None:
        """Decide what follows from an error that ended an opening, or an attempt to reopen."""
        self._last_error = error
        if self._is_exclusive and isinstance(error, _EXCLUSIVITY_LOST):
            log.error("producer %s on %s ends: %s", self.producer_name, self.topic, error)
            self.end(error)
            self._on_lost_exclusivity(error)
        elif self._incarnation and isinstance(error, exceptions.IncarnationChanged | exceptions.TopicNotFound):
            log.warning("topic %s was deleted: pending messages fail, and the producer is reopened", self.topic)
            self._incarnation = ""
            self._fail_pending(exceptions.IncarnationChanged(str(error)))
        elif isinstance(error, exceptions.ProducerBlockedQuotaExceededException):
            log.warning("messages of producer %s on %s fail: %s", self.producer_name, self.topic, error)
            self._fail_pending(error)
        elif not (is_retryable(error) or isinstance(error, exceptions.ProducerBusy | exceptions.Timeout)):
            log.error("producer %s on %s ends: %s", self.producer_name, self.topic, error)
            self.end(error)

    async def _reopen(self) -> None:
        if pause_s := self._backoff.after(self._clock.monotonic() - self._opened_at):
            await self._clock.sleep(pause_s)
        while not self._closing:
            try:
                await self._open_once()
                return
            except MagnetarException as error:
                log.info("producer %s on %s is not connected: %s", self.producer_name, self.topic, error)
                self._react(error)
            if not self._closing:
                await self._clock.sleep(self._backoff.next())

    # Flushing and closing.

    async def flush(self, *, in_callback: bool = False) -> None:
        """Return when everything that was sent before has a result, and its callbacks were called.

        A callback that calls this does not wait for callbacks. Raises the first error of the messages.
        """
        self.queue.check_open()
        self.queue.close_batch_soon()
        self._take_batches()
        failure: MagnetarException | None = None
        try:
            await self._wait_for_results()
        except MagnetarException as error:
            failure = error
        if self.queue.has_uncalled and not in_callback:
            called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._client.callbacks.call_later(lambda: self._client.call_soon(partial(_set, called)))
            await called
        if failure is not None:
            raise failure

    async def _wait_for_results(self) -> None:
        if len(self._in_flight):
            flush = _Flush(self._last_serial, len(self._in_flight))
            self._flushes.append(flush)
            await flush.done

    async def close(self) -> None:
        """Send what is pending, wait for the results, and close the producer at the broker.

        Pending messages fail after the send timeout, or after the operation's timeout if there is none. A broker that
        does not answer the closing is not waited for.
        """
        self._add_batches(
            self.queue.close(AlreadyClosed(f"the producer {self.producer_name} on {self.topic} is closed"))
        )
        try:
            async with asyncio.timeout(self._options.send_timeout_millis / 1000 or self._client.operations.timeout_s):
                await self._wait_for_results()
        except (MagnetarException, TimeoutError) as error:
            log.warning("producer %s on %s is closed with failed messages: %s", self.producer_name, self.topic, error)
        finally:
            await self._close_at_broker()

    async def _close_at_broker(self) -> None:
        self._closing = True
        try:
            if self._open and self._stream is not None:
                self._answer = asyncio.get_running_loop().create_future()
                self._stream.close(self._channel_id)
                await self._client.operations.wait_for(
                    self._answer, "the broker has not closed the producer", CLOSE_TIMEOUT_S
                )
        except MagnetarException as error:  # the broker closes it with its connection at the latest
            log.debug("producer %s on %s is closed: %s", self.producer_name, self.topic, error)
        finally:
            self.end(AlreadyClosed(f"the producer {self.producer_name} on {self.topic} is closed"))

    def end(self, error: MagnetarException) -> None:
        """End at once. Pending messages fail, and later sends raise the error."""
        self._closing = True
        self._add_batches(self.queue.close(error))
        self._fail_pending(error)
        self._send_timeout.stop()
        if self._batch_timer is not None:
            self._batch_timer.cancel()
            self._batch_timer = None
        if self._reopening is not None and self._reopening is not asyncio.current_task():
            self._reopening.cancel()
        self._leave()

    def forked(self, error: MagnetarException) -> None:
        """Close the producer in a child. Locks and futures are the parent's, in whatever state the fork met them, so
        they are replaced."""
        self._closing, self._open, self._stream = True, False, None
        self._in_flight, self._flushes = InFlight(), []
        self._answer = self._reopening = self._batch_timer = None
        self.queue = self._create_queue(self._limits, 0)
        self.queue.close(error)

    async def wait_ended(self) -> None:
        """Return when an ended producer's tasks have ended."""
        if self._reopening is not None:
            await asyncio.wait([self._reopening])


def _unknown(error: MagnetarException) -> MagnetarException:
    """Return the error of a message that may have been stored before the error that ended the producer."""
    return exceptions.ConnectError(
        f"whether the message is stored is not known: the connection was lost before its result, and now {error}"
    )


class _SendTimeout:
    """Removes batches that have been pending for longer than `send_timeout_millis`.

    One timer watches the oldest batch. It is set again when it has fired, not at each result. If it fires far too
    late, the process was suspended or very busy, and results may have come that were not read yet. So they get some
    more time.
    """

    __slots__ = ("_clock", "_due", "_in_flight", "_on_expired", "_timeout_s", "_timer")

    def __init__(
        self,
        in_flight: InFlight,
        clock: Clock,
        timeout_s: float,
        on_expired: Callable[[list[OutgoingEntry], float], None],
    ) -> None:
        """`timeout_s`: 0: batches never expire."""
        self._in_flight = in_flight
        self._clock = clock
        self._timeout_s = timeout_s
        self._on_expired = on_expired
        self._timer: Timer | None = None
        # When the timer fires.
        self._due = 0.0

    def watch(self) -> None:
        """Set the timer, unless it is set or nothing is pending."""
        oldest = self._in_flight.oldest()
        if self._timer is None and oldest is not None and self._timeout_s:
            self._set_timer(oldest.opened_at + self._timeout_s)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, due: float) -> None:
        now = self._clock.monotonic()
        self._due = max(now, due)
        self._timer = self._clock.call_later(self._due - now, self._check)

    def _check(self) -> None:
        self._timer = None
        now, grace_s = self._clock.monotonic(), self._timeout_s / 10
        if now > self._due + grace_s:
            self._set_timer(now + grace_s)
            return
        expired = self._in_flight.remove_expired(now, self._timeout_s)
        if expired:
            self._on_expired(expired, self._timeout_s)
        self.watch()


class _Flush:
    """Waits until a number of batches and chunks are completed, of which the last has this serial number."""

    def __init__(self, last_serial: int, entries: int) -> None:
        self.entries_left = entries
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last_serial = last_serial
        self._error: MagnetarException | None = None

    def count_entry(self, entry: OutgoingEntry, error: MagnetarException | None) -> None:
        if entry.serial > self._last_serial:
            return
        self.entries_left -= 1
        self._error = self._error or error
        if not self.entries_left and not self.done.done():
            if self._error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(type(self._error)(*self._error.args))


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
