"""While nothing disturbs the system no place is without receipts, and no subscription without messages, for long.

A producer waits from when it announced a message until it has the receipt, gives the message up, ends or is killed.
Where the message was to be stored is known by its receipt, or because its topic has one place only. Of several places
any may be the one that a message without a receipt waits for in vain: so each such message waits for itself.

A subscription waits for a message that has a receipt and that none of its consumers was handed. It is waiting as long
as one consumer has been open, and has been connected for the place once. Whatever it is handed ends the wait: a
consumer may have its reasons to be handed one thing before another.

What follows a fault is counted from when that was over (disturbance.py), and told by its kind.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tests.faults.checker.disturbance import Calm, Disturbances
from tests.faults.checker.history import Line
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Consumer, Producer, Subscription, number_of
from tests.faults.checker.waiting import Turn, Wait, waits

_NEVER = float("inf")


class Unavailable(Rule):
    name = "unavailable"

    def begin(self) -> None:
        self._disturbances = Disturbances()
        self.on_owners = self._disturbances.owners
        self.on_fault = self._disturbances.fault
        self.on_healed = self._disturbances.healed
        self.on_session_over = self._disturbances.session_over
        self._receipts: dict[str, list[Turn]] = defaultdict(list)
        self._handed: dict[tuple[str, str], list[Turn]] = defaultdict(list)
        # By subscription and place: since when consumers are connected for it.
        self._connected: dict[tuple[str, str], dict[Consumer, float]] = defaultdict(dict)

    def on_receipt(self, line: Line) -> None:
        producer = self.facts.producers[line.fields["producer"]]
        numbers = [item[0] for item in line.fields["items"]]
        if numbers:
            self._receipts[line.fields["place"]].append(Turn(line.at, producer.sent_at(min(numbers))))

    def on_unknown(self, line: Line) -> None:
        producer, numbers = self.facts.producers[line.fields["producer"]], line.fields["numbers"]
        if numbers and (place := producer.topic.only_place):
            self._receipts[place].append(Turn(line.at, producer.sent_at(min(numbers)), serves=False))

    on_refused = on_unknown

    def on_connected(self, line: Line) -> None:
        consumer = self.facts.consumer(line)
        if consumer.opened_at is not None and line.fields["broker"]:
            self._connected[consumer.subscription.name, line.fields["place"]].setdefault(consumer, line.at)

    def on_got(self, line: Line) -> None:
        subscription = self.facts.consumer(line).subscription
        producers, since = self.facts.producer_list, _NEVER
        for one, new in zip(line.messages, line.new, strict=True):
            if new and (receipt_at := producers[one >> 32].receipts_at[number_of(one)]):
                since = min(since, receipt_at)
        self._handed[subscription.name, line.fields["place"]].append(Turn(line.at, since))

    def end(self) -> None:
        facts = self.facts
        self._add_what_is_pending()
        calms = self._disturbances.calm(facts.began or 0.0, facts.now)
        receipts: dict[str, float] = {}
        for place, turns in sorted(self._receipts.items()):
            for wait in waits(turns, calms, lambda at: -_NEVER):
                self._tell(wait, receipts, f"{place} gave no receipt")
        for topic, wait in self._waits_for_some_place(calms):
            self._tell(wait, receipts, f"some place of {topic} gave no receipt")
        handed: dict[str, float] = {}
        for (name, place), turns in sorted(self._handed.items()):
            for wait in self._waits_of(facts.subscriptions[name], place, turns, calms):
                self._tell(wait, handed, f"{name} was handed nothing of {place}")
        self.verdict.figures |= {
            "seconds without a fault": sum(calm.end - calm.begin for calm in calms),
            "faults": dict(sorted(Counter(self._disturbances.kinds).items())),
            "longest wait for a receipt, by what it followed": dict(sorted(receipts.items())),
            "longest wait for a message, by what it followed": dict(sorted(handed.items())),
        }

    def _add_what_is_pending(self) -> None:
        for producer in self.facts.producer_list:
            place, number = producer.topic.only_place, _first_pending(producer)
            if place and number is not None:
                ended_at = self.facts.now if producer.ended_at is None else producer.ended_at
                self._receipts[place].append(Turn(ended_at, producer.sent_at(number), serves=False))

    def _waits_for_some_place(self, calms: Sequence[Calm]) -> Iterator[tuple[str, Wait]]:
        """By topics of several places, the longest in each calm."""
        longest: dict[tuple[str, int], Wait] = {}
        for producer in self.facts.producer_list:
            if producer.topic.only_place:
                continue
            for begin, end in _without_receipt(producer, self.facts.now):
                at = bisect_right(calms, begin, key=lambda calm: calm.end)
                for number in range(at, bisect_left(calms, end, key=lambda calm: calm.begin)):
                    calm = calms[number]
                    wait = Wait(max(begin, calm.begin), min(end, calm.end), calm.after)
                    name = producer.topic.name, number
                    if name not in longest or wait.seconds > longest[name].seconds:
                        longest[name] = wait
        for (topic, _), wait in sorted(longest.items(), key=lambda one: one[0]):
            yield topic, wait

    def _waits_of(self, subscription: Subscription, place: str, turns: list[Turn], calms: Sequence[Calm]) -> list[Wait]:
        consumers = self._connected.get((subscription.name, place), {})
        there = sorted((since, _NEVER if one.ended_at is None else one.ended_at) for one, since in consumers.items())
        ends = [Turn(end, _NEVER, serves=False) for _, end in there if end < _NEVER]

        def asked_since(at: float) -> float:
            return next((since for since, end in there if since <= at <= end), _NEVER)

        return list(waits([*turns, *ends], calms, asked_since))

    def _tell(self, wait: Wait, longest: dict[str, float], what: str) -> None:
        if wait.seconds > 0:
            longest[wait.after] = max(wait.seconds, longest.get(wait.after, 0.0))
        if self.times and wait.seconds > self.limit_s:
            when = f"{wait.seconds:.1f} s, from {wait.begin:.3f} to {wait.end:.3f}"
            self.found(f"{what} for {when}, while nothing disturbed it; before that: {wait.after}")


def _without_receipt(producer: Producer, now: float) -> Iterator[tuple[float, float]]:
    """From when to when each message waited for one that never came."""
    ended_at = now if producer.ended_at is None else producer.ended_at
    for number in range(producer.announced):
        if not producer.has_receipt(number):
            yield producer.sent_at(number), min(producer.given_up.get(number, ended_at), ended_at)


def _first_pending(producer: Producer) -> int | None:
    return next(
        (
            number
            for number in range(producer.announced)
            if not producer.has_receipt(number) and number not in producer.given_up
        ),
        None,
    )


RULE = Unavailable
