"""The messages of the tour: readings of thermometers in four rooms during ten minutes, the same in each run.

Each reading has a number, so that lost, duplicate and reordered ones are detected. The expected counts of Spark's
query, by room and minute, are computed from the same readings.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["MINUTE_MS", "ROOMS", "Reading", "count_by_minute", "generate_readings", "parse_number"]

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


def generate_readings(count: int, end_ms: int) -> Iterator[Reading]:
    """Yield readings in the order of their numbers. Their times are only roughly in order, like real event times."""
    chance = random.Random(_SEED)
    begin_ms = end_ms // MINUTE_MS * MINUTE_MS - _MINUTES * MINUTE_MS
    length_ms = _MINUTES * MINUTE_MS
    for number in range(count):
        room = ROOMS[min(chance.randrange(len(ROOMS)), chance.randrange(len(ROOMS)))]
        late_ms = chance.randrange(1000)
        time_ms = begin_ms + max(0, number * length_ms // count - late_ms)
        value = b'{"number": %d, "celsius": %.1f}' % (number, chance.gauss(19.0, 2.0))
        yield Reading(number, room, time_ms, value)


def parse_number(value: bytes) -> int:
    return int(value[len(b'{"number": ') : value.index(b",")])


def count_by_minute(all_readings: Iterator[Reading]) -> Counter[tuple[int, str]]:
    """Return the numbers of readings by minute, in ms, and by room."""
    return Counter((reading.time_ms // MINUTE_MS * MINUTE_MS, reading.room) for reading in all_readings)
