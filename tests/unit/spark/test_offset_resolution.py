"""Offsets in startingOffsets and endingOffsets that are refused with either value of failOnDataLoss, since they are
mistakes."""

from __future__ import annotations

import json
import time
from typing import cast

import pytest

from magnetar.admin import AsyncAdmin, MessagePosition
from magnetar_spark.batch_reader import _BatchPlanner
from magnetar_spark.errors import InvalidOptions, PositionOfOtherTopic
from magnetar_spark.leases.lease import create_lease
from magnetar_spark.options.offset_option import encode_position
from magnetar_spark.options.source_options import parse_batch_options
from magnetar_spark.planning.topic_discovery import TopicPartition
from tests.unit.spark.fake_service import FakeService
from tests.unit.spark.test_topic_stream import a_stream

LOG = "persistent://public/default/t"
LOSSES = ["true", "false"]
# 2026-01-01T00:00:00Z
NEW_YEAR_MS = 1_767_225_600_000
HOUR_MS = 3_600_000


def of_ten_hours() -> FakeService:
    """`t`: ledgers 100 … 109 with a message in each, one an hour from the beginning of 2026 on."""
    service = FakeService()
    service.create("t")
    for number in range(10):
        service["t"].publish([number], NEW_YEAR_MS + number * HOUR_MS)
        service["t"].roll()
    return service


def at(ledger_id: int) -> str:
    return json.dumps({"t": encode_position(MessagePosition(ledger_id, 0, 0))})


def hour(number: int) -> str:
    return str(NEW_YEAR_MS + number * HOUR_MS)


def from_now(seconds: float) -> str:
    return str(int((time.time() + seconds) * 1000))


async def ledgers_read(service: FakeService, **options: str) -> list[int]:
    planning = _BatchPlanner(
        cast(AsyncAdmin, service),
        parse_batch_options({"url": "magnetar://here:6652", "topic": "t", **options}),
        create_lease(1000),
    )
    planned = await planning.plan_partition(TopicPartition.parse(LOG))
    return [] if planned is None else [piece.ledger_id for piece in planned.pieces]


@pytest.mark.parametrize("fails", LOSSES)
async def test_a_position_older_than_the_topic_is_refused(fails: str) -> None:
    """SPK-1: a batch would read nothing without an error, and a stream everything; the option is named"""
    for starting, ending, option in (
        (at(99), "latest", "startingOffsets"),
        (at(99), "earliest", "startingOffsets"),
        ("earliest", at(99), "endingOffsets"),
        ("latest", at(99), "endingOffsets"),
        (at(98), at(99), "startingOffsets"),
    ):
        shown = "98:0:0" if starting == at(98) else "99:0:0"
        with pytest.raises(
            PositionOfOtherTopic, match=rf"{option} gives {LOG} the position {shown}, .* is older than the topic"
        ):
            await ledgers_read(of_ten_hours(), startingOffsets=starting, endingOffsets=ending, failOnDataLoss=fails)
    with pytest.raises(PositionOfOtherTopic, match="startingOffsets gives"):
        await a_stream(of_ten_hours(), startingOffsets=at(99), failOnDataLoss=fails).get_initial_offset()
    assert await ledgers_read(of_ten_hours(), startingOffsets=at(108), failOnDataLoss=fails) == [108, 109]


async def test_a_start_in_the_future_is_refused() -> None:
    """SPK-1: it would begin at the topic's end, with messages from before that time"""
    for ending in ("latest", "earliest", from_now(7200)):
        with pytest.raises(InvalidOptions, match=r"the time 20.*Z, which is in the future: it is 20"):
            await ledgers_read(of_ten_hours(), startingOffsets=from_now(3600), endingOffsets=ending)
    with pytest.raises(InvalidOptions, match="in the future"):
        await a_stream(of_ten_hours(), startingOffsets=from_now(3600)).get_initial_offset()
    # Clocks differ by seconds.
    assert await ledgers_read(of_ten_hours(), startingOffsets=from_now(1)) == []
    initial = await a_stream(of_ten_hours(), startingOffsets=from_now(1)).get_initial_offset()
    assert initial[LOG]["ledger_id"] == 110
    assert await ledgers_read(of_ten_hours(), endingOffsets=from_now(3600)) == [*range(100, 110)]


@pytest.mark.parametrize("fails", LOSSES)
async def test_a_start_behind_the_end_is_refused(fails: str) -> None:
    """SPK-1: of one partition, where the user gave both; nothing would be read, without an error"""
    for starting, ending, shown in (
        (at(105), at(103), r"the position 105:0:0, which is after endingOffsets, the position 103:0:0"),
        (hour(5), hour(3), r"the time 2026-01-01T05:00:00Z .*, which is after endingOffsets, the time .*T03:00"),
        # Times, also where there is no message between them.
        (hour(12), hour(11), r"the time 2026-01-01T12:00:00Z"),
        (
            at(105),
            hour(3),
            r"the position 105:0:0, which is after endingOffsets, the time .* \(position 103:0:0\)",
        ),
        (
            hour(5),
            at(103),
            r"the time .* \(position 105:0:0\), which is after endingOffsets, the position 103:0:0",
        ),
    ):
        with pytest.raises(InvalidOptions, match=shown):
            await ledgers_read(of_ten_hours(), startingOffsets=starting, endingOffsets=ending, failOnDataLoss=fails)
    for starting, ending in (
        (at(105), at(105)),
        (hour(5), hour(5)),
        (hour(12), hour(13)),
        (at(105), hour(5)),
        (hour(12), at(110)),
        ("latest", at(103)),
        (at(105), "earliest"),
    ):
        service = of_ten_hours()
        assert await ledgers_read(service, startingOffsets=starting, endingOffsets=ending, failOnDataLoss=fails) == []


@pytest.mark.parametrize("fails", LOSSES)
async def test_deleted_range_is_not_reported_as_wrong_order(fails: str) -> None:
    """SPK-2: a time in front of the first message is at the first one, which may be behind the range's end by now"""
    service = of_ten_hours()
    assert await ledgers_read(service, startingOffsets=hour(1), endingOffsets=at(103)) == [101, 102]
    service["t"].delete_ledgers_before(106)
    assert await ledgers_read(service, startingOffsets=hour(1), endingOffsets=at(103), failOnDataLoss=fails) == []
