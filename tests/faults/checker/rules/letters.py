"""A message of a subscription with a dead letter topic ends acknowledged by an application, or as a dead letter.

A consumer stores a letter, and then acknowledges the message, so when the subscription and its retry topic have no
backlog, nothing may be missing: each message with a receipt was acknowledged by an application, at its own id or at
that of a letter in the retry topic, or it is in the dead letter topic. And a letter that was reported as stored is
there. There may be several letters of one message, since a client may die in between.

- A letter is what was sent, and names an id at which that message is stored.
- A message is not handed out after 1 + `most` deliveries. Consumers of Pulsar's library have no dead letters here.
- It is not a dead letter before. An application sees fewer deliveries than the broker counts: a delivery that it never
  saw ended with its consumer, by closing, dying or reconnecting; and the messages of a batch are counted together, so
  they are not checked. A message that was retried too often was retried 1 + `most` times.

What an administrator or a policy may have removed is not missing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.faults.checker.history import Line
from tests.faults.checker.ids import is_whole_entry, pack
from tests.faults.checker.policies import MARGIN_S, Policies
from tests.faults.checker.reused_sequence_ids import LIBRARY
from tests.faults.checker.rule import Rule
from tests.faults.checker.things import NOBODYS, NOTHING, Letters, Producer, Subscription, Topic, message


class _Letter(NamedTuple):
    one: int
    times: int
    stored_at: float


class _Delivery(NamedTuple):
    at: float
    redeliveries: int
    is_batched: bool


class _Work:
    """What the consumers of one subscription did."""

    def __init__(self) -> None:
        # By id in the retry topic: message, and how often it had been retried.
        self.retried: dict[int, tuple[int, int]] = {}
        self.acknowledged: set[int] = set()
        # By message: how often an application began to retry it.
        self.retries: Counter[int] = Counter()
        # Letters that were reported as stored: message, and the number of its retry.
        self.reported: list[tuple[int, int, float]] = []
        # By message, at its own id or a letter's.
        self.deliveries: dict[int, list[_Delivery]] = defaultdict(list)
        # When a consumer left, or reconnected.
        self.departures: list[float] = []


class LettersRule(Rule):
    name = "letters"

    def begin(self) -> None:
        self._policies = Policies(self.facts)
        self._work: dict[str, _Work] = defaultdict(_Work)
        # By topic.
        self._letters: dict[str, list[_Letter]] = defaultdict(list)
        self._connections: dict[tuple[str, str], tuple[str, int]] = {}
        # Consumers without dead letters.
        self._stock: set[str] = set()

    # What consumers do.

    def on_opening(self, line: Line) -> None:
        if line.fields.get("library") == LIBRARY:
            self._stock.add(line.fields["consumer"])

    def on_got(self, line: Line) -> None:
        subscription = self.facts.consumer(line).subscription.name
        letters = self.facts.letters.get(subscription)
        if letters is None:
            return
        deliveries = self._work[subscription].deliveries
        for item, packed, one in zip(line.fields["items"], line.ids, line.messages, strict=True):
            deliveries[one].append(_Delivery(line.at, item[7], not is_whole_entry(packed)))
            if item[7] > letters.most and line.fields["consumer"] not in self._stock:
                self.found(
                    f"{self.facts.text(one)} came to {line.fields['consumer']} at {line.at:.3f} after {item[7]} "
                    f"redeliveries, and {letters.most} are the most"
                )

    def on_got_letter(self, line: Line) -> None:
        work = self._work[self.facts.consumer(line).subscription.name]
        for *who, ledger, entry, index, redeliveries, times in line.fields["items"]:
            one = self._check(who, line)
            packed = pack(ledger, entry, index)
            work.retried[packed] = one, times
            work.deliveries[one].append(_Delivery(line.at, redeliveries, index >= 0))

    def on_acking(self, line: Line) -> None:
        if (work := self._work_of(line)) is not None:
            work.acknowledged.update(one for one, _ in self._messages(work, line))

    def on_reconsuming(self, line: Line) -> None:
        if (work := self._work_of(line)) is not None:
            work.retries.update(one for one, _ in self._messages(work, line))

    def on_reconsumed(self, line: Line) -> None:
        if (work := self._work_of(line)) is not None:
            work.reported += [(one, times + 1, line.at) for one, times in self._messages(work, line)]

    def on_connected(self, line: Line) -> None:
        work, key = self._work_of(line), (line.fields["consumer"], line.partition_name)
        connection = (line.fields["broker"], line.fields["connection"])
        if work is not None and self._connections.get(key, connection) != connection:
            work.departures.append(line.at)
        self._connections[key] = connection

    def on_letter(self, line: Line) -> None:
        for *who, origin, times, stored_at in line.fields["items"]:
            one = self._check(who, line)
            self._letters[line.partition_name].append(_Letter(one, times, stored_at))
            if one != NOBODYS and not self._is_origin(one, origin):
                self.found(f"a letter of {self.facts.text(one)} in {line.partition_name} names {origin}, another id")

    def _work_of(self, line: Line) -> _Work | None:
        name = self.facts.consumer(line).subscription.name
        return self._work[name] if name in self.facts.letters else None

    def _messages(self, work: _Work, line: Line) -> Iterator[tuple[int, int]]:
        """Yield the line's messages, and how often each had been retried."""
        partition = self.facts.partition(line.partition_name)
        for packed, slot in zip(line.ids, line.slots, strict=True):
            if packed in work.retried and self.facts.topic_of(partition.name) is not self._topic_of(line):
                yield work.retried[packed]
            elif partition.content[slot] >= 0:
                yield partition.content[slot], 0

    def _topic_of(self, line: Line) -> Topic:
        return self.facts.consumer(line).subscription.topic

    def _check(self, who: list[Any], line: Line) -> int:
        """Return the message. Report it if it is not what was sent."""
        name, number, digest, key = who
        producer = self.facts.producers.get(name)
        if producer is None or not 0 <= number < producer.announced:
            self.found(f"a letter in {line.partition_name} is message {number} of {name}, which was not sent")
            return NOBODYS
        if int(digest, 16) != producer.digests[number] or self.facts.key(key) != producer.keys[number]:
            self.found(f"a letter of message {number} of {name} in {line.partition_name} is not what was sent")
        return message(producer.index, number)

    def _is_origin(self, one: int, origin: str) -> bool:
        facts, parts = self.facts, [int(part) for part in origin.split(":")]
        topic = facts.producer_of(one).topic.name
        partition = facts.partition(topic if parts[2] < 0 else f"{topic}-partition-{parts[2]}")
        slot = partition.slots.get(pack(parts[0], parts[1], parts[3] if len(parts) > 3 else -1))
        return slot is None or partition.content[slot] in (NOTHING, one) or slot in partition.disputed

    # The end.

    def end(self) -> None:
        for consumer in self.facts.consumers.values():
            if consumer.subscription.name in self.facts.letters and consumer.ended_at is not None:
                self._work[consumer.subscription.name].departures.append(consumer.ended_at)
        for name, letters in sorted(self.facts.letters.items()):
            subscription, work = self.facts.subscriptions[name], self._work[name]
            work.departures.sort()
            self._look_for_early_letters(subscription, letters, work)
            topics = [topic for topic in (letters.retry, letters.dead) if topic]
            if not all(self._is_read(topic, name.removeprefix(f"{subscription.topic.name}.")) for topic in topics):
                self.not_judged(f"whether {name} has lost any, since not all of its letters were read")
                continue
            self._look_for_missing_letters(topics, work)
            if self._is_worked_off(subscription, letters):
                self._look_for_lost_messages(subscription, letters, work)

    def _is_read(self, topic: str, own: str) -> bool:
        """Whether another subscription than the consumers' own has got all letters."""
        names = [name for name, one in self.facts.subscriptions.items() if one.topic.name == topic]
        return any(name in self.facts.drained for name in names if name != f"{topic}.{own}")

    def _is_worked_off(self, subscription: Subscription, letters: Letters) -> bool:
        own = subscription.name.removeprefix(f"{subscription.topic.name}.")
        wanted = [subscription.name, *([f"{letters.retry}.{own}"] if letters.retry else [])]
        return all(name in self.facts.drained for name in wanted)

    def _look_for_missing_letters(self, topics: list[str], work: _Work) -> None:
        known = {(letter.one, letter.times) for topic in topics for letter in self._letters[topic]}
        for one, times, at in work.reported:
            if (one, times) not in known:
                self.found(
                    f"{self.facts.text(one)} was reported as retried at {at:.3f}, and has no letter of retry {times}"
                )

    def _look_for_lost_messages(self, subscription: Subscription, letters: Letters, work: _Work) -> None:
        facts = self.facts
        ended = work.acknowledged | {letter.one for letter in self._letters[letters.dead]}
        drained_at = facts.drained[subscription.name]
        for producer, number in facts.with_receipts(subscription.topic):
            if (
                producer.sent_at(number) > subscription.at
                and producer.receipts_at[number] <= drained_at
                and message(producer.index, number) not in ended
                and not self._may_be_removed(subscription, producer, number, drained_at)
            ):
                self.found(
                    f"message {number} of {producer.name} had a receipt at {producer.receipts_at[number]:.3f}, and "
                    f"{subscription.name} has no backlog, but it is no dead letter, and no application acknowledged it"
                )

    def _may_be_removed(self, subscription: Subscription, producer: Producer, number: int, at: float) -> bool:
        sent_at = producer.sent_at(number)
        if self.facts.acts.skipped(subscription.name, subscription.topic.name, sent_at):
            return True
        partition = self.facts.partition_list[producer.partitions[number]]
        return self._policies.explain(partition, producer.slots[number], sent_at, at)

    def _look_for_early_letters(self, subscription: Subscription, letters: Letters, work: _Work) -> None:
        for one, _, stored_at in self._letters[letters.dead]:
            if one == NOBODYS or work.retries[one] > letters.most:
                continue
            until = stored_at + MARGIN_S
            seen = [delivery for delivery in work.deliveries[one] if delivery.at <= until]
            if any(delivery.is_batched for delivery in seen):
                continue
            redeliveries = max((delivery.redeliveries for delivery in seen), default=-1)
            since = max((delivery.at for delivery in seen), default=self.facts.sent_at(one))
            unseen = bisect_right(work.departures, until) - bisect_left(work.departures, since)
            if redeliveries + unseen < letters.most:
                self.found(
                    f"{self.facts.text(one)} is in {letters.dead} after {redeliveries + 1} deliveries that an "
                    f"application saw and at most {unseen} others; {letters.most + 1} come before"
                )


RULE = LettersRule
