"""A query's offsets, as Spark stores them in its checkpoint: JSON, by the names of partitions.

    {"persistent://public/default/orders-partition-0":
        {"incarnation": "5f0c…", "ledger_id": 12, "entry_id": 7, "batch_index": 3,
         "since": {"ledger_id": 12, "entry_id": 0, "batch_index": 0}, "query": "9b1f…"}}

The position is that of the next message to read. The incarnation is the topic's: if a topic is deleted and recreated
under the same name, the position has no meaning in the new one.

**Since.** A micro-batch is the range between two offsets, and Spark stores only its end. Its start is the end of the
previous one. If the first micro-batch is repeated after a crash, Spark asks for *the initial offset again*; `latest`
may have moved by then, and messages of the batch would be skipped. So the end of a micro-batch has in `since` the start
of each partition that is new in it: of all partitions in the first micro-batch, and later of new partitions and topics.
When the end of a micro-batch is the start of the next one, `since` is not needed, and is left out.

**Query.** The random id of the query, which its progressSubscription has, too (progress_subscription.py). It is the
same for all partitions.

**Entered.** The first chunks of a message may be deleted when its last one is read. That is a loss, unless the query
began with the earliest message of the log, and they were deleted by then. So the offset has the start of a log that was
read from its earliest message, as long as the query exists.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from magnetar.admin import MessagePosition
from magnetar_spark.errors import InvalidOffsets
from magnetar_spark.options.offset_option import encode_position, parse_position

__all__ = ["LogOffset", "OffsetRange", "find_ranges", "format_offsets", "parse_offsets"]


@dataclass(frozen=True, slots=True)
class LogOffset:
    incarnation: str
    position: MessagePosition
    since: MessagePosition | None = None
    # The start of the log at that time, if the query began with its earliest message.
    entered: MessagePosition | None = None
    # Empty: the offset was stored without an id.
    query_id: str = ""

    @property
    def has_begun(self) -> bool:
        """Whether the end of an earlier micro-batch has the query's start in this log."""
        return self.since is None or self.since != self.position


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The part of a log that a micro-batch reads."""

    log: str
    incarnation: str
    start: MessagePosition
    stop: MessagePosition
    entered: MessagePosition | None = None


def parse_offsets(formatted: Mapping[str, Any]) -> dict[str, LogOffset]:
    """Parse offsets from Spark's checkpoint. Raises InvalidOffsets."""
    offsets = {}
    for log, value in formatted.items():
        try:
            if not isinstance(value, dict) or not isinstance(value.get("incarnation"), str):
                raise ValueError("it has no incarnation")
            offsets[log] = LogOffset(
                value["incarnation"],
                parse_position(value),
                _parse_optional_position(value, "since"),
                _parse_optional_position(value, "entered"),
                _parse_query_id(value),
            )
        except ValueError as error:
            raise InvalidOffsets(
                f"the checkpoint's offset of {log!r:.300} is {json.dumps(value)[:200]}, which this source "
                f"did not write: {error}. Does the checkpoint belong to this query?"
            ) from None
    return offsets


def format_offsets(offsets: Mapping[str, LogOffset]) -> dict[str, Any]:
    """Return the JSON of the offsets, ordered by name, since Spark compares offsets as text."""
    return {log: _format_offset(offsets[log]) for log in sorted(offsets)}


def find_ranges(start: Mapping[str, LogOffset], end: Mapping[str, LogOffset]) -> list[OffsetRange]:
    """Return the ranges of the micro-batch between two offsets, without empty ones. Raises InvalidOffsets."""
    ranges = []
    for log, offset in end.items():
        before = start.get(log)
        if before == offset:
            continue
        if offset.since is not None:
            began = offset.since
        elif before is not None and before.incarnation == offset.incarnation:
            began = before.position
        else:
            raise InvalidOffsets(
                f"the checkpoint has no position in {log} where the batch begins: its end is "
                f"{json.dumps(_format_offset(offset))}. Does the checkpoint belong to this query?"
            )
        if began < offset.position:
            ranges.append(OffsetRange(log, offset.incarnation, began, offset.position, offset.entered))
    return ranges


def _parse_query_id(value: Mapping[str, Any]) -> str:
    query_id = value.get("query", "")
    if not isinstance(query_id, str):
        raise ValueError("its `query` is not a string")
    return query_id


def _parse_optional_position(value: Mapping[str, Any], name: str) -> MessagePosition | None:
    position = value.get(name)
    if position is None:
        return None
    if not isinstance(position, dict):
        raise ValueError(f"its `{name}` is not a position")
    return parse_position(position)


def _format_offset(offset: LogOffset) -> dict[str, Any]:
    formatted: dict[str, Any] = {"incarnation": offset.incarnation, **encode_position(offset.position)}
    if offset.since is not None:
        formatted["since"] = encode_position(offset.since)
    if offset.entered is not None:
        formatted["entered"] = encode_position(offset.entered)
    if offset.query_id:
        formatted["query"] = offset.query_id
    return formatted
