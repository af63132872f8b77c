"""How much a consumer may get now: the bounds of one consumer.

A delivery to a consumer is bounded by:

- **Permits**: messages that its client has granted and not received.
- **Unacknowledged messages** (Shared, Key_Shared): those delivered to the consumer, and to all of its subscription.
- **The outbox**: memory of the entries that wait to be sent on its stream or connection, and on all of the broker's.

Other things that hold a delivery back are listed in broker/internals.md, "Where a delivery is held back".

A dispatch rule calls `DeliveryCapacity.measure` once before a delivery to a consumer. Then `take` chooses entries: the
one that reaches a bound is the last. So a consumer with any capacity gets an entry of any size. `ReadSize` follows from
the same numbers: the broker reads no more entries than permits and outbox probably allow.

The capacity of a consumer that had none is measured again when the bound that stopped it changes: permits are granted,
messages are acknowledged, or `OutboxCapacity.offer` calls the consumers that found the outbox full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.position import LedgerRange, Position
from magnetar_broker.topics.dispatch.entry_counts import EntryCounts
from magnetar_wire import delivery_reasons
from magnetar_wire.delivery_reasons import DeliveryReason

__all__ = [
    "UNLIMITED",
    "Deliverable",
    "DeliveryCapacity",
    "OutboxBudget",
    "OutboxCapacity",
    "ReadSize",
    "UnackedMessages",
]

UNLIMITED: Final = 2**63
# Permits of one consumer; more are useless.
_MAX_PERMITS: Final = 2**31
# What a stream may queue in any case: a few entries of the usual size.
_MIN_OUTBOX_BYTES: Final = 262_144
# The estimate before any entry was read.
_MESSAGES_PER_ENTRY: Final = 100.0


@dataclass(slots=True)
class Deliverable:
    """An entry with messages that are not acknowledged."""

    entry: LogEntry
    # The acknowledged messages of a batch, as bits.
    acknowledged: int = 0
    # How often it was redelivered, as far as that is counted; set by the dispatch rule.
    redelivery_count: int = 0


class DeliveryCapacity:
    """The capacity of one consumer."""

    __slots__ = (
        "_outbox_capacity",
        "_unacked",
        "_unacked_of_all",
        "free_bytes",
        "is_stopped",
        "on_outbox_capacity",
        "permits",
    )

    def __init__(self, outbox_capacity: OutboxCapacity, on_outbox_capacity: Callable[[], object]) -> None:
        self._outbox_capacity = outbox_capacity
        # Called when the outbox has capacity again, after `measure` found none.
        self.on_outbox_capacity = on_outbox_capacity
        # Below 0 after an entry with more messages than were left.
        self.permits = 0
        # The outbox's capacity when it was measured last, less what was taken since.
        self.free_bytes = 0
        # Shared, Key_Shared: entries that were delivered to the consumer, each with the number of its unacknowledged
        # messages; and the totals of all consumers. None: the type has no such bounds, and nothing is counted.
        self._unacked = EntryCounts()
        self._unacked_of_all: UnackedMessages | None = None
        # The consumer gets no more: it is leaving, or has left.
        self.is_stopped = False

    def grant(self, permits: int) -> None:
        self.permits = min(self.permits + permits, _MAX_PERMITS)

    def bound_unacked(self, unacked_of_all: UnackedMessages) -> None:
        """Count the consumer's unacknowledged messages from now on, and bound them."""
        self._unacked_of_all = unacked_of_all

    def stop(self) -> None:
        """Let the consumer get no more."""
        self.is_stopped = True
        self._outbox_capacity.forget(self)

    # Delivery.

    @property
    def may_get_more(self) -> bool:
        """Whether the consumer has capacity apart from its outbox."""
        return self.permits > 0 and not self.is_stopped and not self.has_max_unacked

    def measure(self) -> bool:
        """Return whether the consumer may get entries now. If only its outbox is full, `on_outbox_capacity` is called
        once it is not."""
        if not self.may_get_more:
            return False
        self.free_bytes = self._outbox_capacity.free_bytes()
        if self.free_bytes > 0:
            return True
        self._outbox_capacity.wait(self)
        return False

    def take(self, entries: Sequence[Deliverable], max_messages: int = UNLIMITED) -> int:
        """Use capacity for the first of these entries, and return how many the consumer gets: at least one.

        `measure` was called before, and nothing else has used the capacity since.
        """
        permits, free_bytes, of_all = self.permits, self.free_bytes, self._unacked_of_all
        free_unacked = UNLIMITED
        if of_all is not None:
            free_unacked = min(of_all.max_per_consumer - self._unacked.total, of_all.free_messages)
        messages = 0
        unacked: list[int] = []
        for one in entries:
            entry = one.entry
            messages += entry.messages
            permits -= entry.messages
            free_bytes -= len(entry.stored)
            left = max(1, entry.messages - one.acknowledged.bit_count()) if one.acknowledged else entry.messages or 1
            free_unacked -= left
            unacked.append(left)
            if permits <= 0 or free_bytes <= 0 or messages >= max_messages or free_unacked <= 0:
                break
        self.permits, self.free_bytes = permits, free_bytes
        count = len(unacked)
        if of_all is not None:
            before = self._unacked.total
            self._unacked.set_each([one.entry.position for one in entries[:count]], unacked)
            of_all.change(before, self._unacked.total)
        return count

    def reserve(self, size_bytes: int) -> None:
        """Reserve memory in the outbox for entries that are being read; below 0: return it."""
        self._outbox_capacity.reserve(size_bytes)

    def find_shortage(self, who: str) -> DeliveryReason | None:
        """Return why the consumer, which is named `who`, gets nothing now. None: it may get entries."""
        if self.is_stopped or self._outbox_capacity.is_closed:
            return delivery_reasons.CLOSING(who=who)
        if self.permits <= 0:
            return delivery_reasons.NO_PERMITS(who=who)
        if self._unacked_of_all is not None and self.has_max_unacked:
            return delivery_reasons.MAX_UNACKED_CONSUMER(
                who=who, messages=self._unacked.total, limit=self._unacked_of_all.max_per_consumer
            )
        return self._outbox_capacity.find_shortage(who)

    # Unacknowledged entries (Shared, Key_Shared).

    @property
    def unacked_messages(self) -> int:
        return self._unacked.total

    @property
    def has_max_unacked(self) -> bool:
        return self._unacked_of_all is not None and self._unacked.total >= self._unacked_of_all.max_per_consumer

    def has_unacked(self, position: Position) -> bool:
        return self._unacked.get(position) > 0

    def set_unacked(self, position: Position, messages: int) -> None:
        """Some messages of an unacknowledged batch were acknowledged, and `messages` are left. They follow from
        the size that a client states for the batch, which may be wrong."""
        before = self._unacked.total
        self._unacked.set(position, max(1, min(messages, self._unacked.get(position))))
        self._unacked_changed(before)

    def release_range(self, ledger_id: int, first: int, last: int) -> list[int]:
        """Remove unacknowledged entries of one ledger, both ends included, and return the ids of those it had."""
        before = self._unacked.total
        found = self._unacked.take_range(ledger_id, first, last)
        if found:
            self._unacked_changed(before)
        return found

    def release_each(self, ranges: Sequence[LedgerRange]) -> Sequence[LedgerRange]:
        """Remove unacknowledged entries. Return the ranges of which it did not have all."""
        before = self._unacked.total
        _, missing = self._unacked.take_each(ranges)
        self._unacked_changed(before)
        return missing

    def release_up_to(self, position: Position) -> bool:
        """Remove unacknowledged entries up to this one. Return whether the consumer had any."""
        before = self._unacked.total
        if before:
            self._unacked.drop_up_to(position)
            self._unacked_changed(before)
        return before > 0

    def release_all(self) -> list[tuple[int, list[int]]]:
        """Remove all unacknowledged entries, and return their ids by ledger."""
        before = self._unacked.total
        found = self._unacked.take_all()
        self._unacked_changed(before)
        return found

    def _unacked_changed(self, before: int) -> None:
        if self._unacked_of_all is not None:
            self._unacked_of_all.change(before, self._unacked.total)


