"""The message that a receipt names is at its id, if an observer looked there. Each message has one receipt.

Only a topic with deduplication reports a message as stored already. A message that is missing altogether is reported as
lost; two messages at one id are reported as corrupted.

Receipts that Pulsar's C++ library matched to the wrong messages were withdrawn before (reused_sequence_ids.py).
"""

from __future__ import annotations

from tests.faults.checker.history import Line
from tests.faults.checker.marks import Marks
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import ALREADY, NOBODYS, NOTHING, Partition, Producer, Scan, message, number_of


class Receipts(Rule):
    name = "receipts"

    def on_receipt(self, line: Line) -> None:
        for one, slot in zip(line.messages, line.slots, strict=True):
            producer, number = self.facts.producer_of(one), number_of(one)
            if (producer.slots[number], producer.receipts_at[number]) != (slot, line.at):
                self.found(f"{self.facts.text(one)} has a second receipt at {line.at:.3f}")

    def end(self) -> None:
        facts = self.facts
        scanned = {scan.partition.index: _Scanned(scan) for scan in facts.complete_scans()}
        named: dict[tuple[int, int], int] = {}
        for topic in facts.topics.values():
            for producer, number in facts.with_receipts(topic):
                one, slot = message(producer.index, number), producer.slots[number]
                partition = facts.partition_list[producer.partitions[number]]
                if facts.topic_of(partition.name) is not topic:
                    self.found(
                        f"the receipt of {facts.text(one)} names {partition.name}, which is no partition of "
                        f"{topic.name}"
                    )
                elif slot == ALREADY and not topic.deduplicated:
                    self.found(
                        f"{facts.text(one)} was reported as stored already in {partition.name}, which stores all"
                    )
                elif slot >= 0:
                    other = named.setdefault((partition.index, slot), one)
                    if other != one:
                        where = facts.where(partition, slot)
                        self.found(f"the receipts of {facts.text(other)} and of {facts.text(one)} both name {where}")
                    self._check_content(producer, number, partition, scanned.get(partition.index))

    def _check_content(self, producer: Producer, number: int, partition: Partition, scanned: _Scanned | None) -> None:
        one, slot = message(producer.index, number), producer.slots[number]
        stored = partition.content[slot]
        if stored in (one, NOBODYS) or slot in partition.disputed:
            return
        where = self.facts.where(partition, slot)
        if stored != NOTHING:
            self.found(f"the receipt of {self.facts.text(one)} names {where}, and there is {self.facts.text(stored)}")
        elif scanned is not None and one in scanned.messages:
            self.found(f"the receipt of {self.facts.text(one)} names {where}; the log has the message at another id")


class _Scanned:
    def __init__(self, scan: Scan) -> None:
        self.messages = Marks()
        for one in scan.messages:
            if one >= 0:
                self.messages.add(one)


RULE = Receipts
