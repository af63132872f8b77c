"""Where reading begins or ends, as the user says it: `startingOffsets` and `endingOffsets`.

One point for all topics, or JSON with one for each of some: by a partition's name, or by a topic's for all of its
partitions. A point is

    earliest, latest
    a time          2026-11-22T03:00:00+01:00, or ms since 1970 (offset_times.py): what a broker took then or later
    a position      {"ledger_id": 7, "entry_id": 3, "batch_index": 0}: a message's id, or of a query's progress

A position alone, without a topic, is allowed where exactly one partition is read. `7:3:0`, as errors show a position,
is not: it could be a time of day. A written-out time of 1970-01-01T00:00:00Z or before is `earliest`.

A range begins with the message at its first point, and ends before the one at its last.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from magnetar.admin import NextMessage
from magnetar_spark.errors import InvalidOptions
from magnetar_spark.options.offset_times import check_ms, parse_time
from magnetar_wire.errors import InvalidTopicName
from magnetar_wire.topic_name import TopicName

__all__ = ["EARLIEST", "LATEST", "Bound", "Point", "parse_bound", "place_of"]

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
# `earliest`, `latest`, a time in ms since 1970, or a position.
Point: TypeAlias = str | int | NextMessage

_FORMS: Final = (
    "use earliest, latest, a time (such as 2026-01-01T00:00:00Z, or ms since 1970), or JSON by topic or partition: "
    '{"my-topic-partition-0": "earliest", "other": {"ledger_id": 7, "entry_id": 3, "batch_index": 0}}'
)
# The keys of JSON that is one position, and not positions by the names of topics.
_ID_PARTS: Final = {"ledger_id", "entry_id"}
# A position as errors show it: ledger, entry and optionally batch index.
_SHOWN_PLACE: Final = re.compile(r"([0-9]{1,19}):([0-9]{1,19})(?::(-1|[0-9]{1,10}))?", re.ASCII)
_MOST_ID: Final = 2**63 - 1
_MOST_BATCH_INDEX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Bound:
    default: Point
    # By full names of topics and partitions.
    by_name: Mapping[str, Point] = field(default_factory=dict)

    def of(self, log: str) -> Point:
        """The point for this partition, or topic without partitions."""
        if log in self.by_name:
            return self.by_name[log]
        return self.by_name.get(str(TopicName.parse(log).base), self.default)

    def check_names(self, option: str, logs: Iterable[str]) -> None:
        """Raises InvalidOptions if it names what is not read."""
        read = dict.fromkeys(logs)
        if isinstance(self.default, NextMessage) and len(read) != 1:
            example = json.dumps({next(iter(read), "my-topic"): self.default._asdict()})
            raise InvalidOptions(
                f"{option} is a position without a topic, but {len(read)} partitions are read: a position "
                f"belongs to one of them, so name it, {example}"
            )
        bases = dict.fromkeys(str(TopicName.parse(log).base) for log in read)
        for name, point in self.by_name.items():
            if name not in read and name not in bases:
                raise InvalidOptions(
                    f"{option} names {name}, which is not read: {', '.join(list(read)[:10]) or 'nothing'}"
                )
            if isinstance(point, NextMessage) and name not in read:
                raise InvalidOptions(
                    f"{option} gives {name} one position, but it has partitions, each with positions of its "
                    f"own: give one for each, as {name}-partition-0 and so on"
                )


def parse_bound(option: str, text: str, default: Point, zone: datetime.tzinfo | None = None) -> Bound:
    """`zone` is that of times that have none of their own. Raises InvalidOptions."""
    stripped = text.strip()
    if not stripped.startswith("{"):
        return Bound(_point(option, stripped, zone))
    try:
        given = json.loads(stripped)
    except (ValueError, RecursionError) as error:
        raise InvalidOptions(f"{option} is not valid JSON ({error}): {_FORMS}") from None
    if given.keys() >= _ID_PARTS:
        return Bound(_point(option, given, zone))
    by_name: dict[str, Point] = {}
    for name, value in given.items():
        try:
            full = str(TopicName.parse(name))
        except InvalidTopicName as error:
            raise InvalidOptions(f"{option} has an invalid topic name: {error}") from None
        if full in by_name:
            raise InvalidOptions(f"{option} names {full} twice")
        by_name[full] = _point(option, value, zone)
    return Bound(default, by_name)


def place_of(value: Mapping[str, Any]) -> NextMessage:
    """Return the position that JSON shows. The batch index -1, which messages outside of batches have, is the entry's
    first message. Raises ValueError."""
    numbers = []
    for name, least, most in (
        ("ledger_id", 0, _MOST_ID),
        ("entry_id", 0, _MOST_ID),
        ("batch_index", -1, _MOST_BATCH_INDEX),
    ):
        number = value.get(name, -1 if name == "batch_index" else None)
        if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
            raise ValueError(f"{name} is {number!r:.50}, not a number of {least} … {most:,}")
        numbers.append(number)
    return NextMessage(numbers[0], numbers[1], max(0, numbers[2]))


def _point(option: str, value: object, zone: datetime.tzinfo | None) -> Point:
    if isinstance(value, str):
        return _named_or_time(option, value.strip(), zone)
    if isinstance(value, int) and not isinstance(value, bool):
        return check_ms(option, value)
    if isinstance(value, dict):
        try:
            return place_of(value)
        except ValueError as error:
            raise InvalidOptions(
                f"{option} has {json.dumps(value)[:200]}, which is not a position: {error}; {_FORMS}"
            ) from None
    raise InvalidOptions(f"{option} has {value!r:.100}, which is not a position in a topic: {_FORMS}")


def _named_or_time(option: str, text: str, zone: datetime.tzinfo | None) -> Point:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    if text.isascii() and text.isdigit() and len(text) < 20:
        return check_ms(option, int(text))
    if shown := _SHOWN_PLACE.fullmatch(text):
        place = {"ledger_id": int(shown[1]), "entry_id": int(shown[2]), "batch_index": int(shown[3] or 0)}
        raise InvalidOptions(
            f"{option} is {text!r}: write a position as {json.dumps(place)} where one partition is read, or else by "
            f"its name, {json.dumps({'my-topic-partition-0': place})}, and a time with its date"
        )
    ms = parse_time(option, text, zone)
    if ms is None:
        raise InvalidOptions(f"{option} is {text!r:.100}, which is not a position in a topic: {_FORMS}")
    return ms or EARLIEST
