"""A connected consumer of a subscription, and the interface to its client.

    the client's stream or connection ──requests──► Consumer ──► Subscription
                                      ◄──────────── ConsumerSink ◄──┘

Both listeners call `Consumer` for each request of the client, and implement `ConsumerSink`, which sends to the client:
`server/grpc/stream_consumer.py` and `server/pulsar/consumer.py`. Its calls never wait: `outbox_capacity` bounds what is
delivered to it.

A `Consumer` passes requests to its `Subscription`, which knows the other consumers and the cursor, so the two modules
refer to each other. This one imports the other for the type checker only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from magnetar_broker.counters import DeliveryCounters
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.position import Position
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.delivery_capacity import Deliverable, OutboxCapacity
from magnetar_broker.topics.dispatch.key_shared_policy import read_key_shared_options
from magnetar_broker.topics.topic_schemas import takes_any_schema
from magnetar_protos.broker_pb2 import (
    Acknowledge,
    EntryRange,
    OpenConsumer,
    Problem,
    StartAt,
    StartMessageId,
    SubscriptionType,
)
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES

if TYPE_CHECKING:
    from magnetar_broker.cursors.cursor import SaveDone
    from magnetar_broker.topics.subscription import Subscription

__all__ = ["MAX_CLIENT_VERSION_LENGTH", "Consumer", "ConsumerSink", "DeliveryRun"]

# Longer ones are truncated: they are for statistics only.
MAX_CLIENT_VERSION_LENGTH: Final = 100


@dataclass(slots=True)
class DeliveryRun:
    """Ascending entries of one ledger that are delivered with the same epoch and redelivery count."""

    epoch: int
    redelivery_count: int
    # The acknowledged messages of a batch, as in `Delivery`: then the run is this entry alone. Empty: there are none.
    acknowledged: bytes
    entries: list[LogEntry]
    # What the entries use of the outbox (`OutboxCapacity`).
    memory_bytes: int


class ConsumerSink(Protocol):
    @property
    def address(self) -> str:
        """The client's address, for statistics."""

    @property
    def outbox_capacity(self) -> OutboxCapacity:
        """The capacity of the client's stream or connection, which other consumers share."""

    @property
    def is_broken(self) -> bool:
        """Whether the client can't be reached any more, though the consumer has not left yet."""

    async def check_alive(self) -> bool:
        """Return whether the client is alive, as far as can be determined. If it is not, the consumer has left."""

    def opened(self, consumer: Consumer) -> None:
        """Report that the consumer is open. This is the first call."""

    def deliver(self, runs: Sequence[DeliveryRun]) -> None:
        """Send entries."""

    def epoch_began(self, consumer: Consumer) -> None:
        """Report that the consumer's next epoch has begun, without permits."""

    def active_changed(self, active: bool) -> None:
        """Report that the consumer became the active one of a Failover subscription, or is not any more."""

    def reached_end(self, consumer: Consumer) -> None:
        """Report that the topic is terminated, and that no message is left for the subscription."""

    def topic_grew(self, partitions: int) -> None:
        """Report that the partitioned topic has this many partitions now."""

    def ended(self, problem: Problem | None) -> None:
        """Report that the consumer has left. This is the last call."""


