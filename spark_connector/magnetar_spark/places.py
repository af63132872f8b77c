"""Where a point that the user named is in a log.

A position behind the log's end is refused, wherever it is used: to begin there would skip what is published next, and
to end there would promise messages that there are not. A broker answers beyond its end only after it has made sure that
no other broker has stored more (broker/magnetar_broker/protocol.md, Plans), so an answer need not be asked for twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar import MessageId
from magnetar.admin.reading import LogPlace, NextMessage
from magnetar_spark.bounds import EARLIEST, LATEST, Point
from magnetar_spark.errors import PositionBeyondEnd

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["check_not_beyond_end", "place_at", "shown_position"]


async def place_at(admin: AsyncAdmin, log: str, point: Point) -> LogPlace:
    """A position is taken as it was given, whether there is a message or not. Raises PositionBeyondEnd."""
    if isinstance(point, NextMessage):
        plan = await admin.reading.plan(log, start=point, stop=point)
        if not plan.other_incarnation:
            check_not_beyond_end(log, point, plan.end)
        return LogPlace(plan.incarnation, point, plan.retained)
    if isinstance(point, int):
        return await admin.reading.place(log, point)
    return await admin.reading.place(log, {EARLIEST: MessageId.earliest, LATEST: MessageId.latest}[point])


def check_not_beyond_end(log: str, position: NextMessage, end: NextMessage) -> None:
    """Raises PositionBeyondEnd."""
    if position > end:
        raise PositionBeyondEnd(
            f"{log} is to be read from or up to position {shown_position(position)} and ends at "
            f"{shown_position(end)}, before that: is it a position of this topic, or has the end of the topic been "
            "lost? Nothing is read, since what is published next would be skipped"
        )


def shown_position(position: NextMessage) -> str:
    return f"{position.ledger_id}:{position.entry_id}:{position.batch_index}"
