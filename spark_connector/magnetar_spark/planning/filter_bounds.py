"""Derives bounds of `index`, `broker_time` and `partition` from the filters that Spark pushes.

Spark evaluates all filters itself as well. So a bound may be too wide, and must never be too narrow: unknown filters
and values are ignored. A filter's time has microseconds and a broker's has milliseconds, so bounds are rounded
outwards.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

__all__ = ["UNBOUNDED", "FilterBounds", "NumberRange", "derive_bounds"]

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Whole numbers from `first` on, and below `stop`. None: no bound."""

    first: int | None = None
    stop: int | None = None

    def intersect(self, other: NumberRange) -> NumberRange:
        firsts = [one for one in (self.first, other.first) if one is not None]
        stops = [one for one in (self.stop, other.stop) if one is not None]
        return NumberRange(max(firsts, default=None), min(stops, default=None))

    def __contains__(self, number: int) -> bool:
        return (self.first is None or self.first <= number) and (self.stop is None or number < self.stop)


@dataclass(frozen=True, slots=True)
class FilterBounds:
    time_ms: NumberRange = NumberRange()
    index: NumberRange = NumberRange()
    partition: NumberRange = NumberRange()
    # The column `partition` of a topic that is not partitioned is null. False: the filters reject these rows. True:
    # they reject all others.
    partition_is_null: bool | None = None

    def accepts_partition(self, partition: int) -> bool:
        """Whether the filters may accept rows of the partition. -1: the topic is not partitioned."""
        if partition < 0:
            return self.partition_is_null is not False
        return self.partition_is_null is not True and partition in self.partition


UNBOUNDED: Final = FilterBounds()


def derive_bounds(filters: Sequence[Filter]) -> FilterBounds:
    """Return the bounds of rows that all filters accept."""
    ranges = {"broker_time": NumberRange(), "index": NumberRange(), "partition": NumberRange()}
    is_null: bool | None = None
    for one in filters:
        (column, *rest) = getattr(one, "attribute", ("", ""))
        if rest or column not in ranges:
            continue
        if column == "partition" and isinstance(one, IsNull):
            is_null = True
        found = _derive_range(one)
        if found is not None:
            ranges[column] = ranges[column].intersect(found)
        if column == "partition" and (found is not None or isinstance(one, IsNotNull)) and is_null is None:
            # A comparison with null accepts no row.
            is_null = False
    return FilterBounds(ranges["broker_time"], ranges["index"], ranges["partition"], is_null)


def _derive_range(one: Filter) -> NumberRange | None:
    """Return the range of values that the filter accepts, or None if it is unknown."""
    if not isinstance(one, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return None
    numbers = [_to_whole_number(value) for value in (one.value if isinstance(one, In) else [one.value])]
    known = [number for number in numbers if number is not None]
    if not known or len(known) < len(numbers):
        return None
    match one:
        case EqualTo() | In():
            return NumberRange(min(known), max(known) + 1)
        case GreaterThan() | GreaterThanOrEqual():
            return NumberRange(first=min(known))
        case _:
            return NumberRange(stop=max(known) + 1)


def _to_whole_number(value: object) -> int | None:
    """Return a number itself, or the millisecond of a time."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // _MILLISECOND
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None
