"""The decoder of batches, column by column.

One call of protobuf's parser decodes a thousand messages. The records' metadata, concatenated, parse as one `Columns`
message (magnetar_protos/columns.proto), whose fields are those of SingleMessageMetadata, repeated: every field of every
message gets into its column. Four things make this safe.

*The end of a record* is guessed (`record_cutting.py`), and every guess is compared with the parsed sizes afterwards.

*The owner of a value*: a separator follows each record's metadata, a value that ends the record in every column. So
`[a, S, S, c, S]` is a for the first message, nothing for the second, c for the third. If a message happens to contain a
separator's value, the counts disagree. A batch with two values in one record is left to the slow path.

*Metadata that does not end where its record does*, so that the following bytes are parsed as a part of it: a record `5a
02`, an unknown field of two bytes, would consume the first two bytes of the separator behind it. Every record that
consumes a part of the separator consumes its first field, the sequence id. Nobody can add that elsewhere to make the
count right: its value is chosen at random when the process starts.

*Packed numbers*: a parser accepts a repeated number in packed form, too, while SingleMessageMetadata's parser accepts
the plain form only. So the columns must have exactly as many bytes as were parsed. A single packed number takes a byte
more than a plain one, an empty packed field takes two more, and several numbers are several values in one record.
(Columns can have more bytes than were parsed, and so hide a packed number, only with a negative payload size, which no
payload matches.)

`decode_columns` returns None for everything else. Then the batch is decoded message by message (`message_decoding.py`),
which also finds the error in a malformed batch.
"""

from __future__ import annotations

import struct
from array import array
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from secrets import randbits
from typing import Any, Final, TypeVar, overload

from google.protobuf.message import DecodeError

from magnetar_protos.columns_pb2 import Columns
from magnetar_protos.entry_pb2 import SingleMessageMetadata
from magnetar_wire.batch_codec.column_encoding import PROPERTY, Prefixes
from magnetar_wire.batch_codec.record_cutting import Unfit, cut_records
from magnetar_wire.errors import MalformedEntry
from magnetar_wire.messages import Messages

T = TypeVar("T")

# The separators. The sequence id is chosen when the process starts: nine bytes that no peer can know. For the other
# columns any value would do. These are values of which CPython has a single object each, so that a thousand of them are
# neither created nor compared byte by byte, which saves a tenth of the time. A message that contains such a value (the
# key "\1") costs its batch the fast path. None of them has a byte that `_PACKED` looks for. The property has neither a
# name nor a value.
_NO_ID: Final = 0x7F << 56 | randbits(56)
NO_PROPERTY: Final = b"\x18\1"
NO_KEY: Final = "\1"
NO_SIZE: Final = (250, 251)  # the one that the first message doesn't have
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
# Bytes of which every packed number of the common columns contains one: the tag of `payload_size` or of `sequence_id`,
# or, if the tag is written with more bytes than needed (9a 00, 9a 80 00 …), a zero byte.
_PACKED: Final = (b"\x1a", b"\x42", b"\0")


@cache
def separator(no_size: int, rare: bool) -> bytes:
    """Return the bytes that end a record, in all columns or in the common ones. The sequence id comes first."""
    common = {"sequence_id": _NO_ID, "properties": NO_PROPERTY, "partition_key": NO_KEY, "payload_size": no_size}
    fields: dict[str, Any] = common | _RARE if rare else common
    return b"".join(Columns(**{name: [value]}).SerializeToString() for name, value in fields.items())


def decode_columns(batch: bytes, count: int) -> Messages | None:
    """Decode a batch, or return None if this path does not support it."""
    try:
        metadata, payloads, sizes = cut_records(batch, count)
        return _messages(metadata, payloads, sizes)
    except (Unfit, DecodeError, IndexError, struct.error):
        return None


