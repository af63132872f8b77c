"""A batch on its way from the application to the broker: messages as columns, and who is to be told of each.

A thousand messages are a handful of lists here. What hardly any message has is a column only where one has it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from magnetar._enums import CompressionType
from magnetar.exceptions import MagnetarException, Result
from magnetar_protos.entry_pb2 import MessageMetadata
from magnetar_wire.batch import encode_batch, encode_message
from magnetar_wire.message_id import MessageId
from magnetar_wire.messages import Messages

__all__ = ["Batch", "Callback", "Columns", "Waiter"]

Callback = Callable[[Result, MessageId | None], object]


class Waiter(Protocol):
    """Somebody who waits for one message's receipt. Called on the client's loop, once."""

    def __call__(self, outcome: MessageId | MagnetarException) -> None: ...


class Columns:
    """What messages have besides a payload. A column that is None stands for messages none of which has it."""

    __slots__ = ("event_times", "keys", "ordering_keys", "properties", "sequence_ids")

    def __init__(self) -> None:
        self.keys: list[str | bytes | None] | None = None
        self.ordering_keys: list[bytes | None] | None = None
        self.properties: list[Mapping[str, str]] | None = None
        self.event_times: list[int] | None = None
        self.sequence_ids: list[int | None] | None = None

    def append(
        self,
        before: int,
        key: str | bytes | None,
        ordering_key: bytes | None,
        properties: Mapping[str, str] | None,
        event_time: int,
        sequence_id: int | None,
    ) -> None:
        """One more message, behind `before` others."""
        if key is not None and self.keys is None:
            self.keys = [None] * before
        if ordering_key is not None and self.ordering_keys is None:
            self.ordering_keys = [None] * before
        if properties and self.properties is None:
            self.properties = [{}] * before
        if event_time and self.event_times is None:
            self.event_times = [0] * before
        if sequence_id is not None and self.sequence_ids is None:
            self.sequence_ids = [None] * before
        if self.keys is not None:
            self.keys.append(key)
        if self.ordering_keys is not None:
            self.ordering_keys.append(ordering_key)
        if self.properties is not None:
            self.properties.append(properties or {})
        if self.event_times is not None:
            self.event_times.append(event_time)
        if self.sequence_ids is not None:
            self.sequence_ids.append(sequence_id)

    def fit(self, count: int) -> None:
        """As many elements as there are messages."""
        nothing: dict[str, Any] = {"properties": {}, "event_times": 0}
        for name in self.__slots__:
            column = getattr(self, name)
            if column is not None:
                del column[count:]
                column += [nothing.get(name)] * (count - len(column))


class Batch:
    """What is one entry. One message alone is an entry that is no batch, which takes less room and may be larger."""

    __slots__ = (
        "bytes",
        "callbacks",
        "columns",
        "count",
        "entry",
        "first_sequence_id",
        "last_sequence_id",
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
        # None: nobody asked to be called.
        self.callbacks = callbacks
        self.columns = columns
        # Who waits, and for which message.
        self.waiters = waiters
        # As it counts against the bound of pending bytes.
        self.bytes = size
        # On the monotonic clock: the send time-out begins here.
        self.opened_at = opened_at
        self.first_sequence_id = next_sequence_id
        self.last_sequence_id = next_sequence_id + self.count - 1
        if columns is not None and columns.sequence_ids is not None:
            columns.sequence_ids = _without_gaps(columns.sequence_ids, next_sequence_id)
            self.first_sequence_id = columns.sequence_ids[0] or 0
            self.last_sequence_id = columns.sequence_ids[-1] or 0
        # Of all that the producer's loop has taken.
        self.serial = 0
        # As it is stored, once it is encoded: sent again, it is the same bytes.
        self.entry: bytes | None = None

    def encode(self, shared: MessageMetadata, publish_time_ms: int, compression: CompressionType) -> bytes:
        """The entry. `shared` is the producer's, and is changed.

        Each message of a batch has its sequence id, so that others need not know how ours follow one another.
        """
        if self.entry is None:
            shared.publish_time = publish_time_ms
            shared.sequence_id = self.first_sequence_id
            shared.highest_sequence_id = self.last_sequence_id
            messages, columns = Messages(self.payloads), self.columns
            if columns is not None:
                messages.keys = columns.keys
                messages.ordering_keys = columns.ordering_keys
                messages.properties = columns.properties
                messages.event_times = columns.event_times
                messages.sequence_ids = columns.sequence_ids
            if messages.sequence_ids is None and self.count > 1:
                messages.sequence_ids = array("Q", range(self.first_sequence_id, self.last_sequence_id + 1))
            encode = encode_message if self.count == 1 else encode_batch
            self.entry = encode(messages, shared, compression)  # type: ignore[arg-type]  # the same numbers
            self.payloads, self.columns = [], None
        return self.entry


def _without_gaps(ids: list[int | None], next_id: int) -> list[int | None]:
    """Each message without an id of the application's has the one behind the last."""
    filled: list[int | None] = []
    for given in ids:
        value = next_id if given is None else given
        filled.append(value)
        next_id = max(next_id, value + 1)
    return filled
