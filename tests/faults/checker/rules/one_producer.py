"""A topic whose producers are exclusive has one at a time, and somebody has it.

**One at a time.** A producer that has lost the topic never stores anything again. So in each partition's log the
messages of one producer, all copies of them, are together: none lies behind a message of its successor. And producers
follow one another in the same order in all partitions, since one has all of them or none.

**Somebody has it.** In a calm there is no longer wait than the limit in which candidates wait and no producer is open.
A candidate with the mode `Exclusive` is refused rather than waits, so it doesn't count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.faults.checker.disturbance import Disturbances
from tests.faults.checker.history import Line
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import Partition, Topic, producer_of

_NEVER = float("inf")


class OneProducer(Rule):
    name = "one_producer"

    def begin(self) -> None:
        self._disturbances = Disturbances()
        self.on_owners = self._disturbances.owners
        self.on_fault = self._disturbances.fault
        self.on_healed = self._disturbances.healed
        self.on_session_over = self._disturbances.session_over
        # By producer: its access mode, and when it was about to be opened; and when it was open.
        self._begun: dict[str, tuple[str, float]] = {}
        self._opened: dict[str, float] = {}

    def on_producer(self, line: Line) -> None:
        if "access_mode" in line.fields:
            self._begun[line.fields["producer"]] = line.fields["access_mode"], line.at

    def on_producer_opened(self, line: Line) -> None:
        self._opened.setdefault(line.fields["producer"], line.at)

    def end(self) -> None:
        orders: dict[str, list[tuple[Partition, list[int]]]] = defaultdict(list)
        for partition in self.facts.partition_list:
            topic = self.facts.topic_of(partition.name)
            if topic is not None and topic.exclusive:
                orders[topic.name].append((partition, list(self._find_terms(partition))))
        for found in orders.values():
            self._compare_partitions(found)
        if self.times:
            for topic in self.facts.topics.values():
                if topic.exclusive:
                    self._look_for_nobody(topic)

    def _find_terms(self, partition: Partition) -> Iterator[int]:
        """Yield the producers that had the partition, in the order of its log."""
        facts, current, before = self.facts, -1, set[int]()
        for slot in sorted(range(len(partition.ids)), key=partition.ids.__getitem__):
            one = partition.content[slot]
            if one < 0 or slot in partition.disputed or producer_of(one) == current:
                continue
            producer = producer_of(one)
            if producer in before:
                successor = facts.producer_list[current].name
                self.found(
                    f"{facts.text(one)} is at {facts.where(partition, slot)}, behind messages of {successor}, which "
                    f"had taken the topic over from it"
                )
                continue
            current = producer
            before.add(producer)
            yield producer

    def _compare_partitions(self, found: list[tuple[Partition, list[int]]]) -> None:
        for number, (partition, producers) in enumerate(found):
            rank = {producer: at for at, producer in enumerate(producers)}
            for other, others in found[:number]:
                shared = [producer for producer in others if producer in rank]
                for first, second in pairwise(shared):
                    if rank[first] > rank[second]:
                        names = [self.facts.producer_list[one].name for one in (first, second)]
                        self.found(f"{names[0]} had {other.name} before {names[1]}, and {partition.name} after it")

    def _look_for_nobody(self, topic: Topic) -> None:
        begun, ended = self.facts.began or 0.0, self.facts.now
        held, wanted = [], []
        for producer in self.facts.producer_list:
            if producer.topic is not topic or producer.name not in self._begun:
                continue
            mode, at = self._begun[producer.name]
            end = _NEVER if producer.ended_at is None else producer.ended_at
            opened_at = self._opened.get(producer.name, _NEVER)
            if opened_at < _NEVER:
                held.append((opened_at, end))
            if mode != "Exclusive":
                wanted.append((at, min(opened_at, end)))
        for calm in self._disturbances.calm(begun, ended):
            for begin, end in _gaps(held, calm.begin, calm.end):
                seconds, since = max(
                    ((min(end, until) - max(begin, since), max(begin, since)) for since, until in wanted),
                    default=(0.0, 0.0),
                )
                if seconds > self.limit_s:
                    self.found(
                        f"nobody had {topic.name} for {seconds:.1f} s, from {since:.3f} on, while a candidate waited "
                        f"and nothing disturbed it; before that: {calm.after}"
                    )


def _gaps(held: list[tuple[float, float]], begin: float, end: float) -> Iterator[tuple[float, float]]:
    """Yield the parts of the time in which none of the intervals is."""
    for first, last in sorted(held):
        if first > begin:
            yield begin, min(first, end)
        begin = max(begin, last)
        if begin >= end:
            return
    yield begin, end


RULE = OneProducer
