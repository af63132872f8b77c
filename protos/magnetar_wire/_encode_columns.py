"""Batches of any messages, encoded column by column.

Each field of all messages is made before the next field's, and each message's fields are joined at the end, in the
order of their numbers, as protobuf writes them.
"""

from __future__ import annotations

import struct
from array import array
from base64 import b64encode
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import add
from types import NoneType
from typing import Any, Final

from magnetar_wire._batch_limits import check_batch_metadata, check_record_metadata
from magnetar_wire._varints import MAX_INT32, MAX_UINT64, encode_column, has_gaps, uint64_array, varint, varint_bytes
from magnetar_wire.limits import MAX_RECORD_METADATA_BYTES
from magnetar_wire.messages import Messages

_SIZE: Final = struct.Struct(">I")
# The wire's tags of SingleMessageMetadata's fields, and of a property's two.
PROPERTY, _KEY, _PAYLOAD_SIZE, _COMPACTED_OUT, _EVENT_TIME = b"\x0a", b"\x12", b"\x18", b"\x20", b"\x28"
_PAIR_NAME, _PAIR_VALUE = b"\x0a", b"\x12"
_KEY_IS_BASE64, _ORDERING_KEY, _SEQUENCE_ID, _NULL_VALUE, _NULL_KEY = b"\x30", b"\x3a", b"\x40", b"\x48", b"\x50"


def encode_columns(messages: Messages) -> bytes:
    """The batch's payload. The columns have the right lengths: `batch` has seen to it."""
    payloads: Sequence[Any] = messages.payloads
    kinds = set(map(type, payloads))
    if not kinds <= {bytes, bytearray, NoneType}:
        payloads = [payload_bytes(payload) for payload in payloads]
    fields = list(_fields(messages, NoneType in kinds))
    # No message's metadata is joined by itself: what is needed of it is its size.
    metadata_bytes: Sequence[int] = list(map(len, fields[0]))
    for field in fields[1:]:
        metadata_bytes = list(map(add, metadata_bytes, map(len, field)))
    besides = sum(metadata_bytes) + _SIZE.size * len(metadata_bytes)
    check_batch_metadata(besides)
    if besides > MAX_RECORD_METADATA_BYTES:  # else none of them can be
        check_record_metadata(max(metadata_bytes))
    sizes = map(_SIZE.pack, metadata_bytes)
    present: Iterable[bytes]
    present = [payload or b"" for payload in payloads] if NoneType in kinds else payloads
    return b"".join(chain.from_iterable(zip(sizes, *fields, present, strict=True)))


def payload_bytes(payload: object) -> bytes | bytearray | None:
    """The payload, copied where it is another buffer; raises TypeError where it is none, or none of bytes."""
    if payload is None or isinstance(payload, (bytes, bytearray)):
        return payload
    view = memoryview(payload)  # type: ignore[arg-type]  # it says itself what is no buffer
    if not view.c_contiguous or view.nbytes != len(view):
        raise TypeError("a payload must be bytes, or a contiguous buffer of single bytes")
    return view.tobytes()


def _fields(messages: Messages, some_null: bool) -> Iterator[Sequence[bytes]]:
    """What the messages' metadata is made of, piece by piece: of each piece a list with one element a message."""
    if messages.properties is not None:
        yield from _property_fields(messages.properties)
    are_bytes = None
    if messages.keys is not None:
        texts, are_bytes = _key_texts(messages.keys)
        yield from _bytes_fields(Prefixes(_KEY), texts)
    size_fields = _SizeFields()
    yield [size_fields[0 if payload is None else len(payload)] for payload in messages.payloads]
    if messages.compacted_out is not None:
        yield _flag_fields(_COMPACTED_OUT, messages.compacted_out)
    if messages.event_times is not None:
        yield [_EVENT_TIME + varint(_uint64(time)) if time else b"" for time in messages.event_times]
    if are_bytes is not None:
        yield _flag_fields(_KEY_IS_BASE64, are_bytes)
    if messages.ordering_keys is not None:
        _kinds(messages.ordering_keys, bytes, NoneType)
        yield from _bytes_fields(Prefixes(_ORDERING_KEY), messages.ordering_keys)
    if messages.sequence_ids is not None:
        yield _id_fields(messages.sequence_ids)
    if some_null:
        yield _flag_fields(_NULL_VALUE, [payload is None for payload in messages.payloads])
    if messages.null_keys is not None:
        yield _flag_fields(_NULL_KEY, messages.null_keys)


class _SizeFields(dict[int, bytes]):
    """`payload_size` for each size, made once."""

    def __missing__(self, size: int) -> bytes:
        if size > MAX_INT32:
            raise OverflowError(f"its payload has {size} bytes, above the limit of {MAX_INT32}")
        field = self[size] = _PAYLOAD_SIZE + varint(size)
        return field


