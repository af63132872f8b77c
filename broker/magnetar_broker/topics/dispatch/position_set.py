"""A set of positions that gives them back in order: what a subscription is to deliver again.

Positions are bits in chunks of a thousand, so that a consumer which leaves with fifty thousand neighbours costs a few
kilobytes. The chunks' keys stand in one sorted list; most come in order, and are appended. A key whose chunk has become
empty stays there until it is met at the front or there are too many of that kind.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final

from magnetar_broker.managed_ledger.position import Position

__all__ = ["PositionSet"]

_BITS: Final = 1_024
_MANY_STALE: Final = 64


class PositionSet:
    __slots__ = ("_chunks", "_count", "_keys")

    def __init__(self) -> None:
        # (ledger id, entry id // _BITS) to the chunk's bits; never 0.
        self._chunks: dict[tuple[int, int], int] = {}
        # In order, each once: those of all chunks, and stale ones.
        self._keys: list[tuple[int, int]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, position: Position) -> bool:
        chunk, bit = divmod(position.entry_id, _BITS)
        return bool(self._chunks.get((position.ledger_id, chunk), 0) >> bit & 1)

    def add(self, position: Position) -> None:
        chunk, bit = divmod(position.entry_id, _BITS)
        key = (position.ledger_id, chunk)
        bits = self._chunks.get(key, 0)
        if bits >> bit & 1:
            return
        if not bits:
            self._add_key(key)
        self._chunks[key] = bits | 1 << bit
        self._count += 1

    def add_all(self, ledger_id: int, entry_ids: Iterable[int]) -> None:
        """The same for many of one ledger, at a fraction of the cost."""
        added: dict[int, int] = {}
        for entry_id in entry_ids:
            chunk, bit = divmod(entry_id, _BITS)
            added[chunk] = added.get(chunk, 0) | 1 << bit
        for chunk, bits in added.items():
            key = (ledger_id, chunk)
            before = self._chunks.get(key, 0)
            if not before:
                self._add_key(key)
            self._chunks[key] = before | bits
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
            if bits := self._chunks.get(key, 0):
                return Position(key[0], key[1] * _BITS + (bits & -bits).bit_length() - 1)
        return None

    def take(self, count: int) -> list[Position]:
        """Removes the first ones, up to `count`, and returns them in order."""
        taken: list[Position] = []
        stale = 0
        for key in self._keys:
            bits = self._chunks.get(key, 0)
            if bits and len(taken) == count:
                break
            while bits and len(taken) < count:
                lowest = bits & -bits
                bits ^= lowest
                taken.append(Position(key[0], key[1] * _BITS + lowest.bit_length() - 1))
            if bits:
                self._chunks[key] = bits
                break
            self._chunks.pop(key, None)
            stale += 1
        del self._keys[:stale]
        self._count -= len(taken)
        return taken

    def discard_range(self, ledger_id: int, first: int, last: int) -> None:
        """Entries of one ledger, both ends included."""
        if not self._count or last < first:
            return
        begin = bisect_left(self._keys, (ledger_id, first // _BITS))
        end = bisect_left(self._keys, (ledger_id, last // _BITS + 1))
        for key in self._keys[begin:end]:
            bits = self._chunks.get(key, 0)
            low = max(first - key[1] * _BITS, 0)
            high = min(last - key[1] * _BITS, _BITS - 1)
            self._keep(key, bits, bits & ~((1 << high + 1) - (1 << low)))
        self._drop_stale()

    def discard_up_to(self, position: Position) -> None:
        """That one too."""
        if not self._count:
            return
        end = bisect_left(self._keys, (position.ledger_id, position.entry_id // _BITS + 1))
        for key in self._keys[:end]:
            bits = self._chunks.get(key, 0)
            inside = position.entry_id - key[1] * _BITS if key[0] == position.ledger_id else _BITS - 1
            self._keep(key, bits, bits >> inside + 1 << inside + 1 if inside < _BITS - 1 else 0)
        self._drop_stale()

    def clear(self) -> None:
        self._chunks.clear()
        self._keys.clear()
        self._count = 0

    def _keep(self, key: tuple[int, int], bits: int, kept: int) -> None:
        if bits == kept:
            return
        self._count -= (bits ^ kept).bit_count()
        if kept:
            self._chunks[key] = kept
        else:
            del self._chunks[key]

    def _drop_stale(self) -> None:
        if len(self._keys) > 2 * len(self._chunks) + _MANY_STALE:
            self._keys = [key for key in self._keys if key in self._chunks]
