"""Encode JSON values by a schema, for `produce --schema`.

The schema's definition decides how JSON is read (`json_values.py`). If it came from a Python class, each payload is
decoded by the class as well, so that its own checks apply.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import typer

from magnetar import schema as schemas
from magnetar.exceptions import DecodeError, EncodeError
from magnetar.schema import KeyValue, Schema, SchemaInfo, SchemaType
from magnetar_cli.messages.json_values import PRIMITIVE_READERS, JsonReader, make_json_reader
from magnetar_cli.messages.message_input import InvalidValue
from magnetar_cli.schema_sources import load_schema
from magnetar_cli.service import OPERATION_TIMEOUT_S
from magnetar_wire.schemas import InvalidSchema, split_key_value

__all__ = ["ValueEncoder", "find_encoder", "make_encoder"]

# The name of the topic's own schema.
_OF_TOPIC: Final = "topic"
_PRIMITIVES: Final[Mapping[str, Callable[[], Schema[Any]]]] = {
    "STRING": schemas.StringSchema,
    "BOOLEAN": schemas.BooleanSchema,
    "INT8": schemas.Int8Schema,
    "INT16": schemas.Int16Schema,
    "INT32": schemas.Int32Schema,
    "INT64": schemas.Int64Schema,
    "FLOAT": schemas.FloatSchema,
    "DOUBLE": schemas.DoubleSchema,
    "DATE": schemas.DateSchema,
    "TIMESTAMP": schemas.TimestampSchema,
    "INSTANT": schemas.InstantSchema,
    "TIME": schemas.TimeSchema,
    "LOCAL_TIME": schemas.LocalTimeSchema,
    "LOCAL_DATE": schemas.LocalDateSchema,
    "LOCAL_DATE_TIME": schemas.LocalDateTimeSchema,
    "BYTES": schemas.BytesSchema,
}


class _PayloadSchema(Schema[bytes]):
    """The schema of a producer whose payloads are encoded already."""

    def __init__(self, info: SchemaInfo) -> None:
        self._info = info

    def schema_info(self) -> SchemaInfo:
        return self._info

    def encode(self, obj: bytes) -> bytes:
        return obj


class ValueEncoder:
    def __init__(
        self, info: SchemaInfo, schema: Schema[Any], read: JsonReader, check: Callable[[bytes], object] | None = None
    ) -> None:
        """`check` gets each payload. It raises DecodeError for one that is to be refused."""
        # The schema of the producer that sends the payloads.
        self.schema: Schema[bytes] = _PayloadSchema(info)
        self._schema = schema
        self._read = read
        self._check = check
        # Lines that are not JSON are values, too.
        self.takes_text = info.type is SchemaType.STRING
        # The value has the message's key.
        self.sets_key = info.type is SchemaType.KEY_VALUE and info.properties.get("kv.encoding.type") == "SEPARATED"

    def encode(self, value: Any) -> tuple[bytes | None, bytes | None]:
        """Return the key that the value has, if any, and the payload; None: it has none. Raises InvalidValue."""
        try:
            key, payload = self._schema.encode_with_key(self._read(value))
            if self._check is not None and payload is not None:
                self._check(payload)
        except (EncodeError, DecodeError, TypeError, ValueError) as error:
            raise InvalidValue(str(error)) from None
        except RecursionError:
            raise InvalidValue("the value is too deep") from None
        return key, payload


def find_encoder(url: str, topic: str, source: str, type_name: str) -> ValueEncoder:
    """Return the encoder of the topic's schema, of a file or of a Python class. Raises `typer.BadParameter`."""
    if source == _OF_TOPIC:
        if type_name:
            raise typer.BadParameter("leave it out: the topic's schema has a type", param_hint="--schema-type")
        from magnetar.admin import Admin

        with Admin(url, OPERATION_TIMEOUT_S) as admin:
            return make_encoder(admin.schemas.get(topic).schema)
    try:
        return make_encoder(load_schema(source, type_name))
    except typer.BadParameter as error:
        error.param_hint = "--schema" if source else "--schema-type"
        raise


def make_encoder(schema: SchemaInfo | Schema[Any]) -> ValueEncoder:
    """Raises `typer.BadParameter` for a schema that encodes no JSON."""
    info = schema.schema_info() if isinstance(schema, Schema) else schema
    try:
        encoding, read = _make_schema(info)
    except (DecodeError, InvalidSchema, ValueError, KeyError, TypeError) as error:
        raise typer.BadParameter(f"not a schema of the type {info.type.name.lower()}: {error}") from None
    return ValueEncoder(info, encoding, read, schema.decode if isinstance(schema, Schema) else None)


def _make_schema(info: SchemaInfo) -> tuple[Schema[Any], JsonReader]:
    """Return a schema with the same payloads, and how the values that it encodes are read from JSON."""
    name = info.type.name
    if name in _PRIMITIVES:
        return _PRIMITIVES[name](), PRIMITIVE_READERS[name]
    if info.type in (SchemaType.AVRO, SchemaType.JSON):
        kind = schemas.AvroSchema if info.type is SchemaType.AVRO else schemas.JsonSchema
        definition = json.loads(info.definition)
        return kind(None, definition), make_json_reader(definition)
    if info.type is SchemaType.KEY_VALUE:
        return _make_key_value_schema(info)
    if info.type is SchemaType.PROTOBUF_NATIVE:
        return _make_protobuf_schema(info)
    raise typer.BadParameter(f"values of a schema of the type {name.lower()} can't be encoded from JSON")


def _make_key_value_schema(info: SchemaInfo) -> tuple[Schema[Any], JsonReader]:
    key, value = split_key_value(info.definition)
    key_schema, read_key = _make_schema(_get_part(info, "key", key))
    value_schema, read_value = _make_schema(_get_part(info, "value", value))
    encoding = schemas.KeyValueEncodingType[info.properties.get("kv.encoding.type", "INLINE")]

    def read(pair: Any) -> KeyValue:
        if not isinstance(pair, dict) or not pair.keys() <= {"key", "value"}:
            raise InvalidValue(f"{pair!r:.100} is not an object with the fields key and value")
        found: dict[str, Any] = {}
        for name, read_part in (("key", read_key), ("value", read_value)):
            try:
                found[name] = None if pair.get(name) is None else read_part(pair[name])
            except InvalidValue as error:
                error.add_field(f".{name}")
                raise
        return KeyValue(found["key"], found["value"])

    return schemas.KeyValueSchema(key_schema, value_schema, encoding), read


def _get_part(info: SchemaInfo, part: str, definition: bytes | None) -> SchemaInfo:
    properties = info.properties
    return SchemaInfo(
        SchemaType[properties[f"{part}.schema.type"]], properties.get(f"{part}.schema.name", ""), definition or b""
    )


def _make_protobuf_schema(info: SchemaInfo) -> tuple[Schema[Any], JsonReader]:
    from google.protobuf.json_format import ParseDict, ParseError

    # The class of the messages is made of the definition. An empty payload is one of them.
    (empty,) = schemas.AutoConsumeSchema().make_decoder(info)([b""], None)
    if isinstance(empty, DecodeError):
        raise empty

    def read(value: Any) -> Any:
        try:
            return ParseDict(value, type(empty)())
        except ParseError as error:
            raise InvalidValue(str(error)) from None

    return schemas.ProtobufNativeSchema(type(empty)), read
