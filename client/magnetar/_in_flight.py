"""What a producer has sent to a partition and has no answer for, and what comes behind it: the rules of sending again.

    taken from the application ──► waiting ──sent, with a number──► sent ──receipt or refusal──► done
                                      ▲                              │
                                      └── in order, in front ── the connection broke

Numbers are those of one opening of the producer, from 0 and without gaps. An opening ends with its connection: then all
that was sent goes back in front of what waits, in order, and is numbered anew; so nothing is ever sent before what was
handed over earlier. A number that is answered and not known (any more) belongs to what has timed out, and says nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import takewhile

from magnetar._batch import Batch

__all__ = ["InFlight"]


class InFlight:
    __slots__ = ("_next_number", "_sent", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[Batch] = deque()
        # By number, oldest first.
        self._sent: dict[int, Batch] = {}
        self._next_number = 0

    def __len__(self) -> int:
        return len(self._sent) + len(self._waiting)

    @property
    def next_number(self) -> int:
        """The number of the next one that is sent."""
        return self._next_number

    def add(self, batch: Batch) -> None:
        self._waiting.append(batch)

    def first_waiting(self) -> Batch | None:
        return self._waiting[0] if self._waiting else None

    def first_is_sent(self) -> None:
        """The first that waits has left, under `next_number`."""
        self._sent[self._next_number] = self._waiting.popleft()
        self._next_number += 1

    def drop_first(self) -> Batch:
        """The first that waits can't be sent, ever."""
        return self._waiting.popleft()

    def received(self, first: int, count: int) -> Iterator[tuple[int, Batch]]:
        """The batches of a receipt, each with how many numbers it is behind the first. They are done."""
        numbers: range | list[int] = range(first, first + count)
        if count > len(self._sent):  # no more work than there is, whatever the broker claims
            numbers = [number for number in self._sent if first <= number < first + count]
        for number in numbers:
            batch = self._sent.pop(number, None)
            if batch is not None:
                yield number - first, batch

    def refused(self, number: int) -> Batch | None:
        return self._sent.pop(number, None)

    def send_again(self) -> None:
        """The opening is over."""
        self._waiting.extendleft(reversed(self._sent.values()))
        self._sent.clear()
        self._next_number = 0

    def oldest(self) -> Batch | None:
        for batch in self._sent.values():
            return batch
        return self._waiting[0] if self._waiting else None

    def expire(self, now: float, timeout_s: float) -> list[Batch]:
        """Gives up those that were opened so long ago. Whether those that were sent are stored is not known."""
        numbers = list(takewhile(lambda number: self._sent[number].opened_at + timeout_s <= now, self._sent))
        expired = [self._sent.pop(number) for number in numbers]
        while not self._sent and self._waiting and self._waiting[0].opened_at + timeout_s <= now:
            expired.append(self._waiting.popleft())
        return expired

    def take_all(self) -> list[Batch]:
        """Gives up all there is, in order."""
        everything = [*self._sent.values(), *self._waiting]
        self._sent.clear()
        self._waiting.clear()
        return everything
