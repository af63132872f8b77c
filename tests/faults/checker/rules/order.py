"""A partition's log has the messages of one producer in the order of sending; if batches are built by key, per key.

First occurrences are checked, since a resent message may be stored twice; and only messages with a receipt, since one
without may be stored at any later time. The first occurrence is certain only if the whole log is known
(`Facts.is_known`): then all observations count, in the order of ids. Where two observers saw two messages at one id,
the reader of the whole log counts; without one nothing is checked.
"""

from __future__ import annotations

from tests.faults.checker.marks import Marks
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Partition, Topic, message, number_of


class Order(Rule):
    name = "order"

    def end(self) -> None:
        for partition in self.facts.partition_list:
            topic = self.facts.topic_of(partition.name)
            if topic is not None and self.facts.is_known(partition):
                self._look(partition, topic)

    def _look(self, partition: Partition, topic: Topic) -> None:
        facts, seen = self.facts, Marks()
        scanned = {
            slot: one
            for scan in facts.complete_scans()
            if scan.partition is partition
            for slot, one in zip(scan.slots, scan.messages, strict=True)
            if slot in partition.disputed
        }
        if len(scanned) < len(partition.disputed):
            return
        last: dict[tuple[int, int], int] = {}
        for slot in sorted(range(len(partition.ids)), key=partition.ids.__getitem__):
            one = scanned.get(slot, partition.content[slot])
            if one < 0 or not seen.add(one):
                continue
            producer, number = facts.producer_of(one), number_of(one)
            if not producer.has_receipt(number):
                continue
            line = (producer.index, producer.keys[number] if topic.order == "key" else -1)
            before = last.get(line, -1)
            if number < before:
                other = facts.text(message(producer.index, before))
                self.found(f"{facts.text(one)} is at {facts.where(partition, slot)} first, after {other}")
            last[line] = max(number, before)


RULE = Order
