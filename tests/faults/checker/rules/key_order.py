"""A Key_Shared subscription delivers a key's messages in the log's order, also from one consumer to the next.

A consumer that gets a message has got every earlier one with the same key, unless somebody had begun to acknowledge it
by then: while an earlier one is unacknowledged at another consumer, the key is that consumer's; and when that consumer
has left, its messages are redelivered first. Deliveries of a consumer before it reconnected count, too, since only the
client knows what it still holds. No key counts as a key.

Where a subscription has dead letters, one of them leaves the order when it is stored: it is acknowledged by the client.
A consumer that gets it after too many deliveries does not hand it out, and stores it while it hands out the next ones.

The ids of a partition are complete at the end only. Each jump is reported once, with the number of messages that were
passed over. A message that a policy or an administrator removed need not come; a non-persistent topic may lose any.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from tests.faults.checker.history import Line
from tests.faults.checker.policies import MARGIN_S, Policies
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Consumer, Partition, Subscription

# How long it takes at most, also during faults, until what was delivered too often is stored as a dead letter.
_LONGEST_STORING_S: Final = 30.0


@dataclass(slots=True, eq=False)
class _Deliveries:
    """The first deliveries of one partition to one consumer, in their order: slots and times."""

    slots: dict[int, None] = field(default_factory=dict)
    at: array[float] = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class _KeyLog:
    """A key's messages that the subscription must get, in the log's order, and when each was first acknowledged."""

    ids: list[int] = field(default_factory=list)
    slots: array[int] = field(default_factory=lambda: array("q"))
    announced_at: array[float] = field(default_factory=lambda: array("d"))


class KeyOrder(Rule):
    name = "key_order"

    def begin(self) -> None:
        self._policies = Policies(self.facts)
        self._deliveries: dict[tuple[str, str], dict[Consumer, _Deliveries]] = {}

    def on_got(self, line: Line) -> None:
        consumer = self.facts.consumer(line)
        subscription = consumer.subscription
        if subscription.type != "Key_Shared" or not subscription.topic.is_persistent:
            return
        by_consumer = self._deliveries.setdefault((subscription.name, line.partition_name), {})
        deliveries = by_consumer.setdefault(consumer, _Deliveries())
        for slot in line.slots:
            if slot not in deliveries.slots:
                deliveries.slots[slot] = None
                deliveries.at.append(line.at)

    def end(self) -> None:
        for (name, partition_name), by_consumer in sorted(self._deliveries.items()):
            subscription, partition = self.facts.subscriptions[name], self.facts.partition(partition_name)
            logs = self._log_by_key(subscription, partition)
            for consumer, deliveries in by_consumer.items():
                self._look(consumer, deliveries, partition, logs)

    def _log_by_key(self, subscription: Subscription, partition: Partition) -> dict[int, _KeyLog]:
        facts, ids, content = self.facts, partition.ids, partition.content
        logs: dict[int, _KeyLog] = defaultdict(_KeyLog)
        for slot in sorted(range(len(ids)), key=ids.__getitem__):
            one = content[slot]
            if one < 0 or slot in partition.disputed or facts.sent_at(one) <= subscription.at:
                continue
            log = logs[facts.key_of(one)]
            log.ids.append(ids[slot])
            log.slots.append(slot)
            log.announced_at.append(facts.announced_at(subscription, partition, ids[slot], slot))
        return logs

    def _look(
        self, consumer: Consumer, deliveries: _Deliveries, partition: Partition, logs: dict[int, _KeyLog]
    ) -> None:
        """Walk through each key's log once: messages before a delivery were got, or acknowledged by then."""
        content, got = partition.content, set[int]()
        checked: dict[int, int] = defaultdict(int)  # by key: the number of messages from the beginning on
        for slot, at in zip(deliveries.slots, deliveries.at, strict=True):
            got.add(slot)
            if content[slot] < 0 or slot in partition.disputed:
                continue
            key = self.facts.key_of(content[slot])
            log = logs.get(key, _KeyLog())
            end = bisect_right(log.ids, partition.ids[slot])
            passed = [
                log.slots[rank]
                for rank in range(checked[key], end)
                if log.announced_at[rank] > at and log.slots[rank] not in got
            ]
            checked[key] = max(checked[key], end)
            passed = [
                one
                for one in passed
                if not self._is_excused(consumer.subscription, partition, one, at)
                and not self._is_dead(consumer.subscription, deliveries, content[one], one, at)
            ]
            if passed:
                self._report(consumer, partition, slot, at, passed)

    def _is_excused(self, subscription: Subscription, partition: Partition, slot: int, at: float) -> bool:
        sent_at = self.facts.sent_at(partition.content[slot])
        return (
            self.facts.acts.moved(subscription.name, at)
            or self.facts.acts.skipped(subscription.name, subscription.topic.name, sent_at)
            or self._policies.explain(partition, slot, sent_at, at)
        )

    def _is_dead(self, subscription: Subscription, deliveries: _Deliveries, message: int, slot: int, at: float) -> bool:
        dead_at = self.facts.dead_at(subscription, message)
        # If it was delivered too often, no application gets it: it becomes a dead letter as soon as that can be stored.
        return dead_at < at + (MARGIN_S if slot in deliveries.slots else _LONGEST_STORING_S)

    def _report(self, consumer: Consumer, partition: Partition, slot: int, at: float, passed: list[int]) -> None:
        facts, content = self.facts, partition.content
        key = facts.key_list[facts.key_of(content[slot])]
        self.found(
            f"{consumer.name} was handed {facts.text(content[slot])} at {facts.where(partition, slot)} with the key "
            f"{key!r} at {at:.3f}, and before that not {facts.text(content[passed[0]])} at "
            f"{facts.where(partition, passed[0])} with that key, which nobody had acknowledged; {len(passed)} in all"
        )


RULE = KeyOrder
