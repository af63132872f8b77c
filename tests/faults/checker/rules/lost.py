"""What has a receipt is in the log, and comes to every subscription that was there before it was sent, until somebody
acknowledges it.

A subscription has no backlog when it is drained: so of each message that was stored by then and came to it, somebody
has begun to acknowledge it at the id that its receipt names. Of a second copy nobody knows when it was stored.

A log's beginning may be gone when it is scanned, of what every durable subscription has begun to acknowledge. What an
administrator took away is not lost.
"""

from __future__ import annotations

from bisect import bisect_right

from tests.faults.checker.history import Line
from tests.faults.checker.marks import Marks
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import ALREADY, Place, Producer, Scan, Subscription, Topic, message, number_of


class Lost(Rule):
    name = "lost"

    def begin(self) -> None:
        # What was missing, where, and what said so.
        self._missing: list[tuple[Producer, int, Place, str]] = []
        # What nobody acknowledged, where, and of which subscription without a backlog.
        self._forgotten: list[tuple[Producer, int, Place, Subscription]] = []

    def on_drained(self, line: Line) -> None:
        facts, subscription = self.facts, self.facts.subscriptions[line.fields["subscription"]]
        for place in facts.place_list:
            if not subscription.durable or facts.topic_of(place.name) is not subscription.topic:
                continue
            for slot, one in enumerate(place.content):
                if one < 0 or one not in subscription.handed or slot in place.disputed:
                    continue
                producer, number = facts.producer_of(one), number_of(one)
                stored = producer.has_receipt(number) and producer.slots[number] in (slot, ALREADY)
                if stored and not facts.is_announced(subscription, place, place.ids[slot], slot):
                    self._forgotten.append((producer, number, place, subscription))

    def on_scanned(self, line: Line) -> None:
        facts = self.facts
        scan = facts.scans[line.fields["reader"], line.fields["place"]]
        topic = facts.topic_of(scan.place.name)
        if topic is None:
            return
        found = Marks()
        for one in scan.messages:
            if one >= 0:
                found.add(one)
        first = min((scan.place.ids[slot] for slot in scan.slots), default=None)
        for producer, number in facts.with_receipts(topic):
            here = producer.places[number] == scan.place.index
            if here and message(producer.index, number) not in found:
                if self._may_be_gone(producer, number, topic, scan, first):
                    continue
                self._missing.append((producer, number, scan.place, scan.reader))

    def _may_be_gone(self, producer: Producer, number: int, topic: Topic, scan: Scan, first: int | None) -> bool:
        place, slot = scan.place, producer.slots[number]
        if slot < 0:
            # Stored already, nobody knows where: it may have been in a beginning that is gone.
            return first is not None and any(packed < first for packed in place.ids)
        packed = place.ids[slot]
        if first is not None and packed >= first:
            return False
        return all(
            self.facts.is_announced(subscription, place, packed, slot)
            for subscription in self.facts.subscriptions.values()
            if subscription.topic is topic and subscription.durable and subscription.at < producer.sent_at(number)
        )

    def end(self) -> None:
        facts = self.facts
        for producer, number, place, reader in self._missing:
            withdrawn = not producer.has_receipt(number)
            if not withdrawn and not facts.acts.took_away(producer.topic.name, producer.sent_at(number)):
                self.found(f"{_receipt(producer, number)} in {place.name}, and {reader} did not find it there")
        for producer, number, place, subscription in self._forgotten:
            if not facts.acts.skipped(subscription.name, subscription.topic.name, producer.sent_at(number)):
                self.found(
                    f"{_receipt(producer, number)} in {place.name} and came to {subscription.name}, which has no "
                    f"backlog at {facts.drained[subscription.name]:.3f}, though nobody acknowledged it"
                )
        for name, at in sorted(facts.drained.items()):
            self._look(facts.subscriptions[name], at)

    def _look(self, subscription: Subscription, drained_at: float) -> None:
        facts, topic = self.facts, subscription.topic
        for producer in facts.producer_list:
            if producer.topic is not topic:
                continue
            begin = bisect_right(producer.starts_at, subscription.at)
            since = producer.starts[begin] if begin < len(producer.starts) else producer.announced
            for number in range(since, producer.announced):
                if (
                    producer.has_receipt(number)
                    and producer.receipts_at[number] <= drained_at
                    and message(producer.index, number) not in subscription.handed
                    and not facts.acts.skipped(subscription.name, topic.name, producer.sent_at(number))
                ):
                    place = facts.place_list[producer.places[number]].name
                    self.found(f"{_receipt(producer, number)} in {place}, and never came to {subscription.name}")


def _receipt(producer: Producer, number: int) -> str:
    return f"message {number} of {producer.name} had a receipt at {producer.receipts_at[number]:.3f}"


RULE = Lost
