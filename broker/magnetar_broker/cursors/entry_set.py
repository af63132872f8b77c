"""A set of entry ids of one ledger: a bitmap in blocks.

A block is one integer, so adding, counting and searching take a few operations per 4,096 entries. Empty blocks are not
stored, and all full blocks are the same object: a million acknowledged entries with gaps take a million bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

__all__ = ["BLOCK_ENTRIES", "EntrySet", "lowest_unset_bit"]

BLOCK_ENTRIES: Final = 4096
_FULL: Final = (1 << BLOCK_ENTRIES) - 1


def lowest_unset_bit(bits: int) -> int:
    return (~bits & (bits + 1)).bit_length() - 1


class EntrySet:
    __slots__ = ("_blocks", "count")

    def __init__(self) -> None:
        # By number: entry id // BLOCK_ENTRIES. None is 0.
        self._blocks: dict[int, int] = {}
        # Number of entries in the set.
        self.count = 0

    def __bool__(self) -> bool:
        return self.count > 0

    def __contains__(self, entry_id: int) -> bool:
        number, bit = divmod(entry_id, BLOCK_ENTRIES)
        return bool(self._blocks.get(number, 0) >> bit & 1)

    @property
    def last(self) -> int:
        """The highest entry id. The set is not empty."""
        number = max(self._blocks)
        return number * BLOCK_ENTRIES + self._blocks[number].bit_length() - 1

    def add(self, first: int, last: int, added: EntrySet | None = None) -> int:
        """Add `first` to `last`. Return how many of them were not in the set, and add those to `added`, too."""
        before = self.count
        number, low = divmod(first, BLOCK_ENTRIES)
        last_number, high = divmod(last, BLOCK_ENTRIES)
        while number < last_number:
            self.add_bits(number, _FULL >> low << low, added)
            number, low = number + 1, 0
        self.add_bits(number, (2 << high) - (1 << low), added)
        return self.count - before

    def add_bits(self, number: int, bits: int, added: EntrySet | None = None) -> None:
        """Add entries of one block, as `add` does."""
        old = self._blocks.get(number, 0)
        new = bits & ~old
        if not new:
            return
        both = old | new
        self._blocks[number] = _FULL if both == _FULL else both
        self.count += new.bit_count()
        if added is not None:
            added.add_bits(number, new)

    def remove_up_to(self, last: int) -> int:
        """Remove all entries up to and including `last`. Return how many were removed."""
        before = self.count
        number, high = divmod(last, BLOCK_ENTRIES)
        for lower in [key for key in self._blocks if key < number]:
            self.count -= self._blocks.pop(lower).bit_count()
        old = self._blocks.get(number, 0)
        left = old >> (high + 1) << (high + 1)
        if left:
            self._blocks[number] = left
        elif old:
            del self._blocks[number]
        self.count -= old.bit_count() - left.bit_count()
        return before - self.count

    def first_absent(self, start: int) -> int:
        """Return the lowest entry id from `start` on that is not in the set."""
        number, low = divmod(start, BLOCK_ENTRIES)
        while True:
            bits = self._blocks.get(number, 0)
            if bits is not _FULL:
                bit = low + lowest_unset_bit(bits >> low)
                if bit < BLOCK_ENTRIES:
                    return number * BLOCK_ENTRIES + bit
            number, low = number + 1, 0

    def count_ranges(self) -> int:
        """Return the number of runs of consecutive entries."""
        count, full_to_end = 0, -2
        for number, bits in self.blocks():
            continues = full_to_end == number - 1
            count += (bits & ~(bits << 1 | continues)).bit_count()
            full_to_end = number if bits >> (BLOCK_ENTRIES - 1) & 1 else -2
        return count

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield the first and the last entry of each run of consecutive entries, in order."""
        first = last = -2
        for number, bits in self.blocks():
            start = number * BLOCK_ENTRIES
            while bits:
                low = (bits & -bits).bit_length() - 1
                length = lowest_unset_bit(bits >> low)
                if start + low != last + 1:
                    if first >= 0:
                        yield first, last
                    first = start + low
                last = start + low + length - 1
                bits = bits >> (low + length) << (low + length)
        if first >= 0:
            yield first, last

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield the number and the bits of each block, in order."""
        for number in sorted(self._blocks):
            yield number, self._blocks[number]
