"""What an application may hand to a producer: checked before it is taken, one by one, since a message that can't be
encoded would take its whole batch with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from magnetar._enums import CompressionType
from magnetar._send_queue import HEAD_BYTES
from magnetar.exceptions import InvalidMessage, MessageTooBig, OperationNotSupported
from magnetar_wire.compression import compress
from magnetar_wire.limits import MAX_METADATA_BYTES, MAX_UNCOMPRESSED_BYTES

__all__ = ["Outgoing", "check_size", "outgoing"]

# What an entry's metadata have besides: the producer's name, times, numbers, and a property's own sizes.
_OTHER_METADATA_BYTES: Final = 128
_PROPERTY_BYTES: Final = 12
_MAX_INT64: Final = 2**63 - 1
_MAX_UINT64: Final = 2**64 - 1


class Outgoing(NamedTuple):
    content: bytes | None
    key: str | bytes | None
    ordering_key: bytes | None
    properties: Mapping[str, str] | None
    event_time: int
    sequence_id: int | None
    # All of it together, encoded, in a batch.
    size: int


def outgoing(
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
) -> Outgoing:
    """Raises TypeError and InvalidMessage for what can't be encoded, and refuses what is not supported yet."""
    if (
        type(content) is bytes
        and properties is partition_key is ordering_key is sequence_id is event_timestamp is None
        and replication_clusters is deliver_at is deliver_after is None
        and not disable_replication
    ):
        return Outgoing(content, None, None, None, 0, None, HEAD_BYTES + len(content))
    _refuse("replication_clusters", replication_clusters)
    _refuse("disable_replication", disable_replication or None)
    _refuse("deliver_at", deliver_at)
    _refuse("deliver_after", deliver_after)
    body = _content(content)
    metadata_bytes = 0
    key: str | bytes | None = None
    if partition_key is not None:
        if not isinstance(partition_key, str | bytes):
            raise TypeError(f"partition_key is text or bytes, not {type(partition_key).__name__}")
        key = partition_key
        metadata_bytes += _text_bytes("partition_key", key) if isinstance(key, str) else len(key) * 4 // 3 + 4
    order: bytes | None = None
    if ordering_key is not None:
        if not isinstance(ordering_key, str | bytes):
            raise TypeError(f"ordering_key is text or bytes, not {type(ordering_key).__name__}")
        order = ordering_key if isinstance(ordering_key, bytes) else _encoded("ordering_key", ordering_key)
        metadata_bytes += len(order)
    own: dict[str, str] | None = None
    if properties is not None:
        if not isinstance(properties, Mapping):
            raise TypeError(f"properties are a dict, not {type(properties).__name__}")
        own = dict(properties)  # the application may change its own
        metadata_bytes += sum(_property_bytes(name, value) for name, value in own.items())
    number = _integer("sequence_id", sequence_id, _MAX_INT64)
    event_time = _integer("event_timestamp", event_timestamp) or 0
    _check_metadata(metadata_bytes)
    size = HEAD_BYTES + metadata_bytes + (20 if event_time else 0) + len(body or b"")
    return Outgoing(body, key, order, own, event_time, number, size)


def check_size(content: bytes | None, max_message_bytes: int, compression: CompressionType) -> None:
    """Raises MessageTooBig for what no entry can hold: its payload counts as it will be stored."""
    size = len(content or b"")
    if size <= max_message_bytes:
        return
    if compression is CompressionType.NONE:
        raise MessageTooBig(
            f"the message has {size} bytes, and the largest allowed has {max_message_bytes}: send less at a time, or "
            "create the producer with a compression_type"
        )
    if size > MAX_UNCOMPRESSED_BYTES:
        raise MessageTooBig(f"the message has {size} bytes, and the largest that is read has {MAX_UNCOMPRESSED_BYTES}")
    stored = len(compress(content or b"", compression))
    if stored > max_message_bytes:
        raise MessageTooBig(
            f"the message has {stored} bytes when compressed ({size} before), and the largest allowed has "
            f"{max_message_bytes}: send less at a time"
        )


def _content(content: object) -> bytes | None:
    if content is None or type(content) is bytes:
        return content
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)  # the application may change its own
    raise TypeError(f"a message's content is bytes or None, not {type(content).__name__}: encode it first")


def _check_metadata(size: int) -> None:
    limit = MAX_METADATA_BYTES - _OTHER_METADATA_BYTES
    if size > limit:
        raise MessageTooBig(
            f"the message's properties and keys have {size} bytes, and the largest allowed have {limit}: put what is "
            "large into the message's content"
        )


def _property_bytes(name: object, value: object) -> int:
    if not isinstance(name, str) or not isinstance(value, str):
        raise TypeError(f"a property's name and value are text, not {name!r} and {value!r}")
    return _text_bytes("a property's name", name) + _text_bytes(f"property {name!r}", value) + _PROPERTY_BYTES


def _text_bytes(what: str, text: str) -> int:
    return len(text) if text.isascii() else len(_encoded(what, text))


def _encoded(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessage(f"{what} has no UTF-8: {error}") from None


def _integer(what: str, value: Any, most: int = _MAX_UINT64) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} is an int, not {type(value).__name__}")
    if not 0 <= value <= most:
        raise InvalidMessage(f"{what} is in 0 … {most}, and not {value}")
    return value


def _refuse(what: str, value: object) -> None:
    if value is not None:
        raise OperationNotSupported(f"{what} is not supported yet: leave it out")
