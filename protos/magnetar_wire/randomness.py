"""The source of randomness that all parts use, as an argument."""

from __future__ import annotations

import random
from collections.abc import MutableSequence, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Randomness(Protocol):
    """A random number generator."""

    def random(self) -> float:
        """Return a number of at least 0 and below 1."""

    def below(self, bound: int) -> int:
        """Return one of 0 … bound - 1."""

    def token(self, size: int) -> bytes:
        """Return `size` bytes. Nobody can guess those of `SystemRandomness`."""

    def choice(self, among: Sequence[T]) -> T:
        """Return an element of `among`, which is not empty."""

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Shuffle `items` in place."""


class SystemRandomness:
    """The operating system's randomness. It differs in every process, also after a fork, and is fit for secrets."""

    def __init__(self) -> None:
        source = self._source = random.SystemRandom()
        self.random = source.random
        self.below = source.randrange
        self.token = source.randbytes

    def choice(self, among: Sequence[T]) -> T:
        return among[self.below(len(among))]

    def shuffle(self, items: MutableSequence[Any]) -> None:
        self._source.shuffle(items)
