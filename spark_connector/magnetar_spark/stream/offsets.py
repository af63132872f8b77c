"""Where a query stands, as Spark's checkpoint keeps it: plain JSON, by the names of partitions.

    {"persistent://public/default/orders-partition-0":
        {"incarnation": "5f0c…", "ledger_id": 12, "entry_id": 7, "batch_index": 3,
         "since": {"ledger_id": 12, "entry_id": 0, "batch_index": 0}, "query": "9b1f…"}}

The place is that of the next message to be read. The incarnation is the topic's: one that was deleted and made again
under the same name is another topic, in which the place means nothing.

**Since.** A micro-batch is told by two offsets, and lies between them. But Spark writes down its end alone; where it
began is the end of the one before, and of the first one *the initial offset, asked for anew* when that batch is done
again after a crash. A `latest` that has moved meanwhile would skip what the batch held. So the end of a batch says by
`since` where it began, for every partition that came into the query with it: all of those of the first batch, and later
the partitions and topics that were found then. What was the end of a batch is the beginning of the next, where `since`
has nothing to say any more, and is left out.

**Query.** An id that the query drew at random when it began. Its progressSubscription has the same one
(stream/progress_subscription.py). It stands beside each log, and is the same in all.

**Entered.** Of a message in chunks the first ones may have been deleted when the last is read. That is a loss, unless
the query began with the earliest message of the log, and they were gone by then. So where a log began that was entered
at its earliest is kept for good.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from magnetar.admin import NextMessage
from magnetar_spark.errors import InvalidOffsets
from magnetar_spark.options.offset_option import place_of

__all__ = ["LogOffset", "ReadRange", "parse_offsets", "ranges_between", "shown_offsets"]


@dataclass(frozen=True, slots=True)
class LogOffset:
    incarnation: str
    place: NextMessage
    since: NextMessage | None = None
    # Where the log began then, if the query began with its earliest message.
    entered: NextMessage | None = None
    # Empty: of a query that has none.
    query_id: str = ""

    @property
    def has_begun(self) -> bool:
        """A batch that ended before here has said where the query began in this log."""
        return self.since is None or self.since != self.place


@dataclass(frozen=True, slots=True)
class ReadRange:
    """What a batch holds of a log."""

    log: str
    incarnation: str
    start: NextMessage
    stop: NextMessage
    entered: NextMessage | None = None


def parse_offsets(shown: Mapping[str, Any]) -> dict[str, LogOffset]:
    """Raises InvalidOffsets."""
    offsets = {}
    for log, value in shown.items():
        try:
            if not isinstance(value, dict) or not isinstance(value.get("incarnation"), str):
                raise ValueError("it has no incarnation")
            offsets[log] = LogOffset(
                value["incarnation"],
                place_of(value),
                _place_in(value, "since"),
                _place_in(value, "entered"),
                _query_in(value),
            )
        except ValueError as error:
            raise InvalidOffsets(
                f"the checkpoint's offset of {log!r:.300} is {json.dumps(value)[:200]}, which this source "
                f"did not write: {error}. Does the checkpoint belong to this query?"
            ) from None
    return offsets


def shown_offsets(offsets: Mapping[str, LogOffset]) -> dict[str, Any]:
    """In the order of their names, since Spark compares what it is given as text."""
    return {log: _shown(offsets[log]) for log in sorted(offsets)}


def ranges_between(start: Mapping[str, LogOffset], end: Mapping[str, LogOffset]) -> list[ReadRange]:
    """What a batch holds that ends there; the empty ranges are left out."""
    ranges = []
    for log, offset in end.items():
        before = start.get(log)
        if before == offset:
            continue
        if offset.since is not None:
            began = offset.since
        elif before is not None and before.incarnation == offset.incarnation:
            began = before.place
        else:
            raise InvalidOffsets(
                f"the checkpoint has no position in {log} where the batch begins: its end is "
                f"{json.dumps(_shown(offset))}. Does the checkpoint belong to this query?"
            )
        if began < offset.place:
            ranges.append(ReadRange(log, offset.incarnation, began, offset.place, offset.entered))
    return ranges


def _query_in(value: Mapping[str, Any]) -> str:
    """Raises ValueError."""
    query_id = value.get("query", "")
    if not isinstance(query_id, str):
        raise ValueError("its `query` is not a string")
    return query_id


def _place_in(value: Mapping[str, Any], name: str) -> NextMessage | None:
    """Raises ValueError."""
    place = value.get(name)
    if place is None:
        return None
    if not isinstance(place, dict):
        raise ValueError(f"its `{name}` is not a position")
    return place_of(place)


def _shown(offset: LogOffset) -> dict[str, Any]:
    shown: dict[str, Any] = {"incarnation": offset.incarnation, **offset.place._asdict()}
    if offset.since is not None:
        shown["since"] = offset.since._asdict()
    if offset.entered is not None:
        shown["entered"] = offset.entered._asdict()
    if offset.query_id:
        shown["query"] = offset.query_id
    return shown
