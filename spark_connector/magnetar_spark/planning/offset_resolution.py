"""Resolves an offset of `startingOffsets` or `endingOffsets` to a position in a log.

Some offsets are refused with either value of `failOnDataLoss`, since they are mistakes and not losses:

- A position after the log's end. A query that begins there would skip the messages that are published next, and one
  that ends there would need messages that do not exist. A broker reports an end before the position only after it has
  made sure that no other broker has stored more (broker/magnetar_broker/protocol.md, Plans), so one answer is enough.
- A position in a ledger from before the topic was created: it belongs to another topic. No incarnation is requested
  here, so `other_incarnation` means only this.
- A time in the future in `startingOffsets`. It would be resolved to the log's end, and messages from before that time
  would be read. Brokers do not report their clocks, so it is compared with the driver's, with a tolerance of
  `_CLOCK_SKEW_MS`. A time in the future in `endingOffsets` is the log's end, like any time after the last message.
- A start after the end of one partition, if the user gave both as positions or times.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from magnetar import MessageId
from magnetar.admin.reading import LogPosition, MessagePosition
from magnetar_spark.errors import InvalidOptions, PositionBeyondEnd, PositionOfOtherTopic
from magnetar_spark.options.offset_option import EARLIEST, LATEST, RequestedOffset, format_position
from magnetar_spark.options.offset_times import format_time

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["ENDING", "STARTING", "check_not_beyond_end", "check_start_before_end", "resolve_offset"]

STARTING: Final = "startingOffsets"
ENDING: Final = "endingOffsets"
# How far a time in startingOffsets may be ahead of the driver's clock.
_CLOCK_SKEW_MS: Final = 10_000


async def resolve_offset(admin: AsyncAdmin, log: str, offset: RequestedOffset, option: str) -> LogPosition:
    """Return the position of an offset of the option. A position is returned unchanged, even without a message there.

    Raises InvalidOptions, PositionBeyondEnd, PositionOfOtherTopic."""
    if isinstance(offset, MessagePosition):
        plan = await admin.reading.plan(log, start=offset, stop=offset)
        if plan.other_incarnation:
            raise PositionOfOtherTopic(
                f"{option} gives {log} the position {format_position(offset)}, which is older than the topic: "
                "it belongs to another topic, or to one that had this name before. Use a position of this "
                "topic, a time, earliest or latest"
            )
        check_not_beyond_end(log, offset, plan.end, option)
        return LogPosition(plan.incarnation, offset, plan.retained)
    if isinstance(offset, int):
        if option == STARTING:
            _check_not_in_future(log, offset)
        return await admin.reading.find_position(log, offset)
    return await admin.reading.find_position(log, {EARLIEST: MessageId.earliest, LATEST: MessageId.latest}[offset])


def check_not_beyond_end(log: str, position: MessagePosition, end: MessagePosition, origin: str) -> None:
    """Raise PositionBeyondEnd if the position is after the end. `origin`: the option that it is from, or the
    checkpoint."""
    if position > end:
        raise PositionBeyondEnd(
            f"{log} is to be read from or up to position {format_position(position)}, from {origin}, but it "
            f"ends at {format_position(end)}, before that: is it a position of this topic, or was the end of "
            "the topic lost? Nothing is read, since messages published next would be skipped"
        )


async def check_start_before_end(
    admin: AsyncAdmin,
    log: str,
    starting: RequestedOffset,
    start: MessagePosition,
    ending: RequestedOffset,
    stop: MessagePosition,
) -> None:
    """Raise InvalidOptions if `starting`, resolved to `start`, is after `ending`, resolved to `stop`."""
    if isinstance(starting, int) and isinstance(ending, int):
        if starting <= ending:
            return
    elif isinstance(starting, str) or isinstance(ending, str) or start <= stop:
        return
    elif isinstance(starting, int) and stop < (await admin.reading.find_position(log, MessageId.earliest)).position:
        # The first messages from that time on may have been before `stop`, and deleted since.
        return
    raise InvalidOptions(
        f"startingOffsets gives {log} {_describe_offset(starting, start)}, which is after endingOffsets, "
        f"{_describe_offset(ending, stop)}: are they swapped?"
    )


def _check_not_in_future(log: str, time_ms: int) -> None:
    """Raise InvalidOptions if the time is in the future."""
    now_ms = int(time.time() * 1000)
    if time_ms > now_ms + _CLOCK_SKEW_MS:
        raise InvalidOptions(
            f"startingOffsets gives {log} the time {format_time(time_ms)}, which is in the future: it is "
            f"{format_time(now_ms)} by the driver's clock, and messages from before that time would be read. "
            "Use latest to start with the messages that are published from now on"
        )


def _describe_offset(offset: RequestedOffset, position: MessagePosition) -> str:
    if isinstance(offset, int):
        return f"the time {format_time(offset)} (position {format_position(position)})"
    return f"the position {format_position(position)}"
