"""What the policies of a topic explain: messages that expired, or were evicted by the backlog quota.

Brokers compute a message's age from the time at which they received it, between `sending` and the receipt. A quota is a
number of bytes. `quota_messages` is a number of messages that are surely smaller, so the last ones are never evicted.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from tests.faults.checker.facts import Facts
from tests.faults.checker.things import Partition

__all__ = ["MARGIN_S", "Policies"]

# Clocks of brokers may be slewed, and times in histories are those of clients.
MARGIN_S: Final = 2.0


class Policies:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        # By partition, of a topic with a quota: the ids of messages with a receipt, in order. Made at the end.
        self._ids: dict[int, list[int]] = {}

    def explain(self, partition: Partition, slot: int, sent_at: float, at: float) -> bool:
        """Whether subscriptions may have lost this message by the time `at`. `slot` below 0: its id is unknown."""
        topic = self._facts.topic_of(partition.name)
        if topic is None:
            return False
        if topic.ttl_s and at - sent_at > topic.ttl_s - MARGIN_S:
            return True
        if not topic.quota_messages:
            return False
        if slot < 0:
            return True
        ids = self._ids_of(partition)
        return len(ids) - bisect_right(ids, partition.ids[slot]) >= topic.quota_messages

    def _ids_of(self, partition: Partition) -> list[int]:
        if partition.index not in self._ids:
            topic = self._facts.topic_of(partition.name)
            assert topic is not None
            self._ids[partition.index] = sorted(
                partition.ids[producer.slots[number]]
                for producer, number in self._facts.with_receipts(topic)
                if producer.partitions[number] == partition.index and producer.slots[number] >= 0
            )
        return self._ids[partition.index]
