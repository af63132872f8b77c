"""`OutgoingMessage`: what the rest of the send path knows of a message.

`send` and `send_async` make it from their arguments (`make_message`), which checks all of them. From there it is passed
on whole. A message that cannot be encoded would make its whole batch fail, so each is checked before it joins a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from magnetar._enums import CompressionType
from magnetar.exceptions import InvalidMessage, MessageTooBig, OperationNotSupported
from magnetar_wire.compression import compress
from magnetar_wire.limits import MAX_METADATA_BYTES, MAX_UNCOMPRESSED_BYTES

__all__ = ["HEAD_BYTES", "OutgoingMessage", "make_message"]

# The most that a batch stores in front of a payload that has no metadata: the head's size, the payload's size, a
# sequence id, and whether the payload is null.
HEAD_BYTES: Final = 24
# What an entry's metadata contain besides properties and keys: the producer's name, times, numbers.
_OTHER_METADATA_BYTES: Final = 128
# What a property takes besides its name and value.
_PROPERTY_BYTES: Final = 12
_MAX_INT64: Final = 2**63 - 1
_MAX_UINT64: Final = 2**64 - 1


class OutgoingMessage(NamedTuple):
    content: bytes | None
    key: str | bytes | None = None
    ordering_key: bytes | None = None
    properties: Mapping[str, str] | None = None
    # 0: none.
    event_time: int = 0
    # None: the producer assigns it.
    sequence_id: int | None = None
    # What the message takes in a batch, encoded.
    size: int = HEAD_BYTES
    # `content` is compressed already, to be sent in chunks; this is its size before. None: it is not compressed yet.
    uncompressed_bytes: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the message has nothing but a payload."""
        return (
            self.key is None
            and self.ordering_key is None
            and not self.properties
            and not self.event_time
            and self.sequence_id is None
            and self.uncompressed_bytes is None
        )

    def compress_for_chunks(self, max_message_bytes: int, compression: CompressionType) -> OutgoingMessage:
        """Return the message as a producer sends it that may send chunks: unchanged if one entry can hold it, else with
        its payload compressed as a whole. Raise MessageTooBig if consumers would not read it."""
        content = self.content or b""
        size = len(content)
        if size <= max_message_bytes or self.uncompressed_bytes is not None:
            return self
        _check_uncompressed_size(size)
        stored = bytes(compress(content, compression))
        return self._replace(content=stored, size=self.size + len(stored) - size, uncompressed_bytes=size)

    def check_size(self, max_message_bytes: int, compression: CompressionType) -> None:
        """Raise MessageTooBig if no entry can hold the message. What counts is its size when it is compressed."""
        size = len(self.content or b"")
        if size <= max_message_bytes:
            return
        if compression is CompressionType.NONE:
            raise MessageTooBig(
                f"the message has {size} bytes, and the largest allowed has {max_message_bytes}: send less at a time, "
                "or create the producer with chunking_enabled or a compression_type"
            )
        _check_uncompressed_size(size)
        stored = len(compress(self.content or b"", compression))
        if stored > max_message_bytes:
            raise MessageTooBig(
                f"the message has {stored} bytes when compressed ({size} before), and the largest allowed has "
                f"{max_message_bytes}: send less at a time, or create the producer with chunking_enabled"
            )


def _check_uncompressed_size(size: int) -> None:
    if size > MAX_UNCOMPRESSED_BYTES:
        raise MessageTooBig(
            f"the message has {size} bytes, and the largest that consumers read has {MAX_UNCOMPRESSED_BYTES}: send "
            "less at a time"
        )


def make_message(
    content: object,
    properties: object,
    partition_key: object,
    ordering_key: object,
    sequence_id: object,
    replication_clusters: object,
    disable_replication: object,
    event_timestamp: object,
    deliver_at: object,
    deliver_after: object,
    *,
    max_metadata_bytes: int = MAX_METADATA_BYTES,
) -> OutgoingMessage:
    """Return the message that an application sends. `max_metadata_bytes`: of the message, with what the client adds.

    Raises TypeError and InvalidMessage for a message that cannot be encoded, MessageTooBig for too large properties
    and keys, and OperationNotSupported for arguments that are not supported yet.
    """
    if (
        type(content) is bytes
        and properties is partition_key is ordering_key is sequence_id is event_timestamp is None
        and replication_clusters is deliver_at is deliver_after is None
        and not disable_replication
    ):
        return OutgoingMessage(content, None, None, None, 0, None, HEAD_BYTES + len(content))
    _refuse("replication_clusters", replication_clusters)
    _refuse("disable_replication", disable_replication or None)
    _refuse("deliver_at", deliver_at)
    _refuse("deliver_after", deliver_after)
    payload = _payload(content)
    metadata_bytes = 0
    key: str | bytes | None = None
    if partition_key is not None:
        if not isinstance(partition_key, str | bytes):
            raise TypeError(f"partition_key is a str or bytes, not {type(partition_key).__name__}")
        key = partition_key
        # A key of bytes is stored in base64.
        metadata_bytes += _text_bytes("partition_key", key) if isinstance(key, str) else len(key) * 4 // 3 + 4
    order: bytes | None = None
    if ordering_key is not None:
        if not isinstance(ordering_key, str | bytes):
            raise TypeError(f"ordering_key is a str or bytes, not {type(ordering_key).__name__}")
        order = ordering_key if isinstance(ordering_key, bytes) else _encode_text("ordering_key", ordering_key)
        metadata_bytes += len(order)
    copied: dict[str, str] | None = None
    if properties is not None:
        if not isinstance(properties, Mapping):
            raise TypeError(f"properties are a dict, not {type(properties).__name__}")
        copied = dict(properties)  # the application may change its dict
        metadata_bytes += sum(_property_bytes(name, value) for name, value in copied.items())
    number = _integer("sequence_id", sequence_id, _MAX_INT64)
    event_time = _integer("event_timestamp", event_timestamp) or 0
    _check_metadata_size(metadata_bytes, max_metadata_bytes - _OTHER_METADATA_BYTES)
    size = HEAD_BYTES + metadata_bytes + (20 if event_time else 0) + len(payload or b"")
    return OutgoingMessage(payload, key, order, copied, event_time, number, size)


def _payload(content: object) -> bytes | None:
    if content is None or type(content) is bytes:
        return content
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)  # the application may change its buffer
    raise TypeError(f"a message's content is bytes or None, not {type(content).__name__}: encode it first")


def _check_metadata_size(size: int, limit: int) -> None:
    if size > limit:
        raise MessageTooBig(
            f"the message's properties and keys have {size} bytes, and the largest allowed have {limit}: put large "
            "values into the message's content"
        )


def _property_bytes(name: object, value: object) -> int:
    if not isinstance(name, str) or not isinstance(value, str):
        raise TypeError(f"a property's name and value are str, not {name!r} and {value!r}")
    return _text_bytes("a property's name", name) + _text_bytes(f"property {name!r}", value) + _PROPERTY_BYTES


def _text_bytes(what: str, text: str) -> int:
    return len(text) if text.isascii() else len(_encode_text(what, text))


def _encode_text(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"{what} cannot be encoded in UTF-8: {error}") from None


def _integer(what: str, value: Any, most: int = _MAX_UINT64) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} is an int, not {type(value).__name__}")
    if not 0 <= value <= most:
        raise InvalidMessage(f"{what} = {value}: use 0 … {most}")
    return value


def _refuse(what: str, value: object) -> None:
    if value is not None:
        raise OperationNotSupported(f"{what} is not supported yet: leave it out")
