"""A consumer of type Exclusive or Failover is handed all that is not acknowledged, in the log's order, from the first
on: so what lies between two ids that it was handed one after the other, or before the first of them, was acknowledged,
or handed to it before.

Somebody must have begun to acknowledge it by then. What a consumer was handed in its life need not come to it again,
though it does when it is connected anew; that it came too late is told of as out of order. Which ids there are is known
in the end only. What never came to a drained subscription at all is not told of here: it is lost. Of each gap the first
message is told, and how many there are.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from tests.faults.checker.history import Line
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Consumer, Place, Subscription


@dataclass(slots=True, eq=False)
class _Life:
    """One consumer at one place."""

    consumer: Consumer
    # What it was handed, and when.
    slots: array[int] = field(default_factory=lambda: array("q"))
    at: array[float] = field(default_factory=lambda: array("d"))


class _Known:
    """The ids of a place at which a message is known to be, in their order, and when a subscription's consumers had
    begun to acknowledge them."""

    def __init__(self, rule: Rule, subscription: Subscription, place: Place) -> None:
        facts, ids, content = rule.facts, place.ids, place.content
        known = [slot for slot in range(len(ids)) if content[slot] >= 0 and slot not in place.disputed]
        self.slots = sorted(known, key=ids.__getitem__)
        self.ids = [ids[slot] for slot in self.slots]
        self.announced_at = [facts.announced_at(subscription, place, ids[slot], slot) for slot in self.slots]
        # By when all up to it were.
        self._all_at: list[float] = []
        latest = 0.0
        for slot, at in zip(self.slots, self.announced_at, strict=True):
            if facts.sent_at(content[slot]) > subscription.at:  # others need not come
                latest = max(latest, at)
            self._all_at.append(latest)

    def acknowledged_until(self, at: float) -> int:
        """How many from the beginning on were, by then."""
        return bisect_right(self._all_at, at)


class Skipped(Rule):
    name = "skipped"

    def begin(self) -> None:
        self._lives: dict[tuple[str, str], dict[Consumer, _Life]] = {}

    def on_got(self, line: Line) -> None:
        consumer = self.facts.consumer(line)
        if consumer.subscription.type in ("Exclusive", "Failover"):
            lives = self._lives.setdefault((consumer.subscription.name, line.fields["place"]), {})
            life = lives.setdefault(consumer, _Life(consumer))
            life.slots.extend(line.slots)
            life.at.extend([line.at] * len(line.slots))

    def end(self) -> None:
        for (name, place_name), lives in sorted(self._lives.items()):
            subscription, place = self.facts.subscriptions[name], self.facts.place(place_name)
            known = _Known(self, subscription, place)
            for life in lives.values():
                self._look(life, place, known)

    def _look(self, life: _Life, place: Place, known: _Known) -> None:
        handed = set(life.slots)
        behind = 0  # rank of what would come next, if nothing of it were acknowledged
        for slot, at in zip(life.slots, life.at, strict=True):
            rank = bisect_left(known.ids, place.ids[slot])
            if rank > behind:
                begin = max(behind, known.acknowledged_until(at))
                self._look_between(life, place, known, range(begin, rank), at, handed)
            behind = rank + 1

    def _look_between(
        self, life: _Life, place: Place, known: _Known, ranks: range, at: float, handed: set[int]
    ) -> None:
        facts, subscription = self.facts, life.consumer.subscription
        skipped = []
        for rank in ranks:
            slot, announced_at = known.slots[rank], known.announced_at[rank]
            if announced_at <= at or slot in handed:
                continue
            one = place.content[slot]
            sent_at = facts.sent_at(one)
            lost = subscription.name in facts.drained and one not in subscription.handed
            excused = facts.acts.skipped(subscription.name, subscription.topic.name, sent_at)
            if sent_at > subscription.at and not lost and not excused:
                skipped.append(slot)
        if skipped:
            first = skipped[0]
            self.found(
                f"{life.consumer.name} was handed what lies behind {facts.where(place, first)} at {at:.3f}, and not "
                f"{facts.text(place.content[first])}, which is there and nobody had acknowledged; {len(skipped)} in all"
            )


RULE = Skipped
