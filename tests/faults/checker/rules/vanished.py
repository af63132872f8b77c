"""What was handed over is in the log, at its id, when that is scanned; unless the log's beginning is gone by then.

Messages that are missing at the id that their receipt names are not told of here: they are lost, or the receipt is
wrong. What had no receipt may be nowhere; but what a consumer was handed was stored, for good.
"""

from __future__ import annotations

from tests.faults.checker.marks import Marks
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import NOBODYS, NOTHING, Scan


class Vanished(Rule):
    name = "vanished"

    def end(self) -> None:
        for scan in self.facts.complete_scans():
            self._look(scan)

    def _look(self, scan: Scan) -> None:
        if not scan.slots:
            return
        facts, place = self.facts, scan.place
        found, first = Marks(), min(place.ids[slot] for slot in scan.slots)
        for slot in scan.slots:
            found.add(slot)
        for slot, one in enumerate(place.content):
            if slot in found or one in (NOBODYS, NOTHING) or place.ids[slot] < first:
                continue
            producer = facts.producer_of(one)
            if facts.receipt_slot(one) != slot or producer.topic is not facts.topic_of(place.name):
                where = facts.where(place, slot)
                self.found(f"{facts.text(one)} was handed over at {where}, and {scan.reader} found no such id")


RULE = Vanished
