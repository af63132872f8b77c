"""Where a point that the user named is in a log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from magnetar import MessageId
from magnetar.admin.reading import LogPlace, NextMessage
from magnetar_spark.bounds import EARLIEST, LATEST, Point

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["place_at"]


async def place_at(admin: AsyncAdmin, log: str, point: Point) -> LogPlace:
    """A place is taken as it was given, whether there is a message or not: who plans from there is told."""
    if isinstance(point, NextMessage):
        return replace(await admin.reading.place(log, MessageId.earliest), place=point)
    if isinstance(point, int):
        return await admin.reading.place(log, point)
    return await admin.reading.place(log, {EARLIEST: MessageId.earliest, LATEST: MessageId.latest}[point])
