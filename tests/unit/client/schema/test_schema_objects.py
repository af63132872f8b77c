"""Schema objects: equality, pickling, and what they do with messages without a value."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from magnetar import schema as schemas
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
    with pytest.raises(ValueError, match="Missing"):
        schemas.AvroSchema(None, {"type": "record", "name": "R", "fields": [{"name": "a", "type": "Missing"}]})
    with pytest.raises(ValueError, match="deeper than 100 levels"):
        schemas.AvroSchema(None, _nested(200))


def _nested(levels: int) -> Any:
    definition: Any = "int"
    for _ in range(levels):
        definition = {"type": "array", "items": definition}
    return definition
