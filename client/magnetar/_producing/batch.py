"""A closed batch: the messages of one entry, how they are encoded, and how their senders get the result. No I/O.

A batch stores its messages as columns: a thousand messages are a handful of lists. A column that few messages need
exists only if one of them does.
"""

from __future__ import annotations

import logging
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple, Protocol

from magnetar._enums import CompressionType
from magnetar._producing.in_flight import OutgoingEntry
from magnetar._producing.outgoing_message import OutgoingMessage
from magnetar.exceptions import MagnetarException, Result
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.batch import encode_batch, encode_message
from magnetar_wire.limits import MAX_METADATA_BYTES
from magnetar_wire.message_id import MessageId, ids_of_batch
from magnetar_wire.messages import Messages

__all__ = ["Batch", "Callback", "Columns", "OutcomeCallback", "StoredAt", "Waiter", "close_batch"]

log = logging.getLogger(__name__)

Callback = Callable[[Result, MessageId | None], object]


class OutcomeCallback:
    """A callback that passes the message's id, or its error, to `notify`, and then calls the application's callback."""

    __slots__ = ("_callback", "_notify", "error")

    def __init__(
        self, notify: Callable[[MessageId | None, MagnetarException | None], object], callback: Callback | None
    ) -> None:
        self._notify = notify
        self._callback = callback
        # Set before the call, if the message has failed.
        self.error: MagnetarException | None = None

    def __call__(self, result: Result, message_id: MessageId | None) -> None:
        self._notify(message_id, self.error)
        if self._callback is not None:
            self._callback(result, message_id)


class Waiter(Protocol):
    """Waits for the result of one message. Called on the client's loop, once."""

    def __call__(self, outcome: MessageId | MagnetarException) -> None: ...


class StoredAt(NamedTuple):
    """Where an entry was stored."""

    topic: str
    # -1: the topic is not partitioned.
    partition: int
    # Both -1: the entry was a duplicate of one that was stored before.
    ledger_id: int
    entry_id: int
    # Where the first chunk of a message in chunks is; the entry is that of the last one.
    first_chunk: tuple[int, int] | None = None
    # Of a batch, the number of messages that were duplicates: the first ones. The others are a batch of their own.
    duplicates: int = 0


class Columns:
    """What messages have besides a payload. A column that is None stands for messages none of which has a value."""

    __slots__ = ("event_times", "keys", "ordering_keys", "properties", "sequence_ids", "uncompressed_sizes")

    def __init__(self) -> None:
        self.keys: list[str | bytes | None] | None = None
        self.ordering_keys: list[bytes | None] | None = None
        self.properties: list[Mapping[str, str]] | None = None
        self.event_times: list[int] | None = None
        self.sequence_ids: list[int | None] | None = None
        # Of messages that are compressed already, to be sent in chunks.
        self.uncompressed_sizes: list[int | None] | None = None

    def append(self, before: int, message: OutgoingMessage) -> None:
        """Add a message after `before` others."""
        if message.key is not None and self.keys is None:
            self.keys = [None] * before
        if message.ordering_key is not None and self.ordering_keys is None:
            self.ordering_keys = [None] * before
        if message.properties and self.properties is None:
            self.properties = [{}] * before
        if message.event_time and self.event_times is None:
            self.event_times = [0] * before
        if message.sequence_id is not None and self.sequence_ids is None:
            self.sequence_ids = [None] * before
        if message.uncompressed_bytes is not None and self.uncompressed_sizes is None:
            self.uncompressed_sizes = [None] * before
        if self.keys is not None:
            self.keys.append(message.key)
        if self.ordering_keys is not None:
            self.ordering_keys.append(message.ordering_key)
        if self.properties is not None:
            self.properties.append(message.properties or {})
        if self.event_times is not None:
            self.event_times.append(message.event_time)
        if self.sequence_ids is not None:
            self.sequence_ids.append(message.sequence_id)
        if self.uncompressed_sizes is not None:
            self.uncompressed_sizes.append(message.uncompressed_bytes)

    def fit(self, count: int) -> None:
        """Give each column as many values as there are messages, after an interrupted `append`."""
        nothing: dict[str, Any] = {"properties": {}, "event_times": 0}
        for name in self.__slots__:
            column = getattr(self, name)
            if column is not None:
                del column[count:]
                column += [nothing.get(name)] * (count - len(column))


