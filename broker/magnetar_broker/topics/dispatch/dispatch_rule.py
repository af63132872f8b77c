"""What all rules of dispatch have in common, and what is asked of one.

The shell asks `next_read` what to read, reads it, and hands what it got to `assign`, which says who gets which of it
and takes it as delivered. What was acknowledged meanwhile the shell leaves out, for it has the cursor.

    next_read() ──Reading──► the log ──entries──► assign(…) ──► [(consumer, entries), …]

Between the two, anything may happen: consumers join, leave and acknowledge. Only a rewind makes what is being read
worthless, and then the shell drops it.

**Epochs** are numbered through the subscription: no two of any consumers are the same. What begins one tells so in
`ConsumerUpdates`, for the consumers to be told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.topics.dispatch.consumer_state import ConsumerState, Outlet

__all__ = ["Assignment", "ConsumerUpdates", "Deliverable", "DispatchLimits", "DispatchRule", "ReadRequest"]

# Before anything was read.
_MESSAGES_PER_ENTRY: Final = 100.0


@dataclass(frozen=True, slots=True)
class DispatchLimits:
    max_read_entries: int = 100
    max_read_bytes: int = 5_242_880
    # Of Shared: how many messages one consumer gets before the next has its turn.
    max_round_robin_messages: int = 20
    # Of Shared, delivered and not acknowledged; 0: any number.
    max_unacked_per_consumer: int = 50_000
    max_unacked_per_subscription: int = 200_000


@dataclass(slots=True)
class ReadRequest:
    """What to read next."""

    # These entries; or, where there are none, what stands at `start` and behind it.
    positions: list[Position]
    start: Position
    max_entries: int
    max_bytes: int
    # All of it goes there: the room for it is spoken for while it is read.
    outlet: Outlet | None = None


@dataclass(slots=True)
class Deliverable:
    """An entry that is not acknowledged, or not all of it."""

    entry: LogEntry
    # Which of a batch's messages are acknowledged, bit by bit.
    acknowledged: int = 0
    # How often it was delivered before: `assign` says.
    redelivery_count: int = 0


Assignment = tuple[ConsumerState, list[Deliverable]]


@dataclass(slots=True)
class ConsumerUpdates:
    """What consumers are to be told."""

    # For whom a new epoch has begun.
    epochs: list[ConsumerState] = field(default_factory=list)
    # Who is served now, or is not any more.
    active: list[tuple[ConsumerState, bool]] = field(default_factory=list)
    # Reading begins elsewhere: what is being read is not to be assigned.
    rewound: bool = False


class DispatchRule(ABC):
    """The rule of one subscription, from its first consumer's joining until its last one has left."""

    def __init__(self, limits: DispatchLimits, mark_delete: Position) -> None:
        self.limits = limits
        # In the order in which they joined.
        self.consumers: list[ConsumerState] = []
        # All entries before it were read; some of them may wait to be delivered again.
        self.read_position = mark_delete.next
        self._joined = 0
        self._epoch = 0
        # About the most that entries read lately had, so that few are read that nobody takes: they would be read again.
        self._messages_per_entry = _MESSAGES_PER_ENTRY
        self._learned = False

    def join(self, consumer: ConsumerState, mark_delete: Position) -> ConsumerUpdates:
        """Its first epoch begins, with permits of 0."""
        consumer.number = self._joined
        self._joined += 1
        consumer.begin_epoch(self._next_epoch(), acknowledgements_end=True)
        self.consumers.append(consumer)
        return self._joined_or_left(mark_delete, consumer)

    def leave(self, consumer: ConsumerState, mark_delete: Position) -> ConsumerUpdates:
        """What it had is delivered to others."""
        return self.leave_together([consumer], mark_delete)

    def leave_together(self, consumers: Iterable[ConsumerState], mark_delete: Position) -> ConsumerUpdates:
        """As if each did, but who is served then is found out once."""
        for consumer in consumers:
            self.consumers.remove(consumer)
            self._left(consumer)
        return self._joined_or_left(mark_delete)

    @abstractmethod
    def _left(self, consumer: ConsumerState) -> None: ...

    def _joined_or_left(self, mark_delete: Position, joined: ConsumerState | None = None) -> ConsumerUpdates:
        return ConsumerUpdates()

    @abstractmethod
    def is_active(self, consumer: ConsumerState) -> bool:
        """It is one of those that are served."""

    def grant(self, consumer: ConsumerState, epoch: int, permits: int) -> None:
        consumer.grant(epoch, permits)
        self.ready(consumer)

    @abstractmethod
    def ready(self, consumer: ConsumerState) -> None:
        """It may be, again, that the consumer takes something."""

    @abstractmethod
    def redeliver(
        self, consumer: ConsumerState, epoch: int, ranges: Iterable[tuple[int, int, int]], mark_delete: Position
    ) -> ConsumerUpdates:
        """What was delivered to it and is not acknowledged is to come again: of Shared, what is in these ranges
        (ledger id, first and last entry id), or all; else everything, whatever is named."""

    @abstractmethod
    def acknowledged(self, consumer: ConsumerState, ledger_id: int, first: int, last: int) -> None:
        """These entries are, by this consumer, whoever holds them."""

    @abstractmethod
    def acknowledged_messages(self, consumer: ConsumerState, position: Position, left: int) -> None:
        """Some messages of the batch are, and so many are not."""

    @abstractmethod
    def acknowledged_up_to(self, mark_delete: Position) -> None:
        """Everything is, up to this entry and with it."""

    def move(self, acknowledgements_end: bool = True) -> ConsumerUpdates:
        """The cursor is about to be moved: a new epoch for every consumer. `moved` follows."""
        self._forget()
        for consumer in self.consumers:
            consumer.begin_epoch(self._next_epoch(), acknowledgements_end=acknowledgements_end)
        return ConsumerUpdates(epochs=list(self.consumers), rewound=True)

    def moved(self, mark_delete: Position) -> None:
        self.read_position = mark_delete.next

    @abstractmethod
    def _forget(self) -> None:
        """All that was delivered, and how often."""

    @abstractmethod
    def next_read(self) -> ReadRequest | None:
        """What to read now, for those who take something; None: nobody does."""

    @abstractmethod
    def assign(
        self, entries: Sequence[Deliverable], reading: ReadRequest, behind: Position | None
    ) -> Iterator[Assignment]:
        """Deals out what was read: each part is delivered before the next is dealt, so that it counts against its
        outlet's room. `behind`: where reading goes on; None where `reading` named its positions."""

    @abstractmethod
    def not_read(self, reading: ReadRequest) -> None:
        """It could not be, now: what it named is named again."""

    @property
    @abstractmethod
    def redelivery_entries(self) -> int:
        """How many wait to be delivered again."""

    @property
    def unacked_messages(self) -> int:
        """Of Shared: delivered and not acknowledged."""
        return 0

    @abstractmethod
    def blocked_by(self) -> str:
        """Why nobody takes anything; empty: somebody does."""

    def _next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch

    def _learn_size(self, entries: Sequence[Deliverable]) -> None:
        if entries:
            most = entries[0].entry.messages
            if len(entries) > 1:
                most = max(one.entry.messages for one in entries)
            before = self._messages_per_entry if self._learned else most
            self._messages_per_entry, self._learned = max(most, (3 * before + most) / 4), True

    def _entries_for(self, permits: int) -> int:
        """As many as `permits` are enough for, most likely; one at least."""
        return max(1, min(self.limits.max_read_entries, int(permits / self._messages_per_entry)))
