"""One connected consumer of a subscription, and the way to it.

`Consumer` is what the stream's session holds: what the client asks for goes in by its methods. `ConsumerSink` is the
session's end for it: what the client is to be told comes out there, always at once and without waiting; a session that
has no room says so through `room`, and calls `room_again` later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from magnetar_broker.core.counters import DeliveryCounters
from magnetar_broker.core.dispatch.consumer_state import ConsumerState, Outlet
from magnetar_broker.core.log_entry import LogEntry
from magnetar_broker.core.position import Position
from magnetar_protos.broker_pb2 import Acknowledge, EntryRange, MessagePlace, OpenConsumer, Problem, StartAt

if TYPE_CHECKING:
    from magnetar_broker.topic.ack_receipts import ReceiptDone
    from magnetar_broker.topic.subscription import Subscription

__all__ = ["Consumer", "ConsumerSink", "DeliveryRun"]


@dataclass(slots=True)
class DeliveryRun:
    """Entries of one ledger whose ids follow each other, and of which the same is said."""

    epoch: int
    redelivery_count: int
    # Of one entry that is a batch: the messages that are done, as in `Delivery`.
    acknowledged: bytes
    entries: list[LogEntry]
    memory_bytes: int


class ConsumerSink(Outlet, Protocol):
    @property
    def address(self) -> str:
        """Whose it is, for those who look."""

    @property
    def broken(self) -> bool:
        """The stream is gone, or has let go of the consumer, though that has not left yet."""

    async def lives(self) -> bool:
        """Whoever consumes is still there, as far as can be told; where not, the consumer has left by now."""

    def opened(self, consumer: Consumer) -> None:
        """Comes first."""

    def deliver(self, runs: Sequence[DeliveryRun]) -> None: ...

    def epoch_began(self, consumer: Consumer) -> None: ...

    def active_changed(self, active: bool) -> None: ...

    def ended(self, problem: Problem | None) -> None:
        """Comes last; the consumer has left."""


class Consumer:
    """`Subscriptions.subscribe` makes it."""

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

    def room_again(self) -> None:
        """The sink had no room, and has some."""
        self.subscription.room_again(self)

    def leave(self) -> None:
        """The client has gone, or closed it: nothing comes to the sink any more. What it had goes to others."""
        self.subscription.leave(self)
