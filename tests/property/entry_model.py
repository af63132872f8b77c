"""The stored entry as entry.proto describes it, in the plainest code: a message at a time, a protobuf object for each.

What the codec is held against. It is slow, it takes a forged size at its word, and it has one error for everything.
LZ4 and SNAPPY blocks it decompresses itself, byte by byte, as their formats' descriptions say.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass, field

import cramjam
import lz4.block
import zstandard
from crc32c import crc32c
from google.protobuf.message import DecodeError

from magnetar_protos import entry_pb2
from magnetar_protos.entry_pb2 import BrokerEntryMetadata, MessageMetadata, SingleMessageMetadata


class Refused(Exception):
    """The bytes are not an entry, or it can't be decoded."""


@dataclass(slots=True)
class Message:
    payload: bytes | None = b""
    key: str | bytes | None = None
    ordering_key: bytes | None = None
    properties: dict[str, str] = field(default_factory=dict)
    event_time: int = 0
    sequence_id: int | None = None
    null_key: bool = False
    compacted_out: bool = False
    batch_index: int = 0


# -- encoding ----------------------------------------------------------------------------------------------------------


def encode_batch(messages: list[Message], shared: MessageMetadata, compression: int = 0) -> bytes:
    metadata = MessageMetadata.FromString(shared.SerializeToString())
    metadata.num_messages_in_batch = len(messages)
    if messages[0].sequence_id is not None and messages[-1].sequence_id is not None:
        metadata.sequence_id = messages[0].sequence_id
        metadata.highest_sequence_id = messages[-1].sequence_id
    payload = b"".join(_encode_record(message) for message in messages)
    return _encode_entry(metadata, payload, compression)


def encode_single(message: Message, shared: MessageMetadata, compression: int = 0) -> bytes:
    metadata = MessageMetadata.FromString(shared.SerializeToString())
    _describe(message, metadata)
    if not message.payload and compression == entry_pb2.ZLIB:
        compression = 0  # the C++ library drops an empty ZLIB payload
    return _encode_entry(metadata, message.payload or b"", compression)


def with_broker_part(entry: bytes, timestamp: int, index: int) -> bytes:
    part = BrokerEntryMetadata(broker_timestamp=timestamp, index=index).SerializeToString()
    return b"\x0e\x02" + struct.pack(">I", len(part)) + part + entry


def _encode_record(message: Message) -> bytes:
    head = SingleMessageMetadata(payload_size=len(message.payload or b""))
    _describe(message, head)
    if message.compacted_out:
        head.compacted_out = True
    serialised = head.SerializeToString()
    return struct.pack(">I", len(serialised)) + serialised + (message.payload or b"")


def _describe(message: Message, metadata: MessageMetadata | SingleMessageMetadata) -> None:
    for name, value in message.properties.items():
        metadata.properties.add(key=name, value=value)
    if isinstance(message.key, bytes):
        metadata.partition_key = b64encode(message.key).decode()
        metadata.partition_key_b64_encoded = True
    elif message.key is not None:
        metadata.partition_key = message.key
    if message.ordering_key is not None:
        metadata.ordering_key = message.ordering_key
    if message.event_time != 0:
        metadata.event_time = message.event_time
    if message.sequence_id is not None:
        metadata.sequence_id = message.sequence_id
    if message.payload is None:
        metadata.null_value = True
    if message.null_key:
        metadata.null_partition_key = True


def _encode_entry(metadata: MessageMetadata, payload: bytes, compression: int) -> bytes:
    if compression:
        metadata.compression = compression  # type: ignore[assignment]
        metadata.uncompressed_size = len(payload)
        payload = compress(payload, compression)
    return frame(metadata.SerializeToString(), payload)


def frame(metadata: bytes, payload: bytes) -> bytes:
    """Return the entry of any metadata and payload."""
    covered = struct.pack(">I", len(metadata)) + metadata + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c(covered)) + covered


def compress(payload: bytes, compression: int) -> bytes:
    if compression == entry_pb2.LZ4:
        return bytes(lz4.block.compress(payload, store_size=False))
    if compression == entry_pb2.ZLIB:
        return zlib.compress(payload)
    if compression == entry_pb2.ZSTD:
        return zstandard.ZstdCompressor().compress(payload)
    if compression == entry_pb2.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(payload))
    return payload


# -- decoding ----------------------------------------------------------------------------------------------------------


def decode(stored: bytes, *, verify: bool = True) -> list[Message]:
    """Return the entry's messages."""
    metadata, payload = take_apart(stored, verify=verify)
    if metadata.encryption_keys or metadata.num_chunks_from_msg > 1:
        raise Refused
    if metadata.compression != entry_pb2.NONE:
        payload = _decompress(payload, metadata.compression, metadata.uncompressed_size)
    if not metadata.HasField("num_messages_in_batch"):
        return [_read(metadata, payload, 0)]
    indexes = list(metadata.compacted_batch_indexes)
    if not indexes:
        return decode_batch(payload, metadata.num_messages_in_batch)
    if indexes != sorted(set(indexes)) or not all(0 <= index < metadata.num_messages_in_batch for index in indexes):
        raise Refused
    messages = decode_batch(payload, len(indexes))
    for message, index in zip(messages, indexes, strict=True):
        message.batch_index = index
    return messages


