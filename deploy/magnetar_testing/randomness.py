"""Deterministic randomness for tests."""

from __future__ import annotations

import random
from collections.abc import MutableSequence, Sequence
from typing import Any, TypeVar

__all__ = ["SeededRandomness"]

T = TypeVar("T")


class SeededRandomness:
    """A `Randomness` with the same draws in the same order for the same seed. Its tokens can be guessed."""

    def __init__(self, seed: int | str) -> None:
        self._source = random.Random(seed)
        self.random = self._source.random
        self.below = self._source.randrange
        self.token = self._source.randbytes

    def choice(self, among: Sequence[T]) -> T:
        return among[self.below(len(among))]

    def shuffle(self, items: MutableSequence[Any]) -> None:
        self._source.shuffle(items)
