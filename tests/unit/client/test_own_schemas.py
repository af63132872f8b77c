"""Schemas of applications' own: subclasses as they are written for Pulsar's Python client."""

from __future__ import annotations

import enum
import pickle
from datetime import date, datetime, time
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from magnetar import InitialPosition, schema
from magnetar._options import producer_options
from magnetar._values.value_encoder import encode_value
from magnetar.exceptions import DecodeError
from magnetar.schema import AvroSchema, BytesSchema, KeyValue, KeyValueSchema, Record, Schema, SchemaType, StringSchema
from tests.unit.client.consume_scene import client_of, receive


class PickleSchema(BytesSchema):
    def encode(self, obj: Any) -> bytes:
        return pickle.dumps(obj)

    def decode(self, data: bytes) -> Any:
        return pickle.loads(data)


class LiteralSchema(Schema[Any]):
    """The arguments of `super().__init__` are those of Pulsar's client, by position."""

    def __init__(self, prefix: str = "") -> None:
        super().__init__(list, SchemaType.STRING, {"of": "list"}, "LITERAL")
        self.prefix = prefix

    def encode(self, obj: Any) -> bytes:
        self._validate_object_type(obj)
        return (self.prefix + ",".join(obj)).encode()

    def decode(self, data: bytes) -> Any:
        return data.decode().removeprefix(self.prefix).split(",")


class LoudSchema(StringSchema):
    def encode(self, obj: str) -> bytes:
        return super().encode(obj.upper())

    def decode(self, data: bytes) -> str:
        return super().decode(data) + "!"


@pytest.mark.parametrize(
    ("own", "value", "received"),
    [(PickleSchema(), {"a": 1}, {"a": 1}), (LiteralSchema(">"), ["a", "b"], ["a", "b"]), (LoudSchema(), "a", "A!")],
    ids=lambda thing: type(thing).__name__,
)
async def test_an_own_schema_encodes_and_decodes(own: Schema[Any], value: Any, received: Any) -> None:
    assert producer_options({"schema": own}).value_schema is own
    payload, _ = encode_value(own, value, None)
    assert payload is not None
    assert own.decode(payload) == received
    async with client_of() as (broker, client):
        broker.topic("t").publish(payload, None)
        consumer = await client.subscribe("t", "s", schema=own, initial_position=InitialPosition.Earliest)
        messages = await receive(consumer, 2)
        assert [message.value() for message in messages] == [received, None]
        assert pickle.loads(pickle.dumps(messages[0])).value() == received
    pairs = KeyValueSchema(str, own)
    assert pairs.decode(pairs.encode(KeyValue("k", value))) == KeyValue("k", received)


async def test_a_payload_that_an_own_schema_can_not_decode_is_its_message_s_error() -> None:
    async with client_of() as (broker, client):
        broker.topic("t").publish(b"\xff", b"a")
        consumer = await client.subscribe("t", "s", schema=LoudSchema(), initial_position=InitialPosition.Earliest)
        wrong, right = await receive(consumer, 2)
        assert right.value() == "a!"
        with pytest.raises(DecodeError):
            wrong.value()


def test_own_schemas_with_different_attributes_are_not_equal() -> None:
    assert LiteralSchema("a") == LiteralSchema("a")
    assert LiteralSchema("a") != LiteralSchema("b")
    assert BytesSchema() != PickleSchema()
    with pytest.raises(TypeError, match="values of list"):
        LiteralSchema().encode("a")


def test_the_names_of_pulsar_s_schema_info() -> None:
    info = LiteralSchema().schema_info()
    assert (info.schema_type(), info.name, info.schema()) == (SchemaType.STRING, "LITERAL", '{\n "of": "list"\n}')


def test_encode_dict() -> None:
    """As Pulsar's Python client does: records become dicts, and members of enumerations names."""

    class Color(enum.Enum):
        red = 1

    class Dot(Record):
        color = Color

    fields = {"a": Color.red, "b": [Dot(color=Color.red)], "c": {"d": Dot(color=Color.red)}, "e": 1}
    dot = {"color": "red"}
    assert AvroSchema(Dot).encode_dict(fields) == {"a": "red", "b": [dot], "c": {"d": dot}, "e": 1}


@pytest.mark.parametrize(
    ("wrong", "instead"),
    [
        (int, "Int64Schema"),
        (bool, "BooleanSchema"),
        (float, "DoubleSchema"),
        (date, "LocalDateSchema"),
        (datetime, "InstantSchema"),
        (time, "LocalTimeSchema"),
        (dict, r"AvroSchema\(None, definition\)"),
        (StringSchema, r"an object: StringSchema\(\)"),
        (AvroSchema, r"an object: AvroSchema\(…\)"),
        (Timestamp, r"ProtobufNativeSchema\(Timestamp\)"),
        (KeyValue, r"KeyValueSchema\("),
    ],
)
def test_a_class_that_is_no_record_is_refused_with_the_schema_to_use(wrong: Any, instead: str) -> None:
    with pytest.raises(TypeError, match=f"use {instead}"):
        producer_options({"schema": wrong})
    with pytest.raises(TypeError, match=f"use {instead}"):
        KeyValueSchema(wrong, StringSchema())


def test_a_calendar_date_is_no_moment() -> None:
    with pytest.raises(TypeError, match="use LocalDateSchema"):
        schema.DateSchema().encode(date(2026, 1, 1))  # type: ignore[arg-type]
