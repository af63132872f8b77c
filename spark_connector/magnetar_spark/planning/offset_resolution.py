"""Resolves a point of `startingOffsets` or `endingOffsets` to a position in a log.

Some points are refused whatever `failOnDataLoss` says, since they are mistakes and not losses:

- A position behind the log's end: to begin there would skip the messages that are published next, and to end there
  would promise messages that do not exist. A broker answers beyond its end only after it has made sure that no other
  broker has stored more (broker/magnetar_broker/protocol.md, Plans), so one answer is enough.
- A position in a ledger from before the topic was created: it is of another topic. No incarnation is asked for here, so
  `other_incarnation` says nothing else.
- A time ahead of now in `startingOffsets`. The log's end would be the first position of that time or later, so messages
  from before it would be read. Brokers do not report their clocks, so the driver's is compared, with a tolerance of
  `_CLOCK_SKEW_MS`. A time ahead of now in `endingOffsets` is the log's end, as any time after the last message is.
- For one partition, a start behind the end where the user gave both as positions or times.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from magnetar import MessageId
from magnetar.admin.reading import LogPlace, NextMessage
from magnetar_spark.errors import InvalidOptions, PositionBeyondEnd, PositionOfOtherTopic
from magnetar_spark.options.offset_option import EARLIEST, LATEST, Point
from magnetar_spark.options.offset_times import shown_time

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["ENDING", "STARTING", "check_not_beyond_end", "check_order", "place_at", "shown_position"]

STARTING: Final = "startingOffsets"
ENDING: Final = "endingOffsets"
# How far a time in startingOffsets may be ahead of the driver's clock.
_CLOCK_SKEW_MS: Final = 10_000


async def place_at(admin: AsyncAdmin, log: str, point: Point, option: str) -> LogPlace:
    """Return where `point` of `option` is. A position is returned as it was given, whether it has a message or not.

    Raises InvalidOptions, PositionBeyondEnd, PositionOfOtherTopic."""
    if isinstance(point, NextMessage):
        plan = await admin.reading.plan(log, start=point, stop=point)
        if plan.other_incarnation:
            raise PositionOfOtherTopic(
                f"{option} gives {log} the position {shown_position(point)}, which is older than the topic: "
                "it belongs to another topic, or to one that had this name before. Use a position of this "
                "topic, a time, earliest or latest"
            )
        check_not_beyond_end(log, point, plan.end, option)
        return LogPlace(plan.incarnation, point, plan.retained)
    if isinstance(point, int):
        if option == STARTING:
            _check_not_ahead(log, point)
        return await admin.reading.place(log, point)
    return await admin.reading.place(log, {EARLIEST: MessageId.earliest, LATEST: MessageId.latest}[point])


def check_not_beyond_end(log: str, position: NextMessage, end: NextMessage, origin: str) -> None:
    """Raises PositionBeyondEnd. `origin`: the option that the position is from, or the checkpoint."""
    if position > end:
        raise PositionBeyondEnd(
            f"{log} is to be read from or up to position {shown_position(position)}, from {origin}, but it "
            f"ends at {shown_position(end)}, before that: is it a position of this topic, or was the end of "
            "the topic lost? Nothing is read, since messages published next would be skipped"
        )


async def check_order(
    admin: AsyncAdmin, log: str, starting: Point, start: NextMessage, ending: Point, stop: NextMessage
) -> None:
    """Raises InvalidOptions where `starting`, resolved to `start`, is behind `ending`, resolved to `stop`."""
    if isinstance(starting, int) and isinstance(ending, int):
        if starting <= ending:
            return
    elif isinstance(starting, str) or isinstance(ending, str) or start <= stop:
        return
    elif isinstance(starting, int) and stop < (await admin.reading.place(log, MessageId.earliest)).place:
        # The messages that the time is at may have been deleted, and have been in front of `stop`.
        return
    raise InvalidOptions(
        f"startingOffsets gives {log} {_shown(starting, start)}, which is after endingOffsets, "
        f"{_shown(ending, stop)}: are they swapped?"
    )


def _check_not_ahead(log: str, time_ms: int) -> None:
    """Raises InvalidOptions."""
    now_ms = int(time.time() * 1000)
    if time_ms > now_ms + _CLOCK_SKEW_MS:
        raise InvalidOptions(
            f"startingOffsets gives {log} the time {shown_time(time_ms)}, which is in the future: it is "
            f"{shown_time(now_ms)} by the driver's clock, and messages from before that time would be read. "
            "Use latest to start with the messages that are published from now on"
        )


def _shown(point: Point, position: NextMessage) -> str:
    if isinstance(point, int):
        return f"the time {shown_time(point)} (position {shown_position(position)})"
    return f"the position {shown_position(position)}"


def shown_position(position: NextMessage) -> str:
    return f"{position.ledger_id}:{position.entry_id}:{position.batch_index}"
