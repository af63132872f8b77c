"""A message with a receipt is in the log, and each subscription created before it was sent gets it until it is
acknowledged.

A drained subscription has no backlog: somebody has begun to acknowledge each message that was stored by then and
delivered to it, at the id in its receipt. It is unknown when a second copy was stored.

A subscription may lose messages that expired, or were evicted, as the topic's policies explain (policies.py).

Where a subscription has a dead letter topic, its messages may end there instead, even without having come to an
application, since deliveries that ended with their consumers count: letters.py.

A scan may miss the trimmed beginning of a log, of which every durable subscription has begun to acknowledge all. A
message that an administrator deleted is not lost.
"""

from __future__ import annotations

from bisect import bisect_right

from tests.faults.checker.history import Line
from tests.faults.checker.marks import Marks
from tests.faults.checker.policies import Policies
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import ALREADY, Partition, Producer, Scan, Subscription, Topic, message, number_of


class Lost(Rule):
    name = "lost"

    def begin(self) -> None:
        self._policies = Policies(self.facts)
        # The missing messages, their partition, and the reader.
        self._missing: list[tuple[Producer, int, Partition, str]] = []
        # What nobody acknowledged, where, and of which subscription without a backlog.
        self._forgotten: list[tuple[Producer, int, Partition, Subscription]] = []

    def on_drained(self, line: Line) -> None:
        facts, subscription = self.facts, self.facts.subscriptions[line.fields["subscription"]]
        if subscription.name in facts.letters:
            return
        for partition in facts.partition_list:
            if not subscription.durable or facts.topic_of(partition.name) is not subscription.topic:
                continue
            for slot, one in enumerate(partition.content):
                if one < 0 or one not in subscription.handed or slot in partition.disputed:
                    continue
                producer, number = facts.producer_of(one), number_of(one)
                stored = producer.has_receipt(number) and producer.slots[number] in (slot, ALREADY)
                if stored and not facts.is_announced(subscription, partition, partition.ids[slot], slot):
                    self._forgotten.append((producer, number, partition, subscription))

    def on_scanned(self, line: Line) -> None:
        facts = self.facts
        scan = facts.scans[line.fields["reader"], line.partition_name]
        topic = facts.topic_of(scan.partition.name)
        if topic is None:
            return
        found = Marks()
        for one in scan.messages:
            if one >= 0:
                found.add(one)
        first = min((scan.partition.ids[slot] for slot in scan.slots), default=None)
        for producer, number in facts.with_receipts(topic):
            here = producer.partitions[number] == scan.partition.index
            if here and message(producer.index, number) not in found:
                if self._may_be_trimmed(producer, number, topic, scan, first):
                    continue
                self._missing.append((producer, number, scan.partition, scan.reader))

    def _may_be_trimmed(self, producer: Producer, number: int, topic: Topic, scan: Scan, first: int | None) -> bool:
        partition, slot = scan.partition, producer.slots[number]
        if slot < 0:
            # Stored already, at an unknown id: it may have been in the trimmed beginning.
            return first is not None and any(packed < first for packed in partition.ids)
        packed = partition.ids[slot]
        if first is not None and packed >= first:
            return False
        sent_at = producer.sent_at(number)
        if self._policies.explain(partition, slot, sent_at, scan.at):
            return True
        return all(
            self.facts.is_announced(subscription, partition, packed, slot)
            for subscription in self.facts.subscriptions.values()
            if subscription.topic is topic and subscription.durable and subscription.at < sent_at
        )

    def end(self) -> None:
        facts = self.facts
        for producer, number, partition, reader in self._missing:
            withdrawn = not producer.has_receipt(number)
            if not withdrawn and not facts.acts.took_away(producer.topic.name, producer.sent_at(number)):
                self.found(f"{_receipt(producer, number)} in {partition.name}, and {reader} did not find it there")
        for producer, number, partition, subscription in self._forgotten:
            if not self._may_be_skipped(subscription, producer, number):
                self.found(
                    f"{_receipt(producer, number)} in {partition.name} and came to {subscription.name}, which has no "
                    f"backlog at {facts.drained[subscription.name]:.3f}, though nobody acknowledged it"
                )
        for name, at in sorted(facts.drained.items()):
            if name in facts.letters:
                continue
            self._look(facts.subscriptions[name], at)

    def _look(self, subscription: Subscription, drained_at: float) -> None:
        facts, topic = self.facts, subscription.topic
        for producer in facts.producer_list:
            if producer.topic is not topic:
                continue
            begin = bisect_right(producer.starts_at, subscription.at)
            since = producer.starts[begin] if begin < len(producer.starts) else producer.announced
            for number in range(since, producer.announced):
                if (
                    producer.has_receipt(number)
                    and producer.receipts_at[number] <= drained_at
                    and message(producer.index, number) not in subscription.handed
                    and not self._may_be_skipped(subscription, producer, number)
                ):
                    partition = facts.partition_list[producer.partitions[number]].name
                    self.found(f"{_receipt(producer, number)} in {partition}, and never came to {subscription.name}")

    def _may_be_skipped(self, subscription: Subscription, producer: Producer, number: int) -> bool:
        """Whether the drained subscription may have lost the message, which has a receipt."""
        facts, sent_at = self.facts, producer.sent_at(number)
        if facts.acts.skipped(subscription.name, subscription.topic.name, sent_at):
            return True
        partition = facts.partition_list[producer.partitions[number]]
        return self._policies.explain(partition, producer.slots[number], sent_at, facts.drained[subscription.name])


def _receipt(producer: Producer, number: int) -> str:
    return f"message {number} of {producer.name} had a receipt at {producer.receipts_at[number]:.3f}"


RULE = Lost
