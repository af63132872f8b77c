"""A connected consumer of a subscription, and the interface to its client.

The stream's session calls `Consumer` for each request of the client. The subscription calls `ConsumerSink`, which the
session implements, to send to the client; these calls never wait. A session whose `capacity_bytes` returns 0 or less
calls `Consumer.on_capacity` once it has capacity again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from magnetar_broker.counters import DeliveryCounters
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.topics.dispatch.consumer_state import ConsumerState, Outlet
from magnetar_protos.broker_pb2 import Acknowledge, EntryRange, MessagePlace, OpenConsumer, Problem, StartAt

if TYPE_CHECKING:
    from magnetar_broker.topics.ack_receipts import ReceiptDone
    from magnetar_broker.topics.subscription import Subscription

__all__ = ["Consumer", "ConsumerSink", "DeliveryRun"]


@dataclass(slots=True)
class DeliveryRun:
    """Consecutive entries of one ledger that are delivered with the same epoch and redelivery count."""

    epoch: int
    redelivery_count: int
    # The acknowledged messages of a run that is one batch, as in `Delivery`.
    acknowledged: bytes
    entries: list[LogEntry]
    memory_bytes: int


class ConsumerSink(Outlet, Protocol):
    @property
    def address(self) -> str:
        """The client's address, for statistics."""

    @property
    def broken(self) -> bool:
        """Whether the stream or the session's part of the consumer is closed, before the consumer has left."""

    async def check_alive(self) -> bool:
        """Return whether the client is alive, as far as can be determined. If it is not, the consumer has left."""

    def opened(self, consumer: Consumer) -> None:
        """Report that the consumer is open. This is the first call."""

    def deliver(self, runs: Sequence[DeliveryRun]) -> None: ...

    def epoch_began(self, consumer: Consumer) -> None: ...

    def active_changed(self, active: bool) -> None: ...

    def ended(self, problem: Problem | None) -> None:
        """Report that the consumer has left. This is the last call."""


class Consumer:
    """A consumer that `Subscriptions.subscribe` opened."""

    __slots__ = ("connected_since_ms", "counters", "properties", "sink", "state", "subscription")

    def __init__(
        self, subscription: Subscription, state: ConsumerState, sink: ConsumerSink, opened: OpenConsumer, now_ms: int
    ) -> None:
        self.subscription = subscription
        self.state = state
        self.sink = sink
        self.counters = DeliveryCounters()
        self.properties = dict(opened.properties)
        self.connected_since_ms = now_ms

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def acknowledged_from(self) -> int:
        return self.state.acknowledged_from

    @property
    def active(self) -> bool:
        return self.subscription.is_active(self)

    @property
    def left(self) -> bool:
        return not self.subscription.has(self)

    @property
    def incarnation(self) -> str:
        return self.subscription.incarnation

    @property
    def moves(self) -> int:
        return self.subscription.moves

    def behind(self) -> MessagePlace | None:
        """Of one that is not Shared: all that is delivered in this epoch lies behind this place."""
        return self.subscription.behind()

    def flow(self, epoch: int, permits: int) -> None:
        self.subscription.flow(self, epoch, permits)

    def acknowledge(self, request: Acknowledge, *, active_only: bool = True) -> None:
        """Counts at once. `active_only`: refuse it while another consumer of the subscription is served instead of this
        one. Raises `BrokerError` where it does not count."""
        self.subscription.acknowledge(self, request, active_only=active_only)

    def when_saved(self, done: ReceiptDone) -> None:
        """Calls `done` when all that was acknowledged before is durable, or with what went wrong."""
        self.subscription.receipts.add(done)

    def redeliver(self, epoch: int, entries: Sequence[EntryRange]) -> None:
        """Raises `BrokerError` where the ranges are none."""
        self.subscription.redeliver(self, epoch, entries)

    async def seek(self, to: StartAt, moves: int | None = None) -> None:
        """Durable when it returns; the new epoch has been told by then. `moves`: refused if the subscription was moved
        since it had these. Raises `BrokerError`."""
        await self.subscription.seek_for(self, to, moves)

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Deletes the subscription; this consumer has left it then. `force`: also from under other consumers. Raises
        `BrokerError`."""
        await self.subscription.unsubscribe_for(self, force=force)

    def batch_size(self, position: Position) -> int | None:
        """Of the entry there, 0: it is no batch, or there is none; None: it is not at hand."""
        return self.subscription.batch_size(position)

    async def find_batch_sizes(self, positions: Sequence[Position]) -> list[int]:
        """The same, waited for. Raises `BrokerError`."""
        return await self.subscription.find_batch_sizes(positions)

    def last_before(self, ledger_id: int) -> Position | None:
        """The topic's last entry in front of that ledger; None: there is none (any more)."""
        return self.subscription.last_before(ledger_id)

    def on_capacity(self) -> None:
        """Deliver more entries: the sink has capacity again."""
        self.subscription.on_capacity(self)

    def leave(self) -> None:
        """Remove the consumer, as its client closed it or disconnected. Its sink gets no more calls. Messages that it
        has not acknowledged go to other consumers."""
        self.subscription.leave(self)
