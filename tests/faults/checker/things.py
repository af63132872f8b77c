"""The objects of a history: topics, partitions, producers, subscriptions, consumers, in arrays for millions of
messages.

A topic without partitions counts as one partition, as in history.md. A message is one number, its producer's in the
upper half (`message`, `producer_of`, `number_of`). Each id of a partition has a **slot**, in the order in which ids
become known, and data about ids are arrays by slot.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.faults.checker.acknowledged import Acknowledged
from tests.faults.checker.marks import Marks

__all__ = [
    "ALREADY",
    "NOBODYS",
    "NOTHING",
    "Consumer",
    "Definition",
    "Letters",
    "Partition",
    "Producer",
    "Scan",
    "Subscription",
    "Topic",
    "is_persistent",
    "message",
    "number_of",
    "producer_of",
    "value_text",
]

_NUMBER_BITS: Final = 32
# Instead of a message: one that no producer has announced.
NOBODYS: Final = -1
# Instead of a message: nobody has seen this id. Instead of a slot: there is no receipt.
NOTHING: Final = -2
# Instead of a slot: the receipt was for a message that is stored already.
ALREADY: Final = -3


def is_persistent(topic: str) -> bool:
    return not topic.startswith("non-persistent://")


def value_text(value: Mapping[str, Any]) -> str:
    """Return equal texts for equal values only: 1, 1.0 and true differ."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def message(producer: int, number: int) -> int:
    return producer << _NUMBER_BITS | number


def producer_of(message: int) -> int:
    return message >> _NUMBER_BITS


def number_of(message: int) -> int:
    return message & ((1 << _NUMBER_BITS) - 1)


@dataclass(slots=True)
class Topic:
    name: str
    order: str
    deduplicated: bool
    # The times at which the number of partitions was set, and the numbers.
    partitions: list[tuple[float, int]]
    # Its producers are exclusive ones.
    exclusive: bool = False
    # For how long acknowledged messages are retained, and after how long others expire; 0: no such policy.
    retention_s: int = 0
    ttl_s: int = 0
    # The number of last messages that its backlog quota never evicts; 0: it has no quota that evicts.
    quota_messages: int = 0
    # Its producers may have to wait for consumers, by its backlog quota.
    holds_producers: bool = False

    @property
    def is_persistent(self) -> bool:
        return is_persistent(self.name)

    def has(self, partition: str) -> bool:
        most = max(partitions for _, partitions in self.partitions)
        if not most:
            return partition == self.name
        head, _, number = partition.rpartition("-partition-")
        return head == self.name and number.isdecimal() and int(number) < most

    @property
    def only_partition(self) -> str:
        """The only partition of the topic; empty: there are several."""
        return "" if any(partitions for _, partitions in self.partitions) else self.name


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition that was offered to the registry of a topic's schema."""

    # By name: the default, if the field has one.
    fields: Mapping[str, Sequence[Any]]
    # Whether the topic must accept it; else it must refuse it.
    compatible: bool


@dataclass(slots=True)
class Partition:
    name: str
    index: int
    slots: dict[int, int] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    # By slot: which message it is, as it was seen first.
    content: array[int] = field(default_factory=lambda: array("q"))
    # Slots that were seen with several messages.
    disputed: set[int] = field(default_factory=set)

    def slot(self, packed: int) -> int:
        slot = self.slots.get(packed)
        if slot is None:
            slot = self.slots[packed] = len(self.ids)
            self.ids.append(packed)
            self.content.append(NOTHING)
        return slot


@dataclass(slots=True)
class Producer:
    name: str
    index: int
    topic: Topic
    writer: str
    # Its client library, if the history names it.
    library: str = ""
    # The definition of its schema; empty: it has none. By number: the values, in JSON.
    definition: str = ""
    values: list[str] = field(default_factory=list)
    # By number: CRC-32, and the key's index.
    digests: array[int] = field(default_factory=lambda: array("I"))
    keys: array[int] = field(default_factory=lambda: array("i"))
    # By number: the partition and slot in its receipt, and the receipt's time.
    partitions: array[int] = field(default_factory=lambda: array("i"))
    slots: array[int] = field(default_factory=lambda: array("q"))
    receipts_at: array[float] = field(default_factory=lambda: array("d"))
    # The first number of each announcement, and when it was.
    starts: array[int] = field(default_factory=lambda: array("q"))
    starts_at: array[float] = field(default_factory=lambda: array("d"))
    refused: set[int] = field(default_factory=set)
    # When these were refused, or failed with an unknown result.
    unanswered_at: dict[int, float] = field(default_factory=dict)
    # When it was closed, or killed.
    ended_at: float | None = None

    @property
    def announced(self) -> int:
        return len(self.digests)

    def sent_at(self, number: int) -> float:
        return self.starts_at[bisect_right(self.starts, number) - 1]

    def has_receipt(self, number: int) -> bool:
        return self.slots[number] != NOTHING


@dataclass(slots=True)
class Subscription:
    name: str
    topic: Topic
    type: str
    durable: bool
    # When it was there.
    at: float
    # Messages that its consumers were handed.
    handed: Marks = field(default_factory=Marks)
    acknowledged: dict[int, Acknowledged] = field(default_factory=dict)

    def acknowledged_in(self, partition: Partition) -> Acknowledged:
        found = self.acknowledged.get(partition.index)
        if found is None:
            found = self.acknowledged[partition.index] = Acknowledged()
        return found


@dataclass(slots=True, eq=False)
class Consumer:
    name: str
    subscription: Subscription
    writer: str
    opening_at: float
    # The definition by which it reads; empty: that of each message.
    definition: str = ""
    opened_at: float | None = None
    # When it began to close, or was killed.
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class Letters:
    """The retry and dead letter topics of a subscription."""

    # Empty: there is none.
    retry: str
    dead: str
    # How often a message is redelivered before it goes to the dead letter topic.
    most: int


@dataclass(slots=True, eq=False)
class Scan:
    reader: str
    partition: Partition
    at: float
    # By rank: at which ids it found which messages.
    slots: array[int] = field(default_factory=lambda: array("q"))
    messages: array[int] = field(default_factory=lambda: array("q"))
    complete: bool = False
