"""When each of some things is looked at, of which each is once in an interval."""

from __future__ import annotations

from magnetar_bookie.storage.rocksdb.compaction_rules import CheckSchedule


def _asked(times: CheckSchedule, first: int, last: int) -> list[int]:
    return [place for now in range(first, last) for place in times.due(float(now), 4)]


def test_each_check_is_due_once_per_interval() -> None:
    times = CheckSchedule(100, 1000.0)
    assert _asked(times, 1000, 1101) == [1, 2, 3, 0]
    assert times.due(1200.0, 4) == [1, 2, 3, 0]


def test_a_clock_that_falls_does_not_end_it() -> None:
    times = CheckSchedule(100, 1000.0)
    _asked(times, 1000, 1101)
    assert _asked(times, 500, 601) == [1, 2, 3, 0]
