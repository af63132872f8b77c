"""Which segments are compacted, in which portions, and when each is checked for damage."""

from __future__ import annotations

from magnetar_bookie.storage.rocksdb.compaction_rules import (
    MAX_MOVED_RECORDS,
    CheckSchedule,
    LiveRecord,
    choose_segments,
    split_portion,
)


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


def test_segments_with_fewest_live_bytes_are_compacted_first() -> None:
    usages = [(1, 60, 100), (2, 40, 100), (3, 0, 100), (4, 50, 100), (5, 0, 0)]
    assert choose_segments(usages, 5, 0.5, damaged=(), unreadable={}) == [3, 2, 4]
    assert choose_segments(usages, 5, 0.5, damaged=(1,), unreadable={}) == [3, 2, 4, 1]


def test_unreadable_segment_is_compacted_again_when_fewer_bytes_are_live() -> None:
    assert choose_segments([(1, 40, 100)], 2, 0.5, damaged=(1,), unreadable={1: 20}) == []
    assert choose_segments([(1, 20, 100)], 2, 0.5, damaged=(1,), unreadable={1: 20}) == [1]


def test_portion_is_limited_by_records_and_by_bytes() -> None:
    small: list[LiveRecord] = [(1, entry_id, (1, 10 * entry_id, 10)) for entry_id in range(MAX_MOVED_RECORDS + 1)]
    assert split_portion(small) == (small[:-1], small[-1:])
    large: list[LiveRecord] = [(1, entry_id, (1, 0, 3 << 20)) for entry_id in range(2)]
    assert split_portion(large) == (large[:1], large[1:])
    huge: list[LiveRecord] = [(1, 0, (1, 0, 5 << 20))]
    assert split_portion(huge) == (huge, [])
