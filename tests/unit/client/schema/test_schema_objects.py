"""Schema objects: equality, pickling, and what they do with messages without a value."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from magnetar import schema as schemas
from magnetar.exceptions import InvalidArgument
from magnetar.schema import KeyValue, KeyValueEncodingType, Schema, SchemaInfo, SchemaType


class Reading(schemas.Record):
    celsius = schemas.Double()


class Other(schemas.Record):
    celsius = schemas.Double()


_DEFINITION = Reading.schema()
_SCHEMAS: list[tuple[Schema[Any], Any]] = [
    (schemas.BytesSchema(), b"x"),
    (schemas.StringSchema(), "x"),
    (schemas.InstantSchema(nanoseconds=True), 5),
    (schemas.AvroSchema(Reading), Reading(celsius=1.0)),
    (schemas.JsonSchema(Reading), Reading(celsius=1.0)),
    (schemas.AvroSchema(None, _DEFINITION), {"celsius": 1.0}),
    (schemas.ProtobufNativeSchema(Timestamp), Timestamp(seconds=1)),
    (schemas.ProtobufSchema(Timestamp), Timestamp(seconds=1)),
    (schemas.KeyValueSchema(schemas.StringSchema(), schemas.AvroSchema(Reading)), KeyValue("k", Reading())),
]


@pytest.mark.parametrize(("schema", "value"), _SCHEMAS, ids=lambda thing: type(thing).__name__)
def test_a_used_schema_is_pickled(schema: Schema[Any], value: Any) -> None:
    assert schema.decode(schema.encode(value)) == value
    copied = pickle.loads(pickle.dumps(schema))
    assert copied == schema
    assert hash(copied) == hash(schema)
    assert copied.decode(copied.encode(value)) == value


def test_schemas_of_different_classes_or_definitions_are_not_equal() -> None:
    different = [schema for schema, _ in _SCHEMAS] + [
        schemas.AvroSchema(Other),
        schemas.JsonSchema(None, _DEFINITION),
        schemas.KeyValueSchema(schemas.StringSchema(), schemas.JsonSchema(Reading)),
        schemas.KeyValueSchema(schemas.StringSchema(), schemas.AvroSchema(Reading), KeyValueEncodingType.SEPARATED),
        schemas.AutoConsumeSchema(),
        schemas.InstantSchema(),
    ]
    for number, schema in enumerate(different):
        assert [other == schema for other in different].index(True) == number
        assert repr(schema).startswith(type(schema).__name__)


def test_messages_without_a_value() -> None:
    """The key of a SEPARATED message is there; no other message has a part that can be decoded."""
    separated = schemas.KeyValueSchema(schemas.StringSchema(), schemas.StringSchema(), KeyValueEncodingType.SEPARATED)
    assert separated.encode_with_key(KeyValue("k", None)) == (b"k", None)
    payloads: Any = [None, b"v"]
    for schema in (separated, schemas.AutoConsumeSchema()):
        decode = schema.make_decoder(separated.schema_info())
        assert decode(payloads, [b"k", b"k"]) == [KeyValue("k", None), KeyValue("k", "v")]
    auto = schemas.AutoConsumeSchema().make_decoder(SchemaInfo(SchemaType.STRING, "String"))
    assert auto(payloads, [b"k", b"k"]) == [None, "v"]


def test_classes_that_are_no_schemas_are_refused() -> None:
    for make in (schemas.AvroSchema, schemas.JsonSchema, schemas.ProtobufNativeSchema, schemas.ProtobufSchema):
        with pytest.raises(TypeError):
            make(int)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="schema of a value: a pair"):
        schemas.KeyValueSchema(
            schemas.StringSchema(), schemas.KeyValueSchema(schemas.StringSchema(), schemas.StringSchema())
        )
    with pytest.raises(TypeError, match="the schema encodes values of"):
        schemas.KeyValueSchema(schemas.StringSchema(), schemas.StringSchema()).encode(("k", "v"))  # type: ignore[arg-type]


_R: Any = {"type": "record", "name": "R"}


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        (lambda: "nonsense", "no type is named 'nonsense'"),
        (lambda: {"type": "recrd"}, "no type is named"),
        (lambda: 5, "5 is neither a type nor a field"),
        (lambda: {"type": "bytes", "a": b"x"}, "is not JSON: Object of type bytes"),
        (lambda: _nested(200), "deeper than 100 levels"),
        (lambda: _nested(3000), "deeper than 100 levels"),
        (lambda: _R, "has no valid 'fields'"),
        (lambda: _inside("Missing"), "field 'outer.inner': no type is named 'Missing'"),
        (lambda: _inside({"type": "map", "values": "Missing"}), "field 'outer.inner': no type is named 'Missing'"),
        (lambda: _inside({"type": "array"}), "field 'outer.inner': a part of the Avro definition has no valid 'items'"),
        (lambda: _inside([["int"]]), "field 'outer.inner': an Avro definition has a union inside of a union"),
        (lambda: _inside({"type": "fixed", "name": "F", "size": -1}), "field 'outer.inner': a fixed type of -1 bytes"),
        (lambda: _inside({"type": "enum", "name": "E", "symbols": ["1a"]}), "field 'outer.inner': '1a' is no symbol"),
        (lambda: _inside({"type": "enum", "name": "E", "symbols": ["a", "a"]}), "field 'outer.inner': .* 'a' twice"),
    ],
)
def test_a_definition_that_is_none_is_one_error_that_names_the_field(
    definition: Callable[[], Any], problem: str
) -> None:
    for form in (schemas.AvroSchema, schemas.JsonSchema):
        with pytest.raises(InvalidArgument, match=problem) as raised:
            form(None, definition())
        assert isinstance(raised.value, ValueError)


def _inside(kind: Any) -> Any:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "inner", "type": kind}]}
    return {**_R, "fields": [{"name": "a", "type": "int"}, {"name": "outer", "type": ["null", inner]}]}


def _nested(levels: int) -> Any:
    definition: Any = "int"
    for _ in range(levels):
        definition = {"type": "array", "items": definition}
    return definition
