"""Each subscription of a non-persistent topic gets a message once, and each consumer a producer's messages in the order
of sending.

Any message may be lost. A producer that reconnects resends those without a receipt, which may have been delivered: so
only what was sent and came within one calm (disturbance.py) is judged.
"""

from __future__ import annotations

from tests.faults.checker.disturbance import Disturbances, is_calm
from tests.faults.checker.history import Line
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Consumer, number_of


class NonPersistent(Rule):
    name = "non_persistent"

    def begin(self) -> None:
        # By consumer and producer: the highest number.
        self._last: dict[tuple[Consumer, int], int] = {}
        # Since when a reconnection would explain it, when it came, and the text of the finding.
        self._found: list[tuple[float, float, str]] = []
        self._disturbances = Disturbances()
        self.on_owners = self._disturbances.owners
        self.on_fault = self._disturbances.fault
        self.on_healed = self._disturbances.healed
        self.on_session_over = self._disturbances.session_over

    def on_got(self, line: Line) -> None:
        facts, consumer = self.facts, self.facts.consumer(line)
        if consumer.subscription.topic.is_persistent:
            return
        for one, new in zip(line.messages, line.new, strict=True):
            if one < 0:
                continue  # for another rule
            key, number = (consumer, facts.producer_of(one).index), number_of(one)
            before = self._last.get(key, -1)
            self._last[key] = max(before, number)
            if not new:
                what = f"came to {consumer.subscription.name} again"
            elif number < before:
                what = f"came after message {before}"
            else:
                continue
            text = f"{facts.text(one)} {what}, to {consumer.name} at {line.at:.3f}"
            self._found.append((facts.sent_at(one), line.at, text))

    def end(self) -> None:
        calms = self._disturbances.calm(self.facts.began or 0.0, self.facts.now)
        for begin, end, text in self._found:
            if is_calm(calms, begin, end):
                self.found(text)


RULE = NonPersistent