class Batch:
    """The messages of one entry. A single message is stored without a batch's framing, so its payload may be larger."""

    __slots__ = (
        "bytes",
        "callbacks",
        "columns",
        "count",
        "entry",
        "first_sequence_id",
        "last_sequence_id",
        "may_be_stored",
        "opened_at",
        "payloads",
        "serial",
        "waiters",
    )

    def __init__(
        self,
        payloads: list[bytes | None],
        callbacks: list[Callback | None] | None,
        columns: Columns | None,
        waiters: list[tuple[int, Waiter]],
        size: int,
        opened_at: float,
        next_sequence_id: int,
    ) -> None:
        self.payloads = payloads
        self.count = len(payloads)
        # None: no message has one.
        self.callbacks = callbacks
        self.columns = columns
        # Each with the index of its message.
        self.waiters = waiters
        # What counts towards max_pending_bytes.
        self.bytes = size
        # On the monotonic clock. The send timeout begins here.
        self.opened_at = opened_at
        self.first_sequence_id = next_sequence_id
        self.last_sequence_id = next_sequence_id + self.count - 1
        if columns is not None and columns.sequence_ids is not None:
            columns.sequence_ids = _fill_sequence_ids(columns.sequence_ids, next_sequence_id)
            self.first_sequence_id = columns.sequence_ids[0] or 0
            self.last_sequence_id = columns.sequence_ids[-1] or 0
        # The partition's producer numbers its batches.
        self.serial = 0
        # The entry, once it is encoded. A batch is resent with the same bytes.
        self.entry: bytes | None = None
        # See `OutgoingEntry`.
        self.may_be_stored = False

    def answered_before(self, sent: Sequence[OutgoingEntry]) -> Sequence[OutgoingEntry]:
        return ()

    def encode(self, shared: MessageMetadata, publish_time_ms: int, compression: CompressionType) -> bytes:
        """Return the entry. `shared` is the producer's, and is changed.

        Each message of a batch gets its sequence id, so that readers need not know how a producer assigns them.
        """
        if self.entry is None:
            shared.publish_time = publish_time_ms
            shared.sequence_id = self.first_sequence_id
            shared.highest_sequence_id = self.last_sequence_id
            messages = self._make_messages()
            if messages.sequence_ids is None and self.count > 1:
                messages.sequence_ids = array("Q", range(self.first_sequence_id, self.last_sequence_id + 1))
            is_batch = self.count > 1 or self._has_large_metadata
            encode = encode_batch if is_batch else encode_message
            if is_batch and self.columns is not None:  # a single message's keys are the entry's
                shared = _with_keys(shared, messages)
            self.entry = encode(messages, shared, compression)  # type: ignore[arg-type]  # the same numbers
            self.payloads, self.columns = [], None
        return self.entry

    @property
    def _has_large_metadata(self) -> bool:
        """Whether the only message, a letter, has more metadata than an entry, so it is encoded as a batch of one."""
        return self.bytes - len(self.payloads[0] or b"") > MAX_METADATA_BYTES

    def _make_messages(self) -> Messages:
        messages, columns = Messages(self.payloads), self.columns
        if columns is not None:
            messages.keys = columns.keys
            messages.ordering_keys = columns.ordering_keys
            messages.properties = columns.properties
            messages.event_times = columns.event_times
            messages.sequence_ids = columns.sequence_ids
        return messages

    @property
    def is_large(self) -> bool:
        """Whether its only message is compressed already, to be sent in chunks."""
        return self.columns is not None and self.columns.uncompressed_sizes is not None

    def remove_large_message(self) -> tuple[Messages, int]:
        """Remove the message, compressed, and return it with its size before that."""
        assert self.columns is not None
        assert self.columns.uncompressed_sizes is not None
        messages, size = self._make_messages(), self.columns.uncompressed_sizes[0] or 0
        self.payloads, self.columns = [], None
        return messages, size

    def notify_waiters(self, outcome: StoredAt | MagnetarException) -> None:
        """Give each waiter its message's id, or the error. Message ids are made only for messages that have one."""
        if isinstance(outcome, MagnetarException):
            for _, waiter in self.waiters:
                waiter(type(outcome)(*outcome.args))
        elif self.waiters:
            message_ids = self._message_ids(outcome, [index for index, _ in self.waiters])
            for (_, waiter), message_id in zip(self.waiters, message_ids, strict=True):
                waiter(message_id)

    def call_callbacks(self, outcome: StoredAt | MagnetarException) -> None:
        """Call the callbacks. If one raises an error, that is logged, and the others are called all the same."""
        result: Result = Result.Ok
        message_ids: Iterable[MessageId | None] = repeat(None)
        if isinstance(outcome, MagnetarException):
            result = outcome.result
            for callback in self.callbacks or ():
                if isinstance(callback, OutcomeCallback):
                    callback.error = outcome
        else:
            message_ids = self._message_ids(outcome, range(self.count))
        for callback, message_id in zip(self.callbacks or (), message_ids, strict=False):
            if callback is not None:
                try:
                    callback(result, message_id)
                except BaseException:
                    log.exception("the callback %r of a message failed", callback)

    def _message_ids(self, stored: StoredAt, indexes: Sequence[int]) -> list[MessageId]:
        topic, partition, ledger_id, entry_id, first_chunk, duplicates = stored
        if first_chunk is not None and min(first_chunk[0], ledger_id) >= 0:  # neither chunk is a duplicate
            first = MessageId(partition, *first_chunk, topic_name=topic)
            return [MessageId(partition, ledger_id, entry_id, topic_name=topic, first_chunk_message_id=first)]
        if self.count == 1 or ledger_id < 0:
            return ids_of_batch(partition, ledger_id, entry_id, [-1] * len(indexes), 0, topic)
        if not duplicates:
            return ids_of_batch(partition, ledger_id, entry_id, indexes, self.count, topic)
        old = [index for index in indexes if index < duplicates]
        new = [index - duplicates for index in indexes if index >= duplicates]
        return [
            *ids_of_batch(partition, -1, -1, [-1] * len(old), 0, topic),
            *ids_of_batch(partition, ledger_id, entry_id, new, self.count - duplicates, topic),
        ]


