"""What a partition's producer holds until the broker has answered, and the rules of resending it. No I/O.

    closed batches ──► waiting ──sent, with a number──► sent ────result────────► completed
                          ▲                              │
                          └── in order, in front ── the connection broke

Numbers belong to one opening of the producer. They begin at 0 and have no gaps. An opening ends with its connection:
then all that was sent goes back in front of the waiting batches, in order, and gets new numbers when it is resent. So
no batch is ever sent before one that was handed over earlier. Of a message in chunks, those that are answered may be
resent, too (`answered_before`). A number that is answered and not known (any more) belongs to a batch that has timed
out, and is ignored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from magnetar._enums import CompressionType
from magnetar_protos.entry_pb2 import MessageMetadata

__all__ = ["InFlight", "OutgoingEntry"]


class OutgoingEntry(Protocol):
    """What is in flight: a batch, or a chunk of a message."""

    # It was sent, and the broker's answer was lost, or did not come in time.
    may_be_stored: bool

    @property
    def opened_at(self) -> float:
        """On the monotonic clock. The send timeout begins here."""

    @property
    def serial(self) -> int:
        """The number of its batch."""

    def encode(self, shared: MessageMetadata, publish_time_ms: int, compression: CompressionType) -> bytes: ...

    def answered_before(self, sent: Sequence[OutgoingEntry]) -> Sequence[OutgoingEntry]:
        """Return what is answered, and to be resent before this, the first entry without an answer of those that were
        sent."""


class InFlight:
    """The batches and chunks of one partition that the broker has not answered."""

    __slots__ = ("_next_number", "_sent", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[OutgoingEntry] = deque()
        # By number, oldest first.
        self._sent: dict[int, OutgoingEntry] = {}
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._sent) + len(self._waiting)

    @property
    def next_number(self) -> int:
        """The number of the next batch that is sent."""
        return self._next_number

    def append(self, batch: OutgoingEntry) -> None:
        self._waiting.append(batch)

    def first_waiting(self) -> OutgoingEntry | None:
        return self._waiting[0] if self._waiting else None

    def mark_first_sent(self) -> None:
        """Note that the first waiting batch was sent under `next_number`."""
        self._sent[self._next_number] = self._waiting.popleft()
        self._next_number += 1

    def drop_first(self) -> OutgoingEntry:
        """Remove the first waiting batch, because it can't be encoded."""
        return self._waiting.popleft()

    def remove_received(self, first: int, count: int) -> Iterator[tuple[int, OutgoingEntry]]:
        """Remove the batches that a `Receipt` names. Yield each with its offset from its first number."""
        numbers: range | list[int] = range(first, first + count)
        if count > len(self._sent):  # a broker may name more numbers than there are
            numbers = [number for number in self._sent if first <= number < first + count]
        for number in numbers:
            batch = self._sent.pop(number, None)
            if batch is not None:
                yield number - first, batch

    def remove_refused(self, number: int) -> OutgoingEntry | None:
        return self._sent.pop(number, None)

    def remove_others(self, is_removed: Callable[[OutgoingEntry], bool]) -> list[OutgoingEntry]:
        """Remove the entries for which this is true, sent or not, because their message has failed."""
        removed = [entry for entry in (*self._sent.values(), *self._waiting) if is_removed(entry)]
        if removed:
            self._sent = {number: entry for number, entry in self._sent.items() if not is_removed(entry)}
            self._waiting = deque(entry for entry in self._waiting if not is_removed(entry))
        return removed

    def requeue_sent(self, *, may_be_stored: bool = True) -> None:
        """Put sent batches back in front of the waiting ones, because the opening has ended."""
        sent = list(self._sent.values())
        if may_be_stored and sent:
            for batch in sent:
                batch.may_be_stored = True
            sent[:0] = sent[0].answered_before(sent)
        self._waiting.extendleft(reversed(sent))
        self._sent.clear()
        self._next_number = 0

    def oldest(self) -> OutgoingEntry | None:
        for batch in self._sent.values():
            return batch
        return self._waiting[0] if self._waiting else None

    def has_up_to(self, serial: int) -> bool:
        """Whether a batch with this number or a lower one has no result."""
        oldest = self.oldest()
        return oldest is not None and oldest.serial <= serial

    def is_expired(self, now: float, timeout_s: float) -> bool:
        """Whether the oldest batch was opened that long ago."""
        oldest = self.oldest()
        return oldest is not None and oldest.opened_at + timeout_s <= now

    def remove_unanswered(self) -> list[OutgoingEntry]:
        """Remove all batches, and return them in order. Whether the sent ones are stored is not known."""
        for batch in self._sent.values():
            batch.may_be_stored = True
        return self.remove_all()

    def remove_all(self) -> list[OutgoingEntry]:
        """Remove all batches, and return them in order."""
        everything = [*self._sent.values(), *self._waiting]
        self._sent.clear()
        self._waiting.clear()
        return everything
