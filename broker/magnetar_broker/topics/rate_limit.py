"""Limits the rate of publishes or of dispatches: of a topic, of a subscription or of the broker.

The work that a rate limits is to publish entries of a producer, or to dispatch entries of a subscription. A caller
checks `must_wait` first, publishes or dispatches what `get_allowance` allows, and counts it by `record_passed`. If it
must wait, it calls `wait_for_turn`. Turns are given in the order in which they were requested, when the rate allows
more. A caller that has used its turn and has more to do requests another one. So all producers, or all subscriptions,
get their share of the rate.

The rate is read from settings and policies at intervals of `_REREAD_S`, so it follows their changes.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

from magnetar_broker.settings.rates import Rate
from magnetar_broker.topics.token_bucket import UNLIMITED, Allowance, RateBuckets
from magnetar_wire.clock import Clock, Timer

__all__ = ["RateLimit"]

_log = logging.getLogger(__name__)
# The minimum interval of turns: at high rates a turn is for many messages.
_MIN_PAUSE_S: Final = 0.01
_REREAD_S: Final = 0.25


class RateLimit:
    __slots__ = ("_buckets", "_is_giving_turns", "_rate_read_at", "_read_rate", "_timer", "_waiting", "clock", "name")

    def __init__(self, name: str, read_rate: Callable[[], Rate], clock: Clock) -> None:
        """`name`: of the rate, for explanations, such as "the publish rate of the topic"."""
        self.name = name
        self._read_rate = read_rate
        self.clock = clock
        self._buckets = RateBuckets()
        # On the monotonic clock.
        self._rate_read_at = -math.inf
        # An ordered set of what waits for its turn.
        self._waiting: dict[Callable[[], object], None] = {}
        self._timer: Timer | None = None
        self._is_giving_turns = False

    def get_allowance(self) -> Allowance:
        """Return how many messages and bytes the rate allows now."""
        now = self.clock.monotonic()
        if now - self._rate_read_at >= _REREAD_S:
            self._rate_read_at = now
            rate = self._read_rate()
            if rate != self._buckets.rate:
                self._buckets.change(rate, now)
        return self._buckets.get_allowance(now) if self._buckets.is_limited else UNLIMITED

    def must_wait(self) -> bool:
        """Return whether to wait for a turn: the rate is reached, or others wait for it."""
        allowance = self.get_allowance()
        if allowance is UNLIMITED:
            return False
        is_reached = allowance.messages <= 0 or allowance.bytes <= 0
        return is_reached or (bool(self._waiting) and not self._is_giving_turns)

    def record_passed(self, messages: int, size_bytes: int) -> None:
        """Count messages that were published or dispatched."""
        if self._buckets.is_limited:
            self._buckets.consume(messages, size_bytes, self.clock.monotonic())

    def describe_reached(self) -> str:
        """Return which maximum the rate has reached; empty: it allows more."""
        allowance = self.get_allowance()
        if allowance.messages <= 0:
            return self._describe_maximum(self._buckets.rate.messages, "messages")
        if allowance.bytes <= 0:
            return self._describe_maximum(self._buckets.rate.bytes, "bytes")
        return ""

    def describe_wait(self) -> str:
        """Return why something waits for its turn. As turns are given at intervals, the rate may allow more already."""
        others = "others wait for it, too" if len(self._waiting) > 1 else "turns are given at intervals"
        return self.describe_reached() or f"{self.name} was at its maximum a moment ago, and {others}"

    def find_next_ms(self) -> int:
        """Return when the rate allows more, in ms since 1970."""
        now = self.clock.monotonic()
        left_s = self._buckets.seconds_until_allowed(now) if self._buckets.is_limited else 0.0
        return self.clock.time_ms() + int(1000 * left_s)

    def _describe_maximum(self, maximum: float, unit: str) -> str:
        period = self._buckets.rate.period_seconds
        return f"{self.name} is at its maximum of {maximum:,.0f} {unit} " + (
            "a second" if period == 1 else f"in {period:,.0f} seconds"
        )

    # Turns.

    def wait_for_turn(self, work: Callable[[], object]) -> None:
        """Call `work` once, when its turn has come. If it waits already, it keeps its turn."""
        self._waiting.setdefault(work)
        self._schedule_turns()

    def cancel_turn(self, work: Callable[[], object]) -> None:
        """Do not call `work` any more."""
        self._waiting.pop(work, None)

    def reread_rate(self) -> None:
        """Read the rate again at the next use, because it may have changed."""
        self._rate_read_at = -math.inf

    def follow_rate_change(self) -> None:
        """Read the rate again, and give turns as far as it allows."""
        self.reread_rate()
        if self._waiting and not self._is_giving_turns:
            self._give_turns()

    def _schedule_turns(self) -> None:
        if self._timer is None and self._waiting and not self._is_giving_turns:
            allowance = self.get_allowance()
            is_limited = allowance is not UNLIMITED
            seconds = self._buckets.seconds_until_allowed(self.clock.monotonic()) if is_limited else 0
            pause_s = max(_MIN_PAUSE_S, min(seconds, _REREAD_S))
            self._timer = self.clock.call_later(pause_s, self._give_turns)

    def _give_turns(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_giving_turns = True
        try:
            for _ in range(len(self._waiting)):
                if not self._waiting or self.must_wait():
                    break
                work = next(iter(self._waiting))
                del self._waiting[work]
                try:
                    work()
                except Exception:  # noqa: BLE001 (the others get their turns)
                    _log.exception("%s: what waited for it failed", self.name)
        finally:
            self._is_giving_turns = False
        self._schedule_turns()
