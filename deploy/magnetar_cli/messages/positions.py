"""Positions in a topic on the command line, and the text of message ids and times.

A message id is `ledger:entry:partition` or `ledger:entry:partition:batch_index`, as in Pulsar's tools. The partition is
-1 if the topic has none, and optional in input.
"""

from __future__ import annotations

import datetime
import re
import time
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from magnetar import MessageId

__all__ = [
    "format_message_id",
    "format_time",
    "parse_duration_s",
    "parse_position",
    "parse_time_ms",
    "partition_of_topic",
]

_ID: Final = re.compile(r"(\d+):(\d+)(?::(-1|\d+))?(?::(-1|\d+))?")
_PARTITION: Final = re.compile(r"-partition-(0|[1-9]\d{0,9})$")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|min|h|d|w)")
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def partition_of_topic(topic: str) -> int:
    """Return the number of the partition that the name is of; -1: it is not a partition's."""
    found = _PARTITION.search(topic)
    return -1 if found is None else int(found[1])


def format_message_id(message_id: MessageId, partition: int = -1) -> str:
    """Return the text that other commands accept. `partition`: the message's, if its id does not say it."""
    partition = message_id.partition() if message_id.partition() >= 0 else partition
    text = f"{message_id.ledger_id()}:{message_id.entry_id()}:{partition}"
    return text if message_id.batch_index() < 0 else f"{text}:{message_id.batch_index()}"


def parse_position(text: str, option: str = "--from") -> MessageId | int:
    """Parse `earliest`, `latest`, a message id, or a time: ms since 1970, ISO 8601, or an age (`10m`).

    Raise `BadParameter`, which names the option.
    """
    from magnetar import MessageId

    if text in ("earliest", "latest"):
        return MessageId.earliest if text == "earliest" else MessageId.latest
    if found := _ID.fullmatch(text):
        ledger_id, entry_id, partition, batch_index = (-1 if part is None else int(part) for part in found.groups())
        try:
            return MessageId(partition, ledger_id, entry_id, batch_index)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint=option) from None
    if _DURATION.fullmatch(text):
        return max(1, int((time.time() - parse_duration_s(text, option)) * 1000))
    return parse_time_ms(text, option)


def parse_duration_s(text: str, option: str) -> float:
    """Parse `90s`, `10m`, `2h`, `1d`, or a number of seconds. Raise `BadParameter`."""
    found = _DURATION.fullmatch(text if not text.replace(".", "", 1).isdigit() else f"{text}s")
    if found is None:
        raise typer.BadParameter(f"{text!r} is not a duration: use e.g. 90s, 10m, 2h or 1d", param_hint=option)
    return float(found[1]) * _UNITS[found[2]]


def parse_time_ms(text: str, option: str) -> int:
    """Parse a time, ms since 1970 or ISO 8601. Raise `BadParameter`."""
    if text.isascii() and text.isdigit() and len(text) < 16:
        return max(1, int(text))
    try:
        return max(1, int(datetime.datetime.fromisoformat(text).timestamp() * 1000))
    except (ValueError, OverflowError, OSError):  # it is not ISO 8601, or out of range
        raise typer.BadParameter(
            f"{text!r} is not a position: use earliest, latest, a message id such as 12:3:-1, a time such as "
            "2026-01-31T12:00:00, ms since 1970, or an age such as 10m",
            param_hint=option,
        ) from None


def format_time(ms: int) -> str:
    """Return the time in UTC as ISO 8601."""
    try:
        shown = (_EPOCH + datetime.timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")
    except OverflowError:  # a producer may have set any number
        return str(ms)
    return shown.replace("+00:00", "Z")
