"""What happens to a cluster, and when: by seed, and without doing any of it.

A torture is a row of rounds; a round is a few strikes, each of which begins at its time and ends after its length, and
a rest in which all is well. A round is **borne** if what it strikes leaves every chain able to go on whose entries lie
on more than one bookie: it strikes one bookie at most. In the other rounds anything may be struck, all bookies at once
too: nobody can go on then, but nothing may be lost.

Chance alone seldom comes to what protocols break by. So some of the rounds that are not borne are **ambushes**: bookies
get nothing for a moment, shorter than their writers wait; then, at one stroke, all writers die and so does a bookie
that got everything. Whoever takes the chains over finds those that got nothing, and the dead one's memory is missing.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_wire.randomness import Randomness

__all__ = ["ZOOKEEPER", "Kind", "Round", "Strike", "next_round"]

ZOOKEEPER: Final = "zookeeper"


class Kind(enum.Enum):
    # Of a bookie.
    KILL = "is killed"
    TERMINATE = "is asked to end"
    PAUSE = "hangs for longer than anybody waits"
    BLINK = "hangs for a moment"
    CUT = "is cut off"
    LOSE_REQUESTS = "gets no requests any more"
    LOSE_ANSWERS = "gives no answers any more"
    HOLD = "is not heard of for a while, and then of all that was on its way"
    DELAY = "is far away"
    BREAK = "loses its connections in the middle of something"
    BREAK_METADATA = "loses its connection to the metadata store"
    CUT_METADATA = "is cut off from the metadata store"
    SLOW_SYNC = "has a slow disk"
    FAIL_SYNC = "has a disk that fails"
    FILL_DISK = "has a disk that fills up"
    FULL_DISK = "has a disk that takes nothing more"
    WIPE = "has an empty disk"
    # Not where an entry lies on one bookie only.
    ROT = "has a byte of its disk flipped"
    # Of a chain's writer.
    KILL_WRITER = "has its writer killed"
    PAUSE_WRITER = "has its writer hang, and another take its place"
    CUT_WRITER = "has its writer cut off from the metadata store"
    KILL_TAIL = "has its tail killed"
    # Of the metadata store.
    RESTART_ZOOKEEPER = "is killed and started"
    PAUSE_ZOOKEEPER = "hangs"


# How often each comes among those of its group, and how long it lasts, in seconds.
_OF_BOOKIES: Final = {
    Kind.KILL: (6, 0.0, 10.0),
    Kind.TERMINATE: (3, 0.0, 6.0),
    Kind.PAUSE: (3, 6.0, 12.0),
    Kind.BLINK: (3, 0.2, 2.5),
    Kind.CUT: (3, 1.0, 10.0),
    Kind.LOSE_REQUESTS: (2, 1.0, 10.0),
    Kind.LOSE_ANSWERS: (2, 1.0, 10.0),
    Kind.HOLD: (2, 1.0, 8.0),
    Kind.DELAY: (2, 2.0, 8.0),
    Kind.BREAK: (3, 0.5, 3.0),
    Kind.BREAK_METADATA: (1, 0.1, 1.0),
    Kind.CUT_METADATA: (2, 1.0, 10.0),
    Kind.SLOW_SYNC: (2, 2.0, 8.0),
    Kind.FAIL_SYNC: (2, 0.5, 6.0),
    Kind.FILL_DISK: (2, 2.0, 8.0),
    Kind.FULL_DISK: (1, 1.0, 6.0),
    Kind.WIPE: (1, 0.5, 2.0),
    Kind.ROT: (2, 0.5, 2.0),
}
_OF_CHAINS: Final = {
    Kind.KILL_WRITER: (4, 0.0, 1.0),
    Kind.PAUSE_WRITER: (2, 0.5, 5.0),
    Kind.CUT_WRITER: (2, 0.5, 16.0),
    Kind.KILL_TAIL: (1, 0.0, 1.0),
}
_OF_ZOOKEEPER: Final = {Kind.RESTART_ZOOKEEPER: (1, 0.0, 8.0), Kind.PAUSE_ZOOKEEPER: (1, 0.5, 4.0)}
_BEGIN_WITHIN_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Strike:
    kind: Kind
    # A bookie, a chain or ZooKeeper.
    target: str
    at_s: float
    for_s: float

    def __str__(self) -> str:
        return f"{self.target} {self.kind.value} ({self.for_s:.1f} s)"


@dataclass(frozen=True, slots=True)
class Round:
    borne: bool
    strikes: tuple[Strike, ...]
    rest_s: float


def next_round(
    chance: Randomness, bookies: Sequence[str], chains: Sequence[str], allowed: frozenset[Kind], wild: float = 0.4
) -> Round:
    """`wild`: what share of the rounds is not borne. Only strikes of the `allowed` kinds."""
    borne = chance.random() >= wild
    if not borne and chance.random() < 0.4 and {Kind.LOSE_REQUESTS, Kind.KILL_WRITER, Kind.KILL} <= allowed:
        return _ambush(chance, bookies, chains)
    struck = [chance.choice(bookies)]
    if not borne:
        while len(struck) < len(bookies) and chance.random() < 0.6:
            struck.append(chance.choice([one for one in bookies if one not in struck]))
    strikes = [_strike(chance, _OF_BOOKIES, bookie, allowed) for bookie in struck]
    often = 0.2 if borne else 0.4
    strikes += [_strike(chance, _OF_CHAINS, chain, allowed) for chain in chains if chance.random() < often]
    if chance.random() < 0.15:
        strikes.append(_strike(chance, _OF_ZOOKEEPER, ZOOKEEPER, allowed))
    return Round(borne, tuple(one for one in strikes if one is not None), 1.0 + 4.0 * chance.random())


def _ambush(chance: Randomness, bookies: Sequence[str], chains: Sequence[str]) -> Round:
    order = list(bookies)
    chance.shuffle(order)
    deaf = order[: 1 + chance.below(len(order) - 1)]
    at_s, stroke_s = 0.2, 0.5 + 2.0 * chance.random()
    return Round(
        False,
        (
            # They hear again when nobody is left to repeat anything.
            *(Strike(Kind.LOSE_REQUESTS, bookie, at_s, stroke_s + 0.5) for bookie in deaf),
            *(Strike(Kind.KILL_WRITER, chain, at_s + stroke_s, 0.2) for chain in chains),
            Strike(Kind.KILL, order[-1], at_s + stroke_s, 3.0 + 5.0 * chance.random()),
        ),
        1.0 + 4.0 * chance.random(),
    )


def _strike(
    chance: Randomness, kinds: dict[Kind, tuple[int, float, float]], target: str, allowed: frozenset[Kind]
) -> Strike | None:
    lots = [kind for kind, (often, _, _) in kinds.items() if kind in allowed for _ in range(often)]
    if not lots:
        return None
    kind = chance.choice(lots)
    _, shortest_s, longest_s = kinds[kind]
    for_s = shortest_s + (longest_s - shortest_s) * chance.random()
    return Strike(kind, target, _BEGIN_WITHIN_S * chance.random(), for_s)
