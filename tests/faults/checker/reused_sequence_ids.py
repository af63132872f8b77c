"""Receipts that a producer of Pulsar's C++ library (`pulsar-client`) matched to the wrong messages.

A receipt names its batch by sequence id only, and the library completes the oldest pending batch if the ids are equal
(`ProducerImpl::ackReceived`). As long as it has had no receipt, each reopening sets its next sequence id to the
broker's last_sequence_id + 1 (`ProducerImpl::handleCreateProducer`), though it may have sent batches before: they time
out, or are resent and time out then. For example, with one partition:

1. Batch A (messages 0-27, sequence id 0) is sent. The broker can't store it yet. The producer is closed and reopens.
   The broker has stored nothing, so last_sequence_id is -1, and the next sequence id is 0 again. A is resent.
2. A times out in the library: 0-27 are `unknown`.
3. Batch B (messages 82-124) is sent with sequence id 0. The broker stores A, then B.
4. The receipt of A completes B: 82-124 name the entry of messages 0-27. The receipt of B is ignored.

No broker can avoid this: each receipt that it sent was right. So the judge withdraws them before its rules see the end:
the messages count as unknown. In a partition, which has a library producer of its own, a receipt is withdrawn only if
its producer is one of that library, had no right receipt there before, and the named entry holds earlier messages of
it that are unknown. From the first right receipt on, sequence ids only grow.

With deduplication, messages with reused ids are duplicates of others: they are reported as stored already, and are not.
If N messages were sent before the first right receipt, ids are too low by N at most, and the stored ones are below N.
So such a receipt is withdrawn if nobody saw the message, and its number is below 2N.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from tests.faults.checker.facts import Facts
from tests.faults.checker.ids import whole_entry
from tests.faults.checker.things import ALREADY, NOBODYS, NOTHING, Partition, Producer, message, number_of, producer_of

__all__ = ["LIBRARY", "withdraw_receipts"]

# A producer's `library` in the history.
LIBRARY: Final = "pulsar-client"


def withdraw_receipts(facts: Facts) -> None:
    """Make the messages with such receipts unknown. Call it when all lines were read."""
    for producer in facts.producer_list:
        if producer.library == LIBRARY:
            for number in [*_find_misattributed(facts, producer), *_find_false_duplicates(facts, producer)]:
                producer.slots[number] = NOTHING
                producer.unanswered_at.setdefault(number, producer.receipts_at[number])
                facts.counts["messages with a receipt"] -= 1
                facts.counts["messages with the receipt of an earlier one, by reused sequence ids"] += 1


def _find_misattributed(facts: Facts, producer: Producer) -> Iterator[int]:
    numbers: dict[int, list[int]] = defaultdict(list)
    for number, slot in enumerate(producer.slots):
        if slot != NOTHING:
            numbers[producer.partitions[number]].append(number)
    for index, of_log in numbers.items():
        log = facts.partition_list[index]
        for number in of_log:
            slot = producer.slots[number]
            if slot == ALREADY or log.content[slot] == message(producer.index, number):
                break
            first = _first_of_entry(log, slot)
            if first == NOTHING or slot in log.disputed:
                continue  # nobody saw the entry
            if not (_is_earlier_unknown(producer, number, first) and _may_be_there(producer, number, log, slot)):
                break
            yield number


def _find_false_duplicates(facts: Facts, producer: Producer) -> Iterator[int]:
    if not producer.topic.deduplicated or ALREADY not in producer.slots:
        return
    right = [at for at, slot in zip(producer.receipts_at, producer.slots, strict=True) if slot >= 0]
    sent_before = producer.announced
    if right:
        sent_before = next(
            (number for number in range(producer.announced) if producer.sent_at(number) > min(right)), sent_before
        )
    seen = {
        number_of(one)
        for partition in facts.partition_list
        for one in partition.content
        if one >= 0 and producer_of(one) == producer.index
    }
    for number in range(min(2 * sent_before, producer.announced)):
        if producer.slots[number] == ALREADY and number not in seen:
            yield number


def _first_of_entry(log: Partition, slot: int) -> int:
    """The message at the entry's first batch index, or the only one of an entry that is no batch."""
    entry = whole_entry(log.ids[slot])
    found = (log.slots.get(packed) for packed in (entry, entry + 1))
    return next((log.content[one] for one in found if one is not None and log.content[one] != NOTHING), NOTHING)


def _is_earlier_unknown(producer: Producer, number: int, other: int) -> bool:
    if other == NOBODYS or producer_of(other) != producer.index:
        return False
    earlier = number_of(other)
    is_unknown = earlier in producer.unanswered_at and earlier not in producer.refused
    return earlier < number and is_unknown and not producer.has_receipt(earlier)


def _may_be_there(producer: Producer, number: int, log: Partition, slot: int) -> bool:
    """A longer batch names indexes beyond the end of the earlier one, where nothing is stored."""
    there = log.content[slot]
    return there == NOTHING or _is_earlier_unknown(producer, number, there)
