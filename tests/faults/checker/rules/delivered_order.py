"""A consumer gets messages for the first time in the log's order. Shared has no order, and Key_Shared one by key, which
key_order.py checks.

Only the first delivery to a consumer is checked, since an unacknowledged message may be redelivered at any time. A
message whose acknowledgement had begun may come late, too: its acknowledgement was lost without a receipt. Each jump
back is reported once, without the messages that follow it.
"""

from __future__ import annotations

from tests.faults.checker.history import Line
from tests.faults.checker.ids import id_text
from tests.faults.checker.marks import Marks
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Consumer


class _Deliveries:
    """The deliveries of one partition to one consumer."""

    __slots__ = ("last", "seen")

    def __init__(self) -> None:
        self.seen = Marks()
        # The highest id.
        self.last = -1


class DeliveredOrder(Rule):
    name = "delivered_order"

    def begin(self) -> None:
        self._deliveries: dict[Consumer, dict[str, _Deliveries]] = {}
        # The subscription, the time, and the text of the finding.
        self._jumps: list[tuple[str, float, str]] = []

    def on_got(self, line: Line) -> None:
        facts, consumer = self.facts, self.facts.consumer(line)
        if consumer.subscription.type in ("Shared", "Key_Shared"):
            return
        deliveries = self._deliveries.setdefault(consumer, {}).setdefault(line.partition_name, _Deliveries())
        add = deliveries.seen.add
        for item, packed, slot in zip(line.fields["items"], line.ids, line.slots, strict=True):
            if not add(slot):
                continue
            before = deliveries.last
            if packed < before:
                if facts.is_announced(consumer.subscription, facts.partition(line.partition_name), packed, slot):
                    continue
                behind = f"{item[0]} {item[1]} at {id_text(packed)}, first after {id_text(before)}"
                text = f"{consumer.name} was handed {behind} in {line.fields['place']} at {line.at:.3f}"
                self._jumps.append((consumer.subscription.name, line.at, text))
            deliveries.last = packed

    def on_closed(self, line: Line) -> None:
        self._deliveries.pop(self.facts.consumer(line), None)

    def on_killed(self, line: Line) -> None:
        for consumer in [one for one in self._deliveries if one.writer == line.fields["writer"]]:
            del self._deliveries[consumer]

    def end(self) -> None:
        for subscription, at, text in self._jumps:
            if not self.facts.acts.moved(subscription, at):
                self.found(text)


RULE = DeliveredOrder
