"""A message as an application gets it, and the entry that it came in.

An entry is decoded once, into columns (`magnetar_wire.messages`). A `Delivered` is those columns with all that is known
of the entry; a `Message` is no more than the place in them, and what it says of itself it looks up when it is asked. So
a batch of a thousand messages costs one decoding and a thousand objects of two slots.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from magnetar._public_object import shorten
from magnetar_protos.entry_pb2 import BrokerEntryMetadata, MessageMetadata
from magnetar_wire.batch import decode_messages
from magnetar_wire.entry import Entry
from magnetar_wire.message_id import MessageId
from magnetar_wire.messages import Messages

__all__ = [
    "Delivered",
    "DetachedOrigin",
    "Era",
    "Message",
    "Origin",
    "batch_size_of",
    "decode_delivered",
    "uncompressed_bytes",
]


# Of a payload, by `repr`.
_SHOWN_BYTES: Final = 64


class Origin(Protocol):
    """The consumer of one topic, or of one partition, that messages came to."""

    # The full name, a partition's with its suffix, and the partition's number; -1: it is none.
    topic: str
    partition: int
    # What makes a payload of this topic a value.
    decode_value: Any


class DetachedOrigin:
    """What is left of the consumer in a message that was pickled, and is perhaps in another process now."""

    def __init__(self, topic: str, partition: int, decode_value: Any) -> None:
        self.topic = topic
        self.partition = partition
        self.decode_value = decode_value


class Era:
    """When something was delivered: in which epoch of which opening of its consumer. See _consumer_part.py."""

    __slots__ = ("epoch", "opening", "origin")

    def __init__(self, origin: Any, opening: int, epoch: int) -> None:
        self.origin = origin
        self.opening = opening
        self.epoch = epoch


class Delivered:
    """One entry, decoded, on its way to the application and in its hands."""

    __slots__ = (
        "acknowledged",
        "batch_size",
        "broker",
        "columns",
        "entry_id",
        "era",
        "ledger_id",
        "metadata",
        "redelivery_count",
        "refused",
        "size_bytes",
        "todo",
    )

    def __init__(
        self,
        era: Era,
        ledger_id: int,
        entry_id: int,
        redelivery_count: int,
        metadata: MessageMetadata,
        broker: BrokerEntryMetadata | None,
        columns: Messages,
        size_bytes: int,
    ) -> None:
        self.era = era
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.redelivery_count = redelivery_count
        self.metadata = metadata
        self.broker = broker
        self.columns = columns
        # What the payloads take, about.
        self.size_bytes = size_bytes
        # 0: it is no batch.
        self.batch_size = batch_size_of(metadata)
        # Which of the batch's messages are acknowledged, as far as is known here; bit i is batch index i.
        self.acknowledged = 0
        # One of its messages was acknowledged negatively: the entry will be asked for again.
        self.refused = False
        # The places in the columns that are still to be handed out, in order.
        self.todo: Sequence[int] = range(len(columns))

    def batch_index(self, at: int) -> int:
        """The place in the batch of what stands at this place in the columns; -1: it is no batch."""
        if not self.batch_size:
            return -1
        indexes = self.columns.batch_indexes
        return at if indexes is None else indexes[at]

    @property
    def is_marker(self) -> bool:
        """Left in the log by a server: no application sees it."""
        return self.metadata.HasField("marker_type")

    def leave_out(self, done: bytes) -> None:
        """Those of the batch's messages, bit i from the lowest of the first byte, are not to be handed out."""
        self.acknowledged |= int.from_bytes(done[: (self.batch_size + 7) // 8], "little")
        bits = len(done) * 8
        indexes = self.columns.batch_indexes or range(max(self.batch_size, len(self.columns)))
        self.todo = [at for at in self.todo if (i := indexes[at]) >= bits or not done[i >> 3] >> (i & 7) & 1]

    def message_id(self, at: int) -> MessageId:
        origin = self.era.origin
        made = MessageId(
            origin.partition, self.ledger_id, self.entry_id, self.batch_index(at), self.batch_size, origin.topic
        )
        object.__setattr__(made, "_delivery", self.era)  # past the id's own, which refuses: it is part of making it
        return made


def batch_size_of(metadata: MessageMetadata) -> int:
    """How many messages the entry's batch has, those that compaction removed among them; 0: it is no batch."""
    if not metadata.HasField("num_messages_in_batch"):
        return 0
    return max(metadata.num_messages_in_batch, 1)


def decode_delivered(era: Era, ledger_id: int, entry_id: int, redelivery_count: int, entry: Entry) -> Delivered:
    """Its messages, decoded. One that is not for applications has nothing to hand out. Raises WireError."""
    columns = Messages([]) if entry.is_marker else decode_messages(entry)
    size = uncompressed_bytes(entry)
    delivered = Delivered(era, ledger_id, entry_id, redelivery_count, entry.metadata, entry.broker, columns, size)
    removed = columns.compacted_out
    if removed is not None:
        delivered.todo = [at for at in delivered.todo if not removed[at]]
    return delivered


def uncompressed_bytes(entry: Entry) -> int:
    """As it says itself; decoding holds it to that."""
    return max(entry.metadata.uncompressed_size, len(entry.payload))


class Message:
    """A message that a consumer or a reader received."""

    __slots__ = ("_at", "_delivered")

    def __init__(self, delivered: Delivered, at: int) -> None:
        self._delivered = delivered
        self._at = at

    def data(self) -> bytes:
        """The payload; of a message without a value it is empty, see `has_null_value`."""
        payload = self._delivered.columns.payloads[self._at]
        return b"" if payload is None else payload

    def value(self) -> Any:
        """What the topic's schema makes of the payload; None if the message has no value."""
        payload = self._delivered.columns.payloads[self._at]
        decode = self._delivered.era.origin.decode_value
        return payload if payload is None or decode is None else decode(payload)

    def has_null_value(self) -> bool:
        """Whether the message has no value, which is not the same as an empty one."""
        return self._delivered.columns.payloads[self._at] is None

    def properties(self) -> dict[str, str]:
        column = self._delivered.columns.properties
        return {} if column is None else dict(column[self._at])

    def partition_key(self) -> str:
        """The key; empty if there is none. One that is bytes comes as base64, see `key_bytes`."""
        key = self._key()
        return b64encode(key).decode("ascii") if isinstance(key, bytes) else key or ""

    def key_bytes(self) -> bytes:
        """The key as bytes, as which the producer may have given it; empty if there is none."""
        key = self._key()
        return key.encode() if isinstance(key, str) else key or b""

    def has_key(self) -> bool:
        return self._key() is not None

    def _key(self) -> str | bytes | None:
        column = self._delivered.columns.keys
        if column is not None:
            return column[self._at]
        metadata = self._delivered.metadata
        if self._delivered.batch_size and metadata.HasField("partition_key"):  # of a batch by key
            return metadata.partition_key
        return None

    def ordering_key(self) -> str:
        """What Key_Shared goes by in place of the key; empty if there is none. Bytes that are no text are escaped."""
        column = self._delivered.columns.ordering_keys
        key = None if column is None else column[self._at]
        return (key or b"").decode("utf-8", "surrogateescape")

    def publish_timestamp(self) -> int:
        """When the producer sent it, by the producer's clock, in ms since 1970."""
        return self._delivered.metadata.publish_time

    def event_timestamp(self) -> int:
        """When the event took place, as the application said, in ms since 1970; 0: it did not say."""
        column = self._delivered.columns.event_times
        return 0 if column is None else column[self._at]

    def broker_publish_timestamp(self) -> int | None:
        """When the broker took it, by the broker's clock, in ms since 1970."""
        broker = self._delivered.broker
        return broker.broker_timestamp if broker is not None and broker.HasField("broker_timestamp") else None

    def index(self) -> int | None:
        """How many messages the topic had taken before this one. The difference of two is a number of messages."""
        delivered = self._delivered
        if delivered.broker is None or not delivered.broker.HasField("index"):
            return None
        behind = delivered.batch_size - 1 - delivered.batch_index(self._at) if delivered.batch_size else 0
        return delivered.broker.index - behind

    def message_id(self) -> MessageId:
        return self._delivered.message_id(self._at)

    def topic_name(self) -> str:
        """The topic's full name; a partition's with its suffix."""
        name: str = self._delivered.era.origin.topic
        return name

    def redelivery_count(self) -> int:
        """How often it was delivered before, as far as the broker knows."""
        return self._delivered.redelivery_count

    def producer_name(self) -> str:
        return self._delivered.metadata.producer_name

    def sequence_id(self) -> int:
        """The producer's number of the message."""
        delivered = self._delivered
        column = delivered.columns.sequence_ids
        own = None if column is None else column[self._at]
        return delivered.metadata.sequence_id + max(delivered.batch_index(self._at), 0) if own is None else own

    def schema_version(self) -> bytes | None:
        metadata = self._delivered.metadata
        return metadata.schema_version if metadata.HasField("schema_version") else None

    def encryption_context(self) -> None:
        """Nothing that is encrypted is handed out."""
        return

    def __repr__(self) -> str:
        data = None if self.has_null_value() else self.data()
        shown = (
            repr(data) if data is None or len(data) <= _SHOWN_BYTES else f"{data[:_SHOWN_BYTES]!r}… {len(data)} bytes"
        )
        text = f"Message(data={shown}, message_id={self.message_id()}, topic_name={self.topic_name()!r}"
        if self.has_key():
            text += f", partition_key={shorten(repr(self.partition_key()))}"
        if self.redelivery_count():
            text += f", redelivery_count={self.redelivery_count()}"
        return text + ")"

    def __reduce__(self) -> tuple[Callable[..., Message], tuple[Any, ...]]:
        """Pickle the message without its consumer and its batch."""
        one, at = self._delivered, self._at
        origin, columns = one.era.origin, one.columns

        def own(column: Sequence[Any] | None) -> list[Any] | None:
            return None if column is None else [column[at]]

        return _restore_message, (
            (origin.topic, origin.partition, origin.decode_value),
            (one.ledger_id, one.entry_id, one.redelivery_count),
            one.metadata.SerializeToString(),
            None if one.broker is None else one.broker.SerializeToString(),
            {
                "payloads": [columns.payloads[at]],
                "sequence_ids": own(columns.sequence_ids),
                "keys": own(columns.keys),
                "ordering_keys": own(columns.ordering_keys),
                "properties": None if columns.properties is None else [dict(columns.properties[at])],
                "event_times": own(columns.event_times),
                "null_keys": own(columns.null_keys),
                "batch_indexes": [one.batch_index(at)] if one.batch_size else None,
            },
        )


def _restore_message(
    origin: tuple[str, int, Any],
    delivery: tuple[int, int, int],
    metadata: bytes,
    broker: bytes | None,
    columns: dict[str, Any],
) -> Message:
    """Unpickle a message."""
    decoded = Delivered(
        Era(DetachedOrigin(*origin), 0, 0),
        *delivery,
        MessageMetadata.FromString(metadata),
        None if broker is None else BrokerEntryMetadata.FromString(broker),
        Messages(**columns),
        len(columns["payloads"][0] or b""),
    )
    return Message(decoded, 0)
