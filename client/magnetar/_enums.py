"""The enumerations that options use, with the names of Pulsar's Python client."""

from __future__ import annotations

import enum

from magnetar_wire.hashing import HashingScheme

__all__ = [
    "BatchingType",
    "CompressionType",
    "ConsumerCryptoFailureAction",
    "ConsumerType",
    "DecodeFailureAction",
    "HashingScheme",
    "InitialPosition",
    "KeySharedMode",
    "PartitionsRoutingMode",
    "ProducerAccessMode",
    "RegexSubscriptionMode",
]


class CompressionType(enum.IntEnum):
    """How a producer compresses payloads. The numbers are the ones stored in entries."""

    NONE = 0
    LZ4 = 1
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class ConsumerType(enum.Enum):
    """How a subscription's consumers share its messages."""

    # One consumer. A second one is refused.
    Exclusive = 0
    # Each message goes to one of the consumers, without order.
    Shared = 1
    # One consumer gets all messages, and the others wait to take over.
    Failover = 2
    # Each key goes to one of the consumers, in order.
    KeyShared = 3


class ConsumerCryptoFailureAction(enum.Enum):
    """What a consumer does with a message that it can't decrypt. Only `FAIL` is supported: it is not delivered."""

    FAIL = 0
    DISCARD = 1
    CONSUME = 2


class DecodeFailureAction(enum.Enum):
    """Decides how a consumer or reader with a schema handles a message whose payload it can't decode."""

    # It is handed out, and its `value()` raises DecodeError.
    RAISE = 0
    # It is logged, acknowledged and not handed out.
    SKIP = 1


class KeySharedMode(enum.Enum):
    """How a Key_Shared subscription divides keys among consumers."""

    # The broker gives each consumer a share.
    AutoSplit = 0
    # Each consumer declares its share.
    Sticky = 1


class InitialPosition(enum.Enum):
    """Where a new subscription begins."""

    Latest = 0
    Earliest = 1


class PartitionsRoutingMode(enum.Enum):
    """Which partition a message without a key goes to. The second names are Java's."""

    # One partition, drawn when the producer is created.
    UseSinglePartition = 0
    SinglePartition = 0  # noqa: PIE796 (another name of the same mode)
    # One partition after the other. A batch goes to one partition.
    RoundRobinDistribution = 1
    RoundRobinPartition = 1  # noqa: PIE796
    # The partition that `message_router` returns, also for messages with a key.
    CustomPartition = 2


class BatchingType(enum.Enum):
    """Which messages share a batch: all, or those of one key."""

    Default = 0
    KeyBased = 1


class ProducerAccessMode(enum.Enum):
    """Whether other producers may publish to the topic at the same time.

    With `Exclusive`, creating the producer raises `ProducerFenced` if another one is connected. With
    `WaitForExclusive`, it waits, without a timeout, until no other one is. `ExclusiveWithFencing` ends all others,
    which raise `ProducerFenced`.
    """

    Shared = 0
    Exclusive = 1
    WaitForExclusive = 2
    ExclusiveWithFencing = 3


class RegexSubscriptionMode(enum.Enum):
    """Which topics a pattern is matched against."""

    PersistentOnly = 0
    NonPersistentOnly = 1
    AllTopics = 2