class Consumer(BaseConsumer):
    """A consumer that `Subscriptions.subscribe` opened."""

    __slots__ = (
        "client_version",
        "connected_since_ms",
        "counters",
        "has_reached_end",
        "properties",
        "sink",
        "subscription",
        "takes_any_schema",
    )

    def __init__(
        self, subscription: Subscription, name: str, sink: ConsumerSink, opened: OpenConsumer, now_ms: int
    ) -> None:
        super().__init__(name, opened.priority_level, sink.outbox_capacity)
        if opened.type == SubscriptionType.KEY_SHARED:
            self.key_shared = read_key_shared_options(opened.key_shared)
        self.subscription = subscription
        self.sink = sink
        self.counters = DeliveryCounters()
        self.properties = dict(opened.properties)
        self.client_version = opened.client_version[:MAX_CLIENT_VERSION_LENGTH]
        self.connected_since_ms = now_ms
        # Whether its client decodes each message by the schema of the message's version.
        self.takes_any_schema = takes_any_schema(opened.schema)
        # It was notified in this epoch that it gets no more messages.
        self.has_reached_end = False

    @property
    def active(self) -> bool:
        return self.subscription.is_active(self)

    @property
    def has_left(self) -> bool:
        return not self.subscription.has(self)

    @property
    def incarnation(self) -> str:
        return self.subscription.incarnation

    @property
    def moves_and_take_overs(self) -> int:
        return self.subscription.moves_and_take_overs

    def find_epoch_start(self) -> StartMessageId | None:
        """Return the position after which all messages of this epoch are. None: they may be anywhere (Shared)."""
        return self.subscription.find_epoch_start()

    # Delivery.

    def flow(self, epoch: int, permits: int) -> None:
        """Grant permits."""
        self.subscription.flow(self, epoch, permits)

    def deliver(self, entries: Sequence[Deliverable]) -> None:
        """Send entries to the client, as runs that share a header."""
        epoch = self.epoch
        runs: list[DeliveryRun] = []
        run: DeliveryRun | None = None
        ledger_id = last_entry_id = -1
        messages = size = redelivered = chunks = 0
        for one in entries:
            entry = one.entry
            position = entry.position
            stored_bytes = len(entry.stored)
            messages += entry.messages
            size += stored_bytes
            if entry.chunk is not None:
                chunks += 1
            if one.redelivery_count:
                redelivered += entry.messages
            if (
                run is not None
                and position.entry_id > last_entry_id
                and position.ledger_id == ledger_id
                and one.redelivery_count == run.redelivery_count
                and not one.acknowledged
            ):
                run.entries.append(entry)
                run.memory_bytes += stored_bytes + ENTRY_OVERHEAD_BYTES
            else:
                bits = one.acknowledged.to_bytes((one.acknowledged.bit_length() + 7) // 8, "little")
                run = DeliveryRun(epoch, one.redelivery_count, bits, [entry], stored_bytes + ENTRY_OVERHEAD_BYTES)
                runs.append(run)
                if bits:
                    run = None
            ledger_id, last_entry_id = position
        now_ms = self.subscription.time_ms()
        self.subscription.counters.deliver(messages, len(entries), size, redelivered, now_ms)
        self.counters.deliver(messages, len(entries), size, redelivered, now_ms)
        if chunks:
            self.subscription.counters.chunks += chunks
            self.counters.chunks += chunks
        self.sink.deliver(runs)

    def stop_delivery(self) -> None:
        """Deliver no more, though the consumer has not left yet."""
        self.capacity.stop()

    def on_outbox_capacity(self) -> None:
        self.subscription.recheck(self)

    def redeliver(self, epoch: int, entries: Sequence[EntryRange]) -> None:
        """Redeliver unacknowledged entries. Raises `BrokerError` if a range is not valid."""
        self.subscription.redeliver(self, epoch, entries)

    # Acknowledgement.

    def acknowledge(self, request: Acknowledge, *, active_only: bool = True) -> None:
        """Acknowledge messages, not yet durably: see `when_saved`. `active_only`: refuse it while another consumer is
        active. Raises `BrokerError` if the acknowledgement does not count."""
        self.subscription.acknowledge(self, request, active_only=active_only)

    def when_saved(self, done: SaveDone) -> None:
        """Call `done` when all earlier acknowledgements of the subscription are durable, or with the error."""
        self.subscription.receipts.add(done)

    def find_batch_size_nowait(self, position: Position) -> int | None:
        """Return the number of messages of a batch. 0: it is no batch, or there is no such entry. None: it must be read
        from a bookie (`find_batch_sizes`)."""
        log = self.subscription.log
        if not log.before_first < position <= log.last:
            return 0
        entries = log.read_nowait(position, 1, 1)
        if entries is None:
            return None
        return entries[0].batch_size if entries and entries[0].position == position else 0

    async def find_batch_sizes(self, positions: Sequence[Position]) -> list[int]:
        """Return the number of messages of each batch, as `find_batch_size_nowait` does, and read the entries from
        bookies if necessary. Raises `BrokerError`."""
        entries = await self.subscription.log.read_at(positions)
        return [0 if entry is None else entry.batch_size for entry in entries]

    def find_last_before_ledger(self, ledger_id: int) -> Position | None:
        """Return the topic's last entry before that ledger. None: there is none."""
        log, found = self.subscription.log, None
        at: int | None = log.before_first.ledger_id
        while at is not None and at < ledger_id:
            if (end := log.ledger_end(at)) is not None and end >= 0:
                found = Position(at, end)
            at = log.next_ledger(at)
        return found

    # Changes.

    async def seek(self, to: StartAt, moves_and_take_overs: int | None = None) -> None:
        """Move the subscription. When this returns, that is durable, and the new epoch was reported.
        `moves_and_take_overs`: the last one that the client got; if the subscription was moved since, refuse the seek.
        None: not compared. Raises `BrokerError`."""
        await self.subscription.seek_for(self, to, moves_and_take_overs)

    async def unsubscribe(self, *, force: bool = False) -> None:
        """Delete the subscription, which this consumer leaves. `force`: also if it has other consumers. Raises
        `BrokerError`."""
        await self.subscription.unsubscribe_for(self, force=force)

    def leave(self) -> None:
        """Remove the consumer, as its client closed it or disconnected. Its sink gets no more calls. Messages that it
        has not acknowledged go to other consumers."""
        self.subscription.leave([self])
