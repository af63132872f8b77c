"""Key_Shared: which consumer gets the messages of a key.

A key's hash falls into a **slot**, and a selector assigns each slot to one consumer. There are three selectors:

`SplitRanges` (mode AUTO_SPLIT): 65,536 slots. Each consumer has one range. A new one takes the lower half of the
largest range, the lowest of equal ones. The range of one that leaves joins the range to its right; the rightmost one's
joins the range to its left. Two consumers are affected at most, but ranges differ in size:

    C1 joins     C1 0 … 65,535
    C2 joins     C2 0 … 32,767   C1 32,768 … 65,535
    C3 joins     C3 0 … 16,383   C2 16,384 … 32,767   C1 32,768 … 65,535
    C1 leaves    C3 0 … 16,383   C2 16,384 … 65,535

`HashRing` (mode AUTO_SPLIT with `subscription_key_shared_use_consistent_hashing`): each consumer has a number of points
on a ring of 2^32 slots, the hashes of its name followed by 1, 2, …. A slot belongs to the next point on the ring. A
point that several consumers have is shared: the slot modulo their number chooses one of them. Shares are about equal,
and a new consumer takes a little from each other one.

`StickyRanges` (mode STICKY): 65,536 slots. Each consumer has the ranges that it requested. No two ranges overlap. There
may be slots without a consumer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import ClassVar

from magnetar_broker.errors import BrokerError
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.dispatch.key_shared_policy import SlotRange
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.hashing import KEY_SHARED_SLOTS, RING_SLOTS, ring_points

__all__ = ["HashRing", "KeySelector", "SlotSet", "SplitRanges", "StickyRanges"]


class KeySelector(ABC):
    # A key's slot is its hash modulo this number.
    slots: ClassVar[int] = KEY_SHARED_SLOTS

    def select(self, slot: int) -> BaseConsumer | None:
        """Return the slot's consumer; None: it has none."""
        return self.select_each([slot])[0]

    @abstractmethod
    def select_each(self, slots: Sequence[int]) -> Sequence[BaseConsumer | None]:
        """Return the consumers of slots."""

    @abstractmethod
    def join(self, consumer: BaseConsumer) -> None:
        """Assign slots to a new consumer. Raises `BrokerError` if it can't have any; then nothing has changed."""

    @abstractmethod
    def leave(self, consumers: Collection[BaseConsumer]) -> None:
        """Remove consumers that have joined and leave together."""

    @abstractmethod
    def ranges(self, consumer: BaseConsumer) -> list[SlotRange]:
        """Return the consumer's slots, in order, with those that it shares with others. When it joins or leaves, no
        other slots move."""


class SlotSet:
    """The slots of ascending ranges that do not overlap."""

    __slots__ = ("_bounds",)

    def __init__(self, ranges: Iterable[SlotRange]) -> None:
        # The first slot in a range, the first one behind it, and so on.
        self._bounds = [bound for first, last in ranges for bound in (first, last + 1)]

    def find_each(self, slots: Iterable[int]) -> list[bool]:
        """Return whether it has the slot, for each of them."""
        bounds = self._bounds
        return [bisect_right(bounds, slot) & 1 == 1 for slot in slots]

    def choose(self, slots: Iterable[int]) -> list[int]:
        """Return those of the slots that it has."""
        bounds = self._bounds
        return [slot for slot in slots if bisect_right(bounds, slot) & 1]


