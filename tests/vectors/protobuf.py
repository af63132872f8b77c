"""As much of protobuf as the commands of a handshake need: numbers and bytes by field number."""

from __future__ import annotations

from collections.abc import Iterator

Value = int | bytes


def message(fields: dict[int, Value]) -> bytes:
    """A message with these fields. A negative number is written as the 64 bits of its two's complement."""
    out = bytearray()
    for number, value in fields.items():
        if isinstance(value, int):
            out += _varint(number << 3) + _varint(value % 2**64)
        else:
            out += _varint(number << 3 | 2) + _varint(len(value)) + value
    return bytes(out)


def fields(data: bytes) -> dict[int, Value]:
    """The fields of a message; of a repeated one the last."""
    return dict(_fields(data))


def number(of: dict[int, Value], field: int, default: int = 0) -> int:
    value = of.get(field, default)
    assert isinstance(value, int)
    return value


def text(of: dict[int, Value], field: int) -> str:
    value = of.get(field, b"")
    assert isinstance(value, bytes)
    return value.decode()


def _fields(data: bytes) -> Iterator[tuple[int, Value]]:
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _read_varint(data, at)
            yield tag >> 3, value
            continue
        size, at = _read_varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
