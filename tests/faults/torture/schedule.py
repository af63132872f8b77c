"""Choose the faults of a run and their times by seed, without injecting them.

A run is a row of rounds. In a round a few faults overlap, each of which begins at its time and is healed after its
length. There are three sorts:

ALONE  one broker is killed, or paused for longer than its session lasts, and nothing else is wrong: measured is
       the time from the end of its session until each of its partitions has a receipt again
BORNE  one part of each group has a fault at most: all clients can go on
WILD   any faults, several of a group at once too: clients may be stopped, but nothing may be lost

Faults are drawn from a shuffled deck. The first deck begins with each kind, for any group, and with those that take no
time as often as their weight says: a run of some minutes has all of these. Then it has each fault once; and those
behind it have each as often as its weight says. A card that does not fit into a round waits for one that it fits into.

A quarter of a run is calm: `Balance` says when, and for how long. It gets the real length of each round, so
the share holds however long healing takes; calms are long enough for the checker.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_wire.randomness import Randomness
from tests.faults.torture.fault import Bears, Fault

__all__ = ["ALONE_KINDS", "SORTS", "Balance", "Injection", "Round", "Schedule", "Sort"]


class Sort(enum.Enum):
    ALONE = "alone"
    BORNE = "borne"
    WILD = "wild"


# Each as often as it is named.
SORTS: Final = (Sort.BORNE, Sort.WILD, Sort.BORNE, Sort.ALONE)
ALONE_KINDS: Final = ("KILL", "PAUSE")
# Well beyond a session, and until all that it owned is taken over.
_ALONE_S: Final = (9.0, 12.0)
_BEGIN_WITHIN_S: Final = 3.0
_BORNE: Final = (3, 5)
_WILD: Final = (3, 7)


@dataclass(frozen=True, slots=True)
class Injection:
    fault: Fault
    # Since the round began, and since it did.
    at_s: float
    for_s: float

    def __str__(self) -> str:
        return f"{self.fault.kind} {self.fault.group} (at {self.at_s:.1f} s for {self.for_s:.1f} s)"


@dataclass(frozen=True, slots=True)
class Round:
    sort: Sort
    injections: tuple[Injection, ...]

    def __str__(self) -> str:
        return f"{self.sort.value}: {', '.join(map(str, self.injections)) or 'nothing fits'}"


class Schedule:
    def __init__(self, chance: Randomness, faults: Sequence[Fault], sorts: Sequence[Sort] = SORTS) -> None:
        self._chance = chance
        self._faults = faults
        self._sorts = sorts
        self._sorts_left: list[Sort] = []
        self._cards: list[Fault] = []
        self._first = True
        self._drawn_counts: Counter[Fault] = Counter()

    def next_round(self, left_s: float, possible: Callable[[Fault], bool] = lambda _: True) -> Round:
        """Choose faults that are possible now, and over within `left_s`. No injections: nothing fits."""
        sort = self._next_sort(left_s, possible)
        if sort is Sort.ALONE:
            fault = self._chance.choice([one for one in self._alone() if possible(one)])
            return Round(sort, (Injection(fault, 0.0, self._between(*_ALONE_S)),))
        least, most = _BORNE if sort is Sort.BORNE else _WILD
        drawn: list[Fault] = []
        for _ in range(least + self._chance.below(most - least + 1)):
            card = self._deal(lambda one: self._fits(one, sort, drawn, left_s) and possible(one))
            if card is None:
                break
            drawn.append(card)
        return Round(sort, tuple(self._inject_at(fault, left_s) for fault in drawn))

    def _next_sort(self, left_s: float, possible: Callable[[Fault], bool]) -> Sort:
        if not self._sorts_left:
            self._sorts_left = list(self._sorts)
            self._chance.shuffle(self._sorts_left)
        sort = self._sorts_left.pop()
        if sort is Sort.ALONE and (left_s < _ALONE_S[1] or not any(map(possible, self._alone()))):
            return Sort.BORNE
        return sort

    def _alone(self) -> list[Fault]:
        return [one for one in self._faults if one.group == "broker" and one.kind in ALONE_KINDS]

    def _fits(self, fault: Fault, sort: Sort, drawn: Sequence[Fault], left_s: float) -> bool:
        if fault in drawn or fault.shortest_s > left_s:
            return False
        if fault.at_most and self._drawn_counts[fault] >= fault.at_most:
            return False
        groups = [one.group for one in drawn]
        if sort is Sort.WILD:
            return fault.bears is Bears.ONE or fault.group not in groups
        return fault.bears is Bears.ONE and fault.group not in groups

    def _deal(self, fits: Callable[[Fault], bool]) -> Fault | None:
        """The first card that fits of those that are left, or else of a new deck, which goes under them."""
        for again in (True, False):
            for index, fault in enumerate(self._cards):
                if fits(fault):
                    del self._cards[index]
                    self._drawn_counts[fault] += 1
                    return fault
            if again:
                self._cards = [*self._leftover_cards(), *self._new_deck()]
        return None

    def _leftover_cards(self) -> list[Fault]:
        """Of what was left because nothing fitted: no more than a deck has, or it would pile up."""
        seen: Counter[Fault] = Counter()
        leftover = []
        for fault in self._cards:
            seen[fault] += 1
            if seen[fault] <= fault.weight:
                leftover.append(fault)
        return leftover

    def _new_deck(self) -> list[Fault]:
        first, self._first = self._first, False
        deck = [one for one in self._faults for _ in range(1 if first and one.longest_s else one.weight)]
        self._chance.shuffle(deck)
        return _each_kind_first(deck) if first else deck

    def _inject_at(self, fault: Fault, left_s: float) -> Injection:
        for_s = min(self._between(fault.shortest_s, fault.longest_s), max(fault.shortest_s, left_s))
        return Injection(fault, min(self._between(0.0, _BEGIN_WITHIN_S), max(0.0, left_s - for_s)), for_s)

    def _between(self, least: float, most: float) -> float:
        return least + (most - least) * self._chance.random()


def _each_kind_first(deck: Sequence[Fault]) -> list[Fault]:
    """And those that take no time: how many fit into a round is a matter of others."""
    kinds: set[str] = set()
    front: list[Fault] = []
    behind: list[Fault] = []
    for one in deck:
        (front if one.kind not in kinds or not one.longest_s else behind).append(one)
        kinds.add(one.kind)
    return front + behind


class Balance:
    """The balance between rounds of faults and calms in a run."""

    CALM: Final = 0.25
    # A round shorter than this is none.
    _ROUND_S: Final = 4.0
    _STRETCH_S: Final = 12.5

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.faulty_s = 0.0
        # The stretches, in order.
        self.calm: list[float] = []

    @property
    def calm_s(self) -> float:
        return sum(self.calm)

    @property
    def share(self) -> float:
        """The share of calm in the time so far."""
        whole_s = self.faulty_s + self.calm_s
        return self.calm_s / whole_s if whole_s else 0.0

    @property
    def left_s(self) -> float:
        """So long the next round may take; 0: there is none."""
        left_s = self.seconds * (1 - self.CALM) - self.faulty_s
        return left_s if left_s >= min(self._ROUND_S, self.seconds * (1 - self.CALM)) and left_s > 0 else 0.0

    @property
    def rest_s(self) -> float:
        """So long it is to be calm now; 0: the next round may begin at once."""
        owed_s = max(0.0, self.faulty_s * self.CALM / (1 - self.CALM) - self.calm_s)
        if not self.left_s:
            return max(owed_s, self.seconds - self.faulty_s - self.calm_s)
        whole_s = self.seconds * self.CALM
        return owed_s if owed_s >= whole_s / max(1, whole_s // self._STRETCH_S) else 0.0
