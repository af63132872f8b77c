"""A set of small numbers that mostly lie near each other: a byte for each, in chunks."""

from __future__ import annotations

from typing import Final

__all__ = ["Marks"]

_BITS: Final = 10
_SIZE: Final = 1 << _BITS
_WITHIN: Final = _SIZE - 1


class Marks:
    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: dict[int, bytearray] = {}

    def add(self, number: int) -> bool:
        """Whether it is new."""
        piece = self._pieces.get(number >> _BITS)
        if piece is None:
            piece = self._pieces[number >> _BITS] = bytearray(_SIZE)
        if piece[number & _WITHIN]:
            return False
        piece[number & _WITHIN] = 1
        return True

    def __contains__(self, number: int) -> bool:
        piece = self._pieces.get(number >> _BITS)
        return piece is not None and bool(piece[number & _WITHIN])
