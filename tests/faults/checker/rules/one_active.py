"""An Exclusive or Failover subscription has one active consumer at a time per partition.

A replaced consumer may deliver its prefetched messages for a long time without noticing. But acknowledgements of what
was delivered before the takeover get no receipt. So a consumer with a receipt was active from when it got the message
until it began to acknowledge it, if it had one connection all that time. No other consumer that is connected to the
same broker was active in that time, as its own receipts show; nor did one get a message that was sent in that time, if
it was opened then, or before.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from tests.faults.checker.history import Line
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Consumer

_SEEN = 2  # times with its connection: once might have been looked at before


@dataclass(slots=True, eq=False)
class _Span:
    begin: float
    end: float
    consumer: Consumer
    broker: str
    # It was served all that time; else at some moment of it.
    throughout: bool
    seen: int = 0

    @property
    def text(self) -> str:
        how = "was served" if self.throughout else "was handed a message that was sent"
        return f"{self.consumer.name} {how} between {self.begin:.3f} and {self.end:.3f}"


@dataclass(slots=True, eq=False)
class _Side:
    """One consumer's state for one partition."""

    connection: tuple[str, int] | None = None
    seen_at: float = float("inf")
    # By slot: when it had it, and when it began to acknowledge it.
    got: dict[int, float] = field(default_factory=dict)
    acking: dict[int, float] = field(default_factory=dict)
    # What is not sure yet.
    spans: list[_Span] = field(default_factory=list)

    def connect(self, connection: tuple[str, int], at: float) -> None:
        self.connection, self.seen_at = (connection if connection[0] else None), at
        for forgotten in (self.got, self.acking, self.spans):
            forgotten.clear()


class OneActive(Rule):
    name = "one_active"

    def begin(self) -> None:
        self._sides: dict[Consumer, dict[str, _Side]] = {}
        self._sure: dict[tuple[str, str], list[_Span]] = defaultdict(list)

    def on_connected(self, line: Line) -> None:
        side = self._side(line)
        if side is None:
            return
        connection = (line.fields["broker"], line.fields["connection"])
        if connection != side.connection:
            side.connect(connection, line.at)
            return
        for span in side.spans:
            span.seen += 1
            if span.seen == _SEEN:
                self._sure[span.consumer.subscription.name, line.partition_name].append(span)
        side.spans = [span for span in side.spans if span.seen < _SEEN]

    def on_got(self, line: Line) -> None:
        side = self._side(line)
        if side is None or side.connection is None or side.seen_at > line.fields["since"]:
            return
        side.got.update(dict.fromkeys(line.slots, line.at))
        sent_at = max((self.facts.sent_at(one) for one in line.messages if one >= 0), default=0.0)
        self._add(line, side, sent_at, line.at, throughout=False)

    def on_acking(self, line: Line) -> None:
        if (side := self._side(line)) is not None:
            side.acking.update(dict.fromkeys(line.slots, line.at))

    on_acking_up_to = on_acking

    def on_acked(self, line: Line) -> None:
        side = self._side(line)
        if side is None or side.connection is None:
            return
        intervals = []
        for slot in line.slots:
            got_at, began = side.got.pop(slot, None), side.acking.pop(slot, None)
            if got_at is not None and began is not None:
                intervals.append((got_at, began))
        if intervals:
            self._add(line, side, *min(intervals), throughout=True)

    on_acked_up_to = on_acked

    def _add(self, line: Line, side: _Side, begin: float, end: float, *, throughout: bool) -> None:
        assert side.connection is not None
        consumer, address = self.facts.consumer(line), side.connection[0]
        begin = max(begin, consumer.opening_at)
        side.spans.append(_Span(begin, end, consumer, self.facts.brokers.get(address, address), throughout))

    def on_closed(self, line: Line) -> None:
        self._sides.pop(self.facts.consumer(line), None)

    def on_killed(self, line: Line) -> None:
        for consumer in [one for one in self._sides if one.writer == line.fields["writer"]]:
            del self._sides[consumer]

    def _side(self, line: Line) -> _Side | None:
        consumer = self.facts.consumer(line)
        if consumer.subscription.type not in ("Exclusive", "Failover"):
            return None
        return self._sides.setdefault(consumer, {}).setdefault(line.partition_name, _Side())

    def end(self) -> None:
        for (name, partition), spans in sorted(self._sure.items()):
            subscription = self.facts.subscriptions[name]
            reported: set[frozenset[Consumer]] = set()
            for first, second in _contradictions(spans):
                pair = frozenset((first.consumer, second.consumer))
                touched = self.facts.acts.touched(name, subscription.topic.name, first.begin, second.end)
                if pair not in reported and not touched:
                    reported.add(pair)
                    self.found(f"of {partition} {first.text}, and {second.text}, both by {first.broker}")


def _contradictions(spans: list[_Span]) -> list[tuple[_Span, _Span]]:
    found = []
    # By consumer: what lasts longest of those that have begun.
    longest: dict[Consumer, _Span] = {}
    for span in sorted(spans, key=lambda one: (one.begin, not one.throughout)):
        for consumer, other in list(longest.items()):
            if other.end <= span.begin:
                del longest[consumer]
            elif (
                consumer is not span.consumer
                and other.broker == span.broker
                and (span.throughout or span.end <= other.end)
            ):
                found.append((other, span))
        if span.throughout and (span.consumer not in longest or longest[span.consumer].end < span.end):
            longest[span.consumer] = span
    return found


RULE = OneActive
