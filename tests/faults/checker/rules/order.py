"""In the log of a place stand one producer's messages in the order in which it sent them; where batches are built by
key, those of one producer with one key.

First occurrences are judged, since what was sent again without an answer may be stored twice; of messages with a
receipt, since one without may be stored at any later time. Only a complete scan shows which occurrence is the first.
"""

from __future__ import annotations

from tests.faults.checker.marks import Marks
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Scan, Topic, message, number_of


class Order(Rule):
    name = "order"

    def end(self) -> None:
        for scan in self.facts.complete_scans():
            topic = self.facts.topic_of(scan.place.name)
            if topic is not None:
                self._look(scan, topic)

    def _look(self, scan: Scan, topic: Topic) -> None:
        facts, place, seen = self.facts, scan.place, Marks()
        last: dict[tuple[int, int], int] = {}
        # The scan's own order is judged by itself.
        log = sorted(zip([place.ids[slot] for slot in scan.slots], scan.slots, scan.messages, strict=True))
        for _, slot, one in log:
            if one < 0 or not seen.add(one):
                continue
            producer, number = facts.producer_of(one), number_of(one)
            if not producer.has_receipt(number):
                continue
            line = (producer.index, producer.keys[number] if topic.order == "key" else -1)
            before = last.get(line, -1)
            if number < before:
                other = facts.text(message(producer.index, before))
                self.found(f"{facts.text(one)} is at {facts.where(place, slot)} first, after {other}")
            last[line] = max(number, before)


RULE = Order
