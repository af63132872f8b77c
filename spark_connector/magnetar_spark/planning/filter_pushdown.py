"""Narrows the range of a log that a batch plans to what its filters can let pass.

A place that is found is used only if it is certain to be wide enough:

- The first entry of a time or later, as brokers find it: their times never fall, so nothing in front of it passes, and
  a lost entry in front of it has no later time than its neighbours. As the end of a range it is less certain, since it
  may be a lost entry that is earlier than the time. So the range ends behind this entry, and a task that meets a lost
  one fails as it would without the filter; where losses do not fail a query, the range ends behind the entry's ledger.
- The message of an index: by a plan of as many messages as are in front of it. The answer says which index the place
  that it ended at has (`end_index` - `messages_behind`). That is compared, since the log may have been trimmed between
  two answers, and a limit that falls within a lost entry is met behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar import MessageId
from magnetar.admin.reading import NextMessage
from magnetar_spark.planning.filter_bounds import FilterBounds
from magnetar_spark.planning.log_plan import EARLIEST_PLACE

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["Narrowing"]


class Narrowing:
    def __init__(self, admin: AsyncAdmin, bounds: FilterBounds, fail_on_data_loss: bool) -> None:
        self._admin = admin
        self._bounds = bounds
        self._fail_on_data_loss = fail_on_data_loss

    async def find_start(self, log: str, start: NextMessage) -> NextMessage:
        """Return `start`, or a later place in front of which no message passes."""
        found = [start]
        if (first_ms := self._bounds.time_ms.first) is not None and first_ms > 0:
            found.append((await self._admin.reading.place(log, first_ms)).place)
        if (first := self._bounds.index.first) is not None:
            place = await self._find_index(log, first)
            if place is not None and place[1] <= first:
                found.append(place[0])
        if len(found) > 1 and max(found) <= (await self._admin.reading.place(log, MessageId.earliest)).place:
            # What was deleted in front of it may have passed: the plan from `start` reports that.
            return start
        return max(found)

    async def find_stop(self, log: str, stop: NextMessage | None) -> NextMessage | None:
        """Return `stop`, or an earlier place behind which no message passes."""
        found = [] if stop is None else [stop]
        if (behind_ms := self._bounds.time_ms.behind) is not None:
            place = (await self._admin.reading.place(log, max(1, behind_ms))).place
            behind = NextMessage(place.ledger_id, place.entry_id + 1, 0)
            if not self._fail_on_data_loss:
                behind = NextMessage(place.ledger_id + 1, 0, 0)
            # A range that ends behind the log's end is refused.
            if behind < (await self._admin.reading.place(log, MessageId.latest)).place:
                found.append(behind)
        if (behind_index := self._bounds.index.behind) is not None:
            known = await self._find_index(log, behind_index)
            if known is not None and known[1] >= behind_index:
                found.append(known[0])
        return min(found, default=None)

    async def _find_index(self, log: str, index: int) -> tuple[NextMessage, int] | None:
        """The place of the message, or one near it, such as the log's end, and the index of the message there. None:
        the log was made again."""
        reading = self._admin.reading
        answer = await reading.plan(log, start=EARLIEST_PLACE, stop=EARLIEST_PLACE)
        incarnation, place = answer.incarnation, answer.first
        at = answer.end_index - answer.messages_behind
        while at < index:
            answer = await reading.plan(log, incarnation=incarnation, start=place, max_messages=index - at)
            if answer.other_incarnation or answer.stop <= place:
                return None
            place, at = answer.stop, answer.end_index - answer.messages_behind
            if place >= answer.end:
                break
        return place, at
