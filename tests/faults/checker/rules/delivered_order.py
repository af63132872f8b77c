"""A consumer is handed what it was not handed before in the log's order: of type Key_Shared, per key; Shared, in none.

Judged is what comes for the first time in one consumer's life. Whatever is unacknowledged may come again, at any time.
What somebody had begun to acknowledge may be there again, too, where the acknowledgement was lost without a receipt: it
comes when that shows. Each jump back is told of once, and not what follows it.
"""

from __future__ import annotations

from tests.faults.checker.history import Line
from tests.faults.checker.ids import id_text
from tests.faults.checker.marks import Marks
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Consumer

# In place of a key, where all messages are in one order.
_ALL = -1


class _Life:
    """One consumer at one place."""

    __slots__ = ("last", "seen")

    def __init__(self) -> None:
        self.seen = Marks()
        # By key, the highest id.
        self.last: dict[int, int] = {}


class DeliveredOrder(Rule):
    name = "delivered_order"

    def begin(self) -> None:
        self._lives: dict[Consumer, dict[str, _Life]] = {}
        # The subscription, when, and what is to be told of it.
        self._jumps: list[tuple[str, float, str]] = []

    def on_got(self, line: Line) -> None:
        facts, consumer = self.facts, self.facts.consumer(line)
        if consumer.subscription.type == "Shared":
            return
        life = self._lives.setdefault(consumer, {}).setdefault(line.fields["place"], _Life())
        keyed = consumer.subscription.type == "Key_Shared"
        last, add = life.last, life.seen.add
        for item, packed, slot in zip(line.fields["items"], line.ids, line.slots, strict=True):
            if not add(slot):
                continue
            key = facts.key(item[3]) if keyed else _ALL
            before = last.get(key, -1)
            if packed < before:
                if facts.is_announced(consumer.subscription, facts.place(line.fields["place"]), packed, slot):
                    continue
                behind = f"{item[0]} {item[1]} at {id_text(packed)}, first after {id_text(before)}"
                text = f"{consumer.name} was handed {behind} in {line.fields['place']} at {line.at:.3f}"
                self._jumps.append((consumer.subscription.name, line.at, text))
            last[key] = packed

    def on_closed(self, line: Line) -> None:
        self._lives.pop(self.facts.consumer(line), None)

    def on_killed(self, line: Line) -> None:
        for consumer in [one for one in self._lives if one.writer == line.fields["writer"]]:
            del self._lives[consumer]

    def end(self) -> None:
        for subscription, at, text in self._jumps:
            if not self.facts.acts.moved(subscription, at):
                self.found(text)


RULE = DeliveredOrder
