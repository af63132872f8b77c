"""A dispatch rule decides which consumers of a subscription get which entries. There is one per subscription type.

The dispatcher asks `next_read` what to read, reads it, and passes the entries to `assign`, which chooses consumers and
counts the entries as delivered. The dispatcher has left out entries that were acknowledged before.

**The contract** of a rule, which the dispatcher relies on:
- `DispatchRead.positions` ascend: only the first is compared with the mark-delete position.
- Each `assign` delivers, or leaves entries behind it, or the rule waits: `next_read` returns None until another call
  changes that. A rule that returns the same read again is read for ever.
- A rule does not see the cursor. What it must know of acknowledgements is reported to it (`record_acknowledged…`).

    next_read(log) ──DispatchRead──► the log ──entries──► assign(…) ──► [(consumer, entries), …]

In between, consumers may join, leave and acknowledge. A rewind (`ConsumerUpdates.rewound`) makes the dispatcher drop
what it reads.

**Epochs** are numbered through the subscription, so no two epochs of any of its consumers have the same number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from magnetar_broker.managed_ledger.entry_cache import EntryCache
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.position import LedgerRange, Position
from magnetar_broker.settings.delivery import SubscriptionSettings
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.delivery_capacity import Deliverable, ReadSize
from magnetar_wire.delivery_reasons import DeliveryReason

__all__ = [
    "Assignment",
    "ConsumerUpdates",
    "DispatchContext",
    "DispatchLimits",
    "DispatchRead",
    "DispatchRule",
    "create_dispatch_limits",
]


@dataclass(frozen=True, slots=True)
class DispatchLimits:
    max_read_entries: int = 100
    max_read_bytes: int = 5_242_880
    # Shared: the messages that a consumer gets before the next one's turn.
    max_round_robin_messages: int = 20
    # Shared, Key_Shared: messages that are delivered and not acknowledged. 0: no limit.
    max_unacked_per_consumer: int = 50_000
    max_unacked_per_subscription: int = 200_000
    # Key_Shared: how slots are assigned to consumers that do not request theirs, and how many entries may wait.
    key_shared_uses_consistent_hashing: bool = False
    key_shared_points_per_consumer: int = 100
    max_waiting_per_consumer: int = 2_000
    max_waiting_per_subscription: int = 20_000


def create_dispatch_limits(settings: SubscriptionSettings) -> DispatchLimits:
    return DispatchLimits(
        max_read_entries=settings.dispatcher_max_read_batch_size,
        max_read_bytes=settings.dispatcher_max_read_size_bytes,
        max_round_robin_messages=settings.dispatcher_max_round_robin_batch_size,
        max_unacked_per_consumer=settings.max_unacked_messages_per_consumer,
        max_unacked_per_subscription=settings.max_unacked_messages_per_subscription,
        key_shared_uses_consistent_hashing=settings.subscription_key_shared_use_consistent_hashing,
        key_shared_points_per_consumer=settings.subscription_key_shared_consistent_hashing_replica_points,
        max_waiting_per_consumer=settings.key_shared_look_ahead_msg_in_replay_threshold_per_consumer,
        max_waiting_per_subscription=settings.key_shared_look_ahead_msg_in_replay_threshold_per_subscription,
    )


@dataclass(frozen=True, slots=True)
class DispatchContext:
    """What a rule shares with other parts of its topic. Unlike the rule, they survive the subscription's consumers."""

    # The topic's partition; -1: it is not a partition.
    partition: int = -1
    # The broker's cache, for entries that wait in memory.
    cache: EntryCache = field(default_factory=lambda: EntryCache(0))
    # Key_Shared: counts a batch that was read and has messages of several keys.
    count_mixed_batch: Callable[[], object] = lambda: None


@dataclass(slots=True)
class DispatchRead:
    """What to read for the consumers."""

    # These entries, which ascend; if empty, entries from `start` on.
    positions: list[Position]
    start: Position
    max_entries: int
    max_bytes: int
    # The consumer whose capacity was measured for it. None after the dispatcher has waited for entries: then capacity
    # is measured again.
    measured: BaseConsumer | None
    # The consumer that gets all of it: `max_bytes` of its outbox are reserved while the dispatcher waits for entries.
    only_for: BaseConsumer | None = None
    # The entries at `positions`, if the rule has them in memory: then nothing is read. None of them is acknowledged.
    entries: Sequence[LogEntry] = ()


Assignment = tuple[BaseConsumer, Sequence[Deliverable]]


@dataclass(slots=True)
class ConsumerUpdates:
    """Changes that are reported to consumers."""

    # A new epoch has begun for these.
    epochs: list[BaseConsumer] = field(default_factory=list)
    # These became active, or not active.
    active: list[tuple[BaseConsumer, bool]] = field(default_factory=list)
    # Reading continues at another position: entries that are being read must not be assigned.
    rewound: bool = False


