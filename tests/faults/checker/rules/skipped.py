"""An Exclusive or Failover consumer gets all unacknowledged messages in the log's order, from the first on.

So a message between two consecutive deliveries, or before the first one, was acknowledged, or delivered to this
consumer before. Somebody must have begun to acknowledge it by then, unless it expired or was evicted (policies.py). A
consumer need not get a message again, though it does when it reconnects; a message that comes too late is reported as
out of order. The ids of a partition are complete at the end only. A message that never came to a drained subscription
is reported as lost, not here. Of each gap the first message is reported, and the number of messages.
A non-persistent topic may lose any message.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from tests.faults.checker.history import Line
from tests.faults.checker.policies import Policies
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Consumer, Partition, Subscription


@dataclass(slots=True, eq=False)
class _Deliveries:
    """The deliveries of one partition to one consumer."""

    consumer: Consumer
    # What it was handed, and when.
    slots: array[int] = field(default_factory=lambda: array("q"))
    at: array[float] = field(default_factory=lambda: array("d"))


class _Known:
    """The sorted ids of a partition's known messages, and when a subscription's consumers began to acknowledge them."""

    def __init__(self, rule: Rule, subscription: Subscription, partition: Partition) -> None:
        facts, ids, content = rule.facts, partition.ids, partition.content
        known = [slot for slot in range(len(ids)) if content[slot] >= 0 and slot not in partition.disputed]
        self.slots = sorted(known, key=ids.__getitem__)
        self.ids = [ids[slot] for slot in self.slots]
        self.announced_at = [facts.announced_at(subscription, partition, ids[slot], slot) for slot in self.slots]
        # By when all up to it were.
        self._all_at: list[float] = []
        latest = 0.0
        for slot, at in zip(self.slots, self.announced_at, strict=True):
            if facts.sent_at(content[slot]) > subscription.at:  # others need not come
                latest = max(latest, at)
            self._all_at.append(latest)

    def acknowledged_until(self, at: float) -> int:
        """The number of messages from the beginning on that were acknowledged by then."""
        return bisect_right(self._all_at, at)


class Skipped(Rule):
    name = "skipped"

    def begin(self) -> None:
        self._policies = Policies(self.facts)
        self._deliveries: dict[tuple[str, str], dict[Consumer, _Deliveries]] = {}

    def on_got(self, line: Line) -> None:
        consumer = self.facts.consumer(line)
        if consumer.subscription.type in ("Exclusive", "Failover") and consumer.subscription.topic.is_persistent:
            by_consumer = self._deliveries.setdefault((consumer.subscription.name, line.partition_name), {})
            deliveries = by_consumer.setdefault(consumer, _Deliveries(consumer))
            deliveries.slots.extend(line.slots)
            deliveries.at.extend([line.at] * len(line.slots))

    def end(self) -> None:
        for (name, partition_name), by_consumer in sorted(self._deliveries.items()):
            subscription, partition = self.facts.subscriptions[name], self.facts.partition(partition_name)
            known = _Known(self, subscription, partition)
            for deliveries in by_consumer.values():
                self._look(deliveries, partition, known)

    def _look(self, deliveries: _Deliveries, partition: Partition, known: _Known) -> None:
        handed = set(deliveries.slots)
        behind = 0  # rank of what would come next, if nothing of it were acknowledged
        for slot, at in zip(deliveries.slots, deliveries.at, strict=True):
            rank = bisect_left(known.ids, partition.ids[slot])
            if rank > behind:
                begin = max(behind, known.acknowledged_until(at))
                self._look_between(deliveries, partition, known, range(begin, rank), at, handed)
            behind = rank + 1

    def _look_between(
        self, deliveries: _Deliveries, partition: Partition, known: _Known, ranks: range, at: float, handed: set[int]
    ) -> None:
        facts, subscription = self.facts, deliveries.consumer.subscription
        skipped = []
        for rank in ranks:
            slot, announced_at = known.slots[rank], known.announced_at[rank]
            if announced_at <= at or slot in handed:
                continue
            one = partition.content[slot]
            sent_at = facts.sent_at(one)
            lost = subscription.name in facts.drained and one not in subscription.handed
            excused = facts.acts.skipped(subscription.name, subscription.topic.name, sent_at)
            excused = excused or self._policies.explain(partition, slot, sent_at, at)
            if sent_at > subscription.at and not lost and not excused:
                skipped.append(slot)
        if skipped:
            first = skipped[0]
            self.found(
                f"{deliveries.consumer.name} was handed what lies behind {facts.where(partition, first)} at {at:.3f}, "
                f"and not "
                f"{facts.text(partition.content[first])}, which is there and nobody had acknowledged; {len(skipped)} "
                f"in all"
            )


RULE = Skipped
