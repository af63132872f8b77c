"""What happens to a whole cluster and its clients, and when: by seed, and without doing any of it.

A torture is a row of rounds; a round is a few strikes, each of which begins at its time and ends after its length, and
then a rest. There are three sorts:

ALONE  one broker is killed, or hangs for longer than its session lasts, and nothing else is wrong: told is the time
       from when the session is over until each of its topics takes messages again
BORNE  of brokers, bookies and ZooKeeper's servers one of each is struck at most, besides clients, and topics are moved
       by hand: everybody can go on
WILD   anything may be struck, all of a kind at once too: nobody need go on, but nothing may be lost
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from magnetar_wire.randomness import Randomness

__all__ = ["SORTS", "Kind", "Parts", "Round", "Sort", "Strike", "next_round"]


class Sort(enum.Enum):
    ALONE = "alone"
    BORNE = "borne"
    WILD = "wild"


class Kind(enum.Enum):
    # Of any process; clients are not asked to end.
    KILL = "is killed"
    STOP = "is asked to end"
    HANG = "hangs for longer than its session lasts"
    BLINK = "hangs for a moment"
    # Of a broker's connections with clients.
    BREAK = "loses its clients in the middle of something"
    DEAF = "hears nothing of its clients"
    MUTE = "is not heard by its clients"
    HOLD = "is not heard by its clients, nor hears them, until later"
    # Of a topic.
    UNLOAD = "has its bundle unloaded"
    SPLIT = "has its bundle split"


# How often each comes among those of its group, and how long it lasts, in seconds.
Lots = Mapping[Kind, tuple[int, float, float]]
_OF_BROKERS: Final[Lots] = {
    Kind.KILL: (6, 0.0, 10.0),
    Kind.STOP: (3, 0.0, 5.0),
    Kind.HANG: (3, 6.0, 12.0),
    Kind.BLINK: (3, 0.2, 2.5),
    Kind.BREAK: (3, 0.5, 3.0),
    Kind.DEAF: (1, 1.0, 12.0),
    Kind.MUTE: (1, 1.0, 12.0),
    Kind.HOLD: (1, 1.0, 8.0),
}
_ALONE: Final[Lots] = {Kind.KILL: (3, 9.0, 12.0), Kind.HANG: (1, 9.0, 12.0)}
_OF_BOOKIES: Final[Lots] = {
    Kind.KILL: (4, 0.0, 8.0),
    Kind.STOP: (2, 0.0, 4.0),
    Kind.HANG: (2, 6.0, 10.0),
    Kind.BLINK: (3, 0.2, 2.5),
}
_OF_ZOOKEEPER: Final[Lots] = {Kind.KILL: (3, 0.0, 6.0), Kind.HANG: (1, 5.0, 8.0), Kind.BLINK: (2, 0.2, 2.0)}
_OF_CLIENTS: Final[Lots] = {Kind.KILL: (3, 0.0, 2.0), Kind.HANG: (1, 3.0, 9.0), Kind.BLINK: (1, 0.2, 2.0)}
_OF_TOPICS: Final[Lots] = {Kind.UNLOAD: (4, 0.0, 0.0), Kind.SPLIT: (1, 0.0, 0.0)}
_BEGIN_WITHIN_S: Final = 2.0
SORTS: Final = (Sort.ALONE, Sort.BORNE, Sort.BORNE, Sort.WILD)


@dataclass(frozen=True, slots=True)
class Strike:
    kind: Kind
    # A process or a topic.
    target: str
    at_s: float = 0.0
    for_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.target} {self.kind.value} (at {self.at_s:.1f} s for {self.for_s:.1f} s)"


@dataclass(frozen=True, slots=True)
class Round:
    sort: Sort
    strikes: tuple[Strike, ...]
    rest_s: float


@dataclass(frozen=True, slots=True)
class Parts:
    """What there is to be struck, by name."""

    brokers: Sequence[str]
    bookies: Sequence[str]
    zookeepers: Sequence[str]
    clients: Sequence[str]
    topics: Sequence[str]


def next_round(chance: Randomness, parts: Parts, sorts: Sequence[Sort] = SORTS) -> Round:
    """Of one of the `sorts`, each as often as it is named."""
    sort = chance.choice(sorts)
    rest_s = 1.0 + 3.0 * chance.random()
    if sort is Sort.ALONE:
        return Round(sort, (_strike(chance, _ALONE, chance.choice(parts.brokers)),), rest_s)
    wild = sort is Sort.WILD
    strikes = [_strike(chance, _OF_BROKERS, one) for one in _struck(chance, parts.brokers, 0.9, wild)]
    strikes += [_strike(chance, _OF_BOOKIES, one) for one in _struck(chance, parts.bookies, 0.4, wild)]
    strikes += [_strike(chance, _OF_ZOOKEEPER, one) for one in _struck(chance, parts.zookeepers, 0.25, wild)]
    strikes += [_strike(chance, _OF_CLIENTS, one) for one in parts.clients if chance.random() < 0.15]
    strikes += [_strike(chance, _OF_TOPICS, one) for one in parts.topics if chance.random() < 0.25]
    return Round(sort, tuple(strikes), rest_s)


def _struck(chance: Randomness, names: Sequence[str], often: float, wild: bool) -> list[str]:
    """Whom it hits: nobody or one; in the wild maybe others besides, and all in the end."""
    order = list(names)
    chance.shuffle(order)
    struck: list[str] = []
    while order and chance.random() < often and (wild or not struck):
        struck.append(order.pop())
        often = 0.6
    return struck


def _strike(chance: Randomness, kinds: Lots, target: str) -> Strike:
    kind = chance.choice([kind for kind, (often, _, _) in kinds.items() for _ in range(often)])
    _, shortest_s, longest_s = kinds[kind]
    for_s = shortest_s + (longest_s - shortest_s) * chance.random()
    return Strike(kind, target, _BEGIN_WITHIN_S * chance.random(), for_s)