class DispatchRule(ABC):
    """The rule of one subscription, from the joining of its first consumer until the last one has left."""

    # Maximum number of consumers that the type allows; 0: no limit.
    max_consumers: ClassVar[int] = 0
    # Whether each consumer gets all entries in order, so that it may acknowledge cumulatively. Then a redelivery is of
    # everything after the mark-delete position; otherwise single entries are redelivered, too.
    delivers_in_order: ClassVar[bool] = False

    def __init__(self, limits: DispatchLimits, mark_delete: Position, context: DispatchContext | None = None) -> None:
        self.limits = limits
        self.context = context or DispatchContext()
        # In the order in which they joined.
        self.consumers: list[BaseConsumer] = []
        # All entries before it were read. Some of them may wait for redelivery.
        self.read_position = mark_delete.next
        self._read_size = ReadSize(limits.max_read_entries)
        self._joined = 0
        self._epoch = 0

    def set_limits(self, limits: DispatchLimits) -> None:
        self.limits = limits

    # Consumers.

    def join(self, consumer: BaseConsumer, mark_delete: Position) -> ConsumerUpdates:
        """Add a consumer. Its first epoch begins, without permits. Raises `BrokerError` if it can't join; then nothing
        has changed."""
        consumer.number = self._joined
        self._joined += 1
        consumer.begin_epoch(self._next_epoch(), acknowledgements_end=True)
        self.consumers.append(consumer)
        return self._consumers_changed(mark_delete, consumer)

    def leave(self, consumers: Iterable[BaseConsumer], mark_delete: Position) -> ConsumerUpdates:
        """Remove consumers that leave together. Their unacknowledged entries are redelivered to others."""
        leaving = dict.fromkeys(consumers)
        for consumer in leaving:
            consumer.capacity.stop()
        self.consumers = [one for one in self.consumers if one not in leaving]
        self._remove(leaving.keys())
        return self._consumers_changed(mark_delete)

    def end(self) -> None:
        """All consumers leave, and the rule is not used any more. It releases its memory."""
        for consumer in self.consumers:
            consumer.capacity.stop()
        self._clear_deliveries()

    def _remove(self, consumers: Collection[BaseConsumer]) -> None:
        """Drop what the rule knows of consumers that have left together."""
        return

    def _consumers_changed(self, mark_delete: Position, joined: BaseConsumer | None = None) -> ConsumerUpdates:
        """Consumers have joined or left."""
        return ConsumerUpdates()

    @property
    def active_consumer(self) -> BaseConsumer | None:
        """The only consumer that gets entries. None: all do, or there is none."""
        return None

    def is_active(self, consumer: BaseConsumer) -> bool:
        """Return whether the consumer is one that gets entries."""
        return True

    def grant(self, consumer: BaseConsumer, epoch: int, permits: int) -> None:
        if epoch == consumer.epoch:
            consumer.capacity.grant(permits)
        self.recheck(consumer)

    def recheck(self, consumer: BaseConsumer) -> None:
        """The consumer may have capacity again."""
        return

    # Redelivery and acknowledgement.

    @abstractmethod
    def redeliver(
        self, consumer: BaseConsumer, epoch: int, ranges: Iterable[LedgerRange], mark_delete: Position
    ) -> ConsumerUpdates:
        """Redeliver unacknowledged entries that were delivered to the consumer. Shared, Key_Shared: those in `ranges`
        (ledger id, first and last entry id) if there are any; else all, in a new epoch. Without effect if `epoch` is
        not the consumer's."""

    def record_acknowledged(self, consumer: BaseConsumer, ranges: Sequence[LedgerRange]) -> None:
        """The consumer has acknowledged these entries, which may have been delivered to others."""
        return

    def record_acknowledged_messages(self, consumer: BaseConsumer, position: Position, left: int) -> None:
        """The consumer has acknowledged messages of a batch, and `left` messages of it are not acknowledged."""
        return

    @abstractmethod
    def record_acknowledged_up_to(self, mark_delete: Position) -> None:
        """All entries up to this one are acknowledged."""

    def begin_move(self) -> ConsumerUpdates:
        """The cursor is about to be moved: a new epoch begins for every consumer. `end_move` follows."""
        self._clear_deliveries()
        for consumer in self.consumers:
            consumer.begin_epoch(self._next_epoch(), acknowledgements_end=True)
        return ConsumerUpdates(epochs=list(self.consumers), rewound=True)

    def end_move(self, mark_delete: Position) -> None:
        self.read_position = mark_delete.next

    @abstractmethod
    def _clear_deliveries(self) -> None:
        """Forget which entries were delivered, and how often."""

    # Dispatch.

    @abstractmethod
    def next_read(self, log: Log) -> DispatchRead | None:
        """Return what to read now. None: there is nothing to read, or no consumer has capacity."""

    @abstractmethod
    def assign(self, entries: Sequence[Deliverable], read: DispatchRead, end: Position | None) -> Iterator[Assignment]:
        """Yield entries that were read, with the consumers that get them. Each part is delivered before the next one
        is chosen, because it uses capacity of the outbox. `end`: where reading continues; None if `read` named its
        positions."""

    def put_back(self, positions: Sequence[Position], entries: Iterable[LogEntry] = ()) -> None:
        """These positions of a `DispatchRead` were not delivered: they are read again. `entries`: those of them that
        were read, which the rule may keep in memory instead."""
        return

    def record_lost(self, position: Position) -> None:
        """An entry is lost, and counts as acknowledged."""
        return

    @property
    def redelivery_entries(self) -> int:
        """The number of entries that wait for redelivery."""
        return 0

    @property
    def unacked_messages(self) -> int:
        """Shared, Key_Shared: the number of messages that are delivered and not acknowledged."""
        return 0

    @property
    def has_max_unacked(self) -> bool:
        """Shared, Key_Shared: whether no consumer gets more until messages are acknowledged."""
        return False

    # Why nothing is delivered.

    @abstractmethod
    def find_shortage(self) -> DeliveryReason | None:
        """Return why no consumer gets entries. None: one may get some."""

    def find_waiting(self) -> Sequence[DeliveryReason]:
        """Return why some entries wait, though consumers may get others."""
        return ()

    def find_consumer_shortages(self) -> dict[BaseConsumer, DeliveryReason]:
        """Return why single consumers get nothing. Those that are missing may get entries."""
        found = ((consumer, consumer.find_shortage()) for consumer in self.consumers)
        return {consumer: reason for consumer, reason in found if reason is not None}

    def _next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch
