"""A message that was delivered or scanned had been announced by its producer, not refused, and belongs to the topic."""

from __future__ import annotations

from tests.faults.checker.history import Line
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import NOBODYS, NOTHING, number_of


class NeverSent(Rule):
    name = "never_sent"

    def on_got(self, line: Line) -> None:
        self._look(line, line.fields["consumer"])
        consumer = self.facts.consumer(line)
        if line.ids and self.facts.topic_of(line.partition_name) not in (None, consumer.subscription.topic):
            self.found(
                f"{consumer.name} was handed messages of {line.fields['place']}, which is no partition of its topic"
            )

    def on_scan(self, line: Line) -> None:
        self._look(line, line.fields["reader"])

    def _look(self, line: Line, who: str) -> None:
        if NOBODYS not in line.messages:
            return
        partition = self.facts.partition(line.partition_name)
        for item, one, slot in zip(line.fields["items"], line.messages, line.slots, strict=True):
            if one == NOBODYS:
                where = self.facts.where(partition, slot)
                self.found(
                    f"message {item[1]} of {item[0]} at {where} came to {who} at {line.at:.3f}, and was not sent"
                )

    def end(self) -> None:
        facts = self.facts
        for partition in facts.partition_list:
            # Only in the end: a topic that grows has its new partitions before the history shows them.
            topic = facts.topic_of(partition.name)
            for slot, one in enumerate(partition.content):
                if one in (NOBODYS, NOTHING):
                    continue
                producer = facts.producer_of(one)
                if producer.topic is not topic:
                    self.found(
                        f"{facts.text(one)}, sent to {producer.topic.name}, is at {facts.where(partition, slot)}"
                    )
                elif number_of(one) in producer.refused:
                    self.found(
                        f"{facts.text(one)} is at {facts.where(partition, slot)}, and was refused to its producer"
                    )


RULE = NeverSent
