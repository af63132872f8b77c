"""Choose the faults of a ledger torture and their times by seed, without injecting them.

A torture is a row of rounds; a round is a few injections, each with its time and length, and a rest without faults. A
round is **borne** if every chain whose entries lie on more than one bookie can go on: it has faults of one bookie at
most. The other rounds may have any faults, of all bookies at once too: then writers may stop, but nothing may be lost.

Chance alone seldom produces the sequences that break protocols. So some rounds that are not borne are **ambushes**:
bookies get nothing for a moment that is shorter than writers' timeouts; then all writers are killed at once, and a
bookie that got everything. The next owners find the bookies that got nothing, and the dead one's copies are missing.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_wire.randomness import Randomness

__all__ = ["ZOOKEEPER", "Injection", "Kind", "Round", "next_round"]

ZOOKEEPER: Final = "zookeeper"


class Kind(enum.Enum):
    # Of a bookie.
    KILL = "is killed"
    TERMINATE = "gets SIGTERM"
    PAUSE = "hangs for longer than anybody waits"
    BLINK = "hangs for a moment"
    CUT = "is cut off"
    LOSE_REQUESTS = "gets no requests any more"
    LOSE_ANSWERS = "gives no answers any more"
    HOLD = "is not heard of for a while, and then of all that was in flight"
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
    PAUSE_WRITER = "has its writer hang, and another replace it"
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
class Injection:
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
    injections: tuple[Injection, ...]
    rest_s: float


def next_round(
    chance: Randomness, bookies: Sequence[str], chains: Sequence[str], allowed: frozenset[Kind], wild: float = 0.4
) -> Round:
    """`wild`: the share of rounds that are not borne. Only faults of the `allowed` kinds."""
    borne = chance.random() >= wild
    if not borne and chance.random() < 0.4 and {Kind.LOSE_REQUESTS, Kind.KILL_WRITER, Kind.KILL} <= allowed:
        return _ambush(chance, bookies, chains)
    targets = [chance.choice(bookies)]
    if not borne:
        while len(targets) < len(bookies) and chance.random() < 0.6:
            targets.append(chance.choice([one for one in bookies if one not in targets]))
    injections = [_draw_injection(chance, _OF_BOOKIES, bookie, allowed) for bookie in targets]
    often = 0.2 if borne else 0.4
    injections += [_draw_injection(chance, _OF_CHAINS, chain, allowed) for chain in chains if chance.random() < often]
    if chance.random() < 0.15:
        injections.append(_draw_injection(chance, _OF_ZOOKEEPER, ZOOKEEPER, allowed))
    return Round(borne, tuple(one for one in injections if one is not None), 1.0 + 4.0 * chance.random())


def _ambush(chance: Randomness, bookies: Sequence[str], chains: Sequence[str]) -> Round:
    order = list(bookies)
    chance.shuffle(order)
    deaf = order[: 1 + chance.below(len(order) - 1)]
    at_s, stroke_s = 0.2, 0.5 + 2.0 * chance.random()
    return Round(
        False,
        (
            # They hear again when nobody is left to repeat anything.
            *(Injection(Kind.LOSE_REQUESTS, bookie, at_s, stroke_s + 0.5) for bookie in deaf),
            *(Injection(Kind.KILL_WRITER, chain, at_s + stroke_s, 0.2) for chain in chains),
            Injection(Kind.KILL, order[-1], at_s + stroke_s, 3.0 + 5.0 * chance.random()),
        ),
        1.0 + 4.0 * chance.random(),
    )


def _draw_injection(
    chance: Randomness, kinds: dict[Kind, tuple[int, float, float]], target: str, allowed: frozenset[Kind]
) -> Injection | None:
    lots = [kind for kind, (often, _, _) in kinds.items() if kind in allowed for _ in range(often)]
    if not lots:
        return None
    kind = chance.choice(lots)
    _, shortest_s, longest_s = kinds[kind]
    for_s = shortest_s + (longest_s - shortest_s) * chance.random()
    return Injection(kind, target, _BEGIN_WITHIN_S * chance.random(), for_s)
