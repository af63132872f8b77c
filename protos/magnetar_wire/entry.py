"""The frame of a stored entry: magic, checksum, metadata, payload. `magnetar_protos/entry.proto` is the layout.

`encode_entry` and `decode_entry` are for producers and consumers. A broker uses neither: it checks the entries of
producers (`check_entry`, which reads the payload only for the checksum), adds its own metadata in front
(`add_broker_metadata`), and forwards the rest as bytes. The content of the payload is the matter of `batch.py`.

An entry is `bytes`. A bytearray or a memoryview is accepted, too, and copied once at the start: the decoded parts are
bytes, and don't change when the buffer is used again.

Sizes are compared with `limits` before anything is parsed. The encoder leaves capacity for the broker's metadata, so
every encoded entry can be stored and read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c
from google.protobuf.message import DecodeError, EncodeError

from magnetar_protos.entry_pb2 import BrokerEntryMetadata, MessageMetadata
from magnetar_wire.errors import ChecksumMismatch, InvalidMessage, MalformedEntry, TooLarge
from magnetar_wire.limits import MAX_BROKER_METADATA_BYTES, MAX_ENTRY_BYTES, MAX_MESSAGE_BYTES, MAX_METADATA_BYTES

__all__ = [
    "Entry",
    "add_broker_metadata",
    "broker_metadata_bytes",
    "check_entry",
    "decode_entry",
    "decode_entry_metadata",
    "encode_entry",
    "locate_payload",
    "split_broker_metadata",
]

_MAGIC: Final = b"\x0e\x01"
_BROKER_MAGIC: Final = b"\x0e\x02"
_HEADER: Final = struct.Struct(">2sII")  # magic, checksum, metadata size
_UINT32: Final = struct.Struct(">I")
_CHECKSUM_END: Final = 6  # the checksum covers the bytes from here
_SMALL: Final = 4096


@dataclass(frozen=True, slots=True)
class Entry:
    """A decoded entry. The payload is as stored, and may be compressed."""

    metadata: MessageMetadata
    payload: bytes
    broker: BrokerEntryMetadata | None = None

    @property
    def is_batch(self) -> bool:
        return self.metadata.HasField("num_messages_in_batch")

    @property
    def is_chunk(self) -> bool:
        return self.metadata.num_chunks_from_msg > 1

    @property
    def is_marker(self) -> bool:
        """Whether a server wrote the entry for servers. Applications don't see it."""
        return self.metadata.HasField("marker_type")


def encode_entry(metadata: MessageMetadata, payload: bytes | bytearray | memoryview) -> bytes:
    """Return the entry as it is stored, without broker metadata."""
    try:
        head = metadata.SerializeToString()
    except EncodeError as error:
        raise InvalidMessage(f"the entry's metadata is incomplete: {error}") from None
    _check_size(len(head), MAX_METADATA_BYTES, "entry's metadata")
    _check_size(len(payload), MAX_MESSAGE_BYTES, "entry's payload")
    size = _HEADER.size + len(head) + len(payload)
    _check_size(size, MAX_ENTRY_BYTES - MAX_BROKER_METADATA_BYTES, "entry without broker entry metadata")
    covered = _UINT32.pack(len(head)) + head
    return b"".join((_MAGIC, _UINT32.pack(crc32c(payload, crc32c(covered))), covered, payload))


def decode_entry(stored: bytes | bytearray | memoryview, *, verify: bool = True) -> Entry:
    """Decode an entry, with or without broker metadata. `verify=False` skips the checksum."""
    stored = _as_bytes(stored)
    broker, metadata, payload_at = locate_payload(stored, verify=verify)
    return Entry(metadata, stored[payload_at:], broker)


def locate_payload(stored: bytes, *, verify: bool = True) -> tuple[BrokerEntryMetadata | None, MessageMetadata, int]:
    """Decode like `decode_entry`, but return the payload's start instead of a copy. The payload ends with the entry."""
    _check_size(len(stored), MAX_ENTRY_BYTES, "entry")
    broker, at = _decode_broker_metadata(stored)
    return broker, *_decode_metadata(stored, at, verify=verify)


def decode_entry_metadata(stored: bytes) -> tuple[BrokerEntryMetadata | None, MessageMetadata]:
    """Decode the metadata in front of the payload. The payload is not copied, and the checksum is not verified."""
    _check_size(len(stored), MAX_ENTRY_BYTES, "entry")
    broker, at = _decode_broker_metadata(stored)
    metadata, _ = _decode_metadata(stored, at, verify=False)
    return broker, metadata