def _messages(metadata: list[bytes], payloads: list[bytes], sizes: list[int]) -> Messages:
    count = len(metadata)
    no_size = NO_SIZE[sizes[0] == NO_SIZE[0]]
    columns, rare = _parse(metadata, no_size)
    if _values(columns.payload_size, no_size, count)[0] != sizes:
        raise Unfit
    sequence_ids, every = _values(columns.sequence_id, _NO_ID, count)
    keys, _ = _values(columns.partition_key, NO_KEY, count)
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
    """Decode a key of bytes from its base64."""
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError) as error:
        raise MalformedEntry(f"a message's key is marked as base64, and is not: {error}") from None


def _parse(metadata: list[bytes], no_size: int) -> tuple[Columns, bool]:
    """Parse the columns, and return whether any of the rare ones has a value."""
    joined = separator(no_size, False).join([*metadata, b""])
    columns = Columns.FromString(joined)
    rare = any(getattr(columns, name) for name in _RARE)
    if rare:
        joined = separator(no_size, True).join([*metadata, b""])
        columns = Columns.FromString(joined)
    # Searching for three bytes that few batches contain takes 5 µs, computing the size 50.
    if (rare or any(byte in joined for byte in _PACKED)) and columns.ByteSize() != len(joined):
        raise Unfit
    return columns, rare


def _values(column: Sequence[T], separator: T, count: int) -> tuple[list[Any] | None, bool]:
    """Return each message's value, None if it has none, and whether every message has one. The whole result is None if
    no message has a value.
    """
    total = len(column)
    if total == 2 * count:  # the case of nearly all columns
        values = column[::2]
        if column[1::2] == [separator] * count and separator not in values:
            return values, True  # type: ignore[return-value]  # slices of a repeated field are lists
    tokens = list(column)
    if tokens.count(separator) != count or tokens[-1] != separator:
        raise Unfit
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
            raise Unfit
    return values


def _flags(column: Sequence[int], count: int) -> list[bool] | None:
    values, _ = _values(column, _NO_FLAG, count)
    return [bool(value) for value in values] if values and any(values) else None


class _LazyProperties(Sequence[Mapping[str, str]]):
    """A batch's properties, which are parsed at the first access.

    All are parsed in one call, so if one message's properties are malformed, all accesses fail. The slow path refuses
    such a batch when it is decoded. A copy, and a pickle, is the parsed list.
    """

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
        pairs = self._pairs  # read first: another thread may be about to parse and release them
        if self._parsed is None:
            self._parsed = _parse_properties(pairs, self._count)
            self._pairs = ()
        return self._parsed[index]

    def __reduce__(self) -> tuple[type[list[Mapping[str, str]]], tuple[list[Mapping[str, str]]]]:
        return list, (list(self),)


def _parse_properties(pairs: Sequence[bytes], count: int) -> list[Mapping[str, str]]:
    """Parse each message's properties, all in one call, as if they were one message's."""
    pairs = list(pairs)
    prefixes = Prefixes(PROPERTY)
    try:
        head = SingleMessageMetadata.FromString(b"".join(chain.from_iterable((prefixes[len(p)], p) for p in pairs)))
    except DecodeError as error:
        raise MalformedEntry(f"the batch is malformed: a property can't be decoded: {error}") from None
    parsed: list[Mapping[str, str]] = []
    properties: dict[str, str] = {}
    for pair, fields in zip(pairs, head.properties, strict=True):
        if pair == NO_PROPERTY:
            parsed.append(properties)
            properties = {}
        elif fields.IsInitialized():
            properties[fields.key] = fields.value
        else:
            raise MalformedEntry("the batch is malformed: a property lacks its name or its value")
    if len(parsed) != count:  # a property was equal to the separator
        raise MalformedEntry("the batch is malformed: a property lacks its name or its value")
    return parsed


def _lazy_properties(columns: Columns, count: int) -> Sequence[Mapping[str, str]] | None:
    pairs = columns.properties
    return None if len(pairs) == count else _LazyProperties(pairs, count)
