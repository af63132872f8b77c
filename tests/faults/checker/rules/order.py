"""In the log of a place stand one producer's messages in the order in which it sent them; where batches are built by
key, those of one producer with one key.

First occurrences are judged, since what was sent again without an answer may be stored twice; of messages with a
receipt, since one without may be stored at any later time. Which occurrence is the first shows only where the whole log
is known (`Facts.is_known`): judged is what anybody saw there, in the order of its ids. Where two saw two messages at
one id, who read the whole log counts; without that nothing is judged.
"""

from __future__ import annotations

from tests.faults.checker.marks import Marks
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Place, Topic, message, number_of


class Order(Rule):
    name = "order"

    def end(self) -> None:
        for place in self.facts.place_list:
            topic = self.facts.topic_of(place.name)
            if topic is not None and self.facts.is_known(place):
                self._look(place, topic)

    def _look(self, place: Place, topic: Topic) -> None:
        facts, seen = self.facts, Marks()
        scanned = {
            slot: one
            for scan in facts.complete_scans()
            if scan.place is place
            for slot, one in zip(scan.slots, scan.messages, strict=True)
            if slot in place.disputed
        }
        if len(scanned) < len(place.disputed):
            return
        last: dict[tuple[int, int], int] = {}
        for slot in sorted(range(len(place.ids)), key=place.ids.__getitem__):
            one = scanned.get(slot, place.content[slot])
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
