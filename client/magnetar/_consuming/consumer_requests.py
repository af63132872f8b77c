"""The requests of a consumer of one topic or partition, until they are sent, and until they are answered."""

from __future__ import annotations

import asyncio
from typing import Final

from magnetar._acknowledging.pending_acks import EpochTracker, PendingAcks, make_ranges
from magnetar._consuming.consume_stream import RequestBuilder
from magnetar._errors import from_problem
from magnetar.exceptions import ConnectError
from magnetar_protos.broker_pb2 import (
    CloseConsumer,
    ConsumeRequest,
    Done,
    Flow,
    OpenConsumer,
    Redeliver,
    Seek,
    Unsubscribe,
)

__all__ = ["OutboundRequests", "PendingRequests"]

# The size of a small part of a request, about.
_SMALL_BYTES: Final = 24


class OutboundRequests:
    """What a consumer has to send. The stream asks for it when it builds a message.

    Within one message, acknowledgements take effect before anything that causes a redelivery. So as long as there are
    acknowledgements that don't fit, everything behind them waits for the next message.
    """

    def __init__(self, acks: PendingAcks, pending: PendingRequests) -> None:
        self._acks = acks
        self._pending = pending
        self.opening: OpenConsumer | None = None
        # Ledger and entry ids to be redelivered; None: everything that is not acknowledged.
        self.redeliver: dict[tuple[int, int], None] | None = {}
        self.permits = 0
        self.is_closing = False

    def start_epoch(self) -> None:
        """Drop what belongs to the last epoch. Only acknowledgements are sent of an epoch that is over."""
        self.redeliver = {}
        self.permits = 0

    def fill(self, builder: RequestBuilder, consumer_id: int, epochs: EpochTracker | None) -> bool:
        """Add everything that fits; False: there is more. Without epochs the consumer is not opened yet."""
        request = builder.request
        if self.opening is not None:
            request.open.append(self.opening)
            builder.count(1, self.opening.ByteSize())
            self.opening = None
        if epochs is None:
            return True
        while not builder.is_full and (ack := self._acks.pop_request(consumer_id, epochs)) is not None:
            request.acknowledge.append(ack)
            builder.count(1 + len(ack.entries) + len(ack.messages), ack.ByteSize())
        if self._acks.has_unsent:
            return False
        if not self._fill_redeliver(builder, consumer_id, epochs):
            return False
        builder.count(self._pending.fill(request), 0)
        if self.permits:
            request.flow.append(Flow(consumer_id=consumer_id, epoch=epochs.number, permits=self.permits))
            builder.count(1, _SMALL_BYTES)
            self.permits = 0
        if self.is_closing:
            self.is_closing = False
            request.close.append(CloseConsumer(consumer_id=consumer_id))
            builder.count(1, _SMALL_BYTES)
        return True

    def _fill_redeliver(self, builder: RequestBuilder, consumer_id: int, epochs: EpochTracker) -> bool:
        if self.redeliver is not None and not self.redeliver:
            return True
        if builder.is_full:
            return False
        positions = sorted(self.redeliver or ())
        # Each position is at most one range.
        now, later = positions[: builder.parts_left], positions[builder.parts_left :]
        by_ledger: dict[int, list[int]] = {}
        for ledger_id, entry_id in now:
            by_ledger.setdefault(ledger_id, []).append(entry_id)
        ranges = list(make_ranges(by_ledger))
        builder.request.redeliver.append(Redeliver(consumer_id=consumer_id, epoch=epochs.number, entries=ranges))
        builder.count(1 + len(ranges), _SMALL_BYTES * len(ranges))
        self.redeliver = dict.fromkeys(later)
        return not later


class PendingRequests:
    """Seeks and the deletion of the subscription, until the broker answers them.

    If the connection breaks before the answer, the outcome is unknown. Both can be repeated: the subscription is the
    same afterwards.
    """

    def __init__(self) -> None:
        self._outbox: list[Seek | Unsubscribe] = []
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._unsubscribe_id = 0
        # The broker has deleted the subscription.
        self.is_unsubscribed = False

    def add_request(self, request: Seek | Unsubscribe, consumer_id: int, request_id: int) -> asyncio.Future[None]:
        """Return the answer. It raises the broker's error, or ConnectError if the outcome is unknown."""
        request.consumer_id, request.request_id = consumer_id, request_id
        if isinstance(request, Unsubscribe):
            self._unsubscribe_id = request_id
        self._outbox.append(request)
        answer = self._answers[request_id] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: self._answers.pop(request_id, None))
        return answer

    def fill(self, message: ConsumeRequest) -> int:
        """Add the requests to the message, and return their number."""
        count = len(self._outbox)
        for request in self._outbox:
            if isinstance(request, Seek):
                message.seek.append(request)
            else:
                message.unsubscribe.append(request)
        self._outbox = []
        return count

    def handle_done(self, answer: Done) -> None:
        """Complete the answer of a request."""
        failed = answer.HasField("problem")
        if answer.request_id == self._unsubscribe_id and not failed:
            self.is_unsubscribed = True  # at once, since the broker may report next that the consumer is closed
        future = self._answers.get(answer.request_id)
        if future is not None and not future.done():
            if failed:
                future.set_exception(from_problem(answer.problem))
            else:
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """The connection broke: there will be no answers."""
        self._outbox = []
        for future in list(self._answers.values()):
            if not future.done():
                future.set_exception(ConnectError(f"the connection was lost before the broker answered: {error}"))
