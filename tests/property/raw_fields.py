"""Protobuf fields encoded byte by byte, also as no encoder writes them. A parser must accept or refuse them.

All choices come from a `Random`: that of hypothesis, which can shrink them, or a seeded one, which is faster.
"""

from __future__ import annotations

import struct
from random import Random

from magnetar_wire.batch_codec.column_decoding import NO_KEY, NO_PROPERTY, NO_SIZE, separator

NUMBERS = (0, 1, 2, 3, 5, 127, 128, 16383, 16384, 2**31 - 1, 2**31, 2**32 - 1, 2**32 + 5, 2**62, 2**63 - 1, 2**64 - 1)
TEXTS = (
    b"",
    b"a",
    b"key",
    b"\0\1",
    b"\1\2",
    "ключ".encode(),
    b"YWJj",
    b"YQ==",
    b"YQ=",
    b"\xff\xfe",
    b"\xed\xa0\x80",  # a surrogate
    b"\x18\x05",
    b"\x18d@\x05",  # the end of a record's metadata looks like this
    b"\x18\x05@\x01",
    b"x" * 130,
    *(separator(size, rare) for size in NO_SIZE for rare in (False, True)),
    NO_PROPERTY,
    NO_KEY.encode(),
)
PAYLOADS = (b"", b"a", b"hello", b"world", b"\x18d@\x05", b"\0\0\0\2\x18\0", b"x" * 100, b"y" * 130)
# The fields of SingleMessageMetadata by their type.
NUMERIC = (3, 4, 5, 6, 8, 9, 10)
WORDS = (1, 2, 7)


def varint(value: int, padding: int = 0) -> bytes:
    """Return the varint of `value`, `padding` bytes longer than necessary."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    for _ in range(padding):
        out[-1] |= 0x80
        out.append(0)
    return bytes(out)


def tag(number: int, wire_type: int, padding: int = 0) -> bytes:
    return varint(number << 3 | wire_type, padding)


def words(number: int, data: bytes) -> bytes:
    return tag(number, 2) + varint(len(data)) + data


def pair(name: bytes, value: bytes) -> bytes:
    return words(1, name) + words(2, value)


def record(metadata: bytes, payload: bytes) -> bytes:
    return struct.pack(">I", len(metadata)) + metadata + payload


def _padding(draw: Random) -> int:
    return draw.choice((0, 0, 0, 0, 0, 0, 1, 3))


def any_number(draw: Random) -> bytes:
    return varint(draw.choice(NUMBERS), _padding(draw))


def any_pair(draw: Random) -> bytes:
    parts = [words(1, draw.choice(TEXTS[:9])), words(2, draw.choice(TEXTS[:9]))]
    if draw.random() < 0.15:
        parts.append(any_field(draw, (1, 2, 3, 9)))
    if draw.random() < 0.1:
        parts.pop(draw.randrange(2))
    if draw.random() < 0.1:
        draw.shuffle(parts)
    return b"".join(parts)


def plain_field(draw: Random) -> bytes:
    """Return a field of SingleMessageMetadata as an encoder might write it."""
    number = draw.choice(NUMERIC[1:] + WORDS)
    if number == 1:
        return words(1, any_pair(draw))
    if number in WORDS:
        return words(number, draw.choice(TEXTS[:9]))
    return tag(number, 0) + varint(draw.choice((0, 1, 5, 200, 2**63 - 1, 2**64 - 1) if number in (5, 8) else (0, 1)))


def any_field(draw: Random, numbers: tuple[int, ...] = (*range(1, 12), 200)) -> bytes:
    """Return a field of any number and wire type, valid or not."""
    number, kind = draw.choice(numbers), draw.randrange(10)
    if kind < 3:
        return tag(number, 0, _padding(draw)) + any_number(draw)
    if kind < 5:
        return tag(number, 2) + varint(len(data := draw.choice(TEXTS)), _padding(draw)) + data
    if kind == 5:
        packed = b"".join(any_number(draw) for _ in range(draw.choice((0, 1, 1, 2, 3, 5))))
        return tag(number, 2, _padding(draw)) + varint(len(packed)) + packed
    if kind == 6:
        return tag(number, 1) + draw.choice((b"\1" * 8, b"\0" * 8))
    if kind == 7:
        return tag(number, 5) + b"\1\2\3\4"
    if kind == 8:
        inner = any_field(draw, numbers) if draw.random() < 0.5 else b""
        return tag(number, 3) + inner + tag(number, 4)
    return draw.choice((tag(number, 3), tag(number, 4), tag(number, 6), b"\0", b"\x80", tag(number, 2) + b"\x19"))


def any_metadata(draw: Random, payload_bytes: int) -> bytes:
    fields = [plain_field(draw) for _ in range(draw.choice((0, 1, 1, 2, 3)))]
    if draw.random() < 0.3:
        fields.append(any_field(draw))
    size = draw.random()
    if size < 0.9:
        fields.append(tag(3, 0) + varint(payload_bytes))
    elif size < 0.93:
        fields.append(tag(3, 0, 1) + varint(payload_bytes, 2))
    elif size < 0.96:
        fields.append(tag(3, 2, _padding(draw)) + varint(len(packed := varint(payload_bytes))) + packed)
    elif size < 0.98:
        fields.append(tag(3, 0) + any_number(draw))
    if draw.random() < 0.5:
        fields.append(tag(8, 0) + varint(draw.choice((0, 1, 100, 300, 2**40, 2**63 - 1, 2**64 - 1))))
    if draw.random() < 0.3:
        draw.shuffle(fields)
    metadata = b"".join(fields)
    if draw.random() < 0.04:  # it ends inside a field, or with a field that exceeds it
        metadata = metadata[: draw.randrange(len(metadata) + 1)]
    if draw.random() < 0.04:
        metadata += draw.choice((b"\x5a\2", b"\x5a\x05", b"\x0a\x02", b"\x3a\x18", b"\x5b", b"\x5c", b"\x40", b"\x18"))
    return metadata


def any_batch(draw: Random) -> tuple[bytes, int]:
    """Return a batch's payload, and the number of messages that it declares. Most records are alike, as in real
    batches: only such batches get far in the fast paths.
    """
    shapes = []
    for _ in range(draw.choice((1, 1, 2, 3))):
        payload = draw.choice(PAYLOADS)
        shapes.append(record(any_metadata(draw, len(payload)), payload))
    count = draw.choice((1, 2, 2, 3, 5, 8))
    batch = b"".join(draw.choice(shapes) for _ in range(count))
    fate = draw.random()
    if fate < 0.03:
        batch = batch[: draw.randrange(len(batch) + 1)]
    elif fate < 0.06:
        batch += draw.choice((b"\0", b"\0\0\0\0", b"\0\0\0\2\x18\0"))
    elif fate < 0.09:
        count = draw.choice((0, -1, count + 1, count - 1, 2**31 - 1, -(2**31)))
    return batch, count
