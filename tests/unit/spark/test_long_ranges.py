"""Ranges that take several answers, between which messages are deleted: that is reported, or they are left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import cast

import pytest

from magnetar.admin import AsyncAdmin, MessagePosition
from magnetar_spark.batch_reader import _BatchPlanner
from magnetar_spark.errors import DataLost, PositionBeyondEnd
from magnetar_spark.leases.lease import create_lease
from magnetar_spark.options.offset_option import encode_position
from magnetar_spark.options.source_options import parse_batch_options
from magnetar_spark.planning.log_plan import PlanLimits
from magnetar_spark.planning.topic_discovery import TopicPartition
from tests.unit.spark.fake_service import FakeService
from tests.unit.spark.test_topic_stream import ALL, Query, a_stream

LOG = "persistent://public/default/t"
LOSSES = [True, False]


def ledgers_of_one() -> FakeService:
    """Ledgers 100 … 109 of `t`, a message in each, two of them in an answer."""
    service = FakeService()
    service.create("t")
    for number in range(10):
        service["t"].publish([number])
        service["t"].roll()
    service["t"].most_pieces = 2
    return service


def at_answer(service: FakeService, number: int, delete: Callable[[], object]) -> None:
    """Delete right before the plan's answer of this number, counted from now on."""
    begun = service.requests.count("plan")
    service.before["plan"] = lambda: delete() if service.requests.count("plan") == begun + number else None


def made_again(service: FakeService) -> None:
    service.delete("t")
    service.create("t")
    service["t"].publish([100])


async def batch(service: FakeService, fails: bool, **options: str) -> list[int]:
    given = {"url": "magnetar://here:6652", "topic": "t", "failOnDataLoss": str(fails), **options}
    planning = _BatchPlanner(cast(AsyncAdmin, service), parse_batch_options(given), create_lease(1000))
    planned = await planning.plan_partition(TopicPartition.parse(LOG))
    return [] if planned is None else [piece.ledger_id for piece in planned.pieces]


@pytest.mark.parametrize("fails", LOSSES)
async def test_batch_planning_detects_ledgers_deleted_in_the_middle(fails: bool) -> None:
    """SPK-2: its lease may be over by then"""
    service = ledgers_of_one()
    at_answer(service, 3, lambda: service["t"].delete_ledgers_before(108))
    if fails:
        with pytest.raises(DataLost, match=r"from 104:0:0 on, .* deleted up to 108:0:0"):
            await batch(service, fails)
    else:
        assert await batch(service, fails) == [100, 101, 102, 103, 108, 109]


@pytest.mark.parametrize("fails", LOSSES)
async def test_batch_planning_detects_a_recreated_topic(fails: bool) -> None:
    """TOP-7: half of it is not reported as all"""
    service = ledgers_of_one()
    at_answer(service, 3, lambda: made_again(service))
    if fails:
        with pytest.raises(
            DataLost, match=r"incarnation incarnation-1 from 104:0:0 on, .* are lost\. .* to read nothing of it"
        ):
            await batch(service, fails)
    else:
        assert await batch(service, fails) == []


async def test_a_batch_with_positions_behind_the_end_of_its_log_is_refused() -> None:
    """SPK-1: whichever of the two it is, also where nothing would be read between them"""
    end = json.dumps({LOG: encode_position(ledgers_of_one()["t"].end)})
    behind = json.dumps({LOG: encode_position(MessagePosition(200, 0, 0))})
    farther = json.dumps({LOG: encode_position(MessagePosition(300, 0, 0))})
    for starting, ending, option in (
        ("earliest", behind, "endingOffsets"),
        (behind, "latest", "startingOffsets"),
        (behind, "earliest", "startingOffsets"),
        ("latest", behind, "endingOffsets"),
        (behind, farther, "startingOffsets"),
        (farther, behind, "startingOffsets"),
    ):
        for fails in (True, False):
            with pytest.raises(
                PositionBeyondEnd,
                match=f"{LOG} is to be .* position [23]00:0:0, from {option}, but it ends at 110:0:0",
            ):
                await batch(ledgers_of_one(), fails, startingOffsets=starting, endingOffsets=ending)
    assert await batch(ledgers_of_one(), True, endingOffsets=end) == [*range(100, 110)]
    deleted = ledgers_of_one()
    deleted["t"].delete_ledgers_before(105)
    assert await batch(deleted, True) == [*range(105, 110)]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("fails", LOSSES)
async def test_micro_batch_planning_detects_ledgers_deleted_in_the_middle(fails: bool, again: bool) -> None:
    """SPK-2: while it is planned, or planned again after a crash"""
    service = ledgers_of_one()
    query = Query(service, failOnDataLoss=str(fails).lower())
    await query.stream.get_initial_offset()
    if again:
        assert await query.plan()
        query.stream = a_stream(service, **query.options)
        await query.stream.get_initial_offset()
    at_answer(service, 3, lambda: service["t"].delete_ledgers_before(108))
    if fails:
        with pytest.raises(DataLost, match=r"from 104:0:0 on, .* deleted up to 108:0:0"):
            await planned_ledgers(query, again)
    else:
        assert await planned_ledgers(query, again) == [100, 101, 102, 103, 108, 109]


async def planned_ledgers(query: Query, again: bool = False, limits: PlanLimits = ALL) -> list[int]:
    if not again:
        await query.plan(limits)
    slices = await query.stream.plan_slices(await query.stream.get_initial_offset(), json.loads(query.planned[-1]))
    return [piece.ledger_id for one in slices for piece in one.pieces]


@pytest.mark.parametrize("fails", LOSSES)
async def test_micro_batch_continuation_detects_deleted_ledgers(fails: bool) -> None:
    """SPK-2: one log takes what the other has left of the limit"""
    service = ledgers_of_one()
    service.create("u")
    query = Query(service, topics="t,u", failOnDataLoss=str(fails).lower())
    await query.stream.get_initial_offset()
    # Of each log one, and then the rest of `t`.
    at_answer(service, 3, lambda: service["t"].delete_ledgers_before(108))
    if fails:
        with pytest.raises(DataLost, match="deleted up to 108:0:0"):
            await planned_ledgers(query, limits=PlanLimits(messages=2))
    else:
        assert await planned_ledgers(query, limits=PlanLimits(messages=2)) == [100, 108]


@pytest.mark.parametrize("fails", LOSSES)
async def test_micro_batch_planning_detects_a_recreated_topic(fails: bool) -> None:
    service = ledgers_of_one()
    query = Query(service, failOnDataLoss=str(fails).lower())
    await query.stream.get_initial_offset()
    at_answer(service, 3, lambda: made_again(service))
    if fails:
        with pytest.raises(DataLost, match="another topic was created with its name"):
            await query.batch()
    else:
        assert await query.all_batches() == [[100]]
