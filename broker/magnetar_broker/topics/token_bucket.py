"""Limits a rate of messages and bytes by token buckets: the rules, which are given the time.

A bucket gets `rate` tokens a second, up to `burst`, what a period of the rate allows. What passes takes its tokens
afterwards, so a bucket may owe some: then nothing passes until it has a token again. So a batch that is larger than the
burst passes, too, and for any window of time

    passed <= rate * window + burst + the largest batch

Without batches the last part is not needed. Nothing waits longer than the bucket owes: there are no periods at whose
beginning everything passes at once.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from magnetar_broker.settings.rates import NO_RATE, DispatchRate, Rate

__all__ = ["Left", "RateBuckets", "TokenBucket", "add_published"]

# Below this much of a token, arithmetic is not exact.
_GRAIN: Final = 1e-6


class Left(NamedTuple):
    """How much may pass now; 0 or less: nothing."""

    messages: float = math.inf
    bytes: float = math.inf


class TokenBucket:
    __slots__ = ("_burst", "_rate", "_tokens", "_updated_at")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        """A full bucket. `rate`: tokens a second."""
        self._rate = rate
        # At least one token, or nothing would ever pass.
        self._burst = max(1.0, burst)
        # Below 0: what passed last has taken more than there were.
        self._tokens = self._burst
        self._updated_at = now

    def change(self, rate: float, burst: float, now: float) -> None:
        """Change the rate. Tokens that it owes stay owed."""
        self._fill(now)
        self._rate, self._burst = rate, max(1.0, burst)
        self._tokens = min(self._tokens, self._burst)

    def _fill(self, now: float) -> None:
        if now > self._updated_at:
            self._tokens = min(self._burst, self._tokens + (now - self._updated_at) * self._rate)
            self._updated_at = now

    def left(self, now: float) -> float:
        """Return the number of whole tokens; 0: nothing may pass."""
        self._fill(now)
        return max(0.0, math.floor(self._tokens + _GRAIN))

    def take(self, tokens: float, now: float) -> None:
        """Take tokens for what has passed, also more than there are."""
        self._fill(now)
        self._tokens -= tokens

    def seconds_until_open(self, now: float) -> float:
        """Return after which time something may pass. 0: now."""
        return 0.0 if self.left(now) else (1 - self._tokens) / self._rate


class RateBuckets:
    """The buckets of one `Rate`, which may change: of messages and of bytes. A rate without limit has no bucket."""

    __slots__ = ("_bytes", "_messages", "rate")

    def __init__(self) -> None:
        self.rate = NO_RATE
        self._messages: TokenBucket | None = None
        self._bytes: TokenBucket | None = None

    @property
    def is_limited(self) -> bool:
        return self._messages is not None or self._bytes is not None

    def change(self, rate: Rate, now: float) -> None:
        self._messages = _changed(self._messages, rate.messages, rate.period_seconds, now)
        self._bytes = _changed(self._bytes, rate.bytes, rate.period_seconds, now)
        self.rate = rate

    def take(self, messages: float, size_bytes: float, now: float) -> None:
        if self._messages is not None:
            self._messages.take(messages, now)
        if self._bytes is not None:
            self._bytes.take(size_bytes, now)

    def left(self, now: float) -> Left:
        return Left(
            math.inf if self._messages is None else self._messages.left(now),
            math.inf if self._bytes is None else self._bytes.left(now),
        )

    def seconds_until_open(self, now: float) -> float:
        return max((one.seconds_until_open(now) for one in (self._messages, self._bytes) if one is not None), default=0)


def add_published(rate: DispatchRate, messages_per_s: float, bytes_per_s: float) -> Rate:
    """Return the rate, with the rate at which messages are published if it is relative to that."""
    messages, size_bytes, period_seconds = rate.limit
    if not rate.is_relative:
        return rate.limit
    return Rate(
        messages + messages_per_s * period_seconds if messages > 0 else 0,
        size_bytes + bytes_per_s * period_seconds if size_bytes > 0 else 0,
        period_seconds,
    )


def _changed(bucket: TokenBucket | None, per_period: float, period_seconds: float, now: float) -> TokenBucket | None:
    if per_period <= 0:
        return None
    rate = per_period / period_seconds
    if bucket is None:
        return TokenBucket(rate, per_period, now)
    bucket.change(rate, per_period, now)
    return bucket