class Prefixes(dict[int, bytes]):
    """What stands in front of the bytes of one field, for each of their sizes, made once: most sizes come again."""

    def __init__(self, tag: bytes, name: str | None = None) -> None:
        super().__init__()
        self._tag = tag
        # Of a property: its name's field, which goes in front of the value's, both inside the property's own.
        self._name = None if name is None else _bytes_field(_PAIR_NAME, name.encode())

    def __missing__(self, size: int) -> bytes:
        if self._name is None:
            prefix = self._tag + varint(size)
        else:
            inner = self._name + _PAIR_VALUE + varint(size)
            prefix = self._tag + varint(len(inner) + size) + inner
        self[size] = prefix
        return prefix


def _bytes_field(tag: bytes, data: bytes) -> bytes:
    return tag + varint(len(data)) + data


def _bytes_fields(prefixes: Prefixes, values: Sequence[str | bytes | None]) -> Iterator[list[bytes]]:
    """A field of text or bytes: what stands in front of each value, and the values."""
    if None in values:
        present = [None if value is None else value.encode() if isinstance(value, str) else value for value in values]
        yield [b"" if value is None else prefixes[len(value)] for value in present]
        yield [value or b"" for value in present]
    else:
        encoded = _utf8(values)  # type: ignore[arg-type]  # no None among them
        yield [prefixes[size] for size in map(len, encoded)]
        yield encoded


def _utf8(values: Sequence[str | bytes]) -> list[bytes]:
    """All values as bytes: texts are encoded in one call where their kind allows it."""
    if set(map(type, values)) != {str}:
        return [value.encode() if isinstance(value, str) else value for value in values]
    joined = "\0".join(values)  # type: ignore[arg-type]
    encoded = joined.encode().split(b"\0")
    return encoded if len(encoded) == len(values) else [value.encode() for value in values]  # type: ignore[union-attr]


def _kinds(values: Sequence[object], *allowed: type) -> set[type]:
    """The types of all values; raises TypeError where one is not allowed."""
    kinds = set(map(type, values))
    for kind in kinds:
        if not issubclass(kind, allowed):
            raise TypeError(
                f"{kind.__name__} is not a valid type: use {' or '.join(each.__name__ for each in allowed)}"
            )
    return kinds


def _key_texts(keys: Sequence[str | bytes | None]) -> tuple[Sequence[str | None], list[bool] | None]:
    """The keys as text, and which of them are bytes; None where none is."""
    if _kinds(keys, str, bytes, NoneType) <= {str, NoneType}:
        return keys, None  # type: ignore[return-value]
    texts = [b64encode(key).decode("ascii") if isinstance(key, bytes) else key for key in keys]
    return texts, [isinstance(key, bytes) for key in keys]


def _flag_fields(tag: bytes, flags: Sequence[bool]) -> list[bytes]:
    raised = tag + b"\x01"
    return [raised if flag else b"" for flag in flags]


def _uint64(value: int) -> int:
    if not 0 <= value <= MAX_UINT64:
        raise OverflowError(f"{value} is out of range: use 0 … 2^64 - 1")
    return value


def _id_fields(sequence_ids: Sequence[int | None]) -> Sequence[bytes]:
    if has_gaps(sequence_ids):
        return [b"" if value is None else _SEQUENCE_ID + varint(_uint64(value)) for value in sequence_ids]
    values = uint64_array(sequence_ids)  # type: ignore[arg-type]  # no None among them
    whole = _ids_of_one_length(values)
    if whole is not None:
        return whole
    # A producer's ids grow: they are cut where they become longer. Of others, parts may be of several lengths still.
    fields: list[bytes] = []
    begin = 0
    for length in range(1, varint_bytes(MAX_UINT64) + 1):
        end = bisect_left(values, 1 << 7 * length, begin)
        if part := values[begin:end]:
            fields += _ids_of_one_length(part) or [_SEQUENCE_ID + varint(value) for value in part]
        begin = end
    return fields


def _ids_of_one_length(values: array[int]) -> Sequence[bytes] | None:
    """None where the varints are of several lengths, or too long for columns."""
    columns = encode_column(values)
    if columns is None:
        return None
    record = len(columns) + 1
    table = bytearray((_SEQUENCE_ID + bytes(len(columns))) * len(values))
    for place, column in enumerate(columns, 1):
        table[place::record] = column
    return _records(record, len(values)).unpack(table)


@lru_cache(maxsize=64)
def _records(size: int, count: int) -> struct.Struct:
    """Cuts bytes into `count` records. Kept, since batches are mostly of one size."""
    return struct.Struct(f"{size}s" * count)


def _property_fields(column: Sequence[Mapping[str, str]]) -> Iterator[Sequence[bytes]]:
    names = tuple(column[0])
    if all(tuple(properties) == names for properties in column):  # one application's messages: mostly so
        for name in names:
            yield from _bytes_fields(
                Prefixes(PROPERTY, _text(name)), [_text(properties[name]) for properties in column]
            )
        return
    prefixes: dict[str, Prefixes] = {}
    fields = []
    for properties in column:
        pieces: list[bytes] = []
        for name, text in properties.items():
            value = _text(text).encode()
            known = prefixes.get(name) or prefixes.setdefault(name, Prefixes(PROPERTY, _text(name)))
            pieces += (known[len(value)], value)
        fields.append(b"".join(pieces))
    yield fields


def _text(value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a property's name and value must be str, not {value!r}")
    return value
