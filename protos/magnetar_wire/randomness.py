"""The source of randomness that all parts take from outside."""

from __future__ import annotations

import random
from collections.abc import MutableSequence, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Randomness(Protocol):
    """What draws at random."""

    def random(self) -> float:
        """At least 0 and below 1."""

    def below(self, bound: int) -> int:
        """One of 0 … bound - 1."""

    def token(self, size: int) -> bytes:
        """`size` bytes. From `SystemRandomness` nobody can guess them."""

    def choice(self, among: Sequence[T]) -> T:
        """One of `among`, which is not empty."""

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Puts `items` in another order, in place."""


class SystemRandomness:
    """The operating system's randomness: different in every process, also after a fork, and fit for secrets."""

    def __init__(self) -> None:
        source = self._source = random.SystemRandom()
        self.random = source.random
        self.below = source.randrange
        self.token = source.randbytes

    def choice(self, among: Sequence[T]) -> T:
        return among[self.below(len(among))]

    def shuffle(self, items: MutableSequence[Any]) -> None:
        self._source.shuffle(items)
