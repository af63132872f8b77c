"""Batches of any messages, column by column.

**Encoding** makes each field of all messages before the next field's, and joins each message's fields at the end, in
the order of their numbers, as protobuf writes them.

**Decoding** lets protobuf's own parser do the work of a thousand messages in one call. The records' metadata, put one
behind the other, parse as one `Columns` message (magnetar_protos/columns.proto), whose fields are those of
SingleMessageMetadata made repeated: every field of every message lands in its column. Three things make that safe.

*Where a record ends* is known only once its payload's size is, and that stands inside its metadata. So the size is
guessed from where it stood in the first record, and every guess is held against the parsed column afterwards.

*Whose a value is*: behind each record's metadata comes a separator, a value that closes the record in every column. So
`[a, S, S, c, S]` is a for the first message, nothing for the second, c for the third. A message that happens to have a
separator's value itself makes the counts disagree; two values in one record are left to the slow path.

*Metadata that does not end where its record does*, so that what follows is taken for a part of it: a record `5a 02`, an
unknown field of two bytes, would swallow the first two of the separator behind it. Whatever swallows a part of it
swallows its first field, the sequence id, and that one nobody can put back elsewhere to make the count come out right:
its value is drawn when the process starts.

*Packed numbers*: a parser takes a repeated number in packed form too, where SingleMessageMetadata's knows only the
plain one. So the columns must come to exactly as many bytes as were parsed. A packed number by itself takes a byte more
than a plain one, none at all takes two more, and several are several values in one record. (Columns can come to more
bytes than were parsed, and make up for that, only by a negative payload size, which no payload bears out.)

Whatever does not fit makes `decode_columns` answer None: the batch is read message by message then (`_object_batch`),
which also says what is wrong with it.
"""

from __future__ import annotations

import struct
from array import array
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from secrets import randbits
from types import NoneType
from typing import Any, Final, TypeVar, overload

from google.protobuf.message import DecodeError

from magnetar_protos.columns_pb2 import Columns
from magnetar_protos.entry_pb2 import SingleMessageMetadata
from magnetar_wire._varints import MAX_INT32, MAX_UINT64, encode_column, has_gaps, uint64_array, varint
from magnetar_wire.errors import MalformedEntry
from magnetar_wire.messages import Messages

T = TypeVar("T")

_SIZE: Final = struct.Struct(">I")
_PROPERTY, _KEY, _PAYLOAD_SIZE, _COMPACTED_OUT, _EVENT_TIME = b"\x0a", b"\x12", b"\x18", b"\x20", b"\x28"
_PAIR_NAME, _PAIR_VALUE = b"\x0a", b"\x12"
_KEY_IS_BASE64, _ORDERING_KEY, _SEQUENCE_ID, _NULL_VALUE, _NULL_KEY = b"\x30", b"\x3a", b"\x40", b"\x48", b"\x50"


# -- encoding ----------------------------------------------------------------------------------------------------------


def encode_columns(messages: Messages) -> bytes:
    """The batch's payload. The columns have the right lengths: `batch` has seen to it."""
    payloads = messages.payloads
    kinds = _kinds(payloads, bytes, bytearray, NoneType)  # another buffer's length may not be its bytes'
    fields = list(_fields(messages, NoneType in kinds))
    metadata = list(map(b"".join, zip(*fields, strict=True)))
    sizes = map(_SIZE.pack, map(len, metadata))
    present: Iterable[bytes]
    present = [payload or b"" for payload in payloads] if NoneType in kinds else payloads  # type: ignore[assignment]
    return b"".join(chain.from_iterable(zip(sizes, metadata, present, strict=True)))


def _fields(messages: Messages, some_null: bool) -> Iterator[Sequence[bytes]]:
    """What the messages' metadata is made of, piece by piece: of each piece a list with one element a message."""
    if messages.properties is not None:
        yield from _property_fields(messages.properties)
    are_bytes = None
    if messages.keys is not None:
        texts, are_bytes = _key_texts(messages.keys)
        yield from _bytes_fields(_Prefixes(_KEY), texts)
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
        yield from _bytes_fields(_Prefixes(_ORDERING_KEY), messages.ordering_keys)
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
            raise OverflowError(f"its payload has {size} bytes")
        field = self[size] = _PAYLOAD_SIZE + varint(size)
        return field


