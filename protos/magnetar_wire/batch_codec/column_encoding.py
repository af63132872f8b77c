"""The encoder of batches, column by column.

It encodes one field of all messages before the next field. At the end each message's fields are joined in the order of
their numbers, as protobuf writes them.
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

from magnetar_wire.batch_codec.metadata_limits import check_batch_metadata, check_record_metadata
from magnetar_wire.limits import MAX_RECORD_METADATA_BYTES
from magnetar_wire.messages import Messages
from magnetar_wire.varints import MAX_INT32, MAX_UINT64, encode_column, has_gaps, uint64_array, varint, varint_bytes

_SIZE: Final = struct.Struct(">I")
# The tags of SingleMessageMetadata's fields, and of a property's two fields.
PROPERTY, _KEY, _PAYLOAD_SIZE, _COMPACTED_OUT, _EVENT_TIME = b"\x0a", b"\x12", b"\x18", b"\x20", b"\x28"
_PAIR_NAME, _PAIR_VALUE = b"\x0a", b"\x12"
_KEY_IS_BASE64, _ORDERING_KEY, _SEQUENCE_ID, _NULL_VALUE, _NULL_KEY = b"\x30", b"\x3a", b"\x40", b"\x48", b"\x50"


def encode_columns(messages: Messages) -> bytes:
    """Encode a batch's payload. `batch.py` has checked that the columns have equal lengths."""
    payloads: Sequence[Any] = messages.payloads
    kinds = set(map(type, payloads))
    if not kinds <= {bytes, bytearray, NoneType}:
        payloads = [payload_bytes(payload) for payload in payloads]
    fields = list(_encode_fields(messages, NoneType in kinds))
    # No message's metadata is joined by itself. Only its size is needed.
    metadata_bytes: Sequence[int] = list(map(len, fields[0]))
    for field in fields[1:]:
        metadata_bytes = list(map(add, metadata_bytes, map(len, field)))
    metadata_total = sum(metadata_bytes) + _SIZE.size * len(metadata_bytes)
    check_batch_metadata(metadata_total)
    if metadata_total > MAX_RECORD_METADATA_BYTES:  # otherwise none of them can be
        check_record_metadata(max(metadata_bytes))
    sizes = map(_SIZE.pack, metadata_bytes)
    present: Iterable[bytes]
    present = [payload or b"" for payload in payloads] if NoneType in kinds else payloads
    return b"".join(chain.from_iterable(zip(sizes, *fields, present, strict=True)))


def payload_bytes(payload: object) -> bytes | bytearray | None:
    """Return the payload, copied if it is another buffer. Raises TypeError if it is not a buffer of single bytes."""
    if payload is None or isinstance(payload, (bytes, bytearray)):
        return payload
    view = memoryview(payload)  # type: ignore[arg-type]  # it raises an error for other objects
    if not view.c_contiguous or view.nbytes != len(view):
        raise TypeError("a payload must be bytes, or a contiguous buffer of single bytes")
    return view.tobytes()


def _encode_fields(messages: Messages, some_null: bool) -> Iterator[Sequence[bytes]]:
    """Encode the messages' metadata, field by field. Each part of a field is a list with one element per message."""
    if messages.properties is not None:
        yield from _encode_properties(messages.properties)
    are_bytes = None
    if messages.keys is not None:
        texts, are_bytes = _key_texts(messages.keys)
        yield from _encode_bytes_fields(Prefixes(_KEY), texts)
    size_fields = _SizeFields()
    yield [size_fields[0 if payload is None else len(payload)] for payload in messages.payloads]
    if messages.compacted_out is not None:
        yield _encode_flags(_COMPACTED_OUT, messages.compacted_out)
    if messages.event_times is not None:
        yield [_EVENT_TIME + varint(_uint64(time)) if time else b"" for time in messages.event_times]
    if are_bytes is not None:
        yield _encode_flags(_KEY_IS_BASE64, are_bytes)
    if messages.ordering_keys is not None:
        _check_types(messages.ordering_keys, bytes, NoneType)
        yield from _encode_bytes_fields(Prefixes(_ORDERING_KEY), messages.ordering_keys)
    if messages.sequence_ids is not None:
        yield _encode_ids(messages.sequence_ids)
    if some_null:
        yield _encode_flags(_NULL_VALUE, [payload is None for payload in messages.payloads])
    if messages.null_keys is not None:
        yield _encode_flags(_NULL_KEY, messages.null_keys)


class _SizeFields(dict[int, bytes]):
    """The encoded field `payload_size` for each size, computed once."""

    def __missing__(self, size: int) -> bytes:
        if size > MAX_INT32:
            raise OverflowError(f"its payload has {size} bytes, above the limit of {MAX_INT32}")
        field = self[size] = _PAYLOAD_SIZE + varint(size)
        return field


