"""What was handed over is in the log, at its id, when that is scanned; unless the log's beginning is gone by then.

Messages that have a receipt and are not in the log at all are not told of here: they are lost. What has no receipt may
be nowhere; but what a consumer was handed was stored, for good.
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
        facts, place = self.facts, scan.place
        slots, messages = Marks(), Marks()
        first = min(place.ids[slot] for slot in scan.slots)
        for slot, one in zip(scan.slots, scan.messages, strict=True):
            slots.add(slot)
            messages.add(one)
        for slot, one in enumerate(place.content):
            if slot in slots or one in (NOBODYS, NOTHING) or place.ids[slot] < first:
                continue
            if one in messages or not facts.producer_of(one).has_receipt(number_of(one)):
                where = facts.where(place, slot)
                self.found(f"{facts.text(one)} was handed over at {where}, and {scan.reader} found no such id")


RULE = Vanished
