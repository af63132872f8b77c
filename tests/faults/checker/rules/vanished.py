"""A delivered message is in the log, at its id, when the log is scanned, unless the log's beginning was trimmed by
then.

A message with a receipt that is not in the log at all is reported as lost, not here. One without a receipt may be
missing; but a message that a consumer got was stored for good.
"""

from __future__ import annotations

from tests.faults.checker.marks import Marks
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import NOBODYS, NOTHING, Scan, number_of


class Vanished(Rule):
    name = "vanished"

    def end(self) -> None:
        for scan in self.facts.complete_scans():
            self._look(scan)

    def _look(self, scan: Scan) -> None:
        if not scan.slots:
            return
        facts, partition = self.facts, scan.partition
        slots, messages = Marks(), Marks()
        first = min(partition.ids[slot] for slot in scan.slots)
        for slot, one in zip(scan.slots, scan.messages, strict=True):
            slots.add(slot)
            messages.add(one)
        for slot, one in enumerate(partition.content):
            if slot in slots or one in (NOBODYS, NOTHING) or partition.ids[slot] < first:
                continue
            if one in messages or not facts.producer_of(one).has_receipt(number_of(one)):
                where = facts.where(partition, slot)
                self.found(f"{facts.text(one)} was handed over at {where}, and {scan.reader} found no such id")


RULE = Vanished
