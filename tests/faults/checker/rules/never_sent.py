"""What was handed over or scanned had been announced by its producer, was not refused, and is where it can be."""

from __future__ import annotations

from tests.faults.checker.history import Line
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import NOBODYS, NOTHING, number_of


class NeverSent(Rule):
    name = "never_sent"

    def on_got(self, line: Line) -> None:
        self._look(line, line.fields["consumer"])
        consumer = self.facts.consumer(line)
        if line.ids and self.facts.topic_of(line.fields["place"]) not in (None, consumer.subscription.topic):
            self.found(f"{consumer.name} was handed messages of {line.fields['place']}, which is no place of its topic")

    def on_scan(self, line: Line) -> None:
        self._look(line, line.fields["reader"])

    def _look(self, line: Line, who: str) -> None:
        if NOBODYS not in line.messages:
            return
        place = self.facts.place(line.fields["place"])
        for item, one, slot in zip(line.fields["items"], line.messages, line.slots, strict=True):
            if one == NOBODYS:
                where = self.facts.where(place, slot)
                self.found(
                    f"message {item[1]} of {item[0]} at {where} came to {who} at {line.at:.3f}, and was not sent"
                )

    def end(self) -> None:
        facts = self.facts
        for place in facts.place_list:
            # Only in the end: a topic that grows has its new places before anybody can tell.
            topic = facts.topic_of(place.name)
            for slot, one in enumerate(place.content):
                if one in (NOBODYS, NOTHING):
                    continue
                producer = facts.producer_of(one)
                if producer.topic is not topic:
                    self.found(f"{facts.text(one)}, sent to {producer.topic.name}, is at {facts.where(place, slot)}")
                elif number_of(one) in producer.refused:
                    self.found(
                        f"{facts.text(one)} is at {facts.where(place, slot)}, and its producer was told that it isn't"
                    )


RULE = NeverSent
