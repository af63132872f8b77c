"""A message as an application gets it, and the entry in which it was delivered.

An entry is decoded once, into columns (`magnetar_wire.messages`): a list of payloads, one of keys, and so on. A
`DeliveredEntry` is these columns and what else is known of the entry. A `Message` is only an entry and a row of its
columns: each property is looked up when the application reads it. So a batch of a thousand messages costs one decoding
and a thousand objects with two slots.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final, Generic, Protocol

from magnetar._public_object import shorten
from magnetar.exceptions import DecodeError
from magnetar.schema._schema import T
from magnetar_protos.entry_pb2 import BrokerEntryMetadata, MessageMetadata
from magnetar_wire.batch import decode_messages
from magnetar_wire.entry import Entry
from magnetar_wire.message_id import MessageId
from magnetar_wire.messages import Messages

__all__ = [
    "DeliveredEntry",
    "DeliveryEpoch",
    "Message",
    "MessageOrigin",
    "PickledOrigin",
    "ValueDecoder",
    "decode_delivered_entry",
    "get_batch_size",
    "get_uncompressed_bytes",
]


# How much of a payload `repr` shows.
_SHOWN_BYTES: Final = 64
_ONE: Final = ord("1")


class Message(Generic[T]):
    """A message that a consumer or a reader received. `T` is the type of its value: bytes, if there is no schema."""

    __slots__ = ("_entry", "_row")

    def __init__(self, entry: DeliveredEntry, row: int) -> None:
        self._entry = entry
        self._row = row

    def data(self) -> bytes:
        """Return the payload. It is empty if the message has no value, see `has_null_value`."""
        payload = self._entry.columns.payloads[self._row]
        return b"" if payload is None else payload

    def value(self) -> T:
        """Return the payload, decoded with the schema; without a schema, the payload.

        None, which `T` does not show: the message has no value, see `has_null_value`.

        Raises DecodeError if this payload can't be decoded, and SchemaUnavailable (a DecodeError) if no broker returns
        its schema version at present: then a later call may succeed.
        """
        values = self._entry.values
        value: T = self._entry.read_value(self._row) if values is None else values[self._row]
        return value

    def has_null_value(self) -> bool:
        """Return whether the message has no value. An empty payload is a value."""
        return self._entry.columns.payloads[self._row] is None

    def properties(self) -> dict[str, str]:
        """Return the properties that the producer set."""
        column = self._entry.columns.properties
        return {} if column is None else dict(column[self._row])

    def partition_key(self) -> str:
        """Return the key; empty if there is none. A key of bytes is returned as base64, see `key_bytes`."""
        key = self._key()
        return b64encode(key).decode("ascii") if isinstance(key, bytes) else key or ""

    def key_bytes(self) -> bytes:
        """Return the key as bytes; empty if there is none."""
        key = self._key()
        return key.encode() if isinstance(key, str) else key or b""

    def has_key(self) -> bool:
        """Return whether the message has a key."""
        return self._key() is not None

    def _key(self) -> str | bytes | None:
        return self._entry.find_key(self._row)

    def ordering_key(self) -> str:
        """Return the key that Key_Shared uses instead of the partition key; empty if there is none.

        Bytes that are not UTF-8 are escaped.
        """
        column = self._entry.columns.ordering_keys
        key = None if column is None else column[self._row]
        return (key or b"").decode("utf-8", "surrogateescape")

    def publish_timestamp(self) -> int:
        """Return when the producer sent the message, by the producer's clock, in ms since 1970."""
        return self._entry.metadata.publish_time

    def event_timestamp(self) -> int:
        """Return the event time that the application set, in ms since 1970; 0: it set none."""
        column = self._entry.columns.event_times
        return 0 if column is None else column[self._row]

    def broker_publish_timestamp(self) -> int | None:
        """Return when the broker received the message, by the broker's clock, in ms since 1970."""
        broker = self._entry.broker
        return broker.broker_timestamp if broker is not None and broker.HasField("broker_timestamp") else None

    def index(self) -> int | None:
        """Return how many messages were published to the topic before this one."""
        entry = self._entry
        if entry.broker is None or not entry.broker.HasField("index"):
            return None
        # The broker stores the index of the batch's last message.
        following = entry.batch_size - 1 - entry.batch_index(self._row) if entry.batch_size else 0
        return entry.broker.index - following

    def message_id(self) -> MessageId:
        """Return the message's id: its position in the topic."""
        return self._entry.message_id(self._row)

    def topic_name(self) -> str:
        """Return the topic's full name; for a partition with its suffix."""
        name: str = self._entry.epoch.origin.topic
        return name

    def redelivery_count(self) -> int:
        """Return how often the message was redelivered, as far as the broker has counted."""
        return self._entry.redelivery_count

    def producer_name(self) -> str:
        """Return the name of the producer that sent the message."""
        return self._entry.metadata.producer_name

    def sequence_id(self) -> int:
        """Return the number that the producer gave the message."""
        entry = self._entry
        column = entry.columns.sequence_ids
        own = None if column is None else column[self._row]
        return entry.metadata.sequence_id + max(entry.batch_index(self._row), 0) if own is None else own

    def schema_version(self) -> bytes | None:
        """Return the version of the schema that the message was sent with, if any."""
        metadata = self._entry.metadata
        return metadata.schema_version if metadata.HasField("schema_version") else None

    def encryption_context(self) -> None:
        """Return None: encrypted messages are not delivered."""
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

    def __reduce__(self) -> tuple[Callable[..., Message[T]], tuple[Any, ...]]:
        """Pickle the message without its consumer and its batch."""
        entry, row = self._entry, self._row
        origin, columns = entry.epoch.origin, entry.columns

        def own(column: Sequence[Any] | None) -> list[Any] | None:
            return None if column is None else [column[row]]

        return _restore_message, (
            (origin.topic, origin.partition),
            (entry.ledger_id, entry.entry_id, entry.redelivery_count),
            entry.metadata.SerializeToString(),
            None if entry.broker is None else entry.broker.SerializeToString(),
            {
                "payloads": [columns.payloads[row]],
                "sequence_ids": own(columns.sequence_ids),
                "keys": own(columns.keys),
                "ordering_keys": own(columns.ordering_keys),
                "properties": None if columns.properties is None else [dict(columns.properties[row])],
                "event_times": own(columns.event_times),
                "null_keys": own(columns.null_keys),
                "batch_indexes": [entry.batch_index(row)] if entry.batch_size else None,
            },
            entry.decoder,
            entry.chunks,
        )


