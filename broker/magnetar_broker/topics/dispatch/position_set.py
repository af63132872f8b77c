"""A set of positions that returns them in order: the entries that a subscription redelivers.

Positions are bits in blocks of 1,024 entries, so fifty thousand adjacent entries take a few kilobytes. The blocks' keys
are in one sorted list; most are added in order, at its end. The key of a block that has become empty is removed when it
is the first one, or when there are many such keys.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final

from magnetar_broker.position import Position

__all__ = ["PositionSet"]

_BITS: Final = 1_024
_MAX_STALE: Final = 64


class PositionSet:
    __slots__ = ("_blocks", "_count", "_keys")

    def __init__(self) -> None:
        # (ledger id, entry id // _BITS) to the bits of the block; never 0.
        self._blocks: dict[tuple[int, int], int] = {}
        # Sorted, without duplicates: the keys of all blocks, and stale ones.
        self._keys: list[tuple[int, int]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, position: Position) -> bool:
        block, bit = divmod(position.entry_id, _BITS)
        return bool(self._blocks.get((position.ledger_id, block), 0) >> bit & 1)

    def add(self, position: Position) -> None:
        block, bit = divmod(position.entry_id, _BITS)
        key = (position.ledger_id, block)
        bits = self._blocks.get(key, 0)
        if bits >> bit & 1:
            return
        if not bits:
            self._add_key(key)
        self._blocks[key] = bits | 1 << bit
        self._count += 1

    def add_all(self, ledger_id: int, entry_ids: Iterable[int]) -> None:
        """Add entries of one ledger, faster than one by one."""
        added: dict[int, int] = {}
        for entry_id in entry_ids:
            block, bit = divmod(entry_id, _BITS)
            added[block] = added.get(block, 0) | 1 << bit
        for block, bits in added.items():
            key = (ledger_id, block)
            before = self._blocks.get(key, 0)
            if not before:
                self._add_key(key)
            self._blocks[key] = before | bits
            self._count += (bits & ~before).bit_count()

    def _add_key(self, key: tuple[int, int]) -> None:
        keys = self._keys
        if not keys or keys[-1] < key:
            keys.append(key)
            return
        at = bisect_left(keys, key)
        if at == len(keys) or keys[at] != key:
            insort(keys, key)

    @property
    def first(self) -> Position | None:
        for key in self._keys:
            if bits := self._blocks.get(key, 0):
                return Position(key[0], key[1] * _BITS + (bits & -bits).bit_length() - 1)
        return None

    def take(self, count: int) -> list[Position]:
        """Remove the first positions, at most `count`, and return them in order."""
        taken: list[Position] = []
        stale = 0
        for key in self._keys:
            bits = self._blocks.get(key, 0)
            if bits and len(taken) == count:
                break
            while bits and len(taken) < count:
                lowest = bits & -bits
                bits ^= lowest
                taken.append(Position(key[0], key[1] * _BITS + lowest.bit_length() - 1))
            if bits:
                self._blocks[key] = bits
                break
            self._blocks.pop(key, None)
            stale += 1
        del self._keys[:stale]
        self._count -= len(taken)
        return taken

    def discard_range(self, ledger_id: int, first: int, last: int) -> None:
        """Remove entries of one ledger, both ends included."""
        if not self._count or last < first:
            return
        begin = bisect_left(self._keys, (ledger_id, first // _BITS))
        end = bisect_left(self._keys, (ledger_id, last // _BITS + 1))
        for key in self._keys[begin:end]:
            bits = self._blocks.get(key, 0)
            low = max(first - key[1] * _BITS, 0)
            high = min(last - key[1] * _BITS, _BITS - 1)
            self._set_bits(key, bits, bits & ~((1 << high + 1) - (1 << low)))
        self._drop_stale()

    def discard_up_to(self, position: Position) -> None:
        """Remove entries up to this one."""
        if not self._count:
            return
        end = bisect_left(self._keys, (position.ledger_id, position.entry_id // _BITS + 1))
        for key in self._keys[:end]:
            bits = self._blocks.get(key, 0)
            inside = position.entry_id - key[1] * _BITS if key[0] == position.ledger_id else _BITS - 1
            self._set_bits(key, bits, bits >> inside + 1 << inside + 1 if inside < _BITS - 1 else 0)
        self._drop_stale()

    def clear(self) -> None:
        self._blocks.clear()
        self._keys.clear()
        self._count = 0

    def _set_bits(self, key: tuple[int, int], before: int, bits: int) -> None:
        if bits == before:
            return
        self._count -= (bits ^ before).bit_count()
        if bits:
            self._blocks[key] = bits
        else:
            del self._blocks[key]

    def _drop_stale(self) -> None:
        if len(self._keys) > 2 * len(self._blocks) + _MAX_STALE:
            self._keys = [key for key in self._keys if key in self._blocks]
