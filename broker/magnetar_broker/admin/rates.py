"""Rates of all topics that are loaded: one task samples the counters of all of them, some at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from magnetar_broker.core.counters import BrokerCounters, Traffic
from magnetar_broker.topic.topic import Topic
from magnetar_wire.clock import Clock

__all__ = ["sample_rates", "sample_topic"]

_AT_A_TIME: Final = 100
# Between these others have their turn.
_PAUSE_S: Final = 0.001


async def sample_rates(
    topics: Callable[[], Iterable[Topic]], counters: BrokerCounters, interval_s: float, clock: Clock
) -> None:
    """Until it is cancelled."""
    while True:
        now = clock.monotonic()
        counters.received.sample(now)
        counters.delivered.sample(now)
        for number, topic in enumerate(list(topics()), 1):
            sample_topic(topic, clock.monotonic())
            if number % _AT_A_TIME == 0:
                await clock.sleep(_PAUSE_S)
        await clock.sleep(interval_s)


def sample_topic(topic: Topic, now: float) -> None:
    for traffic in _traffic(topic):
        traffic.sample(now)


def _traffic(topic: Topic) -> Iterator[Traffic]:
    yield topic.counters.received
    for producer in topic.producers():
        yield producer.counters
    yield topic.subscriptions.deliveries.delivered
    for counters in topic.subscriptions.counters():
        yield counters.delivered
