"""Token buckets, which limit a rate of messages and of bytes: the rules, which are given the time.

A bucket is filled with `rate` tokens a second, one token for each message or byte. It holds `burst` tokens at most: as
many as the rate allows in one period. A batch of messages passes if the bucket has at least one token, and its tokens
are taken afterwards. So the number of tokens may be negative: then nothing passes until there is one again. For any
window of time,

    passed <= rate * window + burst + the largest batch

There are no periods at whose beginning everything passes at once.

All times are seconds of one monotonic clock.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from magnetar_broker.settings.rates import NO_RATE, DispatchRate, Rate

__all__ = ["UNLIMITED", "Allowance", "RateBuckets", "TokenBucket", "add_published"]

# The part of a token up to which arithmetic is exact.
_GRAIN: Final = 1e-6


class Allowance(NamedTuple):
    """How many messages and bytes a rate allows now; 0 or less: nothing may pass."""

    messages: float = math.inf
    bytes: float = math.inf


UNLIMITED: Final = Allowance()


class TokenBucket:
    __slots__ = ("_burst", "_filled_at", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        """Create a full bucket. `rate`: tokens a second; `burst`: the maximum number of tokens."""
        self._rate = rate
        # At least one token, or nothing would ever pass.
        self._burst = max(1.0, burst)
        # Below 0 if what passed last was more than there were.
        self._tokens = self._burst
        self._filled_at = now

    def change(self, rate: float, burst: float, now: float) -> None:
        """Change the rate. A negative number of tokens stays negative."""
        self._fill(now)
        self._rate, self._burst = rate, max(1.0, burst)
        self._tokens = min(self._tokens, self._burst)

    def _fill(self, now: float) -> None:
        if now > self._filled_at:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
            self._filled_at = now

    def count_tokens(self, now: float) -> float:
        """Return the number of whole tokens; 0: nothing may pass."""
        self._fill(now)
        return max(0.0, math.floor(self._tokens + _GRAIN))

    def consume(self, tokens: float, now: float) -> None:
        """Take tokens for what has passed, also more than there are."""
        self._fill(now)
        self._tokens -= tokens

    def seconds_until_token(self, now: float) -> float:
        """Return how long it takes until there is a token. 0: there is one."""
        return 0.0 if self.count_tokens(now) else (1 - self._tokens) / self._rate


class RateBuckets:
    """The buckets of one `Rate`: for its messages, and for its bytes. What the rate does not limit has no bucket."""

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

    def consume(self, messages: float, size_bytes: float, now: float) -> None:
        """Take the tokens of messages that have passed."""
        if self._messages is not None:
            self._messages.consume(messages, now)
        if self._bytes is not None:
            self._bytes.consume(size_bytes, now)

    def get_allowance(self, now: float) -> Allowance:
        return Allowance(
            math.inf if self._messages is None else self._messages.count_tokens(now),
            math.inf if self._bytes is None else self._bytes.count_tokens(now),
        )

    def seconds_until_allowed(self, now: float) -> float:
        """Return how long it takes until a message may pass. 0: it may pass now."""
        return max(
            (one.seconds_until_token(now) for one in (self._messages, self._bytes) if one is not None), default=0
        )


def add_published(rate: DispatchRate, messages_per_s: float, bytes_per_s: float) -> Rate:
    """Return the rate of dispatches. If it is relative to the rate at which messages are published, that is added."""
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
