"""How long a message waits for its redelivery, after a negative acknowledgement or an acknowledgement timeout."""

from __future__ import annotations

import logging
import math
from typing import Final, Protocol

from magnetar.exceptions import InvalidConfiguration

__all__ = [
    "MAX_DELAY_MS",
    "FixedDelay",
    "MultiplierRedeliveryBackoff",
    "RedeliveryBackoff",
    "find_delay_s",
    "is_delay",
]

log = logging.getLogger("magnetar")


# A delay in ms is less than this.
MAX_DELAY_MS: Final = 2**63


def is_delay(value: object) -> bool:
    """Return whether this is a delay in ms."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < MAX_DELAY_MS


class RedeliveryBackoff(Protocol):
    """How long a message waits for its redelivery, by the number of its redeliveries."""

    # The shortest delay.
    min_delay_ms: float

    def next(self, redelivery_count: int) -> float:
        """Return the delay in ms of a message that was redelivered this often."""


class MultiplierRedeliveryBackoff:
    """A delay that grows with each redelivery of a message: 1 s, 2 s, 4 s … 60 s by default."""

    def __init__(self, min_delay_ms: float = 1_000, max_delay_ms: float = 60_000, multiplier: float = 2.0) -> None:
        are_delays = is_delay(min_delay_ms) and is_delay(max_delay_ms) and min_delay_ms <= max_delay_ms
        if not (are_delays and is_delay(multiplier) and multiplier >= 1):
            raise InvalidConfiguration(
                "a redelivery backoff needs numbers: 0 <= min_delay_ms <= max_delay_ms < 2**63, and a multiplier of at "
                f"least 1, not {min_delay_ms=}, {max_delay_ms=}, {multiplier=}"
            )
        self.min_delay_ms = min_delay_ms
        self.max_delay_ms = max_delay_ms
        self.multiplier = multiplier

    def next(self, redelivery_count: int) -> float:
        try:
            return min(self.min_delay_ms * self.multiplier ** max(redelivery_count, 0), self.max_delay_ms)
        except OverflowError:
            return self.max_delay_ms


class FixedDelay:
    """The same delay for each redelivery."""

    def __init__(self, delay_ms: float) -> None:
        self.min_delay_ms = delay_ms

    def next(self, redelivery_count: int) -> float:
        return self.min_delay_ms


_DEFAULT: Final = MultiplierRedeliveryBackoff()


def find_delay_s(backoff: RedeliveryBackoff, redelivery_count: int) -> float:
    """Return the delay in seconds. If a backoff of the application fails, that is logged, and the delay is that of the
    default backoff: the message must be redelivered all the same."""
    try:
        delay_ms = float(backoff.next(redelivery_count))
        if not 0 <= delay_ms < math.inf:
            raise ValueError(f"the backoff returned {delay_ms}: a delay is 0 ms or more")
    except Exception:
        log.exception("the redelivery backoff %r failed, so the default one is used", backoff)
        delay_ms = _DEFAULT.next(redelivery_count)
    return delay_ms / 1000
