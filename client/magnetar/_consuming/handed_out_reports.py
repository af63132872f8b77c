"""Has the broker know which messages a reader has handed out to the application.

A reader acknowledges what it has handed out when it grants permits, which may be never after the last message: but the
broker reports the end of a terminated topic when all is acknowledged. So what is handed out is reported from time to
time, as long as messages wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from magnetar._consuming.partition_consumer import PartitionConsumer
from magnetar._message import Message
from magnetar._prefetching.receiver_queue import ReceiverQueue
from magnetar_wire.clock import Clock, Timer

__all__ = ["HandedOutReports"]

# How often a reader reports which messages it has handed out, while there are others.
_MIN_REPORT_INTERVAL_S: Final = 0.1
_MAX_REPORT_INTERVAL_S: Final = 0.5


class HandedOutReports:
    def __init__(self, clock: Clock, queue: ReceiverQueue, partitions: Sequence[PartitionConsumer]) -> None:
        self._clock = clock
        self._queue = queue
        self._partitions = partitions
        self._timer: Timer | None = None
        self._interval_s = _MIN_REPORT_INTERVAL_S
        # The last message of each partition that the last report was about.
        self._reported: list[Message[Any] | None] = []
        self._is_stopped = False

    def start(self) -> None:
        """Messages were delivered: report until none is left."""
        self._interval_s = _MIN_REPORT_INTERVAL_S
        if self._timer is None and not self._is_stopped:
            self._timer = self._clock.call_later(self._interval_s, self._report)

    def _report(self) -> None:
        are_left = bool(len(self._queue))  # before counting: other threads take them
        reported = [partition.acknowledge_handed_out() for partition in self._partitions]
        self._timer = None
        if not are_left or self._is_stopped:
            self._reported = []
            return
        # While the application takes nothing, this is rarer.
        is_idle = reported == self._reported
        interval_s = min(2 * self._interval_s, _MAX_REPORT_INTERVAL_S) if is_idle else _MIN_REPORT_INTERVAL_S
        self._reported, self._interval_s = reported, interval_s
        self._timer = self._clock.call_later(interval_s, self._report)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