class _Prefixes(dict[int, bytes]):
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


def _bytes_fields(prefixes: _Prefixes, values: Sequence[str | bytes | None]) -> Iterator[list[bytes]]:
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
            raise TypeError(f"{kind.__name__} is none of {', '.join(each.__name__ for each in allowed)}")
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
        raise OverflowError(f"{value} is not in 0 … 2^64 - 1")
    return value


def _id_fields(sequence_ids: Sequence[int | None]) -> list[bytes]:
    if has_gaps(sequence_ids):
        return [b"" if value is None else _SEQUENCE_ID + varint(_uint64(value)) for value in sequence_ids]
    values = uint64_array(sequence_ids)  # type: ignore[arg-type]  # no None among them
    columns = encode_column(values)
    if columns is None:
        return [_SEQUENCE_ID + varint(value) for value in values]
    record = len(columns) + 1
    table = bytearray((_SEQUENCE_ID + bytes(len(columns))) * len(values))
    for place, column in enumerate(columns, 1):
        table[place::record] = column
    return list(chain.from_iterable(struct.iter_unpack(f"{record}s", table)))


def _property_fields(column: Sequence[Mapping[str, str]]) -> Iterator[Sequence[bytes]]:
    names = tuple(column[0])
    if all(tuple(properties) == names for properties in column):  # one application's messages: mostly so
        for name in names:
            yield from _bytes_fields(
                _Prefixes(_PROPERTY, _text(name)), [_text(properties[name]) for properties in column]
            )
        return
    prefixes: dict[str, _Prefixes] = {}
    fields = []
    for properties in column:
        pieces: list[bytes] = []
        for name, text in properties.items():
            value = _text(text).encode()
            known = prefixes.get(name) or prefixes.setdefault(name, _Prefixes(_PROPERTY, _text(name)))
            pieces += (known[len(value)], value)
        fields.append(b"".join(pieces))
    yield fields


def _text(value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a property's name and value are text, not {value!r}")
    return value


# -- decoding ----------------------------------------------------------------------------------------------------------

# What closes a record in each column. The sequence id is drawn when the process starts: nine bytes that no peer can
# know. For the others any value would do; these are ones of which CPython has a single object each, so that a thousand
# of them are neither made nor compared byte by byte: a tenth less time in all. A message that has such a value itself
# (the key "\1") costs its batch the fast path. None has a byte that `_PACKED` looks for. The property is one that has
# neither name nor value.
_NO_ID: Final = 0x7F << 56 | randbits(56)
_NO_PROPERTY: Final = b"\x18\1"
_NO_KEY: Final = "\1"
_NO_SIZE: Final = (250, 251)  # whichever the first message has not
_NO_ORDERING_KEY: Final = b"\1"
_NO_TIME: Final = 200
_NO_FLAG: Final = 2
_RARE: Final = {
    "compacted_out": _NO_FLAG,
    "event_time": _NO_TIME,
    "partition_key_b64_encoded": _NO_FLAG,
    "ordering_key": _NO_ORDERING_KEY,
    "null_value": _NO_FLAG,
    "null_partition_key": _NO_FLAG,
}
# What packed numbers of the common columns can't do without: the tag of `payload_size` or of `sequence_id` as such, or,
# where that is written longer than it need be (9a 00, 9a 80 00 …), a byte of zero.
_PACKED: Final = (b"\x1a", b"\x42", b"\0")


@cache
def _separator(no_size: int, rare: bool) -> bytes:
    """What closes a record, in the columns that nearly every batch has or in all. The sequence id comes first."""
    common = {"sequence_id": _NO_ID, "properties": _NO_PROPERTY, "partition_key": _NO_KEY, "payload_size": no_size}
    fields: dict[str, Any] = common | _RARE if rare else common
    return b"".join(Columns(**{name: [value]}).SerializeToString() for name, value in fields.items())


class _Unfit(Exception):
    """The batch can't be read this way."""


def decode_columns(batch: bytes, count: int) -> Messages | None:
    try:
        metadata, payloads, sizes = _cut_records(batch, count)
        return _messages(metadata, payloads, sizes)
    except (_Unfit, DecodeError, IndexError, struct.error):
        return None


def _messages(metadata: list[bytes], payloads: list[bytes], sizes: list[int]) -> Messages:
    count = len(metadata)
    no_size = _NO_SIZE[sizes[0] == _NO_SIZE[0]]
    columns, rare = _parse(metadata, no_size)
    if _values(columns.payload_size, no_size, count)[0] != sizes:
        raise _Unfit
    sequence_ids, every = _values(columns.sequence_id, _NO_ID, count)
    keys, _ = _values(columns.partition_key, _NO_KEY, count)
    messages = Messages(
        payloads,
        array("Q", sequence_ids) if sequence_ids and every else sequence_ids,
        keys,
        properties=_lazy_properties(columns, count),
    )
    if rare:
        _add_rare(messages, columns, count)
    return messages


def _add_rare(messages: Messages, columns: Columns, count: int) -> None:
    times, _ = _values(columns.event_time, _NO_TIME, count)
    messages.event_times = [time or 0 for time in times] if times and any(times) else None
    messages.ordering_keys, _ = _values(columns.ordering_key, _NO_ORDERING_KEY, count)
    messages.compacted_out = _flags(columns.compacted_out, count)
    messages.null_keys = _flags(columns.null_partition_key, count)
    nulls = _flags(columns.null_value, count)
    if nulls:
        messages.payloads = [None if null else payload for null, payload in zip(nulls, messages.payloads, strict=True)]
    encoded = _flags(columns.partition_key_b64_encoded, count)
    if encoded and messages.keys is not None:
        messages.keys = [
            bytes_key(key) if is_bytes and isinstance(key, str) else key
            for is_bytes, key in zip(encoded, messages.keys, strict=True)
        ]


def bytes_key(text: str) -> bytes:
    """A key that is bytes, from its base64."""
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError) as error:
        raise MalformedEntry(f"a key is said to be base64, and is not: {error}") from None


