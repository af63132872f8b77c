"""KEY_VALUE: a key and a value, each with a schema of its own.

INLINE: both are in the payload, each behind its size (-1: it is None). SEPARATED: the key is the message's key, and the
value is the payload; then a value that is None is a message without a value, as table views and compaction expect it
for a deleted key.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Generic

from pydantic_core import from_json, to_json
from typing_extensions import TypeVar

from magnetar.exceptions import DecodeError
from magnetar.schema._decoding import check_writer, choose_decoder
from magnetar.schema._schema import Decoder, Schema, SchemaInfo, SchemaType, check_class
from magnetar.schema._schema_argument import to_schema
from magnetar_wire.schemas import InvalidSchema, join_key_value, split_key_value

__all__ = ["KeyValue", "KeyValueEncodingType", "KeyValueSchema", "decode_present", "make_key_value_decoder"]

K = TypeVar("K", default=Any)
V = TypeVar("V", default=Any)

_SIZE: Final = struct.Struct(">i")
_ENCODING: Final = "kv.encoding.type"


class KeyValueEncodingType(enum.Enum):
    """Where the key of a KEY_VALUE message is stored."""

    INLINE = 0
    SEPARATED = 1


@dataclass(frozen=True)
class KeyValue(Generic[K, V]):
    """A value of a KEY_VALUE schema."""

    key: K | None = None
    value: V | None = None


class KeyValueSchema(Schema[KeyValue[K, V]]):
    """Pairs of a key and a value. Each schema is a Schema, or a class as for a producer."""

    needs_writer: ClassVar[bool] = True
    decodes_alone: ClassVar[bool] = False
    uses_key = True

    def __init__(
        self,
        key_schema: type[K] | Schema[K],
        value_schema: type[V] | Schema[V],
        encoding: KeyValueEncodingType = KeyValueEncodingType.INLINE,
    ) -> None:
        self._key: Schema[Any] = _to_part_schema(key_schema, "key")
        self._value: Schema[Any] = _to_part_schema(value_schema, "value")
        self._encoding = KeyValueEncodingType(encoding)
        self.sets_key = self._encoding is KeyValueEncodingType.SEPARATED

    def schema_info(self) -> SchemaInfo:
        key, value = self._key.schema_info(), self._value.schema_info()
        return SchemaInfo(
            SchemaType.KEY_VALUE,
            "KeyValue",
            join_key_value(key.definition, value.definition),
            {
                **_part_properties("key", key),
                **_part_properties("value", value),
                _ENCODING: self._encoding.name,
            },
        )

    def encode(self, obj: KeyValue[K, V]) -> bytes:
        """Return the payload. It has the key only if that is INLINE."""
        return self.encode_with_key(obj)[1] or b""

    def encode_with_key(self, obj: KeyValue[K, V]) -> tuple[bytes | None, bytes | None]:
        check_class(obj, KeyValue)
        key = None if obj.key is None else self._key.encode(obj.key)
        value = None if obj.value is None else self._value.encode(obj.value)
        if self._encoding is KeyValueEncodingType.SEPARATED:
            return key, value
        return None, _sized(key) + _sized(value)

    def make_decoder(self, writer: SchemaInfo | None) -> Decoder[KeyValue[K, V]]:
        return make_key_value_decoder(
            writer, self._encoding, partial(choose_decoder, self._key), partial(choose_decoder, self._value)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._key, self._value, self._encoding)

    def __repr__(self) -> str:
        return f"KeyValueSchema({self._key!r}, {self._value!r}, {self._encoding.name})"

    def _identity(self) -> tuple[Any, ...]:
        return (type(self), self._key, self._value, self._encoding)


def _to_part_schema(value: Any, part: str) -> Schema[Any]:
    try:
        schema = to_schema(value)
    except ValueError as error:
        raise TypeError(f"{value!r:.100} can't be the schema of a {part}: {error}") from None
    if isinstance(schema, KeyValueSchema):
        raise TypeError(f"{value!r:.100} can't be the schema of a {part}: a pair can't be in a pair")
    return schema


def make_key_value_decoder(
    writer: SchemaInfo | None,
    encoding: KeyValueEncodingType,
    make_key_decoder: Callable[[SchemaInfo | None], Decoder[Any]],
    make_value_decoder: Callable[[SchemaInfo | None], Decoder[Any]],
) -> Decoder[Any]:
    """Return the decoder of pairs. `encoding`: if the writer is not known. Raises DecodeError."""
    key_writer = value_writer = None
    if writer is not None:
        check_writer(writer, SchemaType.KEY_VALUE)
        encoding = _encoding_of(writer)
        key_writer, value_writer = _parts_of(writer)
    decode_keys, decode_values = make_key_decoder(key_writer), make_value_decoder(value_writer)
    split = _split_separated if encoding is KeyValueEncodingType.SEPARATED else _split_inline

    def decode(payloads: Sequence[bytes], keys: Sequence[bytes | None] | None) -> list[Any]:
        parts = [split(payload, key) for payload, key in zip(payloads, keys or [None] * len(payloads), strict=True)]
        found_keys = decode_present(decode_keys, [key for key, _ in parts])
        found_values = decode_present(decode_values, [value for _, value in parts])
        pairs = [_pair(key, value) for key, value in zip(found_keys, found_values, strict=True)]
        if encoding is KeyValueEncodingType.SEPARATED:
            return pairs
        return [None if payload is None else pair for payload, pair in zip(payloads, pairs, strict=True)]

    return decode


# The key and the value of a payload, or an error and None.
_Parts = tuple[bytes | DecodeError | None, bytes | None]


def _split_separated(payload: bytes | None, key: bytes | None) -> _Parts:
    return key, payload


def _split_inline(payload: bytes | None, key: bytes | None) -> _Parts:
    if payload is None:
        return None, None
    try:
        return split_key_value(payload)
    except InvalidSchema as error:
        return DecodeError(str(error)), None


def decode_present(decode: Decoder[Any], parts: Sequence[bytes | DecodeError | None]) -> list[Any]:
    """Decode those parts that are bytes."""
    values = iter(decode([part for part in parts if isinstance(part, bytes)], None))
    return [next(values) if isinstance(part, bytes) else part for part in parts]


def _pair(key: Any, value: Any) -> Any:
    if isinstance(key, DecodeError):
        return key
    return value if isinstance(value, DecodeError) else KeyValue(key, value)


def _sized(part: bytes | None) -> bytes:
    return _SIZE.pack(-1) if part is None else _SIZE.pack(len(part)) + part


def _part_properties(part: str, info: SchemaInfo) -> dict[str, str]:
    return {
        f"{part}.schema.name": info.name,
        f"{part}.schema.type": info.type.name,
        f"{part}.schema.properties": to_json(dict(info.properties)).decode(),
    }


def _encoding_of(writer: SchemaInfo) -> KeyValueEncodingType:
    name = writer.properties.get(_ENCODING, KeyValueEncodingType.INLINE.name)
    try:
        return KeyValueEncodingType[name]
    except KeyError:
        raise DecodeError(f"a KEY_VALUE schema has the encoding {name!r:.100}, not INLINE or SEPARATED") from None


def _parts_of(writer: SchemaInfo) -> tuple[SchemaInfo, SchemaInfo]:
    try:
        key, value = split_key_value(writer.definition)
    except InvalidSchema as error:
        raise DecodeError(str(error)) from error
    return _part_of("key", key, writer.properties), _part_of("value", value, writer.properties)


def _part_of(part: str, definition: bytes | None, properties: Mapping[str, str]) -> SchemaInfo:
    type_name = properties.get(f"{part}.schema.type", "")
    if type_name not in SchemaType.__members__ or type_name == SchemaType.KEY_VALUE.name:
        raise DecodeError(f"the {part} of a KEY_VALUE schema has the type {type_name!r:.100}")
    try:
        part_properties = from_json(properties.get(f"{part}.schema.properties") or "{}")
        texts = {str(name): str(text) for name, text in part_properties.items()}
    except (AttributeError, ValueError) as error:
        raise DecodeError(f"the properties of the {part} of a KEY_VALUE schema are no JSON object") from error
    return SchemaInfo(SchemaType[type_name], properties.get(f"{part}.schema.name", ""), definition or b"", texts)
