"""The messages of one partition's producer, on the client's event loop: from its `SendQueue` to their results.

Messages come through the queue, as batches, which are numbered, and held in `InFlight` until they are answered. While
the producer is open, the stream calls `fill`, which encodes the next batches as entries. A large message is split into
chunks before (`chunks_in_flight.py`), which are sent like batches. After a break, what is not answered is resent, in
order (`reconnecting_producer.py`).

Results go to the callers that wait for them on the loop. Callbacks are called on the callback thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from magnetar import exceptions
from magnetar._client_core import ClientCore
from magnetar._connections.operations import CLOSE_TIMEOUT_S
from magnetar._errors import from_problem
from magnetar._options import ProducerOptions
from magnetar._producing.batch import Batch, StoredAt
from magnetar._producing.chunks_in_flight import Chunk, split_batch
from magnetar._producing.in_flight import InFlight, OutgoingEntry
from magnetar._producing.keyed_send_queue import KeyedSendQueue
from magnetar._producing.reconnecting_producer import ReconnectingProducer
from magnetar._producing.send_queue import SendLimits, SendQueue
from magnetar._producing.send_timeout import SendTimeout
from magnetar.exceptions import AlreadyClosed, MagnetarException
from magnetar_protos.broker_pb2 import EntryRefused, ProducerOpened, Receipt
from magnetar_wire.clock import Timer
from magnetar_wire.errors import TooLarge, WireError
from magnetar_wire.frame import FrameBuilder
from magnetar_wire.topic_name import TopicName

__all__ = ["PartitionProducer"]

log = logging.getLogger(__name__)
# What fails because of these may have been stored before, in an earlier opening.
_FAIL_PENDING: Final = (
    exceptions.TopicTerminated,
    exceptions.IncompatibleSchema,
    exceptions.ProducerBlockedQuotaExceededException,
)


class PartitionProducer(ReconnectingProducer):
    def __init__(
        self,
        client: ClientCore,
        topic: TopicName,
        options: ProducerOptions,
        limits: SendLimits,
        report_growth: Callable[[int], object] = lambda _: None,
        on_lost_exclusivity: Callable[[MagnetarException], object] = lambda error: None,
    ) -> None:
        super().__init__(client, topic, options, report_growth, on_lost_exclusivity)
        # The highest sequence id that is known to be persisted.
        self.last_sequence_id = -1 if options.initial_sequence_id is None else options.initial_sequence_id
        self._limits = limits
        # Replaced when the producer is opened: then the first message's sequence id is known.
        self.queue: SendQueue = self._create_queue(limits, 0)
        self._send_timeout = SendTimeout(
            self._in_flight, self._clock, options.send_timeout_millis / 1000, self._fail_expired
        )
        self._last_serial = 0
        self._batch_timer: Timer | None = None
        self._flushes: list[_Flush] = []

    # From the queue to the stream.

    def _create_queue(self, limits: SendLimits, next_sequence_id: int) -> SendQueue:
        kind = KeyedSendQueue if limits.batch_by_key else SendQueue
        return kind(limits, next_sequence_id, self._wake, self._clock.monotonic, self._explain_pending)

    def _apply_first_opening(self, answer: ProducerOpened) -> None:
        if self._options.initial_sequence_id is None:
            self.last_sequence_id = answer.last_sequence_id
        limits = self._limits
        if 0 < answer.max_message_bytes < limits.max_message_bytes:
            limits = replace(limits, max_message_bytes=answer.max_message_bytes)
        self.queue = self._create_queue(limits, self.last_sequence_id + 1)
        self.producer_name = self._shared.producer_name = answer.producer_name
        self.was_opened = True

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
                message.complete()
                self._complete_batch(message.batch, whole)
            return
        message.complete()
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
                flush.add_result(entry, error, self._in_flight)
            self._flushes = [flush for flush in self._flushes if not flush.done.done()]

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

    def _fail_expired(self, timeout_s: float) -> None:
        """Fail all messages, also those of the open batch, since the oldest one has had no result for that long."""
        self.queue.close_batch_soon()
        self._take_batches()
        reason, now = self._explain_pending() or "the producer is connected", self._clock.monotonic()
        for entry in self._in_flight.remove_unanswered():
            which = "" if entry.opened_at + timeout_s <= now else "for an earlier message "
            known = "the message may be stored" if entry.may_be_stored else "the message is not stored"
            text = f"no result {which}within {timeout_s:g} s (send_timeout_millis); {known}; {reason}"
            self._complete(entry, exceptions.Timeout(text))

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
            flush = _Flush(self._last_serial)
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
        timeout_s = self._options.send_timeout_millis / 1000 or self._client.operations.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_for_results()
        except (MagnetarException, TimeoutError) as error:
            reason = str(error) or f"no result within {timeout_s:g} s"
            log.warning("producer %s on %s is closed with failed messages: %s", self.producer_name, self.topic, reason)
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
        was_open = self._open
        self._leave()
        if was_open and self._answer is not None and not self._answer.done():
            self._answer.set_result(None)  # `_close_at_broker` waits for it, and it will not come

    def forked(self, error: MagnetarException) -> None:
        """Close the producer in a child. Locks and futures are the parent's, in whatever state the fork met them, so
        they are replaced."""
        self._closing, self._open, self._stream = True, False, None
        self._in_flight, self._flushes = InFlight(), []
        self._answer = self._reopening = self._batch_timer = None
        self.queue = self._create_queue(self._limits, 0)
        self.queue.close(error)


def _unknown(error: MagnetarException) -> MagnetarException:
    """Return the error of a message that may have been stored before the error that ended the producer."""
    return exceptions.ConnectError(
        f"whether the message is stored is not known: the connection was lost before its result, and now {error}"
    )


class _Flush:
    """Waits until all batches and chunks up to this serial number are completed."""

    def __init__(self, last_serial: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last_serial = last_serial
        self._error: MagnetarException | None = None

    def add_result(self, entry: OutgoingEntry, error: MagnetarException | None, left: InFlight) -> None:
        if entry.serial > self._last_serial:
            return
        self._error = self._error or error
        if not left.has_up_to(self._last_serial) and not self.done.done():
            if self._error is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(type(self._error)(*self._error.args))


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
