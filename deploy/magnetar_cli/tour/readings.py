"""What is published: what thermometers in four rooms said within ten minutes. The same each time but for the hour.

Each reading has a number, by which one that is lost, doubled or out of order is seen; and it is known from the start
how many there are of each room in each minute, which is what Spark's query must count.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["MINUTE_MS", "ROOMS", "Reading", "counts", "number_of", "readings"]

ROOMS: Final = ("attic", "cellar", "hall", "kitchen")
MINUTE_MS: Final = 60_000
_MINUTES: Final = 10
_SEED: Final = 20


@dataclass(frozen=True, slots=True)
class Reading:
    number: int
    room: str
    time_ms: int
    value: bytes


def readings(count: int, end_ms: int) -> Iterator[Reading]:
    """In the order of their numbers; about that of their times, as things are in the world."""
    chance = random.Random(_SEED)
    begin_ms = end_ms // MINUTE_MS * MINUTE_MS - _MINUTES * MINUTE_MS
    length_ms = _MINUTES * MINUTE_MS
    for number in range(count):
        room = ROOMS[min(chance.randrange(len(ROOMS)), chance.randrange(len(ROOMS)))]
        late_ms = chance.randrange(1000)
        time_ms = begin_ms + max(0, number * length_ms // count - late_ms)
        value = b'{"number": %d, "celsius": %.1f}' % (number, chance.gauss(19.0, 2.0))
        yield Reading(number, room, time_ms, value)


def number_of(value: bytes) -> int:
    return int(value[len(b'{"number": ') : value.index(b",")])


def counts(all_of_them: Iterator[Reading]) -> Counter[tuple[int, str]]:
    """How many there are by the minute in which they were taken, in ms, and by room."""
    return Counter((reading.time_ms // MINUTE_MS * MINUTE_MS, reading.room) for reading in all_of_them)
