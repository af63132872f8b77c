"""Sample the counters of all loaded topics in one task, for their rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from magnetar_broker.core.counters import BrokerCounters, Traffic
from magnetar_broker.topic.topic import Topic
from magnetar_wire.clock import Clock

__all__ = ["sample_rates", "sample_topic"]

_TOPICS_PER_TURN: Final = 100
# Other tasks run between two groups of topics.
_PAUSE_S: Final = 0.001


async def sample_rates(
    topics: Callable[[], Iterable[Topic]], counters: BrokerCounters, interval_s: float, clock: Clock
) -> None:
    """Sample until cancelled."""
    while True:
        now = clock.monotonic()
        counters.received.sample(now)
        counters.delivered.sample(now)
        for number, topic in enumerate(list(topics()), 1):
            sample_topic(topic, clock.monotonic())
            if number % _TOPICS_PER_TURN == 0:
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
