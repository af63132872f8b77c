"""Opens a partition's producer at the broker that has the topic, and reopens it until it is closed.

    look up the owner ──► its stream ──► OpenProducer ──opened──► send entries, get results
         ▲                                   │                            │
         └────────── after a pause ──────────┴─── disconnected, or ended ─┘   (at once, if it was open for a while)

While the producer is not open, its messages wait in `InFlight`. With each opening all of them are resent, in order,
with a higher connection epoch and the same `instance`, by which the broker recognizes the producer: it drops entries of
earlier epochs that are still in flight.

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
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, cast

from magnetar import exceptions
from magnetar._client_core import ClientCore, client_version
from magnetar._connections.broker_stream import check_open_size
from magnetar._connections.operations import Backoff
from magnetar._enums import ProducerAccessMode
from magnetar._errors import from_problem, from_transport, is_retryable
from magnetar._options import ProducerOptions
from magnetar._producing.in_flight import InFlight
from magnetar._producing.produce_stream import ProduceStream
from magnetar._values.value_encoder import to_wire
from magnetar.exceptions import AlreadyClosed, MagnetarException
from magnetar_protos.broker_pb2 import EntryRefused, OpenProducer, Problem, ProducerOpened, Receipt
from magnetar_protos.broker_pb2 import ProducerAccessMode as WireAccessMode
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.frame import FrameBuilder
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import TransportError

__all__ = ["ReconnectingProducer"]

log = logging.getLogger(__name__)
# A broker that ends an opening with these has stored nothing that it has not reported.
_NOT_STORED: Final = (
    exceptions.TopicTerminated,
    exceptions.ProducerBlockedQuotaExceededError,
    exceptions.ProducerBlockedQuotaExceededException,
)
_EXCLUSIVITY_LOST: Final = (
    exceptions.ProducerFenced,
    exceptions.IncarnationChanged,
    exceptions.TopicNotFound,
)


class ReconnectingProducer(ABC):
    """A `ProduceChannel` of the stream by which it is connected. What it sends is up to `PartitionProducer`."""

    def __init__(
        self,
        client: ClientCore,
        topic: TopicName,
        options: ProducerOptions,
        report_growth: Callable[[int], object],
        on_lost_exclusivity: Callable[[MagnetarException], object],
    ) -> None:
        """`report_growth` is called with the number of partitions if the topic has more; with 0 if that may be so.

        `on_lost_exclusivity` is called if an exclusive producer was open, and another one may have been admitted.
        """
        self.topic = str(topic)
        # The topic's epoch. It is set before the first opening to present the one that the first partition has.
        self.topic_epoch: int | None = None
        # The epoch of the first partition that is to be exceeded, if the one that was presented was refused.
        self.current_epoch: int | None = None
        self.producer_name = options.producer_name or ""
        # The topic has this subscription before the first message is stored; empty: it need not have any.
        self.initial_subscription = ""
        # Whether it was ever open.
        self.was_opened = False
        self._client = client
        self._clock = client.clock
        self._partition = topic.partition_index
        self._options = options
        self._report_growth = report_growth
        self._on_lost_exclusivity = on_lost_exclusivity
        self._in_flight = InFlight()
        self._access_mode = options.access_mode
        # The broker has answered that this attempt at the opening waits for its turn, or an earlier one.
        self._is_queued = self._was_queued = False
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
        # Messages have failed because of a backlog quota since it was open, and that was logged.
        self._has_logged_quota = False
        # It is closed, or about to be, and is not reopened.
        self._closing = False

    # What it sends.

    @abstractmethod
    def _apply_first_opening(self, answer: ProducerOpened) -> None:
        """Take over what the broker has decided, before any message is sent."""

    @abstractmethod
    def _mark_ready(self) -> None:
        """Have the stream call `fill`, if there is something to send."""

    @abstractmethod
    def fill(self, builder: FrameBuilder) -> bool: ...

    @abstractmethod
    def received(self, receipt: Receipt) -> None: ...

    @abstractmethod
    def refused(self, refusal: EntryRefused) -> None: ...

    @abstractmethod
    def _fail_pending(self, error: MagnetarException) -> None:
        """Fail all messages that have no result."""

    @abstractmethod
    def end(self, error: MagnetarException) -> None:
        """End at once. Pending messages fail, and later sends raise the error."""

    # Opening.

    @property
    def connected(self) -> bool:
        return self._open

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
            initial_subscription=self.initial_subscription,
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
                self._stream,
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
        self._has_logged_quota = False
        self._opened_at, self._made_progress = self._clock.monotonic(), False
        self._answer.set_result(None)
        self._mark_ready()

    def _leave(self) -> None:
        """End the opening, or the attempt at one. Batches that were sent and not answered are to be resent."""
        stream, self._stream, channel_id, self._channel_id = self._stream, None, self._channel_id, 0
        self._open = False
        if stream is not None:
            stream.close(channel_id)
            stream.detach(channel_id)
        self._in_flight.requeue_sent()

    def set_flow(self, paused: bool, waiting_for: str) -> None:
        self._paused, self._waiting_for = paused, waiting_for
        self._mark_ready()

    def topic_grew(self, partitions: int) -> None:
        self._report_growth(partitions)

    # When an opening ends.

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
            if len(self._in_flight) and not self._has_logged_quota:
                self._has_logged_quota = True
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

    async def wait_ended(self) -> None:
        """Return when an ended producer's tasks have ended."""
        if self._reopening is not None:
            await asyncio.wait([self._reopening])

    @property
    def _waiting_reason(self) -> str:
        return f"the topic waits: {self._waiting_for}" if self._waiting_for else ""

    def _explain_pending(self) -> str:
        """Return why messages are not stored at present. Empty: no reason is known. Any thread may call this."""
        if not self._open:
            return (
                f"the producer is not connected: {self._last_error}"
                if self._last_error
                else "the producer is not connected"
            )
        return f"the producer is connected: {self._waiting_reason}" if self._waiting_reason else ""
