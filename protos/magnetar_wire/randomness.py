"""Chance, as all parts ask for it: the machine's own, or a seed's, which comes out the same at every run."""

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


class _Drawn:
    """Both implementations: they differ only in where the bits come from."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self.random = source.random
        self.below = source.randrange
        self.token = source.randbytes

    def choice(self, among: Sequence[T]) -> T:
        return among[self.below(len(among))]

    def shuffle(self, items: MutableSequence[Any]) -> None:
        self._source.shuffle(items)


class SystemRandomness(_Drawn):
    """The operating system's randomness: different in every process, after a fork too, and fit for secrets."""

    def __init__(self) -> None:
        super().__init__(random.SystemRandom())


class SeededRandomness(_Drawn):
    """A seed's: the same draws in the same order at every run. Never for anything that must not be guessed."""

    def __init__(self, seed: int | str) -> None:
        super().__init__(random.Random(seed))
