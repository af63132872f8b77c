"""The options `startingOffsets` and `endingOffsets`: where a query begins and ends.

A value is one offset for all topics, or JSON with an offset for some of them, by the name of a partition, or of a topic
for all of its partitions. An offset is

    earliest, latest
    a time          2026-11-22T03:00:00+01:00, or ms since 1970 (offset_times.py): messages that a broker persisted then
                    or later
    a position      {"ledger_id": 7, "entry_id": 3, "batch_index": 0}: a message's id, or from a query's progress

A position without a topic is allowed if exactly one partition is read. `7:3:0`, the form of positions in errors, is
refused, since it could be a time of day. A time in ISO 8601 of 1970-01-01T00:00:00Z or before is `earliest`.

A range begins with the message at its starting position, and ends before the one at its ending position.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from magnetar.admin import MessagePosition
from magnetar_spark.errors import InvalidOptions
from magnetar_spark.options.offset_times import check_milliseconds, parse_time
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import TopicName

__all__ = [
    "EARLIEST",
    "LATEST",
    "OffsetOption",
    "RequestedOffset",
    "encode_position",
    "format_position",
    "parse_offset_option",
    "parse_position",
]

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
# `earliest`, `latest`, a time in ms since 1970, or a position.
RequestedOffset: TypeAlias = str | int | MessagePosition

_FORMS: Final = (
    "use earliest, latest, a time (such as 2026-01-01T00:00:00Z, or ms since 1970), or JSON by topic or partition: "
    '{"my-topic-partition-0": "earliest", "other": {"ledger_id": 7, "entry_id": 3, "batch_index": 0}}'
)
# JSON with these keys is one position, and not positions by the names of topics.
_POSITION_KEYS: Final = {"ledger_id", "entry_id"}
# A position as errors show it: ledger, entry and optionally batch index.
_FORMATTED_POSITION: Final = re.compile(r"([0-9]{1,19}):([0-9]{1,19})(?::(-1|[0-9]{1,10}))?", re.ASCII)
_MAX_ID: Final = 2**63 - 1
_MAX_BATCH_INDEX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class OffsetOption:
    default: RequestedOffset
    # By full names of topics and partitions.
    by_name: Mapping[str, RequestedOffset] = field(default_factory=dict)

    def get_offset(self, log: str) -> RequestedOffset:
        """Return the offset for this partition, or topic without partitions."""
        if log in self.by_name:
            return self.by_name[log]
        return self.by_name.get(str(TopicName.parse(log).base), self.default)

    def check_names(self, option: str, logs: Iterable[str]) -> None:
        """Raise InvalidOptions if it names a topic or partition that is not read."""
        read = dict.fromkeys(logs)
        if isinstance(self.default, MessagePosition) and len(read) != 1:
            example = json.dumps({next(iter(read), "my-topic"): encode_position(self.default)})
            raise InvalidOptions(
                f"{option} is a position without a topic, but {len(read)} partitions are read: a position "
                f"belongs to one of them, so name it, {example}"
            )
        bases = dict.fromkeys(str(TopicName.parse(log).base) for log in read)
        for name, offset in self.by_name.items():
            if name not in read and name not in bases:
                raise InvalidOptions(
                    f"{option} names {name}, which is not read: {', '.join(list(read)[:10]) or 'nothing'}"
                )
            if isinstance(offset, MessagePosition) and name not in read:
                raise InvalidOptions(
                    f"{option} gives {name} one position, but it has partitions, each with positions of its "
                    f"own: give one for each, as {name}-partition-0 and so on"
                )


def parse_offset_option(
    option: str, text: str, default: RequestedOffset, zone: datetime.tzinfo | None = None
) -> OffsetOption:
    """Parse the value of the option. `zone` is used for times without a zone. Raises InvalidOptions."""
    stripped = text.strip()
    if not stripped.startswith("{"):
        return OffsetOption(_parse_offset(option, stripped, zone))
    try:
        given = json.loads(stripped)
    except (ValueError, RecursionError) as error:
        raise InvalidOptions(f"{option} is not valid JSON ({error}): {_FORMS}") from None
    if given.keys() >= _POSITION_KEYS:
        return OffsetOption(_parse_offset(option, given, zone))
    by_name: dict[str, RequestedOffset] = {}
    for name, value in given.items():
        try:
            full = str(TopicName.parse(name))
        except InvalidTopicName as error:
            raise InvalidOptions(f"{option} has an invalid topic name: {error}") from None
        if full in by_name:
            raise InvalidOptions(f"{option} names {full} twice")
        by_name[full] = _parse_offset(option, value, zone)
    return OffsetOption(default, by_name)


def parse_position(value: Mapping[str, Any]) -> MessagePosition:
    """Parse a position in JSON. The batch index -1, that of messages outside of batches, is the entry's first message.
    Raises ValueError."""
    numbers = []
    for name, minimum, maximum in (
        ("ledger_id", 0, _MAX_ID),
        ("entry_id", 0, _MAX_ID),
        ("batch_index", -1, _MAX_BATCH_INDEX),
    ):
        number = value.get(name, -1 if name == "batch_index" else None)
        if not isinstance(number, int) or isinstance(number, bool) or not minimum <= number <= maximum:
            raise ValueError(f"{name} is {number!r:.50}, not a number of {minimum} … {maximum:,}")
        numbers.append(number)
    return MessagePosition(numbers[0], numbers[1], max(0, numbers[2]))


def encode_position(position: MessagePosition) -> dict[str, int]:
    """Return the position as JSON has it: with the batch index of its message."""
    return {"ledger_id": position.ledger_id, "entry_id": position.entry_id, "batch_index": position.skip_messages}


def format_position(position: MessagePosition) -> str:
    """Format a position as errors show it."""
    return f"{position.ledger_id}:{position.entry_id}:{position.skip_messages}"


def _parse_offset(option: str, value: object, zone: datetime.tzinfo | None) -> RequestedOffset:
    if isinstance(value, str):
        return _parse_offset_text(option, value.strip(), zone)
    if isinstance(value, int) and not isinstance(value, bool):
        return check_milliseconds(option, value)
    if isinstance(value, dict):
        try:
            return parse_position(value)
        except ValueError as error:
            raise InvalidOptions(
                f"{option} has {json.dumps(value)[:200]}, which is not a position: {error}; {_FORMS}"
            ) from None
    raise InvalidOptions(f"{option} has {value!r:.100}, which is not a position in a topic: {_FORMS}")


def _parse_offset_text(option: str, text: str, zone: datetime.tzinfo | None) -> RequestedOffset:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    if text.isascii() and text.isdigit() and len(text) < 20:
        return check_milliseconds(option, int(text))
    if found := _FORMATTED_POSITION.fullmatch(text):
        position = {"ledger_id": int(found[1]), "entry_id": int(found[2]), "batch_index": int(found[3] or 0)}
        raise InvalidOptions(
            f"{option} is {text!r}: write a position as {json.dumps(position)} where one partition is read, or else by "
            f"its name, {json.dumps({'my-topic-partition-0': position})}, and a time with its date"
        )
    ms = parse_time(option, text, zone)
    if ms is None:
        raise InvalidOptions(f"{option} is {text!r:.100}, which is not a position in a topic: {_FORMS}")
    return ms or EARLIEST
