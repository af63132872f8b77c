"""In a calm no partition is without receipts, and no subscription without messages, for longer than the limit.

A producer waits from when it announced a message until it has the receipt, abandons the message, ends or is killed. The
message's partition is known by its receipt, or because the topic has only one. Otherwise any partition may be the one
that it waits for in vain, so each of these messages is a wait of its own. Where a backlog quota holds producers, they
wait for consumers, too: time counts from the last acknowledgement.

A subscription waits for a message that has a receipt and that none of its consumers got. It waits while one consumer is
open and has been connected for the partition once. Any delivery ends the wait: a consumer may have its reasons to get
one message before another.

Time after a fault counts from the fault's end (disturbance.py), and is reported by the fault's kind.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

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
        # By partition of a topic that holds producers: when messages were acknowledged.
        self._acknowledged: dict[str, list[float]] = defaultdict(list)
        # By subscription and partition: since when consumers are connected for it.
        self._connected: dict[tuple[str, str], dict[Consumer, float]] = defaultdict(dict)

    def on_receipt(self, line: Line) -> None:
        producer = self.facts.producers[line.fields["producer"]]
        numbers = [item[0] for item in line.fields["items"]]
        if numbers:
            self._receipts[line.partition_name].append(Turn(line.at, producer.sent_at(min(numbers))))

    def on_unknown(self, line: Line) -> None:
        producer, numbers = self.facts.producers[line.fields["producer"]], line.fields["numbers"]
        if numbers and (partition := producer.topic.only_partition):
            self._receipts[partition].append(Turn(line.at, producer.sent_at(min(numbers)), serves=False))

    on_refused = on_unknown

    def on_acking(self, line: Line) -> None:
        if self.facts.consumer(line).subscription.topic.holds_producers:
            self._acknowledged[line.partition_name].append(line.at)

    on_acking_up_to = on_acking

    def on_connected(self, line: Line) -> None:
        consumer = self.facts.consumer(line)
        if consumer.opened_at is not None and line.fields["broker"]:
            self._connected[consumer.subscription.name, line.partition_name].setdefault(consumer, line.at)

    def on_got(self, line: Line) -> None:
        subscription = self.facts.consumer(line).subscription
        producers, since = self.facts.producer_list, _NEVER
        for one, new in zip(line.messages, line.new, strict=True):
            if new and (receipt_at := producers[one >> 32].receipts_at[number_of(one)]):
                since = min(since, receipt_at)
        self._handed[subscription.name, line.partition_name].append(Turn(line.at, since))

    def end(self) -> None:
        facts = self.facts
        self._add_what_is_pending()
        calms = self._disturbances.calm(facts.began or 0.0, facts.now)
        receipts: dict[str, float] = {}
        for partition, turns in sorted(self._receipts.items()):
            for wait in waits(turns, calms, partial(_last_until, self._acknowledged[partition])):
                self._report_wait(wait, receipts, f"{partition} gave no receipt")
        for topic, wait in self._waits_for_any_partition(calms):
            self._report_wait(wait, receipts, f"some partition of {topic} gave no receipt")
        handed: dict[str, float] = {}
        for (name, partition), turns in sorted(self._handed.items()):
            for wait in self._waits_of(facts.subscriptions[name], partition, turns, calms):
                self._report_wait(wait, handed, f"{name} was handed nothing of {partition}")
        self.verdict.figures |= {
            "seconds without a fault": sum(calm.end - calm.begin for calm in calms),
            "faults": dict(sorted(Counter(self._disturbances.kinds).items())),
            "longest wait for a receipt, by what it followed": dict(sorted(receipts.items())),
            "longest wait for a message, by what it followed": dict(sorted(handed.items())),
        }

    def _add_what_is_pending(self) -> None:
        for producer in self.facts.producer_list:
            partition, number = producer.topic.only_partition, _first_pending(producer)
            if partition and number is not None:
                ended_at = self.facts.now if producer.ended_at is None else producer.ended_at
                self._receipts[partition].append(Turn(ended_at, producer.sent_at(number), serves=False))

    def _waits_for_any_partition(self, calms: Sequence[Calm]) -> Iterator[tuple[str, Wait]]:
        """The longest wait in each calm, by topics of several partitions."""
        longest: dict[tuple[str, int], Wait] = {}
        for producer in self.facts.producer_list:
            if producer.topic.only_partition:
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

    def _waits_of(
        self, subscription: Subscription, partition: str, turns: list[Turn], calms: Sequence[Calm]
    ) -> list[Wait]:
        consumers = self._connected.get((subscription.name, partition), {})
        there = sorted((since, _NEVER if one.ended_at is None else one.ended_at) for one, since in consumers.items())
        ends = [Turn(end, _NEVER, serves=False) for _, end in there if end < _NEVER]

        def open_since(at: float) -> float:
            return next((since for since, end in there if since <= at <= end), _NEVER)

        return list(waits([*turns, *ends], calms, open_since))

    def _report_wait(self, wait: Wait, longest: dict[str, float], what: str) -> None:
        if wait.seconds > 0:
            longest[wait.after] = max(wait.seconds, longest.get(wait.after, 0.0))
        if self.times and wait.seconds > self.limit_s:
            when = f"{wait.seconds:.1f} s, from {wait.begin:.3f} to {wait.end:.3f}"
            self.found(f"{what} for {when}, while nothing disturbed it; before that: {wait.after}")


def _last_until(times: Sequence[float], at: float) -> float:
    """Return the last of these times, in their order, that is not behind `at`."""
    found = bisect_right(times, at)
    return times[found - 1] if found else -_NEVER


def _without_receipt(producer: Producer, now: float) -> Iterator[tuple[float, float]]:
    """Yield from when to when each message without a receipt waited."""
    ended_at = now if producer.ended_at is None else producer.ended_at
    for number in range(producer.announced):
        if not producer.has_receipt(number):
            yield producer.sent_at(number), min(producer.unanswered_at.get(number, ended_at), ended_at)


def _first_pending(producer: Producer) -> int | None:
    return next(
        (
            number
            for number in range(producer.announced)
            if not producer.has_receipt(number) and number not in producer.unanswered_at
        ),
        None,
    )


RULE = Unavailable
