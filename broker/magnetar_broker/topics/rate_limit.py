"""Lets publishes or dispatches of a topic, a subscription or the broker wait for a maximum rate, in turn.

A caller checks `must_wait` first, works, and then counts the work by `take`. If it must wait, it requests a
turn (`wait_for_turn`). Turns are given in the order in which they were requested, as long as the rate allows more, and
others wait behind them. One that has a turn uses what the rate allows, and requests another turn if it has more to do.
So all get their share.

The rate is read at intervals of `_REREAD_S`, and follows changes of settings and policies. `recheck` reads it at once,
and gives turns.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Final

from magnetar_broker.settings.rates import Rate
from magnetar_broker.topics.token_bucket import Left, RateBuckets
from magnetar_wire.clock import Clock, Timer

__all__ = ["UNLIMITED", "RateLimit"]

_log = logging.getLogger(__name__)
UNLIMITED: Final = Left()
# Turns are given at intervals of this at least: at high rates a turn is for many messages.
_MIN_PAUSE_S: Final = 0.01
_REREAD_S: Final = 0.25


class RateLimit:
    __slots__ = ("_buckets", "_is_giving", "_read_at", "_read_rate", "_timer", "_waiting", "clock", "name")

    def __init__(self, name: str, read_rate: Callable[[], Rate], clock: Clock) -> None:
        """`name`: of the rate, as in "the publish rate of the topic"."""
        self.name = name
        self._read_rate = read_rate
        self.clock = clock
        self._buckets = RateBuckets()
        # When the rate was read last, on the monotonic clock.
        self._read_at = -math.inf
        # The calls that wait for their turn, in order.
        self._waiting: dict[Callable[[], object], None] = {}
        self._timer: Timer | None = None
        # One that has its turn is being called.
        self._is_giving = False

    def left(self) -> Left:
        """Return what the rate allows now."""
        now = self.clock.monotonic()
        if now - self._read_at >= _REREAD_S:
            self._read_at = now
            rate = self._read_rate()
            if rate != self._buckets.rate:
                self._buckets.change(rate, now)
        return self._buckets.left(now) if self._buckets.is_limited else UNLIMITED

    def must_wait(self) -> bool:
        """Return whether to wait for a turn: the rate is used up, or others wait for it."""
        left = self.left()
        if left is UNLIMITED:
            return False
        return left.messages <= 0 or left.bytes <= 0 or (bool(self._waiting) and not self._is_giving)

    def take(self, messages: int, size_bytes: int) -> None:
        """Count work that was done."""
        if self._buckets.is_limited:
            self._buckets.take(messages, size_bytes, self.clock.monotonic())

    def describe_shortage(self) -> str:
        """Return why work waits; empty: the rate allows more."""
        left = self.left()
        if left.messages <= 0:
            return self._describe(self._buckets.rate.messages, "messages")
        if left.bytes <= 0:
            return self._describe(self._buckets.rate.bytes, "bytes")
        return ""

    def describe_wait(self) -> str:
        """Return why one that has requested a turn waits. Turns are given at intervals, so the rate may allow more."""
        others = "others wait for it, too" if len(self._waiting) > 1 else "turns are given at intervals"
        return self.describe_shortage() or f"{self.name} was at its maximum a moment ago, and {others}"

    def _describe(self, maximum: float, unit: str) -> str:
        period = self._buckets.rate.period_seconds
        return f"{self.name} is at its maximum of {maximum:,.0f} {unit} " + (
            "a second" if period == 1 else f"in {period:,.0f} seconds"
        )

    # Turns.

    def wait_for_turn(self, work: Callable[[], object]) -> None:
        """Call `work` once, when its turn has come. Does nothing if it waits."""
        self._waiting.setdefault(work)
        self._schedule()

    def forget(self, work: Callable[[], object]) -> None:
        self._waiting.pop(work, None)

    def reread(self) -> None:
        """Read the rate, which may have changed, when it is needed next."""
        self._read_at = -math.inf

    def recheck(self) -> None:
        """Read the rate, which may have changed, and give turns as far as it allows."""
        self.reread()
        if self._waiting and not self._is_giving:
            self._give_turns()

    def _schedule(self) -> None:
        if self._timer is None and self._waiting and not self._is_giving:
            left = self.left()
            seconds = 0 if left is UNLIMITED else self._buckets.seconds_until_open(self.clock.monotonic())
            pause_s = max(_MIN_PAUSE_S, min(seconds, _REREAD_S))
            self._timer = self.clock.call_later(pause_s, self._give_turns)

    def _give_turns(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_giving = True
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
            self._is_giving = False
        self._schedule()