class UnackedMessages:
    """Unacknowledged messages of all consumers of a subscription (Shared, Key_Shared). A bound of 0 means no limit."""

    __slots__ = ("_bounded", "max_per_consumer", "max_per_subscription", "total")

    def __init__(self, max_per_consumer: int, max_per_subscription: int) -> None:
        self.max_per_consumer = max_per_consumer or UNLIMITED
        self.max_per_subscription = max_per_subscription or UNLIMITED
        self.total = 0
        # The same, but each consumer counts at most `max_per_consumer`: a batch may have any number of messages, and
        # one consumer with a large batch must not stop the others.
        self._bounded = 0

    def set_bounds(self, max_per_consumer: int, max_per_subscription: int, unacked: Iterable[int]) -> None:
        """Replace the bounds. `unacked`: the messages of each consumer, which may be above the new bounds."""
        self.max_per_consumer = max_per_consumer or UNLIMITED
        self.max_per_subscription = max_per_subscription or UNLIMITED
        self._bounded = sum(min(one, self.max_per_consumer) for one in unacked)

    @property
    def free_messages(self) -> int:
        """How many more messages may be delivered to consumers, 0 or less: none."""
        return self.max_per_subscription - self._bounded

    def change(self, before: int, now: int) -> None:
        """Count a change of one consumer's messages."""
        self.total += now - before
        self._bounded += min(now, self.max_per_consumer) - min(before, self.max_per_consumer)


