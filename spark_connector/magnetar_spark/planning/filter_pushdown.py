"""Narrows the range that a batch plans to the messages that its pushed filters may accept.

A position is used only if it is certain that the range is still wide enough:

- The first entry of a time or later, as brokers find it. Broker times never decrease, so the filters accept no message
  before that entry, and a lost entry before it has no later time than its neighbours. As the end of a range it is less
  certain, since it may be a lost entry from before the time. So the range ends after this entry, and a task that meets
  a lost one fails as it would without the filter. If losses do not fail the query, the range ends after the entry's
  ledger.
- The message of an index, found by a plan of as many messages as are before it. The answer has the index of the message
  at its end (`end_index` - `messages_behind`), which is compared, since the log may be trimmed between two answers, and
  a plan that is limited within a lost entry ends after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar import MessageId
from magnetar.admin.reading import MessagePosition
from magnetar_spark.planning.filter_bounds import FilterBounds
from magnetar_spark.planning.log_plan import EARLIEST_POSITION

if TYPE_CHECKING:
    from magnetar.admin import AsyncAdmin

__all__ = ["FilterPushdown"]


class FilterPushdown:
    def __init__(self, admin: AsyncAdmin, bounds: FilterBounds, fail_on_data_loss: bool) -> None:
        self._admin = admin
        self._bounds = bounds
        self._fail_on_data_loss = fail_on_data_loss

    async def narrow_start(self, log: str, start: MessagePosition) -> MessagePosition:
        """Return `start`, or a later position before which the filters accept no message."""
        found = [start]
        if (first_ms := self._bounds.time_ms.first) is not None and first_ms > 0:
            found.append((await self._admin.reading.find_position(log, first_ms)).position)
        if (first := self._bounds.index.first) is not None:
            known = await self._find_index(log, first)
            if known is not None and known[1] <= first:
                found.append(known[0])
        if len(found) > 1 and max(found) <= (await self._admin.reading.find_position(log, MessageId.earliest)).position:
            # The filters may have accepted messages that were deleted: the plan from `start` reports these.
            return start
        return max(found)

    async def narrow_stop(self, log: str, stop: MessagePosition | None) -> MessagePosition | None:
        """Return `stop`, or an earlier position after which the filters accept no message."""
        found = [] if stop is None else [stop]
        if (stop_ms := self._bounds.time_ms.stop) is not None:
            position = (await self._admin.reading.find_position(log, max(1, stop_ms))).position
            after = MessagePosition(position.ledger_id, position.entry_id + 1, 0)
            if not self._fail_on_data_loss:
                after = MessagePosition(position.ledger_id + 1, 0, 0)
            # A range that ends after the log's end would be refused.
            if after < (await self._admin.reading.find_position(log, MessageId.latest)).position:
                found.append(after)
        if (stop_index := self._bounds.index.stop) is not None:
            known = await self._find_index(log, stop_index)
            if known is not None and known[1] >= stop_index:
                found.append(known[0])
        return min(found, default=None)

    async def _find_index(self, log: str, index: int) -> tuple[MessagePosition, int] | None:
        """Return the position of the message with this index, or one near it, such as the log's end, and the index of
        the message there. None: the topic was recreated."""
        reading = self._admin.reading
        answer = await reading.plan(log, start=EARLIEST_POSITION, stop=EARLIEST_POSITION)
        incarnation, position = answer.incarnation, answer.first
        found = answer.end_index - answer.messages_behind
        while found < index:
            answer = await reading.plan(log, incarnation=incarnation, start=position, max_messages=index - found)
            if answer.other_incarnation or answer.stop <= position:
                return None
            position, found = answer.stop, answer.end_index - answer.messages_behind
            if position >= answer.end:
                break
        return position, found
