"""Schemas of the topic: consumers that read every type, and producers of encoded payloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from magnetar.exceptions import DecodeError, EncodeError
from magnetar.schema import _primitives as primitives
from magnetar.schema._decoding import decode_each
from magnetar.schema._key_value import KeyValueEncodingType, decode_present, make_key_value_decoder
from magnetar.schema._schema import Decoder, Schema, SchemaInfo, SchemaType, check_class

__all__ = ["AutoConsumeSchema", "AutoProduceBytesSchema", "make_any_decoder"]

_PRIMITIVES: Final[Mapping[SchemaType, Schema[Any]]] = {
    schema.schema_info().type: schema
    for schema in (
        primitives.BooleanSchema(),
        primitives.DateSchema(),
        primitives.DoubleSchema(),
        primitives.FloatSchema(),
        primitives.InstantSchema(),
        primitives.Int8Schema(),
        primitives.Int16Schema(),
        primitives.Int32Schema(),
        primitives.Int64Schema(),
        primitives.LocalDateSchema(),
        primitives.LocalDateTimeSchema(),
        primitives.LocalTimeSchema(),
        primitives.StringSchema(),
        primitives.TimeSchema(),
        primitives.TimestampSchema(),
    )
}


class AutoConsumeSchema(Schema[Any]):
    """Decodes each message by the schema that it was encoded with.

    Records of AVRO and JSON are dicts, PROTOBUF_NATIVE gives messages of a class that is made from the descriptors,
    KEY_VALUE gives a KeyValue of such values, a primitive type its value. Messages without a schema, and those of
    PROTOBUF, are bytes.
    """

    needs_writer: ClassVar[bool] = True
    decodes_alone: ClassVar[bool] = False
    uses_key = True

    def schema_info(self) -> SchemaInfo:
        return SchemaInfo(SchemaType.AUTO_CONSUME, "AutoConsume")

    def encode(self, obj: Any) -> bytes:
        raise EncodeError("AutoConsumeSchema only decodes: give the producer a schema of its own")

    def make_decoder(self, writer: SchemaInfo | None) -> Decoder[Any]:
        decode = make_any_decoder(writer)
        if writer is not None and writer.type is SchemaType.KEY_VALUE:
            return decode
        return lambda payloads, keys: decode_present(decode, payloads)

    def __repr__(self) -> str:
        return "AutoConsumeSchema()"


class AutoProduceBytesSchema(Schema[bytes]):
    """Payloads that were encoded elsewhere: each is checked against the topic's schema before it is sent.

    The client sets the topic's schema when it creates the producer.
    """

    def __init__(self, topic_schema: SchemaInfo | None = None) -> None:
        self._topic_schema = topic_schema
        self._decode: Decoder[Any] | None = None

    def set_topic_schema(self, info: SchemaInfo | None) -> None:
        """None: the topic has no schema, so all bytes are valid. Raises DecodeError if it can't be understood."""
        self._decode = _make_checking_decoder(info)
        self._topic_schema = info

    def schema_info(self) -> SchemaInfo:
        return self._topic_schema or SchemaInfo(SchemaType.BYTES, "BYTES")

    def encode(self, obj: bytes) -> bytes:
        check_class(obj, bytes)
        if self._decode is None:
            self.set_topic_schema(self._topic_schema)
        assert self._decode is not None
        (value,) = self._decode([obj], None)
        if isinstance(value, DecodeError):
            raise EncodeError(f"the payload does not match the topic's schema: {value}") from value
        return obj

    def make_decoder(self, writer: SchemaInfo | None) -> Decoder[bytes]:
        return lambda payloads, keys: list(payloads)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._topic_schema,)

    def __repr__(self) -> str:
        return "AutoProduceBytesSchema()"


def make_any_decoder(writer: SchemaInfo | None) -> Decoder[Any]:
    """Return the decoder of payloads of any type. None: they have no schema. Raises DecodeError."""
    if writer is None:
        return primitives.BytesSchema().make_decoder(None)
    if writer.type in _PRIMITIVES:
        return _PRIMITIVES[writer.type].make_decoder(writer)
    make = _MAKERS.get(writer.type)
    return primitives.BytesSchema().make_decoder(None) if make is None else make(writer)


def _make_checking_decoder(writer: SchemaInfo | None) -> Decoder[Any]:
    """Return a decoder that compares JSON with its definition, which consumers of every type do not need."""
    if writer is not None and writer.type is SchemaType.JSON:
        return _make_checked_json_decoder(writer)
    if writer is not None and writer.type is SchemaType.KEY_VALUE:
        inline = KeyValueEncodingType.INLINE
        return make_key_value_decoder(writer, inline, _make_checking_decoder, _make_checking_decoder)
    return make_any_decoder(writer)


def _make_checked_json_decoder(writer: SchemaInfo) -> Decoder[Any]:
    from pydantic_core import from_json

    from magnetar.schema._avro_definition import parse_definition
    from magnetar.schema._value_checks import Misfit, make_json_check

    try:
        definition = parse_definition(writer.definition)
    except DecodeError:  # Pulsar also accepts definitions of JSON Schema
        return _make_json_decoder(writer)
    check = make_json_check(definition)

    def read(payload: bytes) -> Any:
        try:
            return check(from_json(payload))
        except Misfit as misfit:
            raise DecodeError(str(misfit)) from None

    return decode_each(read, "JSON")


def _make_avro_decoder(writer: SchemaInfo) -> Decoder[Any]:
    from magnetar.schema._avro import make_avro_reader
    from magnetar.schema._avro_definition import parse_definition

    definition = parse_definition(writer.definition)
    return decode_each(make_avro_reader(definition, definition, None), "AVRO")


def _make_json_decoder(writer: SchemaInfo) -> Decoder[Any]:
    from pydantic_core import from_json

    return decode_each(from_json, "JSON")


def _make_protobuf_decoder(writer: SchemaInfo) -> Decoder[Any]:
    from magnetar.schema._protobuf import find_message_class

    parse: Any = find_message_class(writer.definition).FromString
    return decode_each(parse, "PROTOBUF_NATIVE")


def _make_key_value_decoder(writer: SchemaInfo) -> Decoder[Any]:
    return make_key_value_decoder(writer, KeyValueEncodingType.INLINE, make_any_decoder, make_any_decoder)


_MAKERS: Final[Mapping[SchemaType, Callable[[SchemaInfo], Decoder[Any]]]] = {
    SchemaType.AVRO: _make_avro_decoder,
    SchemaType.JSON: _make_json_decoder,
    SchemaType.KEY_VALUE: _make_key_value_decoder,
    SchemaType.PROTOBUF_NATIVE: _make_protobuf_decoder,
}
