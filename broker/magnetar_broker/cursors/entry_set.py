"""Which of one ledger's entries: a bitmap, cut into chunks.

A million holes are a million bits. A chunk is one integer, so a range, a count and a search are a few operations on
4,096 entries at once; chunks without a bit are not there, and all full ones are the same object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

__all__ = ["CHUNK_ENTRIES", "EntrySet", "lowest_open"]

CHUNK_ENTRIES: Final = 4096
_FULL: Final = (1 << CHUNK_ENTRIES) - 1


def lowest_open(bits: int) -> int:
    """The lowest bit that is not set."""
    return (~bits & (bits + 1)).bit_length() - 1


class EntrySet:
    """Empty at first."""

    __slots__ = ("_chunks", "count")

    def __init__(self) -> None:
        # By number; none is 0.
        self._chunks: dict[int, int] = {}
        # How many entries are in it.
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def __contains__(self, entry_id: int) -> bool:
        number, bit = divmod(entry_id, CHUNK_ENTRIES)
        return bool(self._chunks.get(number, 0) >> bit & 1)

    def add(self, first: int, last: int, news: EntrySet | None = None) -> int:
        """Puts `first` to `last` in. Returns how many were not, and puts those into `news`."""
        before = self.count
        number, low = divmod(first, CHUNK_ENTRIES)
        last_number, high = divmod(last, CHUNK_ENTRIES)
        while number < last_number:
            self.add_bits(number, _FULL >> low << low, news)
            number, low = number + 1, 0
        self.add_bits(number, (2 << high) - (1 << low), news)
        return self.count - before

    def add_bits(self, number: int, bits: int, news: EntrySet | None = None) -> None:
        """As `add`: those of one chunk."""
        old = self._chunks.get(number, 0)
        new = bits & ~old
        if not new:
            return
        both = old | new
        self._chunks[number] = _FULL if both == _FULL else both
        self.count += new.bit_count()
        if news is not None:
            news.add_bits(number, new)

    def remove_up_to(self, last: int) -> int:
        """Takes everything up to `last` out. Returns how many that were."""
        before = self.count
        number, high = divmod(last, CHUNK_ENTRIES)
        for below in [one for one in self._chunks if one < number]:
            self.count -= self._chunks.pop(below).bit_count()
        old = self._chunks.get(number, 0)
        left = old >> (high + 1) << (high + 1)
        if left:
            self._chunks[number] = left
        elif old:
            del self._chunks[number]
        self.count -= old.bit_count() - left.bit_count()
        return before - self.count

    def first_absent(self, start: int) -> int:
        """The first at or behind `start` that is not in it."""
        number, low = divmod(start, CHUNK_ENTRIES)
        while True:
            bits = self._chunks.get(number, 0)
            if bits is not _FULL:
                place = low + lowest_open(bits >> low)
                if place < CHUNK_ENTRIES:
                    return number * CHUNK_ENTRIES + place
            number, low = number + 1, 0

    def chunks(self) -> Iterator[tuple[int, int]]:
        """The number of each chunk, and its bits; in order."""
        for number in sorted(self._chunks):
            yield number, self._chunks[number]
