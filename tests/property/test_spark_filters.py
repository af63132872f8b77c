"""Filters that are pushed down, by chance: what is planned holds all rows that pass."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from magnetar_spark.errors import DataLost
from tests.examples import scaled
from tests.unit.spark.fake_service import StoredTopic
from tests.unit.spark.filter_scene import INDEX, TIME, moment, plan_slices, use_fake_service


def grow(log: StoredTopic, numbers: random.Random) -> None:
    """Messages are their own indexes; times never fall; some ledgers are empty, or were deleted."""
    now = 1_000
    for _ in range(numbers.randrange(40)):
        now += numbers.choice((0, 0, 1, 5))
        log.publish(range(log.published, log.published + numbers.randint(1, 4)), now)
        if numbers.random() < 0.3:
            log.roll()
    if numbers.random() < 0.3:
        log.delete_ledgers_before(log.ledger_id - numbers.randrange(5))


def a_filter(numbers: random.Random) -> Filter:
    kind = numbers.choice((GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual, EqualTo))
    if numbers.random() < 0.5:
        return kind(INDEX, numbers.randrange(-2, 100))
    return kind(TIME, moment(1_000 + numbers.randrange(-8, 120) / 2))


def passes(one: Filter, index: int, time_ms: int) -> bool:
    assert isinstance(one, GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual | EqualTo)
    value = index if one.attribute == INDEX else moment(time_ms)
    match one:
        case GreaterThan():
            return bool(value > one.value)
        case GreaterThanOrEqual():
            return bool(value >= one.value)
        case LessThan():
            return bool(value < one.value)
        case LessThanOrEqual():
            return bool(value <= one.value)
        case _:
            return bool(value == one.value)


@pytest.mark.parametrize("seed", range(scaled(300)))
def test_every_row_that_passes_is_planned(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPK-1: with logs that are trimmed while they are looked at, answers in parts, and losses that fail the query, or
    do not: the rows after Spark's own filter are those without pushing"""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    service = use_fake_service(monkeypatch)
    numbers = random.Random(seed)
    service.create("t")
    log = service["t"]
    grow(log, numbers)
    log.most_pieces = numbers.choice((1, 3, 1000))
    filters = [a_filter(numbers) for _ in range(numbers.randint(1, 3))]
    fail = numbers.random() < 0.5
    options = {"failOnDataLoss": str(fail).lower()}
    if log.entries and numbers.random() < 0.3:
        ledger, entry = numbers.choice(sorted(log.times))
        options["startingOffsets"] = f'{{"t": {{"ledger_id": {ledger}, "entry_id": {entry}}}}}'
    if numbers.random() < 0.3:
        questions = numbers.randrange(4)

        def trim() -> None:
            nonlocal questions
            questions -= 1
            if questions == 0 and not log.leases:
                log.delete_ledgers_before(log.ledger_id - numbers.randrange(3))

        service.before["plan"] = trim
    try:
        slices = plan_slices(service, filters, **options)
    except DataLost:
        assert fail
        service.before.clear()
        with pytest.raises(DataLost):
            plan_slices(service, [], **options)
        return
    service.before.clear()
    found = service.messages_of(slices)
    try:
        expected = service.messages_of(plan_slices(service, [], **options))
    except DataLost:
        # What was lost could not pass. All that is left is behind the beginning.
        expected = [message for _, message in log.between(log.first, log.end)]
    times = {message: log.times[index] for index, held in log.entries.items() for message in held}
    wanted = [one for one in expected if all(passes(each, one, times[one]) for each in filters)]
    assert [one for one in found if all(passes(each, one, times[one]) for each in filters)] == wanted