class SplitRanges(KeySelector):
    __slots__ = ("_consumers", "_last_slot", "_lasts")

    def __init__(self, slots: int = KEY_SHARED_SLOTS) -> None:
        self._last_slot = slots - 1
        # The last slot of each range, ascending, and the consumers of the ranges. Together they cover all slots.
        self._lasts: list[int] = []
        self._consumers: list[BaseConsumer] = []

    def select_each(self, slots: Sequence[int]) -> Sequence[BaseConsumer | None]:
        lasts, consumers = self._lasts, self._consumers
        return [consumers[bisect_left(lasts, slot)] for slot in slots] if lasts else [None] * len(slots)

    def join(self, consumer: BaseConsumer) -> None:
        if not self._lasts:
            self._lasts, self._consumers = [self._last_slot], [consumer]
            return
        sizes = [last - before for before, last in pairwise((-1, *self._lasts))]
        largest = max(sizes)
        if largest == 1:
            raise BrokerError(
                ErrorCode.CONSUMER_ASSIGN_ERROR,
                f"each of {len(sizes):,} consumers has one slot of the Key_Shared subscription: there is none "
                f"left for consumer {consumer.name}",
            )
        index = sizes.index(largest)
        first = self._lasts[index] - largest + 1
        self._lasts.insert(index, first + largest // 2 - 1)
        self._consumers.insert(index, consumer)

    def leave(self, consumers: Collection[BaseConsumer]) -> None:
        left = [pair for pair in zip(self._lasts, self._consumers, strict=True) if pair[1] not in consumers]
        self._lasts = [last for last, _ in left]
        self._consumers = [consumer for _, consumer in left]
        if left:
            self._lasts[-1] = self._last_slot

    def ranges(self, consumer: BaseConsumer) -> list[SlotRange]:
        index = self._consumers.index(consumer)
        return [(self._lasts[index - 1] + 1 if index else 0, self._lasts[index])]


class HashRing(KeySelector):
    __slots__ = ("_consumers", "_points", "_points_of", "_points_per_consumer")
    slots = RING_SLOTS

    def __init__(self, points_per_consumer: int) -> None:
        self._points_per_consumer = points_per_consumer
        # Ascending.
        self._points: list[int] = []
        # By point, in the order in which they joined. No list is empty.
        self._consumers: dict[int, list[BaseConsumer]] = {}
        # The points of each consumer, ascending.
        self._points_of: dict[BaseConsumer, list[int]] = {}

    def select_each(self, slots: Sequence[int]) -> Sequence[BaseConsumer | None]:
        points, consumers = self._points, self._consumers
        if not points:
            return [None] * len(slots)
        selected: list[BaseConsumer | None] = []
        for slot in slots:
            index = bisect_left(points, slot)
            sharing = consumers[points[index if index < len(points) else 0]]
            selected.append(sharing[slot % len(sharing)])
        return selected

    def join(self, consumer: BaseConsumer) -> None:
        points = self._points_of[consumer] = sorted(set(ring_points(consumer.name, self._points_per_consumer)))
        self._points += [point for point in points if point not in self._consumers]
        self._points.sort()
        for point in points:
            self._consumers.setdefault(point, []).append(consumer)

    def leave(self, consumers: Collection[BaseConsumer]) -> None:
        removed: set[int] = set()
        for consumer in consumers:
            for point in self._points_of.pop(consumer):
                sharing = self._consumers[point]
                sharing.remove(consumer)
                if not sharing:
                    del self._consumers[point]
                    removed.add(point)
        self._points = [point for point in self._points if point not in removed]

    def ranges(self, consumer: BaseConsumer) -> list[SlotRange]:
        found: list[SlotRange] = []
        for point in self._points_of[consumer]:
            index = bisect_left(self._points, point)
            found.append((self._points[index - 1] + 1 if index else 0, point))
        if self._points[-1] < RING_SLOTS - 1 and consumer in self._consumers[self._points[0]]:
            found.append((self._points[-1] + 1, RING_SLOTS - 1))
        return _join_adjacent(found)


class StickyRanges(KeySelector):
    __slots__ = ("_consumers", "_ranges")

    def __init__(self) -> None:
        # Ascending, without overlaps; and the consumers of the ranges.
        self._ranges: list[SlotRange] = []
        self._consumers: list[BaseConsumer] = []

    def select_each(self, slots: Sequence[int]) -> Sequence[BaseConsumer | None]:
        ranges, selected = self._ranges, list[BaseConsumer | None]()
        for slot in slots:
            index = bisect_right(ranges, (slot, KEY_SHARED_SLOTS)) - 1
            if index >= 0 and slot <= ranges[index][1]:
                selected.append(self._consumers[index])
            else:
                selected.append(None)
        return selected

    def join(self, consumer: BaseConsumer) -> None:
        requested = consumer.key_shared.ranges
        if not requested:
            raise BrokerError(
                ErrorCode.CONSUMER_ASSIGN_ERROR,
                f"consumer {consumer.name} of a Key_Shared subscription with the mode STICKY requests no slots: it "
                "needs at least one range",
            )
        for first, last in requested:
            self._check_free(consumer, first, last)
        # At once: insertions one by one would take a second for tens of thousands of ranges.
        self._set(sorted([*self._pairs(), *((one, consumer) for one in requested)], key=itemgetter(0)))

    def _pairs(self) -> Iterator[tuple[SlotRange, BaseConsumer]]:
        return zip(self._ranges, self._consumers, strict=True)

    def _set(self, pairs: Sequence[tuple[SlotRange, BaseConsumer]]) -> None:
        self._ranges = [one for one, _ in pairs]
        self._consumers = [consumer for _, consumer in pairs]

    def _check_free(self, consumer: BaseConsumer, first: int, last: int) -> None:
        # The last range that begins at or before `last` is the only one that can contain it or end after `first`.
        index = bisect_right(self._ranges, (last, KEY_SHARED_SLOTS)) - 1
        if index < 0 or self._ranges[index][1] < first:
            return
        held_first, held_last = self._ranges[index]
        raise BrokerError(
            ErrorCode.CONSUMER_ASSIGN_ERROR,
            f"consumer {consumer.name} requests the slots {first} … {last}, and consumer "
            f"{self._consumers[index].name} has {held_first} … {held_last}: request slots that no other has, or wait "
            "until it has disconnected",
        )

    def leave(self, consumers: Collection[BaseConsumer]) -> None:
        self._set([pair for pair in self._pairs() if pair[1] not in consumers])

    def ranges(self, consumer: BaseConsumer) -> list[SlotRange]:
        return list(consumer.key_shared.ranges)


def _join_adjacent(ranges: Iterable[SlotRange]) -> list[SlotRange]:
    joined: list[SlotRange] = []
    for first, last in ranges:
        if joined and joined[-1][1] + 1 == first:
            joined[-1] = joined[-1][0], last
        else:
            joined.append((first, last))
    return joined