def take_apart(stored: bytes, *, verify: bool = True) -> tuple[MessageMetadata, bytes]:
    if stored[:2] == b"\x0e\x02":
        if len(stored) < 6:
            raise Refused
        (size,) = struct.unpack(">I", stored[2:6])
        if len(stored) < 6 + size:
            raise Refused
        _parse(BrokerEntryMetadata(), stored[6 : 6 + size])
        stored = stored[6 + size :]
    if len(stored) < 10 or stored[:2] != b"\x0e\x01":
        raise Refused
    checksum, size = struct.unpack(">II", stored[2:10])
    if len(stored) < 10 + size or (verify and crc32c(stored[6:]) != checksum):
        raise Refused
    metadata = MessageMetadata()
    _parse(metadata, stored[10 : 10 + size])
    return metadata, stored[10 + size :]


def decode_batch(payload: bytes, count: int) -> list[Message]:
    if count < 1:
        raise Refused
    messages = []
    for index in range(count):
        if len(payload) < 4:
            raise Refused
        (size,) = struct.unpack(">I", payload[:4])
        if len(payload) < 4 + size:
            raise Refused
        head = SingleMessageMetadata()
        _parse(head, payload[4 : 4 + size])
        payload = payload[4 + size :]
        if not 0 <= head.payload_size <= len(payload):
            raise Refused
        messages.append(_read(head, payload[: head.payload_size], index))
        payload = payload[head.payload_size :]
    if payload:
        raise Refused
    return messages


def _parse(into: MessageMetadata | SingleMessageMetadata | BrokerEntryMetadata, data: bytes) -> None:
    try:
        into.ParseFromString(data)
    except DecodeError:
        raise Refused from None
    if not into.IsInitialized():
        raise Refused


def _read(metadata: MessageMetadata | SingleMessageMetadata, payload: bytes, index: int) -> Message:
    message = Message(payload, batch_index=index)
    if metadata.null_value:
        message.payload = None
    if metadata.HasField("partition_key"):
        message.key = metadata.partition_key
        if metadata.partition_key_b64_encoded:
            try:
                message.key = b64decode(metadata.partition_key, validate=True)
            except ValueError:
                raise Refused from None
    if metadata.HasField("ordering_key"):
        message.ordering_key = metadata.ordering_key
    for pair in metadata.properties:
        message.properties[pair.key] = pair.value
    message.event_time = metadata.event_time
    if metadata.HasField("sequence_id"):
        message.sequence_id = metadata.sequence_id
    message.null_key = metadata.null_partition_key
    if isinstance(metadata, SingleMessageMetadata):
        message.compacted_out = metadata.compacted_out
    return message


# -- decompression -----------------------------------------------------------------------------------------------------


def _decompress(payload: bytes, compression: int, size: int) -> bytes:
    try:
        if compression == entry_pb2.LZ4:
            decoded = lz4_block(payload)
        elif compression == entry_pb2.ZLIB:
            inflate = zlib.decompressobj()
            decoded = inflate.decompress(payload)
            if not inflate.eof or inflate.unused_data:
                raise Refused
        elif compression == entry_pb2.ZSTD:
            frame = zstandard.ZstdDecompressor().decompressobj()
            decoded = frame.decompress(payload)
            if not frame.eof or frame.unused_data:
                raise Refused
        elif compression == entry_pb2.SNAPPY:
            decoded = snappy_block(payload)
        else:
            raise Refused
    except (zlib.error, zstandard.ZstdError, IndexError):
        raise Refused from None
    if len(decoded) != size:
        raise Refused
    return decoded


def lz4_block(block: bytes) -> bytes:
    """Decompress a block: sequences of a token, literals, and a match with its distance (2 bytes, little-endian) and
    its length. The last sequence has literals only.
    """
    out = bytearray()
    at = 0

    def length(nibble: int) -> int:
        nonlocal at
        total = nibble
        more = nibble == 15
        while more:
            total += block[at]
            more = block[at] == 255
            at += 1
        return total

    while True:
        token = block[at]
        at += 1
        literals = length(token >> 4)
        if at + literals > len(block):
            raise Refused
        out += block[at : at + literals]
        at += literals
        if at == len(block):
            return bytes(out)
        distance = block[at] | block[at + 1] << 8
        at += 2
        match = length(token & 15) + 4
        if distance:
            _copy(out, distance, match)
        else:  # invalid by the format, but zeros in the usual library
            out += bytes(match)


def snappy_block(block: bytes) -> bytes:
    """Decompress a block: the size as a varint, and elements with their kind in the two low bits of the first byte:
    literals, and copies with a distance of 11, 16 or 32 bits.
    """
    size = shift = at = 0
    while True:
        byte = block[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    out = bytearray()
    while at < len(block):
        tag = block[at]
        at += 1
        if tag & 3 == 0:
            length = (tag >> 2) + 1
            if length > 60:
                extra = length - 60
                length = int.from_bytes(block[at : at + extra], "little") + 1
                at += extra
            if at + length > len(block):
                raise Refused
            out += block[at : at + length]
            at += length
        elif tag & 3 == 1:
            _copy(out, tag >> 5 << 8 | block[at], (tag >> 2 & 7) + 4)
            at += 1
        else:
            width = 2 if tag & 3 == 2 else 4
            if at + width > len(block):
                raise Refused
            _copy(out, int.from_bytes(block[at : at + width], "little"), (tag >> 2) + 1)
            at += width
    if len(out) != size:
        raise Refused
    return bytes(out)


def _copy(out: bytearray, distance: int, length: int) -> None:
    if not 0 < distance <= len(out):
        raise Refused
    for _ in range(length):
        out.append(out[-distance])
