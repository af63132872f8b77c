"""Filters that are pushed down: which part of a topic they leave to be planned, and that it is never too little."""

from __future__ import annotations

import datetime
import os
import tempfile
import time
from pathlib import Path

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from magnetar_spark.errors import DataLost, InvalidOptions
from magnetar_spark.planning.filter_bounds import UNBOUNDED, NumberRange, derive_bounds
from magnetar_spark.planning.plan_reuse_check import check_same_bounds
from tests.unit.spark.fake_service import FakeService
from tests.unit.spark.filter_scene import INDEX, PARTITION, TIME, moment, plan_slices, use_fake_service


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeService:
    return use_fake_service(monkeypatch)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.mark.parametrize(
    ("filters", "time_ms", "index"),
    [
        ([EqualTo(INDEX, 5)], NumberRange(), NumberRange(5, 6)),
        ([GreaterThan(INDEX, 5), LessThan(INDEX, 9)], NumberRange(), NumberRange(5, 10)),
        (
            [GreaterThanOrEqual(INDEX, 5), LessThanOrEqual(INDEX, 9), In(INDEX, (7, 3, 8))],
            NumberRange(),
            NumberRange(5, 9),
        ),
        ([GreaterThan(TIME, moment(1000.25)), LessThan(TIME, moment(2000.75))], NumberRange(1000, 2001), NumberRange()),
        ([EqualTo(TIME, moment(-0.5)), IsNotNull(TIME)], NumberRange(-1, 0), NumberRange()),
        # What is not understood bounds nothing.
        ([Not(EqualTo(INDEX, 5)), EqualTo(("value",), 5), EqualTo(("index", "a"), 5)], NumberRange(), NumberRange()),
        (
            [In(INDEX, (5, None)), EqualTo(INDEX, True), LessThan(INDEX, 5.5), In(INDEX, ())],
            NumberRange(),
            NumberRange(),
        ),
        ([GreaterThan(TIME, datetime.datetime(2026, 1, 1)), EqualNullSafe(INDEX, 3)], NumberRange(), NumberRange()),
        ([StringStartsWith(("topic",), "x"), IsNull(INDEX)], NumberRange(), NumberRange()),
    ],
)
def test_bounds_of_filters(filters: list[Filter], time_ms: NumberRange, index: NumberRange) -> None:
    """SPK-1: rounded outwards"""
    bounds = derive_bounds(filters)
    assert (bounds.time_ms, bounds.index) == (time_ms, index)


@pytest.mark.parametrize(
    ("filters", "read"),
    [
        ([], [-1, 0, 1, 2, 3]),
        ([EqualTo(PARTITION, 2)], [2]),
        ([GreaterThanOrEqual(PARTITION, 1), LessThan(PARTITION, 2)], [1, 2]),
        ([In(PARTITION, (0, 3)), IsNotNull(PARTITION)], [0, 1, 2, 3]),
        ([IsNull(PARTITION)], [-1]),
        ([IsNotNull(PARTITION)], [0, 1, 2, 3]),
        ([Not(IsNull(PARTITION))], [-1, 0, 1, 2, 3]),
    ],
)
def test_partitions_that_filters_leave(filters: list[Filter], read: list[int]) -> None:
    """SPK-1: a topic without partitions has null"""
    assert [number for number in range(-1, 4) if derive_bounds(filters).accepts_partition(number)] == read


