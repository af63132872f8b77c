"""A producer on one topic that has no partitions, or on one partition: its life on the client's event loop.

    look up the owner ──► its link ──► OpenProducer ──opened──► send, receive receipts
         ▲                                 │                            │
         └───────── after a pause ─────────┴─── disconnected, or ended ─┘   (at once, if it was open for a while)

Messages come through its `SendQueue` and are held by its `InFlight` until they are answered. While there is no opening
they wait; with each opening all of them are sent again, in order, under a connection epoch above all before, and an
`instance` that tells the broker that it is the same producer: the broker drops what an earlier epoch left on its way.

**What ends a producer** after it was opened once: what a broker says will not change by asking again. A topic that was
deleted does not: what was pending belonged to it and fails with `IncarnationChanged`, and the producer goes on with the
topic that is there now, or made on its request; where there is none and none may be made, it ends with `TopicNotFound`.
Its name is its own as long as it lives; should another producer have taken it meanwhile, it asks until that is free.

Whoever waits for a message's receipt is told on the loop; callbacks go to the thread of callbacks.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from magnetar import exceptions
from magnetar._batch import Batch
from magnetar._client_core import ClientCore
from magnetar._errors import from_problem, from_transport, is_retryable
from magnetar._expiry import Expiry
from magnetar._in_flight import InFlight
from magnetar._operations import CLOSE_TIMEOUT_S, Backoff
from magnetar._options import ProducerOptions
from magnetar._produce_stream import ProduceStream
from magnetar._receipts import Flush, Place, call_back, tell_waiters
from magnetar._send_queue import Bounds, SendQueue
from magnetar.exceptions import AlreadyClosed, MagnetarException
from magnetar_protos.broker_pb2 import EntryRefused, OpenProducer, Problem, ProducerOpened, Receipt
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.clock import Timer
from magnetar_wire.errors import TooLarge, WireError
from magnetar_wire.frame import FrameBuilder
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import TransportError

__all__ = ["PartitionProducer"]

log = logging.getLogger(__name__)


class PartitionProducer:
    def __init__(self, client: ClientCore, topic: TopicName, options: ProducerOptions, bounds: Bounds) -> None:
        self.topic = str(topic)
        self.producer_name = options.producer_name or ""
        # The highest that is known to be stored.
        self.last_sequence_id = -1 if options.initial_sequence_id is None else options.initial_sequence_id
        self._partition = topic.partition_index
        self._client = client
        self._clock = client.clock
        self._options = options
        self._bounds = bounds
        # It was opened once: then it is known what the first message's number is, and `queue` is the one that counts.
        self.begun = False
        self.queue: SendQueue = SendQueue(bounds, 0, self._wake, self._clock.monotonic)
        self._in_flight = InFlight()
        self._instance = client.randomness.token(16)
        self._epoch = 0
        self._incarnation = ""
        # What all entries have in common.
        self._shared = MessageMetadata()
        # The present opening: its link, and its id there, 0 without one; and whether the broker has agreed to it.
        self._link: ProduceStream | None = None
        self._id = 0
        self._open = False
        # The broker has paused this opening: its topic has no room.
        self._paused = False
        # Why the topic stores nothing at present, as the broker says, also while it opens the producer; empty: it does.
        self._waiting_for = ""
        # Why there is no opening; None: there is one, or nothing has failed yet.
        self._problem: MagnetarException | None = None
        self._opened_at = 0.0
        # Receipts have come since.
        self._got_on = False
        self._backoff = Backoff(client.randomness)
        # What whoever opens, or closes, waits for.
        self._answer: asyncio.Future[None] | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        # It is not opened again.
        self._over = False
        self._take_timer: Timer | None = None
        self._expiry = Expiry(self._in_flight, self._clock, options.send_timeout_millis / 1000, self._expired)
        self._flushes: list[Flush] = []
        self._last_serial = 0

    @property
    def connected(self) -> bool:
        return self._open

    async def open(self) -> None:
        """For the first time. Raises what the broker says, and, after the operation's time, what is in the way."""
        try:
            await self._client.operations.retry(self._open_once)
        except BaseException:
            self._leave()
            raise

    async def _open_once(self) -> None:
        address = await self._client.lookup.find_owner(self.topic, was_open=self.begun)
        answer = self._answer = asyncio.get_running_loop().create_future()
        self._waiting_for = ""
        self._epoch += 1
        request = OpenProducer(
            topic=self.topic,
            producer_name=self.producer_name,
            instance=self._instance,
            connection_epoch=self._epoch,
            incarnation=self._incarnation,
            properties=dict(self._options.properties),
        )
        try:
            self._link = self._client.pool.stream(address, ProduceStream)
            self._id = self._link.open(self, request)
        except TransportError as error:
            raise from_transport(error) from error
        try:
            await self._client.lookup.wait_opened(
                answer, self.topic, address, "a producer", lambda: self._why_nothing_is_stored
            )
        finally:
            if not self._open:
                self._leave()

    def opened(self, answer: ProducerOpened) -> None:
        if self._open or self._answer is None or self._answer.done():
            return
        if not self.begun:
            self._begin(answer)
        self._incarnation = answer.incarnation
        self._open, self._paused, self._problem = True, False, None
        self._opened_at, self._got_on = self._clock.monotonic(), False
        self._answer.set_result(None)
        self._ready()

    def _begin(self, answer: ProducerOpened) -> None:
        """The first opening."""
        if self._options.initial_sequence_id is None:
            self.last_sequence_id = answer.last_sequence_id
        bounds = self._bounds
        if 0 < answer.max_message_bytes < bounds.max_message_bytes:
            bounds = Bounds(
                bounds.pending_messages,
                bounds.pending_bytes,
                bounds.batch_messages,
                bounds.batch_bytes,
                bounds.delay_s,
                answer.max_message_bytes,
            )
        self.queue = SendQueue(bounds, self.last_sequence_id + 1, self._wake, self._clock.monotonic)
        self.producer_name = self._shared.producer_name = answer.producer_name
        self.begun = True

    def _opening_failed(self, error: MagnetarException) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def _leave(self) -> None:
        """Ends the opening, or the attempt at one. What it sent and has no answer to is to be sent again."""
        link, self._link, channel_id, self._id = self._link, None, self._id, 0
        self._open = False
        if link is not None:
            link.close(channel_id)
            link.detach(channel_id)
        self._in_flight.send_again()

    def _wake(self) -> None:
        self._client.call_soon(self._take)

    def _take(self) -> None:
        """What has come through the queue."""
        clock = self._clock
        batches, due = self.queue.take(clock.monotonic())
        self._add(batches)
        if due is not None and self._take_timer is None:
            self._take_timer = clock.call_later(max(0.0, due - clock.monotonic()), self._take_due)

    def _add(self, batches: list[Batch]) -> None:
        for batch in batches:
            self._last_serial = batch.serial = self._last_serial + 1
            self._in_flight.add(batch)
        if batches:
            self._ready()
            self._expiry.watch()

    def _take_due(self) -> None:
        self._take_timer = None
        self._take()

    def _ready(self) -> None:
        if self._sends and self._link is not None and self._in_flight.first_waiting() is not None:
            self._link.ready(self._id)

    @property
    def _sends(self) -> bool:
        return self._open and not self._paused

    def set_flow(self, paused: bool, waiting_for: str) -> None:
        self._paused, self._waiting_for = paused, waiting_for
        self._ready()

    @property
    def _why_nothing_is_stored(self) -> str:
        return f"the topic waits: {self._waiting_for}" if self._waiting_for else ""

    def fill(self, builder: FrameBuilder) -> bool:
        in_flight = self._in_flight
        while self._sends and (batch := in_flight.first_waiting()) is not None:
            try:
                entry = batch.encode(self._shared, self._clock.time_ms(), self._options.compression_type)
            except TooLarge as error:
                self._finish(in_flight.drop_first(), exceptions.MessageTooBig(str(error)))
                continue
            except WireError as error:
                self._finish(in_flight.drop_first(), exceptions.InvalidMessage(str(error)))
                continue
            if not builder.add(self._id, in_flight.next_number, entry):
                return False
            in_flight.first_is_sent()
        return True

    def received(self, receipt: Receipt) -> None:
        self._got_on = True
        known = receipt.ledger_id >= 0
        for offset, batch in self._in_flight.received(receipt.first, receipt.count):
            entry_id = receipt.first_entry_id + offset if known else -1
            self._finish(batch, Place(self.topic, self._partition, receipt.ledger_id, entry_id))

    def refused(self, refusal: EntryRefused) -> None:
        batch = self._in_flight.refused(refusal.number)
        if batch is not None:
            self._finish(batch, from_problem(refusal.problem))

    def disconnected(self, error: TransportError) -> None:
        self._link = None
        self._lost(from_transport(error))

    def ended(self, problem: Problem | None) -> None:
        self._link = None
        if problem is None:
            self._lost(exceptions.AlreadyClosed(f"the producer {self.producer_name} was closed by the broker"))
        else:
            self._lost(from_problem(problem))

    def _lost(self, error: MagnetarException) -> None:
        """The opening, or the attempt at one, is over."""
        was_open, self._open, self._id = self._open, False, 0
        self._in_flight.send_again()
        if not was_open or self._over:  # `_open_once`, or `close`, goes on
            self._opening_failed(error)
            return
        self._react(error)
        if self._got_on and not isinstance(error, exceptions.TooManyLookupRequestException):
            self._backoff.reset()  # it pauses, and for longer only where nothing, or too much, gets through
        if not self._over:
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    def _react(self, error: MagnetarException) -> None:
        """What the application is told of an opening that ended, or could not be made again."""
        self._problem = error
        if self._incarnation and isinstance(error, exceptions.IncarnationChanged | exceptions.TopicNotFound):
            log.warning("topic %s was deleted: what was pending fails, and the next one is asked for", self.topic)
            self._incarnation = ""
            self._fail_all(exceptions.IncarnationChanged(str(error)))
        elif not (is_retryable(error) or isinstance(error, exceptions.ProducerBusy | exceptions.Timeout)):
            log.error("producer %s on %s ends: %s", self.producer_name, self.topic, error)
            self.end(error)

    async def _reconnect(self) -> None:
        if pause_s := self._backoff.after(self._clock.monotonic() - self._opened_at):
            await self._clock.sleep(pause_s)
        while not self._over:
            try:
                await self._open_once()
                return
            except MagnetarException as error:
                log.info("producer %s on %s is not connected: %s", self.producer_name, self.topic, error)
                self._react(error)
            if not self._over:
                await self._clock.sleep(self._backoff.next())

    def _finish(self, batch: Batch, outcome: Place | MagnetarException) -> None:
        """It is decided: tells everybody, and makes room."""
        error = outcome if isinstance(outcome, MagnetarException) else None
        if error is None:
            self.last_sequence_id = max(self.last_sequence_id, batch.last_sequence_id)
        tell_waiters(batch, outcome)
        calling = batch.callbacks is not None
        self.queue.released(batch.count, batch.bytes, uncalled=calling)
        if calling:
            self._client.callbacks.call_later(partial(self._call, batch, outcome))
        if self._flushes:
            for flush in self._flushes:
                flush.decided(batch, error)
            self._flushes = [flush for flush in self._flushes if flush.left]

    def _call(self, batch: Batch, outcome: Place | MagnetarException) -> None:
        """On the thread of callbacks."""
        try:
            call_back(batch, outcome)
        finally:
            self.queue.called(batch.count, batch.bytes)

    def _fail_all(self, error: MagnetarException) -> None:
        for batch in self._in_flight.take_all():
            self._finish(batch, error)

    def _expired(self, batches: list[Batch], timeout_s: float) -> None:
        state, reason = "is connected", self._why_nothing_is_stored
        if not self._open:
            state, reason = "is not connected", str(self._problem or "")
        why = f"{state}: {reason}" if reason else state
        text = f"no receipt within {timeout_s:g} s (send_timeout_millis); it may be stored; the producer {why}"
        for batch in batches:
            self._finish(batch, exceptions.Timeout(text))

    async def flush(self, *, in_callback: bool = False) -> None:
        """Returns when all that was sent before is decided, and its callbacks were called (but to a callback).

        Raises the first error that any of it met.
        """
        self.queue.check_open()
        self.queue.hurry()
        self._take()
        failure: MagnetarException | None = None
        try:
            await self._decided()
        except MagnetarException as error:
            failure = error
        if self.queue.calling and not in_callback:
            called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._client.callbacks.call_later(lambda: self._client.call_soon(partial(_set, called)))
            await called
        if failure is not None:
            raise failure

    async def _decided(self) -> None:
        if len(self._in_flight):
            flush = Flush(self._last_serial, len(self._in_flight))
            self._flushes.append(flush)
            await flush.done

    async def close(self) -> None:
        """Sends what is pending, waits for its receipts, and leaves. Pending sends fail after the send time-out (after
        the operation's time, if there is none); that they are all decided is told a broker that answers, and not waited
        for with one that does not."""
        self._add(self.queue.end(AlreadyClosed(f"the producer {self.producer_name} on {self.topic} is closed")))
        try:
            async with asyncio.timeout(self._options.send_timeout_millis / 1000 or self._client.operations.timeout_s):
                await self._decided()
        except (MagnetarException, TimeoutError) as error:
            log.warning("producer %s on %s closes with sends that failed: %s", self.producer_name, self.topic, error)
        finally:
            await self._closed()

    async def _closed(self) -> None:
        self._over = True
        try:
            if self._open and self._link is not None:
                self._answer = asyncio.get_running_loop().create_future()
                self._link.close(self._id)
                await self._client.operations.wait_for(self._answer, "the broker has not closed it", CLOSE_TIMEOUT_S)
        except MagnetarException as error:  # it is gone, or will be with its connection
            log.debug("producer %s on %s is closed: %s", self.producer_name, self.topic, error)
        finally:
            self.end(AlreadyClosed(f"the producer {self.producer_name} on {self.topic} is closed"))

    def end(self, error: MagnetarException) -> None:
        """At once: everything pending fails, and whoever sends meets the error."""
        self._over = True
        self._add(self.queue.end(error))
        self._fail_all(error)
        self._expiry.stop()
        if self._take_timer is not None:
            self._take_timer.cancel()
            self._take_timer = None
        if self._reconnecting is not None and self._reconnecting is not asyncio.current_task():
            self._reconnecting.cancel()
        self._leave()

    def forked(self, error: MagnetarException) -> None:
        """In a child: locks and futures are as they happened to be, and the parent's."""
        self._over, self._open, self._link = True, False, None
        self._in_flight, self._flushes = InFlight(), []
        self._answer = self._reconnecting = self._take_timer = None
        self.queue = SendQueue(self._bounds, 0, self._wake, self._clock.monotonic)
        self.queue.end(error)

    async def wait_ended(self) -> None:
        """Returns when an ended producer's tasks have ended."""
        if self._reconnecting is not None:
            await asyncio.wait([self._reconnecting])


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
