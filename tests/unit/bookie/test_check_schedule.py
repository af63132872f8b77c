"""When segments are checked for damage: each once in an interval."""

from __future__ import annotations

from magnetar_bookie.storage.rocksdb.compaction_rules import CheckSchedule


def _list_due(schedule: CheckSchedule, first: int, last: int) -> list[int]:
    return [position for now in range(first, last) for position in schedule.list_due(float(now), 4)]


def test_each_check_is_due_once_per_interval() -> None:
    schedule = CheckSchedule(100, 1000.0)
    assert _list_due(schedule, 1000, 1101) == [1, 2, 3, 0]
    assert schedule.list_due(1200.0, 4) == [1, 2, 3, 0]


def test_a_clock_that_falls_does_not_end_it() -> None:
    schedule = CheckSchedule(100, 1000.0)
    _list_due(schedule, 1000, 1101)
    assert _list_due(schedule, 500, 601) == [1, 2, 3, 0]