class Prefixes(dict[int, bytes]):
    """The bytes in front of one field's value, for each size of the value, computed once: most sizes occur again."""

    def __init__(self, tag: bytes, name: str | None = None) -> None:
        super().__init__()
        self._tag = tag
        # For a property: the field of its name, which precedes the field of its value. Both are inside the property's
        # field.
        self._name = None if name is None else _encode_bytes_field(_PAIR_NAME, name.encode())

    def __missing__(self, size: int) -> bytes:
        if self._name is None:
            prefix = self._tag + varint(size)
        else:
            inner = self._name + _PAIR_VALUE + varint(size)
            prefix = self._tag + varint(len(inner) + size) + inner
        self[size] = prefix
        return prefix


def _encode_bytes_field(tag: bytes, data: bytes) -> bytes:
    return tag + varint(len(data)) + data


def _encode_bytes_fields(prefixes: Prefixes, values: Sequence[str | bytes | None]) -> Iterator[list[bytes]]:
    """Encode a field of text or bytes: the prefixes, and the values."""
    if None in values:
        present = [None if value is None else value.encode() if isinstance(value, str) else value for value in values]
        yield [b"" if value is None else prefixes[len(value)] for value in present]
        yield [value or b"" for value in present]
    else:
        encoded = _encode_texts(values)  # type: ignore[arg-type]  # no None among them
        yield [prefixes[size] for size in map(len, encoded)]
        yield encoded


def _encode_texts(values: Sequence[str | bytes]) -> list[bytes]:
    """Encode all values, in one call if all of them are text."""
    if set(map(type, values)) != {str}:
        return [value.encode() if isinstance(value, str) else value for value in values]
    joined = "\0".join(values)  # type: ignore[arg-type]
    encoded = joined.encode().split(b"\0")
    return encoded if len(encoded) == len(values) else [value.encode() for value in values]  # type: ignore[union-attr]


def _check_types(values: Sequence[object], *allowed: type) -> set[type]:
    """Return the types of all values. Raises TypeError if one is not allowed."""
    kinds = set(map(type, values))
    for kind in kinds:
        if not issubclass(kind, allowed):
            raise TypeError(
                f"{kind.__name__} is not a valid type: use {' or '.join(each.__name__ for each in allowed)}"
            )
    return kinds


def _key_texts(keys: Sequence[str | bytes | None]) -> tuple[Sequence[str | None], list[bool] | None]:
    """Return the keys as text, and whether each of them is bytes; None if none is."""
    if _check_types(keys, str, bytes, NoneType) <= {str, NoneType}:
        return keys, None  # type: ignore[return-value]
    texts = [b64encode(key).decode("ascii") if isinstance(key, bytes) else key for key in keys]
    return texts, [isinstance(key, bytes) for key in keys]


def _encode_flags(tag: bytes, flags: Sequence[bool]) -> list[bytes]:
    raised = tag + b"\x01"
    return [raised if flag else b"" for flag in flags]


def _uint64(value: int) -> int:
    if not 0 <= value <= MAX_UINT64:
        raise OverflowError(f"{value} is out of range: use 0 … 2^64 - 1")
    return value


def _encode_ids(sequence_ids: Sequence[int | None]) -> Sequence[bytes]:
    if has_gaps(sequence_ids):
        return [b"" if value is None else _SEQUENCE_ID + varint(_uint64(value)) for value in sequence_ids]
    values = uint64_array(sequence_ids)  # type: ignore[arg-type]  # no None among them
    whole = _encode_ids_of_one_length(values)
    if whole is not None:
        return whole
    # A producer's ids grow, so they are split where they become longer. Other ids may still have several lengths in a
    # part.
    fields: list[bytes] = []
    begin = 0
    for length in range(1, varint_bytes(MAX_UINT64) + 1):
        end = bisect_left(values, 1 << 7 * length, begin)
        if part := values[begin:end]:
            fields += _encode_ids_of_one_length(part) or [_SEQUENCE_ID + varint(value) for value in part]
        begin = end
    return fields


def _encode_ids_of_one_length(values: array[int]) -> Sequence[bytes] | None:
    """Encode the ids. Return None if the varints have different lengths, or are too long for columns."""
    columns = encode_column(values)
    if columns is None:
        return None
    record = len(columns) + 1
    table = bytearray((_SEQUENCE_ID + bytes(len(columns))) * len(values))
    for index, column in enumerate(columns, 1):
        table[index::record] = column
    return _records(record, len(values)).unpack(table)


@lru_cache(maxsize=64)
def _records(size: int, count: int) -> struct.Struct:
    """Return a format that splits bytes into `count` records. It is cached, since most batches have the same size."""
    return struct.Struct(f"{size}s" * count)


def _encode_properties(column: Sequence[Mapping[str, str]]) -> Iterator[Sequence[bytes]]:
    names = tuple(column[0])
    if all(tuple(properties) == names for properties in column):  # mostly so for the messages of one application
        for name in names:
            yield from _encode_bytes_fields(
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
