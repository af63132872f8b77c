"""The choices that options offer, under the names of Pulsar's Python client."""

from __future__ import annotations

import enum

from magnetar_wire.hashing import HashingScheme

__all__ = [
    "BatchingType",
    "CompressionType",
    "ConsumerCryptoFailureAction",
    "ConsumerType",
    "HashingScheme",
    "InitialPosition",
    "KeySharedMode",
    "PartitionsRoutingMode",
    "ProducerAccessMode",
    "RegexSubscriptionMode",
]


class CompressionType(enum.IntEnum):
    """How a producer compresses payloads. The numbers are those that stand in entries."""

    NONE = 0
    LZ4 = 1
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class ConsumerType(enum.Enum):
    """How a subscription's consumers share its messages."""

    # One consumer, and a second is refused.
    Exclusive = 0
    # Each message goes to one of them, in no order.
    Shared = 1
    # One is served, and the others wait to take its place.
    Failover = 2
    # Each key goes to one of them. Not there yet.
    KeyShared = 3


class ConsumerCryptoFailureAction(enum.Enum):
    """What a consumer does with a message that it can't decrypt. Only `FAIL` is supported: it is not delivered."""

    FAIL = 0
    DISCARD = 1
    CONSUME = 2


class KeySharedMode(enum.Enum):
    """How a Key_Shared subscription divides keys among consumers. Not supported yet."""

    AutoSplit = 0
    Sticky = 1


class InitialPosition(enum.Enum):
    """Where a subscription begins that is made."""

    Latest = 0
    Earliest = 1


class PartitionsRoutingMode(enum.Enum):
    """Which partition a message without a key goes to. The second names are Java's."""

    # One partition, drawn when the producer is made.
    UseSinglePartition = 0
    SinglePartition = 0  # noqa: PIE796 (another name of the same)
    # One after the other; a batch stays together.
    RoundRobinDistribution = 1
    RoundRobinPartition = 1  # noqa: PIE796
    # What `message_router` says, of messages with a key as well.
    CustomPartition = 2


class BatchingType(enum.Enum):
    """What a batch is made of: messages as they come, or those of one key (not there yet)."""

    Default = 0
    KeyBased = 1


class ProducerAccessMode(enum.Enum):
    """Whom a producer shares its topic with. Only `Shared` is there yet."""

    Shared = 0
    Exclusive = 1
    WaitForExclusive = 2
    ExclusiveWithFencing = 3


class RegexSubscriptionMode(enum.Enum):
    """Which topics a pattern is held against."""

    PersistentOnly = 0
    NonPersistentOnly = 1
    AllTopics = 2