def close_batch(
    messages: list[Any],
    columns: Columns | None,
    waiters: list[tuple[int, Waiter]],
    size: int,
    opened_at: float,
    next_sequence_id: int,
) -> Batch:
    """Make a batch of what a send queue has collected. `messages`: of each, its payload and then its callback."""
    callbacks = messages[1::2]
    has_callback = callbacks.count(None) < len(callbacks)
    return Batch(
        messages[::2], callbacks if has_callback else None, columns, waiters, size, opened_at, next_sequence_id
    )


def _fill_sequence_ids(ids: list[int | None], next_id: int) -> list[int | None]:
    """Give each message for which the application has not set one the sequence id after the last."""
    filled: list[int | None] = []
    for given in ids:
        value = next_id if given is None else given
        filled.append(value)
        next_id = max(next_id, value + 1)
    return filled


def _with_keys(shared: MessageMetadata, messages: Messages) -> MessageMetadata:
    """Return the metadata with the keys of the first message, as Pulsar's clients set them for batches of every kind:
    brokers choose a consumer by them, without decoding the batch."""
    metadata = MessageMetadata()
    metadata.CopyFrom(shared)
    if messages.keys is not None and (key := messages.keys[0]) is not None:
        metadata.partition_key = b64encode(key).decode("ascii") if isinstance(key, bytes) else key
        if isinstance(key, bytes):
            metadata.partition_key_b64_encoded = True
    if messages.ordering_keys is not None and (ordering_key := messages.ordering_keys[0]) is not None:
        metadata.ordering_key = ordering_key
    return metadata