class OutboxBudget:
    """The memory of the entries that wait to be sent to consumers, over all streams and connections of a broker.

    Each of them has a limit of its own, but thousands of slow ones would still take gigabytes. When all together reach
    the limit here, each keeps a small capacity: enough to go on, so that no stream waits for another.
    """

    __slots__ = ("max_bytes", "queued_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.queued_bytes = 0

    def free_bytes_of_stream(self, max_bytes: int, queued_bytes: int) -> int:
        """Return how much more a stream may queue that has queued `queued_bytes` of its own limit `max_bytes`."""
        if self.queued_bytes >= self.max_bytes:
            max_bytes = min(max_bytes, _MIN_OUTBOX_BYTES)
        return max_bytes - queued_bytes


class OutboxCapacity:
    """The capacity of one stream or connection for entries, and the consumers that wait for it."""

    __slots__ = ("_budget", "_max_bytes", "_on_returned", "_waiting", "is_closed", "queued_bytes")

    def __init__(self, max_bytes: int, budget: OutboxBudget, on_returned: Callable[[], object]) -> None:
        """`on_returned`: called when reserved memory was returned; it calls `offer` soon."""
        self._max_bytes = max_bytes
        self._budget = budget
        self._on_returned = on_returned
        # What the budget counts for it: entries that are queued or being read.
        self.queued_bytes = 0
        # Consumers that found no capacity, in that order.
        self._waiting: dict[DeliveryCapacity, None] = {}
        # No consumer gets any more entries.
        self.is_closed = False

    def free_bytes(self) -> int:
        """Return how many more bytes may be queued; 0 or less: none."""
        return 0 if self.is_closed else self._budget.free_bytes_of_stream(self._max_bytes, self.queued_bytes)

    def find_shortage(self, who: str) -> DeliveryReason | None:
        """Return why nothing more may be queued for the consumer. None: something may."""
        if self.free_bytes() > 0:
            return None
        if self.queued_bytes < self._max_bytes:
            budget = self._budget
            return delivery_reasons.BROKER_MEMORY(who=who, bytes=budget.queued_bytes, limit=budget.max_bytes)
        return delivery_reasons.SLOW_CONNECTION(who=who, bytes=self.queued_bytes)

    def add(self, size_bytes: int) -> None:
        """Count what was queued; below 0: what was sent."""
        self.queued_bytes += size_bytes
        self._budget.queued_bytes += size_bytes

    def reserve(self, size_bytes: int) -> None:
        """Count entries that are being read; below 0: that are not any more."""
        self.add(size_bytes)
        if size_bytes < 0:
            self._on_returned()

    def wait(self, consumer: DeliveryCapacity) -> None:
        """Call the consumer when there is capacity."""
        self._waiting[consumer] = None

    def forget(self, consumer: DeliveryCapacity) -> None:
        self._waiting.pop(consumer, None)

    def offer(self) -> None:
        """Call waiting consumers while there is capacity. One that finds none joins the end of the line."""
        for _ in range(len(self._waiting)):
            if not self._waiting or self.free_bytes() <= 0:
                return
            consumer = next(iter(self._waiting))
            del self._waiting[consumer]
            consumer.on_outbox_capacity()

    def close(self) -> None:
        """Give consumers no more capacity."""
        self.is_closed = True
        self._waiting.clear()

    def release(self) -> None:
        """Return all memory to the broker's budget. What is sent or returned later does not count any more."""
        self.close()
        self._budget.queued_bytes -= self.queued_bytes
        self._budget = OutboxBudget(0)


class ReadSize:
    """Estimates for how many entries the permits of consumers suffice: entries that no consumer gets are read again."""

    __slots__ = ("_is_measured", "_max_entries", "_messages_per_entry")

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        # About the highest number of the entries that were read lately.
        self._messages_per_entry = _MESSAGES_PER_ENTRY
        self._is_measured = False

    def entries_for(self, permits: int) -> int:
        """Return how many entries to read: at least one."""
        return max(1, min(self._max_entries, int(permits / self._messages_per_entry)))

    def record(self, entries: Sequence[Deliverable]) -> None:
        """Record the sizes of entries that were read."""
        if entries:
            most = entries[0].entry.messages
            if len(entries) > 1:
                most = max(one.entry.messages for one in entries)
            before = self._messages_per_entry if self._is_measured else most
            self._messages_per_entry, self._is_measured = max(most, (3 * before + most) / 4), True
