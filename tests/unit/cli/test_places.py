"""Places in a topic, as people write them."""

from __future__ import annotations

import time

import pytest
import typer

from magnetar import MessageId
from magnetar_cli.messages.places import duration_s, id_text, parse_place, time_text


@pytest.mark.parametrize("message_id", [MessageId(-1, 12, 3), MessageId(2, 12, 3), MessageId(-1, 12, 3, 4)])
def test_an_id_is_read_as_it_is_written(message_id: MessageId) -> None:
    assert parse_place(id_text(message_id)) == message_id


def test_valid_positions_are_parsed() -> None:
    assert parse_place("earliest") == MessageId.earliest
    assert parse_place("latest") == MessageId.latest
    assert parse_place("12:3") == MessageId(-1, 12, 3)
    assert parse_place("1700000000000") == 1_700_000_000_000
    assert parse_place("2023-11-14T22:13:20Z") == 1_700_000_000_000
    ago = parse_place("10m")
    assert isinstance(ago, int)
    assert abs(time.time() * 1000 - 600_000 - ago) < 600_000


@pytest.mark.parametrize("text", ["", "soon", "12:", "12:3:4:5:6", "-1:3", f"{2**64}:1", "9" * 20, "10 parsecs"])
def test_invalid_positions_are_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_place(text)


def test_lengths_of_time() -> None:
    assert [duration_s(text, "--x") for text in ("90", "90s", "1.5m", "2h", "1d", "250ms")] == [
        90,
        90,
        90,
        7200,
        86_400,
        0.25,
    ]
    with pytest.raises(typer.BadParameter, match="not a duration"):
        duration_s("-1s", "--x")


def test_a_time_that_no_calendar_has_is_shown_all_the_same() -> None:
    assert time_text(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert time_text(2**63) == str(2**63)
