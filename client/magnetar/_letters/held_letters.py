"""Retry letters that wait in the client until they are due, for brokers that don't delay messages themselves.

A letter that is delivered before its time is neither handed out nor acknowledged. So it survives the client: after a
restart the broker delivers it again, here or to another consumer, and its time is the same.

Letters that are held don't count in the receiver queue, up to a limit, so that no letter that is due soon waits behind
others with a long delay. Beyond the limit they do, until the broker delivers no more. The limit is `MAX_HELD` messages
of a partition, and `HeldBytes.maximum` for all partitions of a consumer. `HeldLetters` decides, without a clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

from magnetar._message import DeliveredEntry

__all__ = ["HeldBytes", "HeldLetter", "HeldLetters"]

# The maximum of messages of a partition that are held beside the receiver queue.
MAX_HELD: Final = 10_000


@dataclass(slots=True)
class HeldBytes:
    """The size of the letters that a consumer holds beside its receiver queue."""

    maximum: int
    used: int = 0


@dataclass(slots=True, order=True)
class HeldLetter:
    due_ms: int
    number: int
    entry: DeliveredEntry = field(compare=False)
    # It doesn't count in the receiver queue.
    is_beside_queue: bool = field(compare=False)


class HeldLetters:
    def __init__(self, all_bytes: HeldBytes) -> None:
        self._all_bytes = all_bytes
        # A heap.
        self._held: list[HeldLetter] = []
        self._last_number = 0
        # Of those beside the queue.
        self._messages = 0
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def next_due_ms(self) -> int | None:
        return self._held[0].due_ms if self._held else None

    def add(self, entry: DeliveredEntry, due_ms: int) -> HeldLetter:
        count = len(entry.remaining)
        all_bytes = self._all_bytes
        is_beside = self._messages + count <= MAX_HELD and all_bytes.used + entry.size_bytes <= all_bytes.maximum
        self._last_number += 1
        held = HeldLetter(due_ms, self._last_number, entry, is_beside)
        heapq.heappush(self._held, held)
        if is_beside:
            self._count(count, entry.size_bytes)
        return held

    def pop_due(self, now_ms: int) -> list[HeldLetter]:
        """Remove the letters that are due, in the order of their times, and then of their arrival."""
        due = []
        while self._held and self._held[0].due_ms <= now_ms:
            due.append(heapq.heappop(self._held))
        self._uncount(due)
        return due

    def drop(self, positions: Container[tuple[int, int]]) -> list[HeldLetter]:
        """Drop letters that will be redelivered, by their ledger and entry ids."""
        dropped = [one for one in self._held if (one.entry.ledger_id, one.entry.entry_id) in positions]
        if dropped:
            numbers = {one.number for one in dropped}
            self._held = [one for one in self._held if one.number not in numbers]
            heapq.heapify(self._held)
            self._uncount(dropped)
        return dropped

    def clear(self) -> None:
        self._held.clear()
        self._count(-self._messages, -self._bytes)

    def _uncount(self, letters: list[HeldLetter]) -> None:
        for one in letters:
            if one.is_beside_queue:
                self._count(-len(one.entry.remaining), -one.entry.size_bytes)

    def _count(self, messages: int, size_bytes: int) -> None:
        self._messages += messages
        self._bytes += size_bytes
        self._all_bytes.used += size_bytes