def test_fewer_entries_are_planned(service: FakeService) -> None:
    """SPK-1: of a long log those around the range; of other partitions none, and they have no lease"""
    service.create("t", 3)
    for number in range(300):
        service[f"t-partition-{number % 3}"].publish([number // 3], 1_000 + number // 3)
    filters: list[Filter] = [EqualTo(PARTITION, 1), GreaterThanOrEqual(INDEX, 40), LessThan(INDEX, 43)]
    assert service.messages_of(plan_slices(service, filters)) == [40, 41, 42, 43]
    assert [bool(service[f"t-partition-{number}"].leases) for number in range(3)] == [False, True, False]
    filters = [In(PARTITION, (2,)), GreaterThan(TIME, moment(1_050)), LessThanOrEqual(TIME, moment(1_052))]
    assert service.messages_of(plan_slices(service, filters)) == [50, 51, 52, 53]
    assert not plan_slices(service, [LessThan(INDEX, -1)])
    assert not plan_slices(service, [GreaterThan(INDEX, 1_000)])
    assert len(service.messages_of(plan_slices(service, [StringStartsWith(("topic",), "x")]))) == 300


def test_deleted_messages_that_may_pass_the_filter_count_as_lost(service: FakeService) -> None:
    """SPK-2: as it is without the filter"""
    service.create("t")
    log = service["t"]
    for number in range(30):
        log.publish([number], 1_000 + number)
        log.roll()
    position = log.position_of(3)
    start = f'{{"t": {{"ledger_id": {position.ledger_id}, "entry_id": {position.entry_id}}}}}'
    log.delete_ledgers_before(log.position_of(10).ledger_id)
    could_pass: list[list[Filter]] = [[LessThan(INDEX, 5)], [GreaterThan(INDEX, 5)], [GreaterThan(TIME, moment(1_002))]]
    for filters in could_pass:
        with pytest.raises(DataLost):
            plan_slices(service, filters, startingOffsets=start)
    # What is lost has lower indexes.
    assert service.messages_of(plan_slices(service, [GreaterThan(INDEX, 27)], startingOffsets=start)) == [27, 28, 29]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_log_trimmed_past_the_filter_position_raises_no_data_loss(service: FakeService, fail: str) -> None:
    """SPK-2: messages before it were not requested, so there is no loss"""
    service.create("t")
    log = service["t"]
    for number in range(30):
        log.publish([number], 1_000 + number)
        log.roll()
    service.before["plan"] = lambda: log.delete_ledgers_before(log.position_of(20).ledger_id)
    passing: list[Filter] = [GreaterThan(TIME, moment(1_010))]
    slices = plan_slices(service, passing, failOnDataLoss=fail)
    assert service.messages_of(slices) == list(range(20, 30))


def test_a_lost_entry_at_the_end_of_the_range(service: FakeService) -> None:
    """SPK-2: the lost entry may be earlier than the time, and so may the entries after it. Where losses fail the query,
    the range has the lost entry, so a task fails; else it has the entries behind it, too."""
    service.create("t")
    log = service["t"]
    for number in range(30):
        log.publish([number], 1_000 + number)
        if number % 10 == 9:
            log.roll()
    log.lost.add((log.position_of(13).ledger_id, log.position_of(13).entry_id))
    passing: list[Filter] = [GreaterThanOrEqual(TIME, moment(1_011)), LessThan(TIME, moment(1_017))]
    slices = plan_slices(service, passing, failOnDataLoss="false")
    assert service.messages_of(slices) == [11, 12, *range(14, 20)]
    slices = plan_slices(service, passing, failOnDataLoss="true")
    named = {(piece.ledger_id, piece.first_entry_id) for one in slices for piece in one.pieces}
    assert log.lost <= named


def test_old_marks_are_removed_and_looked_for_once_an_hour(tmp_path: Path) -> None:
    """A program may query as often as it likes: no query lists the marks of all others."""
    check_same_bounds("first", repr(UNBOUNDED))
    (folder,) = tmp_path.iterdir()
    os.utime(folder / "load-first", (0, 0))
    check_same_bounds("second", repr(UNBOUNDED))
    assert (folder / "load-first").exists()
    an_hour_ago = time.time() - 3_601
    os.utime(folder / "old-marks-removed", (an_hour_ago, an_hour_ago))
    check_same_bounds("third", repr(UNBOUNDED))
    assert {file.name for file in folder.iterdir()} == {"load-second", "load-third", "old-marks-removed"}


@pytest.mark.parametrize("there", [True, False])
def test_marks_are_not_written_through_a_symlink_of_another_user(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "theirs").mkdir()
    (tmp_path / f"magnetar-spark-{os.getuid()}").symlink_to(tmp_path / "theirs")
    with pytest.raises(InvalidOptions, match="not a folder of this user"):
        check_same_bounds("a", repr(UNBOUNDED))
    assert list(tmp_path.glob("theirs/*")) == []


def test_one_load_is_for_one_set_of_filters() -> None:
    """SPK-1: Spark would give both queries the rows of one"""
    one = repr(derive_bounds([EqualTo(INDEX, 1)]))
    check_same_bounds("a", one)
    check_same_bounds("a", one)
    check_same_bounds("b", repr(UNBOUNDED))
    for load_id, bounds in (("a", repr(UNBOUNDED)), ("a", repr(derive_bounds([EqualTo(INDEX, 2)]))), ("b", one)):
        with pytest.raises(InvalidOptions, match=r"call load\(\) again for each query"):
            check_same_bounds(load_id, bounds)