def _parse(metadata: list[bytes], no_size: int) -> tuple[Columns, bool]:
    """The columns, and whether any but the common ones have something in them."""
    joined = _separator(no_size, False).join([*metadata, b""])
    columns = Columns.FromString(joined)
    rare = any(getattr(columns, name) for name in _RARE)
    if rare:
        joined = _separator(no_size, True).join([*metadata, b""])
        columns = Columns.FromString(joined)
    # Looking for three bytes that few batches have takes 5 µs, counting 50.
    if (rare or any(byte in joined for byte in _PACKED)) and columns.ByteSize() != len(joined):
        raise _Unfit
    return columns, rare


def _values(column: Sequence[T], separator: T, count: int) -> tuple[list[Any] | None, bool]:
    """Each message's value, None where it has none, and whether every message has one; None for the whole column where
    no message has any."""
    total = len(column)
    if total == 2 * count:  # what nearly all columns come to
        values = column[::2]
        if column[1::2] == [separator] * count and separator not in values:
            return values, True  # type: ignore[return-value]  # slices of a repeated field are lists
    tokens = list(column)
    if tokens.count(separator) != count or tokens[-1] != separator:
        raise _Unfit
    if total == count:
        return None, False
    return _sparse_values(tokens, separator), False


def _sparse_values(tokens: list[T], separator: T) -> list[T | None]:
    values: list[T | None] = []
    value: T | None = None
    for token in tokens:
        if token == separator:
            values.append(value)
            value = None
        elif value is None:
            value = token
        else:
            raise _Unfit
    return values


def _flags(column: Sequence[int], count: int) -> list[bool] | None:
    values, _ = _values(column, _NO_FLAG, count)
    return [bool(value) for value in values] if values and any(values) else None


class _LazyProperties(Sequence[Mapping[str, str]]):
    """A batch's properties: pairs as they came, parsed when somebody looks."""

    def __init__(self, pairs: Sequence[bytes], count: int) -> None:
        self._pairs = pairs
        self._count = count
        self._parsed: list[Mapping[str, str]] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Mapping[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, str]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, str] | Sequence[Mapping[str, str]]:
        pairs = self._pairs  # taken first: another thread may be about to parse them and let them go
        if self._parsed is None:
            self._parsed = _parse_properties(pairs, self._count)
            self._pairs = ()
        return self._parsed[index]


