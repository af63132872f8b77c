"""Chance for a whole run: a stream of draws per purpose, all from one seed.

A draw more in one place shifts nothing elsewhere: so a change of the code moves as little of a seed's run as it can,
and a mutant meets the same faults as the code that it was made from.
"""

from __future__ import annotations

from magnetar_testing.randomness import SeededRandomness

__all__ = ["Chance"]


class Chance:
    def __init__(self, seed: int) -> None:
        self.seed = seed

    def stream(self, *purpose: object) -> SeededRandomness:
        return SeededRandomness(f"{self.seed}/{'/'.join(map(str, purpose))}")
