"""How long somebody waited in vain, at one place, while nothing disturbed it.

What was waited for is told as **turns**, in the order of their times: at `at` what had been wanted since `since` was
served, or was wanted no more. Nobody is served between two turns that serve: the wait is from the later one of the turn
before and of the earliest wish that was still open, to the turn, or to the end of the calm.
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


def waits(turns: Sequence[Turn], calms: Sequence[Calm], asked_since: Callable[[float], float]) -> Iterator[Wait]:
    """The longest wait before each turn that serves. `asked_since`: since when somebody was there to be served who was
    there at this time still; infinity: nobody was.
    """
    turns = sorted(turns)
    earliest = _earliest_wishes(turns)
    for calm in calms:
        served, longest = calm.begin, Wait(calm.begin, calm.begin, calm.after)
        at = bisect_left(turns, (calm.begin,))
        while at < len(turns) and turns[at].at <= calm.end:
            longest = _longer(longest, max(served, earliest[at], asked_since(turns[at].at)), turns[at].at, calm)
            if turns[at].serves:
                yield longest
                served, longest = turns[at].at, Wait(calm.begin, calm.begin, calm.after)
            at += 1
        if at < len(turns):
            longest = _longer(longest, max(served, earliest[at], asked_since(calm.end)), calm.end, calm)
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
