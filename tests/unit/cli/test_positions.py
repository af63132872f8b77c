"""Positions in a topic, as users write them."""

from __future__ import annotations

import time

import pytest
import typer

from magnetar import MessageId
from magnetar_cli.messages.positions import (
    format_message_id,
    format_time,
    parse_duration_s,
    parse_position,
    partition_of_topic,
)


@pytest.mark.parametrize("message_id", [MessageId(-1, 12, 3), MessageId(2, 12, 3), MessageId(-1, 12, 3, 4)])
def test_an_id_is_read_as_it_is_written(message_id: MessageId) -> None:
    assert parse_position(format_message_id(message_id)) == message_id


def test_an_id_is_shown_with_the_partition_of_its_topic() -> None:
    partition = partition_of_topic("persistent://public/default/orders-partition-3")
    assert format_message_id(MessageId(-1, 12, 3, 4), partition) == "12:3:3:4"
    assert format_message_id(MessageId(-1, 12, 3), partition_of_topic("x-partition-03")) == "12:3:-1"


def test_valid_positions_are_parsed() -> None:
    assert parse_position("earliest") == MessageId.earliest
    assert parse_position("latest") == MessageId.latest
    assert parse_position("12:3") == MessageId(-1, 12, 3)
    assert parse_position("1700000000000") == 1_700_000_000_000
    assert parse_position("2023-11-14T22:13:20Z") == 1_700_000_000_000
    ago = parse_position("10m")
    assert isinstance(ago, int)
    assert abs(time.time() * 1000 - 600_000 - ago) < 600_000


@pytest.mark.parametrize("text", ["", "soon", "12:", "12:3:4:5:6", "-1:3", f"{2**64}:1", "9" * 20, "10 parsecs"])
def test_invalid_positions_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_position(text)


def test_lengths_of_time() -> None:
    assert [parse_duration_s(text, "--x") for text in ("90", "90s", "1.5m", "2h", "1d", "250ms")] == [
        90,
        90,
        90,
        7200,
        86_400,
        0.25,
    ]
    with pytest.raises(typer.BadParameter, match="not a duration"):
        parse_duration_s("-1s", "--x")


def test_a_time_that_no_calendar_has_is_shown_all_the_same() -> None:
    assert format_time(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert format_time(2**63) == str(2**63)
