"""Derives from a query's filters which part of a topic can have rows that they let pass.

Spark evaluates every filter itself, whatever is derived here. So a bound may be too wide and never too narrow: filters
and values that are not understood bound nothing. A broker's time has milliseconds, and a filter's microseconds: a bound
is rounded outwards.
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

__all__ = ["ALL", "FilterBounds", "Range", "bounds_of"]

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Range:
    """Whole numbers from `first` on, and below `behind`. None: no bound."""

    first: int | None = None
    behind: int | None = None

    def intersect(self, other: Range) -> Range:
        firsts = [one for one in (self.first, other.first) if one is not None]
        behinds = [one for one in (self.behind, other.behind) if one is not None]
        return Range(max(firsts, default=None), min(behinds, default=None))

    def holds(self, number: int) -> bool:
        return (self.first is None or self.first <= number) and (self.behind is None or number < self.behind)


@dataclass(frozen=True, slots=True)
class FilterBounds:
    time_ms: Range = Range()
    index: Range = Range()
    partition: Range = Range()
    # False: no row passes whose partition is null, as that of a topic without partitions is. True: only these pass.
    partition_is_null: bool | None = None

    def read_partition(self, partition: int) -> bool:
        """Return whether rows of it can pass. -1: the topic has no partitions."""
        if partition < 0:
            return self.partition_is_null is not False
        return self.partition_is_null is not True and self.partition.holds(partition)


ALL: Final = FilterBounds()


def bounds_of(filters: Sequence[Filter]) -> FilterBounds:
    """Return the bounds of rows that pass all filters."""
    ranges = {"broker_time": Range(), "index": Range(), "partition": Range()}
    is_null: bool | None = None
    for one in filters:
        (column, *rest) = getattr(one, "attribute", ("", ""))
        if rest or column not in ranges:
            continue
        if column == "partition" and isinstance(one, IsNull):
            is_null = True
        found = _range_of(one)
        if found is not None:
            ranges[column] = ranges[column].intersect(found)
        if column == "partition" and (found is not None or isinstance(one, IsNotNull)) and is_null is None:
            # A comparison with null lets nothing pass.
            is_null = False
    return FilterBounds(ranges["broker_time"], ranges["index"], ranges["partition"], is_null)


def _range_of(one: Filter) -> Range | None:
    """None: it bounds nothing."""
    if not isinstance(one, EqualTo | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return None
    numbers = [_whole_number(value) for value in (one.value if isinstance(one, In) else [one.value])]
    known = [number for number in numbers if number is not None]
    if not known or len(known) < len(numbers):
        return None
    match one:
        case EqualTo() | In():
            return Range(min(known), max(known) + 1)
        case GreaterThan() | GreaterThanOrEqual():
            return Range(first=min(known))
        case _:
            return Range(behind=max(known) + 1)


def _whole_number(value: object) -> int | None:
    """The number itself, or the millisecond that a time is in."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return (value - _EPOCH) // _MILLISECOND
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None