def _restore_message(
    origin: tuple[str, int],
    delivery: tuple[int, int, int],
    metadata: bytes,
    broker: bytes | None,
    columns: dict[str, Any],
    decoder: ValueDecoder | None,
    chunks: tuple[tuple[int, int], ...] = (),
) -> Message[Any]:
    """Unpickle a message."""
    entry = DeliveredEntry(
        DeliveryEpoch(PickledOrigin(*origin), 0, 0),
        *delivery,
        MessageMetadata.FromString(metadata),
        None if broker is None else BrokerEntryMetadata.FromString(broker),
        Messages(**columns),
        len(columns["payloads"][0] or b""),
        decoder,
    )
    entry.chunks = chunks
    return Message(entry, 0)


class DeliveredEntry:
    """An entry, decoded, from its delivery until the application releases its last message; or a message that was sent
    in chunks, with the position of its last chunk."""

    __slots__ = (
        "_decoded",
        "acknowledged",
        "acknowledged_rows",
        "arrivals",
        "batch_size",
        "broker",
        "chunks",
        "columns",
        "decoder",
        "entry_id",
        "epoch",
        "has_collected_acks",
        "ledger_id",
        "metadata",
        "moved_rows",
        "nacked",
        "redelivery_count",
        "remaining",
        "size_bytes",
        "values",
    )

    def __init__(
        self,
        epoch: DeliveryEpoch,
        ledger_id: int,
        entry_id: int,
        redelivery_count: int,
        metadata: MessageMetadata,
        broker: BrokerEntryMetadata | None,
        columns: Messages,
        size_bytes: int,
        decoder: ValueDecoder | None = None,
    ) -> None:
        self.epoch = epoch
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.redelivery_count = redelivery_count
        self.metadata = metadata
        self.broker = broker
        self.columns = columns
        # None: the values are the payloads.
        self.decoder = decoder
        # By row. None: they are not decoded yet, or some can't be.
        self.values: Sequence[Any] | None = columns.payloads if decoder is None else None
        # The same, with the DecodeError of each that can't be decoded.
        self._decoded: Sequence[Any] | None = None
        # The size of the payloads, about.
        self.size_bytes = size_bytes
        # 0: the entry is not a batch.
        self.batch_size = get_batch_size(metadata)
        # The positions of all chunks of the message; empty: it was not sent in chunks.
        self.chunks: tuple[tuple[int, int], ...] = ()
        # The messages that are known to be acknowledged: bit i is batch index i; of an entry that is no batch, bit 0.
        self.acknowledged = 0
        # The rows that the application has acknowledged and the loop does not know of, and whether these are collected.
        self.acknowledged_rows: list[int] = []
        self.has_collected_acks = False
        # The rows of which dead letters are made because of a negative acknowledgement: bit i is row i.
        self.moved_rows = 0
        # One of the messages was acknowledged negatively, so the entry will be redelivered.
        self.nacked = False
        # `arrivals`: the messages that have passed the interceptors' `on_arrival`, by row. Set when the first has.
        self.arrivals: dict[int, Any]
        # The rows of the columns that are still to be handed out, in order.
        self.remaining: Sequence[int] = range(len(columns))

    def batch_index(self, row: int) -> int:
        """Return the batch index of a row; -1: the entry is not a batch."""
        if not self.batch_size:
            return -1
        indexes = self.columns.batch_indexes
        return row if indexes is None else indexes[row]

    def make_bits(self, rows: Collection[int]) -> int:
        """Return the messages of these rows of a batch: bit i is batch index i."""
        indexes = self.columns.batch_indexes
        if indexes is not None:
            rows = [indexes[row] for row in rows]
        if len(rows) < self.batch_size // 64:
            return reduce(or_, (1 << index for index in rows), 0)
        digits = bytearray(b"0") * self.batch_size  # of a binary number: quicker than a shift for each message
        for index in rows:
            digits[-1 - index] = _ONE
        return int(digits, 2)

    def find_key(self, row: int) -> str | bytes | None:
        column = self.columns.keys
        if column is not None:
            return column[row]
        # All messages of a batch that was made by key share the entry's key.
        if self.batch_size and self.metadata.HasField("partition_key"):
            return self.metadata.partition_key
        return None

    def read_value(self, row: int) -> Any:
        """Return a value that may not be decoded yet. Raises its DecodeError."""
        value = self.decode_values()[row]
        if isinstance(value, DecodeError):
            raise type(value)(
                *value.args
            ) from value.__cause__  # a new one, since its traceback grows when it is raised
        return value

    def decode_values(self) -> Sequence[Any]:
        """Return all values, and the DecodeError of each that can't be decoded. Raises DecodeError if none can be
        decoded (at present).

        Several threads may do this at the same time. Then their values are equal, and nearly always the same.
        """
        if self._decoded is not None:
            return self._decoded
        decoder = self.decoder
        assert decoder is not None
        keys = None
        if decoder.uses_key:
            keys = [
                key.encode() if isinstance(key, str) else key for key in map(self.find_key, range(len(self.columns)))
            ]
        values = decoder.decode(self.columns.payloads, keys)
        if self._decoded is None:
            self._decoded = values
            if not any(isinstance(value, DecodeError) for value in values):
                self.values = values
        return self._decoded

    @property
    def is_marker(self) -> bool:
        """Whether a server wrote the entry into the log for itself: applications don't get it."""
        return self.metadata.HasField("marker_type")

    def skip_acknowledged(self, acknowledged: bytes) -> None:
        """Don't hand out these messages of the batch. Bit i, from the lowest of the first byte, is batch index i."""
        self.acknowledged |= int.from_bytes(acknowledged[: (self.batch_size + 7) // 8], "little")
        bits = len(acknowledged) * 8
        indexes = self.columns.batch_indexes or range(max(self.batch_size, len(self.columns)))
        self.remaining = [
            row for row in self.remaining if (i := indexes[row]) >= bits or not acknowledged[i >> 3] >> (i & 7) & 1
        ]

    def message_id(self, row: int) -> MessageId:
        origin, first_chunk = self.epoch.origin, None
        if self.chunks:
            first_chunk = MessageId(origin.partition, *self.chunks[0], topic_name=origin.topic)
        message_id = MessageId(
            origin.partition,
            self.ledger_id,
            self.entry_id,
            self.batch_index(row),
            self.batch_size,
            origin.topic,
            first_chunk,
        )
        # An id refuses changes. This is still part of creating it.
        object.__setattr__(message_id, "_delivery", self.epoch)
        return message_id


class DeliveryEpoch:
    """The epoch in which an entry was delivered. See the theory in _consuming/partition_consumer.py."""

    __slots__ = ("number", "opening", "origin")

    def __init__(self, origin: Any, opening: int, number: int) -> None:
        # A `MessageOrigin`. Acknowledging needs more of it, which this module must not import.
        self.origin = origin
        self.opening = opening
        self.number = number


class MessageOrigin(Protocol):
    """The consumer of one topic or partition that a message was delivered to."""

    # The full name, for a partition with its suffix, and the partition's number; -1: the topic has no partitions.
    topic: str
    partition: int


class ValueDecoder(Protocol):
    """Decodes payloads to values: see _values/value_decoder.py, which this module must not import."""

    @property
    def uses_key(self) -> bool:
        """Whether `decode` gets the keys of the messages."""

    def decode(
        self, payloads: Sequence[bytes | None], keys: Sequence[bytes | None] | None, /
    ) -> Sequence[Any | DecodeError]: ...


class PickledOrigin:
    """The part of the origin that goes with a pickled message, possibly into another process."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition


def decode_delivered_entry(
    epoch: DeliveryEpoch,
    ledger_id: int,
    entry_id: int,
    redelivery_count: int,
    entry: Entry,
    decoder: ValueDecoder | None = None,
) -> DeliveredEntry:
    """Decode an entry's messages. A server's marker has none to hand out. Raises WireError."""
    columns = Messages([]) if entry.is_marker else decode_messages(entry)
    size = get_uncompressed_bytes(entry)
    delivered = DeliveredEntry(
        epoch, ledger_id, entry_id, redelivery_count, entry.metadata, entry.broker, columns, size, decoder
    )
    removed = columns.compacted_out
    if removed is not None:
        delivered.remaining = [row for row in delivered.remaining if not removed[row]]
    return delivered


def get_uncompressed_bytes(entry: Entry) -> int:
    """Return the size that the entry's producer declared; decoding checks it."""
    return max(entry.metadata.uncompressed_size, len(entry.payload))


def get_batch_size(metadata: MessageMetadata) -> int:
    """Return how many messages the entry's batch has, including those that compaction removed; 0: it is no batch."""
    if not metadata.HasField("num_messages_in_batch"):
        return 0
    return max(metadata.num_messages_in_batch, 1)