def _parse_properties(pairs: Sequence[bytes], count: int) -> list[Mapping[str, str]]:
    """Each message's properties. All are parsed in one call, as if they were one message's."""
    pairs = list(pairs)
    prefixes = _Prefixes(_PROPERTY)
    try:
        head = SingleMessageMetadata.FromString(b"".join(chain.from_iterable((prefixes[len(p)], p) for p in pairs)))
    except DecodeError as error:
        raise MalformedEntry(f"a property can't be read: {error}") from None
    parsed: list[Mapping[str, str]] = []
    properties: dict[str, str] = {}
    for pair, fields in zip(pairs, head.properties, strict=True):
        if pair == _NO_PROPERTY:
            parsed.append(properties)
            properties = {}
        elif fields.IsInitialized():
            properties[fields.key] = fields.value
        else:
            raise MalformedEntry("a property lacks its name or its value")
    if len(parsed) != count:  # a pair was the separator itself
        raise MalformedEntry("a property lacks its name or its value")
    return parsed


def _lazy_properties(columns: Columns, count: int) -> Sequence[Mapping[str, str]] | None:
    pairs = columns.properties
    return None if len(pairs) == count else _LazyProperties(pairs, count)


def _cut_records(batch: bytes, count: int) -> tuple[list[bytes], list[bytes], list[int]]:
    """Each record's metadata, its payload, and the payload's size by which they were cut: a guess."""
    if not 0 < count <= len(batch) // 6:  # a record has at least a size and a payload size
        raise _Unfit
    (first_bytes,) = _SIZE.unpack_from(batch)
    first = batch[4 : 4 + first_bytes]
    size = SingleMessageMetadata.FromString(first).payload_size
    if not 0 <= size < len(batch):
        raise _Unfit
    size_field = _PAYLOAD_SIZE + varint(size)
    after = len(first) - first.rfind(size_field) - len(size_field)
    cut = _cut_equal(batch, count, size) or _cut_by_tail(batch, after)
    if len(cut[0]) != count:
        raise _Unfit
    return cut


def _cut_equal(batch: bytes, count: int, size: int) -> tuple[list[bytes], list[bytes], list[int]] | None:
    """The records, if all payloads have `size` bytes. A payload and the next record's size are cut out together: one
    call where slicing and converting are three."""
    metadata: list[bytes] = []
    payloads: list[bytes] = []
    add_metadata, add_payload = metadata.append, payloads.append
    cut = struct.Struct(f">{size}sI").unpack_from
    at, last, step = 4, len(batch) - size, size + 4
    (metadata_bytes,) = _SIZE.unpack_from(batch)
    try:
        for _ in range(count - 1):
            end = at + metadata_bytes
            add_metadata(batch[at:end])
            payload, metadata_bytes = cut(batch, end)
            add_payload(payload)
            at = end + step
    except struct.error:  # behind the end: a payload had another size
        return None
    if at + metadata_bytes != last:
        return None
    add_metadata(batch[at:last])
    add_payload(batch[last:])
    return metadata, payloads, [size] * count


def _cut_by_tail(batch: bytes, after: int) -> tuple[list[bytes], list[bytes], list[int]]:
    """The records, if every payload size has as many bytes behind it as in the first record."""
    metadata: list[bytes] = []
    payloads: list[bytes] = []
    sizes: list[int] = []
    at, total = 0, len(batch)
    while at < total:
        start = at + 4
        end = start + _SIZE.unpack_from(batch, at)[0]
        head = batch[start:end]
        size = _size_before(head, len(head) - after)
        at = end + size
        metadata.append(head)
        payloads.append(batch[end:at])
        sizes.append(size)
    if at != total:
        raise _Unfit
    return metadata, payloads, sizes


def _size_before(head: bytes, end: int) -> int:
    """The payload size whose field ends at `end`, if it has one to three bytes."""
    if head[end - 2] == _PAYLOAD_SIZE[0]:
        return head[end - 1]
    if head[end - 3] == _PAYLOAD_SIZE[0]:
        return head[end - 2] & 0x7F | head[end - 1] << 7
    if head[end - 4] == _PAYLOAD_SIZE[0]:
        return head[end - 3] & 0x7F | (head[end - 2] & 0x7F) << 7 | head[end - 1] << 14
    raise _Unfit
