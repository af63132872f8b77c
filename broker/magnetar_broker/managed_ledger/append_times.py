"""Observes the times of a topic's appends: how long nothing was appended, and whether a broker's clock was wrong.

Appends call nothing here. The appender calls these functions about every second, and they compare what its queue has
with what it had at the call before.
"""

from __future__ import annotations

import logging
from typing import Final

from magnetar_broker.managed_ledger.append_queue import AppendQueue
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import TopicName

__all__ = ["AppendTimes"]

_log = logging.getLogger(__name__)
# The difference between the clocks of two brokers that is normal.
_MAX_AHEAD_MS: Final = 60_000


class AppendTimes:
    __slots__ = ("_clock", "_has_warned", "_next_index", "_queue", "_topic", "_unchanged_since")

    def __init__(self, topic: TopicName, queue: AppendQueue, clock: Clock) -> None:
        self._topic = topic
        self._queue = queue
        self._clock = clock
        # The index of the next message when this was called last, and since when it is that, on the monotonic clock.
        self._next_index = queue.next_index
        self._unchanged_since = clock.monotonic()
        self._has_warned = False

    def measure_unchanged_s(self) -> float:
        """Return for how many seconds nothing was appended, as seen by the calls of this."""
        now = self._clock.monotonic()
        if self._queue.next_index != self._next_index:
            self._next_index, self._unchanged_since = self._queue.next_index, now
        return now - self._unchanged_since

    def warn_if_ahead(self) -> None:
        """Log a warning, once, if the last entry's broker time is far ahead of this broker's clock."""
        ahead_ms = self._queue.last_time_ms - self._clock.time_ms()
        if ahead_ms >= _MAX_AHEAD_MS and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "Topic %s: the last entry's time is %d s ahead of this broker's clock, so a clock was wrong. Entries "
                "get that time until the clock reaches it, and do not expire by their age before",
                self._topic,
                ahead_ms // 1000,
            )
