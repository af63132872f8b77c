"""Decides whether a micro-batch waits for more messages: `minMessagesPerTrigger` and `maxTriggerDelay`.

A micro-batch waits while fewer messages than `minMessagesPerTrigger` can be read, for `maxTriggerDelay` at most,
counted from when the first of them was seen. So no message waits longer than that for others, and an empty topic starts
no clock. A query with `Trigger.AvailableNow` or `Trigger.Once` does not wait: it reads what there is, and ends.
"""

from __future__ import annotations

__all__ = ["TriggerDelay"]


class TriggerDelay:
    def __init__(self, min_messages: int, max_delay_s: float) -> None:
        """`min_messages` 0: nothing waits."""
        self._min_messages = min_messages
        self._max_delay_s = max_delay_s
        # When the first message was seen that waits; None: none does.
        self._since: float | None = None

    @property
    def is_set(self) -> bool:
        return self._min_messages > 0

    def holds_back(self, available: int, now: float) -> bool:
        if not available:
            self._since = None
            return False
        if self._since is None:
            self._since = now
        return available < self._min_messages and now - self._since < self._max_delay_s

    def end_wait(self, now: float) -> float:
        """Return for how many seconds the messages of the micro-batch that begins now have waited."""
        since, self._since = self._since, None
        return 0.0 if since is None else now - since
