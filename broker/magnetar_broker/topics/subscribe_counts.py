"""How often each consumer has subscribed to a topic in the present period: the rules, which are given the time.

A consumer is known by its client's host, its subscription and its name; one without a name by its id on its connection.
All counts are forgotten when a period ends. The number of consumers that are counted is bounded: beyond that, the one
that was counted first is forgotten.
"""

from __future__ import annotations

from typing import Final

from magnetar_broker.settings.rates import SubscribeRate

__all__ = ["MAX_CONSUMERS", "SubscribeCounts"]

MAX_CONSUMERS: Final = 10_000

# Host, subscription, and name or id.
_Consumer = tuple[str, str, str | int]


class SubscribeCounts:
    __slots__ = ("_counts", "_period_began")

    def __init__(self) -> None:
        self._counts: dict[_Consumer, int] = {}
        self._period_began = 0.0

    def count(self, host: str, subscription: str, name: str | int, rate: SubscribeRate, now: float) -> bool:
        """Count a subscribe request, and return whether the rate allows it. One that it doesn't does not count."""
        if rate.per_consumer <= 0:
            self._counts.clear()
            return True
        if not self._counts or now - self._period_began >= rate.period_seconds:
            self._counts.clear()
            self._period_began = now
        consumer = host, subscription, name
        counted = self._counts.get(consumer, 0)
        if counted >= rate.per_consumer:
            return False
        if not counted and len(self._counts) >= MAX_CONSUMERS:
            del self._counts[next(iter(self._counts))]
        self._counts[consumer] = counted + 1
        return True
