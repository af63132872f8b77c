"""The randomness of a run: a stream of draws per purpose, all from one seed.

An additional draw for one purpose shifts no others: so a change of the code changes as little of a seed's run as
possible, and a mutant meets the same faults as the code that it was made from.
"""

from __future__ import annotations

from magnetar_testing.randomness import SeededRandomness

__all__ = ["Chance"]


class Chance:
    def __init__(self, seed: int) -> None:
        self.seed = seed

    def stream(self, *purpose: object) -> SeededRandomness:
        return SeededRandomness(f"{self.seed}/{'/'.join(map(str, purpose))}")
