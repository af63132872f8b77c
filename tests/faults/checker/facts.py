"""The state that all rules share: topics, producers, consumers, and the message and id that each line is about.

Lines come in the order of their times, so everything observed was announced before. `take` handles a line before the
rules see it. A line that names an unknown producer, consumer or subscription makes the history a broken one; an
observation that should be impossible is for the rules to report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.faults.checker.acknowledged import NEVER, Acknowledged
from tests.faults.checker.acts import Acts
from tests.faults.checker.history import Line
from tests.faults.checker.ids import id_text, pack, whole_entry
from tests.faults.checker.things import (
    ALREADY,
    NOBODYS,
    NOTHING,
    Consumer,
    Definition,
    Letters,
    Partition,
    Producer,
    Scan,
    Subscription,
    Topic,
    message,
    number_of,
    producer_of,
    value_text,
)

__all__ = ["Facts"]


class Facts:
    def __init__(self) -> None:
        self.began: float | None = None
        self.now = 0.0
        self.ended: float | None = None
        self.topics: dict[str, Topic] = {}
        self.partitions: dict[str, Partition] = {}
        self.partition_list: list[Partition] = []
        self.producers: dict[str, Producer] = {}
        self.producer_list: list[Producer] = []
        self.subscriptions: dict[str, Subscription] = {}
        self.consumers: dict[str, Consumer] = {}
        self.keys: dict[str | None, int] = {}
        self.key_list: list[str | None] = []
        self.scans: dict[tuple[str, str], Scan] = {}
        self.drained: dict[str, float] = {}
        self.letters: dict[str, Letters] = {}  # by subscription
        # When a message's first dead letter was stored: by dead letter topic and message.
        self._dead_at: dict[tuple[str, int], float] = {}
        self.brokers: dict[str, str] = {}  # by address
        # By topic and name.
        self.definitions: dict[tuple[str, str], Definition] = {}
        self.acts = Acts()
        self.counts: Counter[str] = Counter()
        self._takes: Final[dict[str, Callable[[Line, dict[str, Any]], None]]] = {
            name.removeprefix("_take_"): getattr(self, name) for name in dir(self) if name.startswith("_take_")
        }

    def take(self, line: Line) -> None:
        if self.began is None:
            self.began = line.at
        self.now = line.at
        if (take := self._takes.get(line.what)) is not None:
            take(line, line.fields)

    # ── for the rules ──

    def partition(self, name: str) -> Partition:
        partition = self.partitions.get(name)
        if partition is None:
            partition = self.partitions[name] = Partition(name, len(self.partition_list))
            self.partition_list.append(partition)
        return partition

    def topic_of(self, partition: str) -> Topic | None:
        topic = self.topics.get(partition) or self.topics.get(partition.rpartition("-partition-")[0])
        return topic if topic and topic.has(partition) else None

    def key(self, text: str | None) -> int:
        index = self.keys.get(text)
        if index is None:
            index = self.keys[text] = len(self.key_list)
            self.key_list.append(text)
        return index

    def producer_of(self, message: int) -> Producer:
        return self.producer_list[producer_of(message)]

    def sent_at(self, message: int) -> float:
        return self.producer_of(message).sent_at(number_of(message))

    def key_of(self, message: int) -> int:
        return self.producer_of(message).keys[number_of(message)]

    def text(self, message: int) -> str:
        if message == NOBODYS:
            return "a message that nobody sent"
        if message == NOTHING:
            return "nothing"
        return f"message {number_of(message)} of {self.producer_of(message).name}"

    def where(self, partition: Partition, slot: int) -> str:
        return f"{id_text(partition.ids[slot])} in {partition.name}"

    def announced_at(self, subscription: Subscription, partition: Partition, packed: int, slot: int) -> float:
        """Return when somebody began to acknowledge it; infinity: nobody did."""
        found = subscription.acknowledged.get(partition.index)
        return NEVER if found is None else found.announced.at(packed, slot, partition.slots.get(whole_entry(packed)))

    def is_announced(self, subscription: Subscription, partition: Partition, packed: int, slot: int) -> bool:
        return self.announced_at(subscription, partition, packed, slot) < NEVER

    def dead_at(self, subscription: Subscription, one: int) -> float:
        """Return when it became a dead letter of the subscription; infinity: it did not. All is known at the end."""
        letters = self.letters.get(subscription.name)
        return NEVER if letters is None else self._dead_at.get((letters.dead, one), NEVER)

    def with_receipts(self, topic: Topic) -> Iterator[tuple[Producer, int]]:
        """Yield producer and number of each message with a receipt."""
        for producer in self.producer_list:
            if producer.topic is topic:
                for number, slot in enumerate(producer.slots):
                    if slot != NOTHING:
                        yield producer, number

    def complete_scans(self) -> list[Scan]:
        return [scan for scan in self.scans.values() if scan.complete]

    def is_known(self, partition: Partition) -> bool:
        """Whether the partition's whole log is known: somebody scanned it, or a subscription created before the first
        message got all of it and was drained, without an administrator's operation or a policy that removes messages
        from subscriptions.
        """
        if any(scan.partition is partition for scan in self.complete_scans()):
            return True
        topic = self.topic_of(partition.name)
        if topic is None or topic.ttl_s or topic.quota_messages:
            return False
        return any(
            subscription.topic is topic
            and subscription.durable
            and all(not one.starts or subscription.at <= one.starts_at[0] for one in self._producers_to(topic))
            and not self.acts.touched(name, topic.name, 0.0, self.now)
            for name, subscription in self.subscriptions.items()
            if name in self.drained
        )

    def _producers_to(self, topic: Topic) -> Iterator[Producer]:
        return (one for one in self.producer_list if one.topic is topic)

    # ── what there is ──

    def _take_topic(self, line: Line, fields: dict[str, Any]) -> None:
        known = self.topics.get(fields["topic"])
        if known is None:
            known = self.topics[fields["topic"]] = _make_topic(fields)
        elif (fields["order"], fields["deduplicated"]) != (known.order, known.deduplicated):
            raise line.broken(f"makes another topic of {known.name!r}")
        known.partitions.append((line.at, fields["partitions"]))

    def _take_subscription(self, line: Line, fields: dict[str, Any]) -> None:
        topic = self.topics.get(fields["topic"])
        if topic is None:
            raise line.broken(f"names the topic {fields['topic']!r}, which no earlier line creates")
        name = fields["subscription"]
        if name not in self.subscriptions:
            self.subscriptions[name] = Subscription(name, topic, fields["type"], fields["durable"], line.at)

    def _take_letters(self, line: Line, fields: dict[str, Any]) -> None:
        self._subscription(line)
        self.letters[fields["subscription"]] = Letters(fields["retry"], fields["dead"], fields["most"])

    def _take_broker(self, line: Line, fields: dict[str, Any]) -> None:
        self.brokers.update(dict.fromkeys(fields["addresses"], fields["broker"]))

    def _take_act(self, line: Line, fields: dict[str, Any]) -> None:
        self.counts[f"act {fields['act']} {fields['result']}"] += 1
        self.acts.take(line)

    def _take_killed(self, line: Line, fields: dict[str, Any]) -> None:
        ended: list[Consumer | Producer] = [*self.consumers.values(), *self.producers.values()]
        for one in ended:
            if one.writer == fields["writer"] and one.ended_at is None:
                one.ended_at = line.at

    def _take_drained(self, line: Line, fields: dict[str, Any]) -> None:
        self._subscription(line)
        self.drained[fields["subscription"]] = line.at

    def _take_scanned(self, line: Line, fields: dict[str, Any]) -> None:
        scan = self._scan(fields["reader"], fields["place"], line.at)
        if len(scan.slots) != fields["messages"]:
            raise line.broken(f"has {fields['messages']} messages; {len(scan.slots)} are in the history")
        scan.at = line.at
        scan.complete = True

    def _take_ended(self, line: Line, fields: dict[str, Any]) -> None:
        self.ended = line.at

    # ── schemas ──

    def _take_offering(self, line: Line, fields: dict[str, Any]) -> None:
        name = (fields["topic"], fields["definition"])
        offered = Definition(fields["fields"], fields["compatible"])
        if self.definitions.setdefault(name, offered) != offered:
            raise line.broken(f"makes another definition of {name[1]!r}")

    def _take_offered(self, line: Line, fields: dict[str, Any]) -> None:
        self._definition(line, fields["topic"], fields["definition"])
        self.counts[f"definitions {fields['result']}"] += 1

    def _definition(self, line: Line, topic: str, name: str) -> Definition:
        found = self.definitions.get((topic, name))
        if found is None:
            raise line.broken(f"names the definition {name!r}, which no earlier line offers to {topic!r}")
        return found

    # ── producers ──

    def _take_producer(self, line: Line, fields: dict[str, Any]) -> None:
        name = fields["producer"]
        topic = self.topics.get(fields["topic"])
        if topic is None:
            raise line.broken(f"names the topic {fields['topic']!r}, which no earlier line creates")
        if name in self.producers:
            raise line.broken(f"opens the producer {name!r} again; each has a name of its own")
        definition = fields.get("definition", "")
        if definition:
            self._definition(line, topic.name, definition)
        library = fields.get("library", "")
        self.producers[name] = Producer(name, len(self.producer_list), topic, line.writer, library, definition)
        self.producer_list.append(self.producers[name])

    def _take_producer_opened(self, line: Line, fields: dict[str, Any]) -> None:
        self._producer(line)

    def _take_sending(self, line: Line, fields: dict[str, Any]) -> None:
        producer, items = self._producer(line), fields["items"]
        if [item[0] for item in items] != list(range(producer.announced, producer.announced + len(items))):
            raise line.broken(f"must go on with number {producer.announced} of {producer.name}")
        values = fields.get("values", [])
        if len(values) != (len(items) if producer.definition else 0):
            raise line.broken(f"has {len(items)} items and {len(values)} values")
        if not items:
            return
        producer.values.extend(map(value_text, values))
        producer.starts.append(producer.announced)
        producer.starts_at.append(line.at)
        try:
            producer.digests.extend([int(digest, 16) for _, digest, _ in items])
        except (ValueError, OverflowError) as error:
            raise line.broken(f"has a digest that is not eight hex digits: {error}") from error
        producer.keys.extend([self.key(key) for _, _, key in items])
        producer.partitions.extend([NOTHING] * len(items))
        producer.slots.extend([NOTHING] * len(items))
        producer.receipts_at.extend([0.0] * len(items))
        self.counts["messages announced"] += len(items)

    def _take_receipt(self, line: Line, fields: dict[str, Any]) -> None:
        producer, partition = self._producer(line), self.partition(fields["place"])
        for number, ledger, entry, index in fields["items"]:
            self._own_number(line, producer, number)
            line.messages.append(message(producer.index, number))
            slot = ALREADY if ledger == -1 else self._slot(line, partition, ledger, entry, index)
            line.slots.append(slot)
            if producer.has_receipt(number):
                continue  # the first counts; the rule on receipts looks at the others
            producer.slots[number] = slot
            producer.partitions[number] = partition.index
            producer.receipts_at[number] = line.at
            self.counts["messages with a receipt"] += 1

    def _take_refused(self, line: Line, fields: dict[str, Any]) -> None:
        producer = self._producer(line)
        for number in fields["numbers"]:
            self._own_number(line, producer, number)
            producer.refused.add(number)
            producer.unanswered_at.setdefault(number, line.at)
        self.counts["messages refused"] += len(fields["numbers"])

    def _take_unknown(self, line: Line, fields: dict[str, Any]) -> None:
        producer = self._producer(line)
        for number in fields["numbers"]:
            self._own_number(line, producer, number)
            producer.unanswered_at.setdefault(number, line.at)
        self.counts["messages unknown"] += len(fields["numbers"])

    def _take_producer_closed(self, line: Line, fields: dict[str, Any]) -> None:
        self._producer(line).ended_at = line.at

    # ── consumers ──

    def _take_opening(self, line: Line, fields: dict[str, Any]) -> None:
        name = fields["consumer"]
        if name in self.consumers:
            raise line.broken(f"opens the consumer {name!r} again; each opening has a name of its own")
        subscription, definition = self._subscription(line), fields.get("definition", "")
        if definition:
            self._definition(line, subscription.topic.name, definition)
        self.consumers[name] = Consumer(name, subscription, line.writer, line.at, definition)
        self.counts["consumers"] += 1

    def _take_opened(self, line: Line, fields: dict[str, Any]) -> None:
        self.consumer(line).opened_at = line.at

    def _take_connected(self, line: Line, fields: dict[str, Any]) -> None:
        self.consumer(line)

    def _take_closing(self, line: Line, fields: dict[str, Any]) -> None:
        consumer = self.consumer(line)
        if consumer.ended_at is None:
            consumer.ended_at = line.at

    _take_closed = _take_closing

    def _take_looked(self, line: Line, fields: dict[str, Any]) -> None:
        self.consumer(line)

    def _take_got(self, line: Line, fields: dict[str, Any]) -> None:
        subscription = self.consumer(line).subscription
        self._observe(line, self.partition(fields["place"]))
        add = subscription.handed.add
        line.new = [one >= 0 and add(one) for one in line.messages]
        self.counts["messages handed over"] += len(line.messages)
        self.counts["messages handed over for the first time"] += sum(line.new)

    def _take_decoded(self, line: Line, fields: dict[str, Any]) -> None:
        self.consumer(line)
        self.counts["messages decoded"] += len(fields["items"])

    def _take_undecoded(self, line: Line, fields: dict[str, Any]) -> None:
        self.consumer(line)
        self.counts["messages not decoded"] += len(fields["items"])

    def _take_scan(self, line: Line, fields: dict[str, Any]) -> None:
        scan = self._scan(fields["reader"], fields["place"], line.at)
        self._observe(line, scan.partition)
        scan.slots.extend(line.slots)
        scan.messages.extend(line.messages)
        self.counts["messages scanned"] += len(line.slots)

    def _take_acking(self, line: Line, fields: dict[str, Any]) -> None:
        found = self._acknowledging(line)
        for slot in line.slots:
            found.announced.one(slot, line.at)

    def _take_acked(self, line: Line, fields: dict[str, Any]) -> None:
        found = self._acknowledging(line)
        for slot in line.slots:
            found.receipts.one(slot, line.at)
        self.counts["acknowledgements with a receipt"] += len(line.slots)

    def _take_acking_up_to(self, line: Line, fields: dict[str, Any]) -> None:
        self._acknowledging(line, fields["id"]).announced.up_to(line.ids[0], line.at)

    def _take_acked_up_to(self, line: Line, fields: dict[str, Any]) -> None:
        self._acknowledging(line, fields["id"]).receipts.up_to(line.ids[0], line.at)
        self.counts["cumulative acknowledgements with a receipt"] += 1

    def _take_nacked(self, line: Line, fields: dict[str, Any]) -> None:
        self._acknowledging(line)
        self.counts["messages nacked"] += len(line.slots)

    _take_reconsuming = _take_acking

    def _take_reconsumed(self, line: Line, fields: dict[str, Any]) -> None:
        self._acknowledging(line)
        self.counts["messages retried"] += len(line.slots)

    def _take_got_letter(self, line: Line, fields: dict[str, Any]) -> None:
        """Resolve the items: a letter's id, and the message that it was made of, which may have other letters."""
        self.consumer(line)
        partition = self.partition(line.partition_name)
        for item in fields["items"]:
            sender = self.producers.get(item[0])
            line.messages.append(message(sender.index, item[1]) if sender else NOBODYS)
            line.slots.append(self._slot(line, partition, *item[4:7]))
            line.ids.append(partition.ids[line.slots[-1]])
        self.counts["letters handed over"] += len(fields["items"])

    def _take_letter(self, line: Line, fields: dict[str, Any]) -> None:
        self.consumer(line)
        for name, number, *_, stored_at in fields["items"]:
            if (producer := self.producers.get(name)) is not None:
                where = line.partition_name, message(producer.index, number)
                self._dead_at[where] = min(stored_at, self._dead_at.get(where, NEVER))
        self.counts["letters"] += len(fields["items"])

    def _take_ack_unknown(self, line: Line, fields: dict[str, Any]) -> None:
        self.consumer(line)
        self.counts["acknowledgements unknown"] += 1

    # ── by name ──

    def consumer(self, line: Line) -> Consumer:
        found = self.consumers.get(line.fields["consumer"])
        if found is None:
            raise line.broken(f"names the consumer {line.fields['consumer']!r}, which no earlier line opens")
        return found

    def _producer(self, line: Line) -> Producer:
        found = self.producers.get(line.fields["producer"])
        if found is None:
            raise line.broken(f"names the producer {line.fields['producer']!r}, which no earlier line opens")
        return found

    def _subscription(self, line: Line) -> Subscription:
        found = self.subscriptions.get(line.fields["subscription"])
        if found is None:
            raise line.broken(f"names the subscription {line.fields['subscription']!r}, which no earlier line creates")
        return found

    def _scan(self, reader: str, name: str, at: float) -> Scan:
        found = self.scans.get((reader, name))
        if found is None:
            found = self.scans[reader, name] = Scan(reader, self.partition(name), at)
        return found

    def _own_number(self, line: Line, producer: Producer, number: int) -> None:
        if not 0 <= number < producer.announced:
            raise line.broken(f"names number {number}, which {producer.name} has not announced")

    def _slot(self, line: Line, partition: Partition, ledger: int, entry: int, index: int) -> int:
        try:
            return partition.slot(pack(ledger, entry, index))
        except ValueError as error:
            raise line.broken(f"has an id that can't be: {error}") from error

    def _acknowledging(self, line: Line, *more: list[int]) -> Acknowledged:
        """Return the subscription's acknowledgements in the line's partition, and resolve the line's ids."""
        subscription, partition = self.consumer(line).subscription, self.partition(line.partition_name)
        for one in line.fields.get("ids", more):
            slot = self._slot(line, partition, *one)
            line.slots.append(slot)
            line.ids.append(partition.ids[slot])
        return subscription.acknowledged_in(partition)

    def _observe(self, line: Line, partition: Partition) -> None:
        """Resolve the line's items. Millions of items pass here."""
        producers, slots, content, ids = self.producers, partition.slots, partition.content, partition.ids
        for item in line.fields["items"]:
            producer, number, ledger, entry, index = item[0], item[1], item[4], item[5], item[6]
            sender = producers.get(producer)
            one = message(sender.index, number) if sender and 0 <= number < len(sender.digests) else NOBODYS
            try:
                packed = pack(ledger, entry, index)
            except ValueError as error:
                raise line.broken(f"has an id that can't be: {error}") from error
            slot = slots.get(packed)
            if slot is None:
                slot = partition.slot(packed)
            if content[slot] != one and one != NOBODYS:
                if content[slot] in (NOTHING, NOBODYS):
                    content[slot] = one
                else:
                    partition.disputed.add(slot)
            elif content[slot] == NOTHING:
                content[slot] = NOBODYS
            line.messages.append(one)
            line.ids.append(ids[slot])
            line.slots.append(slot)


def _make_topic(fields: dict[str, Any]) -> Topic:
    policies = {name: fields.get(name, 0) for name in ("retention_s", "ttl_s", "quota_messages")}
    flags = {name: fields.get(name, False) for name in ("exclusive", "holds_producers")}
    return Topic(fields["topic"], fields["order"], fields["deduplicated"], [], **flags, **policies)
