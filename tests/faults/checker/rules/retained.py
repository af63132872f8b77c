"""A topic with a retention policy has all messages that are younger than its time, acknowledged or not.

Readers look from time to time: each reads from the first message that is left to the last one. Retention begins when a
message's ledger is closed, so the policy retains more than is checked here.
"""

from __future__ import annotations

from tests.faults.checker.history import Line
from tests.faults.checker.policies import MARGIN_S
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Consumer, message


class Retained(Rule):
    name = "retained"

    def begin(self) -> None:
        # The readers that came to the end, and when.
        self._looks: list[tuple[Consumer, float]] = []

    def on_looked(self, line: Line) -> None:
        self._looks.append((self.facts.consumer(line), line.at))

    def end(self) -> None:
        facts = self.facts
        self.verdict.figures["readers of retained messages that came to the end"] = len(self._looks)
        for consumer, looked_at in self._looks:
            topic, handed = consumer.subscription.topic, consumer.subscription.handed
            if not topic.retention_s:
                continue
            oldest = looked_at - topic.retention_s + MARGIN_S
            missing = []
            for producer, number in facts.with_receipts(topic):
                is_due = producer.receipts_at[number] <= consumer.opening_at and producer.sent_at(number) >= oldest
                one = message(producer.index, number)
                if is_due and one not in handed and not facts.acts.took_away(topic.name, producer.sent_at(number)):
                    missing.append(one)
            if missing:
                age = looked_at - facts.sent_at(missing[0])
                self.found(
                    f"{consumer.name} read all that was left of {topic.name} at {looked_at:.3f}, and not "
                    f"{facts.text(missing[0])}, which was at most {age:.1f} s old; {len(missing)} in all"
                )


RULE = Retained
