"""Failover: which of the consumers is served.

Of a topic without partitions: the one of the highest priority that subscribed first, so that nobody who is being served
is displaced by an equal. Of a partition: consumers in the order of priority and name, and the partitions go round those
of the highest priority; a consumer of all partitions has the same name at each, so each gets its share of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_broker.topics.dispatch.consumer_state import ConsumerState

__all__ = ["choose_active"]


def choose_active(consumers: Sequence[ConsumerState], partition: int) -> ConsumerState | None:
    """`partition` is -1 where the topic is none."""
    if not consumers:
        return None
    highest = min(consumer.priority_level for consumer in consumers)
    best = [consumer for consumer in consumers if consumer.priority_level == highest]
    if partition < 0:
        return min(best, key=lambda consumer: consumer.number)
    best.sort(key=lambda consumer: (consumer.name, consumer.number))
    return best[partition % len(best)]
