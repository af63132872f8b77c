"""Find how long a partition's clients waited in vain in each calm.

Waits are computed from **turns**, in the order of their times: at `at` a request that had been open since `since` was
served, or withdrawn. Nothing is served between two turns that serve: the wait is from the later one of the previous
turn and of the earliest request that was still open, to the turn, or to the end of the calm.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.faults.checker.disturbance import Calm

__all__ = ["Turn", "Wait", "waits"]


class Turn(NamedTuple):
    at: float
    since: float
    serves: bool = True


@dataclass(frozen=True, slots=True)
class Wait:
    begin: float
    end: float
    after: str

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def waits(turns: Sequence[Turn], calms: Sequence[Calm], open_since: Callable[[float], float]) -> Iterator[Wait]:
    """Yield the longest wait before each turn that serves. `open_since`: since when a client has been waiting that is
    still open at that time; infinity: none.
    """
    turns = sorted(turns)
    earliest = _earliest_wishes(turns)
    for calm in calms:
        served, longest = calm.begin, Wait(calm.begin, calm.begin, calm.after)
        at = bisect_left(turns, (calm.begin,))
        while at < len(turns) and turns[at].at <= calm.end:
            longest = _longer(longest, max(served, earliest[at], open_since(turns[at].at)), turns[at].at, calm)
            if turns[at].serves:
                yield longest
                served, longest = turns[at].at, Wait(calm.begin, calm.begin, calm.after)
            at += 1
        if at < len(turns):
            longest = _longer(longest, max(served, earliest[at], open_since(calm.end)), calm.end, calm)
        yield longest


def _longer(longest: Wait, begin: float, end: float, calm: Calm) -> Wait:
    return Wait(begin, end, calm.after) if end - begin > longest.seconds else longest


def _earliest_wishes(turns: Sequence[Turn]) -> list[float]:
    """For each turn, the earliest wish of those that were open until then, or longer."""
    found, earliest = [], float("inf")
    for turn in reversed(turns):
        earliest = min(earliest, turn.since)
        found.append(earliest)
    return found[::-1]