def check_entry(entry: bytes) -> tuple[MessageMetadata, int]:
    """Check an entry that a producer sent, and return its metadata and the number of bytes of its payload.

    The entry must be complete, without broker metadata, and small enough to add that. The payload is not copied.
    """
    metadata, payload_at = _decode_metadata(entry, 0, verify=True)
    payload_bytes = len(entry) - payload_at
    _check_size(payload_bytes, MAX_MESSAGE_BYTES, "entry's payload")
    _check_size(len(entry), MAX_ENTRY_BYTES - MAX_BROKER_METADATA_BYTES, "entry without broker entry metadata")
    return metadata, payload_bytes


def _decode_metadata(stored: bytes, at: int, *, verify: bool) -> tuple[MessageMetadata, int]:
    """Return the metadata of the entry that begins at `at`, and the start of its payload."""
    if len(stored) - at < _HEADER.size:
        raise MalformedEntry(f"the entry has {len(stored) - at} bytes, and at least {_HEADER.size} are needed")
    magic, checksum, metadata_bytes = _HEADER.unpack_from(stored, at)
    if magic != _MAGIC:
        raise MalformedEntry(f"the entry starts with {magic.hex()}, not with the magic number {_MAGIC.hex()}")
    head_at = at + _HEADER.size
    payload_at = head_at + metadata_bytes
    if payload_at > len(stored):
        raise MalformedEntry(
            f"the entry declares {metadata_bytes} bytes of metadata, and {len(stored) - head_at} are left"
        )
    _check_size(metadata_bytes, MAX_METADATA_BYTES, "entry's metadata")
    if verify:
        covered = at + _CHECKSUM_END
        # Copying a small entry is faster than a view.
        found = crc32c(stored[covered:] if len(stored) < _SMALL else memoryview(stored)[covered:])
        if found != checksum:
            raise ChecksumMismatch(
                f"the entry is corrupt: its checksum is {checksum:08x}, that of its bytes {found:08x}"
            )
    try:
        metadata = MessageMetadata.FromString(stored[head_at:payload_at])
    except DecodeError as error:
        raise MalformedEntry(f"the entry's metadata can't be decoded: {error}") from None
    if not metadata.IsInitialized():  # protobuf checks required fields only when it encodes
        missing = metadata.FindInitializationErrors()  # type: ignore[attr-defined]  # the stubs lack it
        raise MalformedEntry(f"the entry's metadata lacks {', '.join(missing)}")
    return metadata, payload_at


def add_broker_metadata(entry: bytes, broker_time_ms: int, index: int) -> bytes:
    """Return the entry with broker metadata in front: the time of its arrival, and the index of its last message."""
    try:
        part = BrokerEntryMetadata(broker_timestamp=broker_time_ms, index=index).SerializeToString()
    except (TypeError, ValueError) as error:
        raise InvalidMessage(f"the broker entry metadata can't be encoded: {error}") from None
    _check_size(6 + len(part) + len(entry), MAX_ENTRY_BYTES, "entry with broker entry metadata")
    return b"".join((_BROKER_MAGIC, _UINT32.pack(len(part)), part, entry))


def split_broker_metadata(stored: bytes | bytearray | memoryview) -> tuple[BrokerEntryMetadata | None, bytes]:
    """Return the broker metadata, None if there is none, and the entry without it."""
    stored = _as_bytes(stored)
    broker, at = _decode_broker_metadata(stored)
    return broker, stored[at:] if at else stored


def broker_metadata_bytes(stored: bytes) -> int:
    """Return the number of bytes of broker metadata in front of a stored entry; 0 if there is none."""
    return 6 + int.from_bytes(stored[2:6], "big") if stored[:2] == _BROKER_MAGIC else 0


def _as_bytes(stored: bytes | bytearray | memoryview) -> bytes:
    if isinstance(stored, bytes):
        return stored
    if not isinstance(stored, (bytearray, memoryview)):  # bytes(5) would be five zeros
        raise TypeError(f"an entry must be bytes, not {type(stored).__name__}")
    return bytes(stored)


def _check_size(size: int, limit: int, what: str) -> None:
    if size > limit:
        raise TooLarge(f"the {what} has {size} bytes, above the limit of {limit}")


def _decode_broker_metadata(stored: bytes) -> tuple[BrokerEntryMetadata | None, int]:
    """Decode the broker metadata, and return it with the start of the entry."""
    if stored[:2] != _BROKER_MAGIC:
        return None, 0
    if len(stored) < 6:
        raise MalformedEntry(f"the broker entry metadata has {len(stored)} bytes, and at least 6 are needed")
    (size,) = _UINT32.unpack_from(stored, 2)
    if size > len(stored) - 6:
        raise MalformedEntry(
            f"the entry declares {size} bytes of broker entry metadata, and {len(stored) - 6} are left"
        )
    _check_size(size, MAX_METADATA_BYTES, "broker entry metadata")
    try:
        return BrokerEntryMetadata.FromString(stored[6 : 6 + size]), 6 + size
    except DecodeError as error:
        raise MalformedEntry(f"the broker entry metadata can't be decoded: {error}") from None
