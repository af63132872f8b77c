"""Schemas beside payloads of Pulsar's Java and Go clients, recorded by `tests/vectors/capture_payloads.py` (SCH-3)."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from google.protobuf import any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, wrappers_pb2
from google.protobuf.json_format import MessageToDict
from google.protobuf.timestamp_pb2 import Timestamp

from magnetar import schema as schemas
from magnetar.exceptions import DecodeError, EncodeError
from magnetar.schema import KeyValue, KeyValueEncodingType, Schema, SchemaInfo, SchemaType
from tests.vectors.capture_payloads import GO_RECORD, JAVA_RECORD

JAVA: dict[str, Any] = json.loads(JAVA_RECORD.read_bytes())
GO: dict[str, Any] = json.loads(GO_RECORD.read_bytes())

_MOMENT = datetime(2026, 11, 26, 18, 30, 0, 123456)
_JUST_BEFORE_1970 = datetime(1969, 12, 31, 23, 59, 59, 999999)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLIS = _EPOCH + timedelta(milliseconds=1700000000123)
_BEFORE = _EPOCH - timedelta(milliseconds=1)

# The values of the vectors. None: this one has nanoseconds, see below.
_PRIMITIVES: dict[str, tuple[Schema[Any], list[Any]]] = {
    "boolean": (schemas.BooleanSchema(), [True, False]),
    "int8": (schemas.Int8Schema(), [0, 127, -128]),
    "int16": (schemas.Int16Schema(), [258, 2**15 - 1, -(2**15)]),
    "int32": (schemas.Int32Schema(), [16909060, 2**31 - 1, -(2**31)]),
    "int64": (schemas.Int64Schema(), [72623859790382856, 2**63 - 1, -(2**63)]),
    "float": (schemas.FloatSchema(), [1.5, -0.0, 3.4028234663852886e38, float("inf")]),
    "double": (schemas.DoubleSchema(), [0.1, -0.0, 1.7976931348623157e308, float("-inf")]),
    "string": (schemas.StringSchema(), ["", "naïve ☕ 𝄞"]),
    "date": (schemas.DateSchema(), [_EPOCH, _MILLIS, _BEFORE]),
    "time": (schemas.TimeSchema(), [time(), time(12, 34, 56, 789000)]),
    "timestamp": (schemas.TimestampSchema(), [_MILLIS, _BEFORE]),
    "instant": (
        schemas.InstantSchema(),
        [_EPOCH, _MOMENT.replace(tzinfo=UTC), _JUST_BEFORE_1970.replace(tzinfo=UTC), None],
    ),
    "local_date": (schemas.LocalDateSchema(), [date(1970, 1, 1), date(2026, 11, 26), date(1, 1, 1)]),
    "local_time": (schemas.LocalTimeSchema(), [time(), time(12, 34, 56, 789012), None]),
    "local_date_time": (schemas.LocalDateTimeSchema(), [_MOMENT, _JUST_BEFORE_1970, None]),
}


def _info(vector: dict[str, Any]) -> SchemaInfo:
    definition = bytes.fromhex(vector["definition"])
    return SchemaInfo(SchemaType[vector["type"]], vector["name"], definition, vector["properties"])


def _decode(schema: Schema[Any], vector: dict[str, Any]) -> list[Any]:
    return schema.make_decoder(_info(vector))(_payloads(vector), None)


def _payloads(vector: dict[str, Any]) -> list[bytes]:
    return [bytes.fromhex(payload["payload"]) for payload in vector["payloads"]]


@pytest.mark.parametrize("name", _PRIMITIVES)
def test_primitive_types_are_encoded_as_by_java(name: str) -> None:
    schema, values = _PRIMITIVES[name]
    assert schema.schema_info() == _info(JAVA[name])
    payloads = _payloads(JAVA[name])
    assert len(payloads) == len(values)
    for value, payload in zip(values, payloads, strict=True):
        if value is not None:
            assert schema.encode(value) == payload
            assert str(schema.decode(payload)) == str(value)  # as text: 0.0 and -0.0 are equal
        else:
            with pytest.raises(DecodeError, match=r"\d+ nanoseconds would be lost"):
                schema.decode(payload)


@pytest.mark.parametrize(
    ("name", "schema", "nanoseconds"),
    [
        ("instant", schemas.InstantSchema(nanoseconds=True), 1795717800123456789),
        ("local_time", schemas.LocalTimeSchema(nanoseconds=True), 45296789012345),
        ("local_date_time", schemas.LocalDateTimeSchema(nanoseconds=True), 1795717800123456789),
    ],
)
def test_nanoseconds_are_ints_on_request(name: str, schema: Schema[int], nanoseconds: int) -> None:
    payload = _payloads(JAVA[name])[-1]
    assert schema.decode(payload) == nanoseconds
    assert schema.encode(nanoseconds) == payload


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        (schemas.Int8Schema(), 128, "128 does not fit into 8 bits"),
        (schemas.Int64Schema(), 2**63, "does not fit into 64 bits"),
        (schemas.FloatSchema(), 1e39, "does not fit into 32 bits"),
        (schemas.DoubleSchema(), 10**400, "does not fit into 64 bits"),
        (schemas.StringSchema(), "\ud800", "not valid Unicode"),
        (schemas.TimestampSchema(), _MOMENT, "no time zone"),
        (schemas.InstantSchema(), _MOMENT, "no time zone"),
        (schemas.TimestampSchema(), _MOMENT.replace(tzinfo=UTC), "456 microseconds would be lost"),
        (schemas.TimeSchema(), _MOMENT.time(), "456 microseconds would be lost"),
        (schemas.TimeSchema(), time(1, tzinfo=UTC), "has a time zone"),
        (schemas.LocalDateTimeSchema(), _EPOCH, "has a time zone"),
        (schemas.LocalTimeSchema(nanoseconds=True), 24 * 3600 * 10**9, "no time of the day"),
        (schemas.InstantSchema(nanoseconds=True), 2**100, "does not fit into 64 bits"),
    ],
)
def test_primitive_values_that_do_not_fit_are_refused(schema: Schema[Any], value: Any, problem: str) -> None:
    with pytest.raises(EncodeError, match=problem):
        schema.encode(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (schemas.BytesSchema(), "text"),
        (schemas.StringSchema(), b"bytes"),
        (schemas.BooleanSchema(), 1),
        (schemas.Int32Schema(), True),
        (schemas.Int32Schema(), 1.0),
        (schemas.DoubleSchema(), "1.0"),
        (schemas.DateSchema(), date(2026, 1, 1)),
        (schemas.LocalDateSchema(), _MOMENT),
        (schemas.InstantSchema(nanoseconds=True), _EPOCH),
    ],
)
def test_primitive_values_of_another_class_are_refused(schema: Schema[Any], value: Any) -> None:
    with pytest.raises(TypeError):
        schema.encode(value)


@pytest.mark.parametrize("name", [name for name in _PRIMITIVES if name != "string"])
def test_primitive_payloads_of_another_size_are_refused(name: str) -> None:
    schema, _ = _PRIMITIVES[name]
    payload = _payloads(JAVA[name])[0]
    for wrong in (b"", payload[:-1], payload + b"\0"):
        with pytest.raises(DecodeError, match="values of this type have"):
            schema.decode(wrong)


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("instant", bytes(8) + b"\xff" * 4),
        ("local_time", b"\xff" * 8),
        ("local_date", b"\x7f" + bytes(7)),
        ("date", b"\x7f" + bytes(7)),
        ("local_date_time", b"\x7f" + bytes(15)),
        ("string", b"\xff"),
    ],
)
def test_primitive_payloads_out_of_range_are_refused(name: str, payload: bytes) -> None:
    with pytest.raises(DecodeError):
        _PRIMITIVES[name][0].decode(payload)


class Color(Enum):
    RED = "red"
    GREEN = "green"


class Address(schemas.Record):
    city = schemas.String()
    number = schemas.Integer()


class Reading(schemas.Record):
    small = schemas.Integer(required=True)
    optional = schemas.Integer()
    large = schemas.Long(required=True)
    narrow = schemas.Float(required=True)
    real = schemas.Double(required=True)
    flag = schemas.Boolean(required=True)
    text = schemas.String()
    raw = schemas.Bytes()
    color = Color
    words = schemas.Array(schemas.String())
    numbers = schemas.Map(schemas.Long())
    address = Address(default=None)
    addresses = schemas.Array(Address())


_READING: dict[str, Any] = {
    "small": -7,
    "optional": 8,
    "large": 2**60,
    "narrow": 0.5,
    "real": 0.1,
    "flag": True,
    "text": "naïve ☕",
    "raw": b"bytes",
    "color": Color.GREEN,
    "words": ["a", "b"],
    "numbers": {"one": 1},
    "address": {"city": "Ulm", "number": 89073},
    "addresses": [{"city": "Ulm", "number": 89073}],
}


def test_avro_of_java_s_classes_is_read_and_written() -> None:
    """Fields are sorted there, and names and unions differ: the writer's schema is resolved."""
    for name in ("avro", "avro_not_null"):
        writer = _info(JAVA[name])
        (value, *others) = _decode(schemas.AvroSchema(Reading), JAVA[name])
        assert value == Reading(**_READING)
        for empty in others:
            assert (empty.small, empty.optional, empty.color, empty.address) == (0, None, None, None)
        generic = schemas.AvroSchema(None, json.loads(writer.definition))
        assert generic.encode(Reading(**_READING).__dict__) == _payloads(JAVA[name])[0]


def test_json_of_java_s_classes_is_read() -> None:
    """Java writes no fields that are null, and bytes as base64: Pulsar's Python client has no rule for that."""
    value, empty = _decode(schemas.JsonSchema(Reading), JAVA["json"])
    assert value == Reading(**_READING | {"raw": "Ynl0ZXM="})
    assert (empty.small, empty.text, empty.words) == (0, None, None)


def test_avro_s_types_are_read_and_written() -> None:
    """Logical types, unions of several types, fixed types, and a record that contains itself."""
    definition = json.loads(JAVA["avro_types"]["definition"])
    schema = schemas.AvroSchema(None, definition)
    payloads = _payloads(JAVA["avro_types"])
    values = schema.make_decoder(SchemaInfo(SchemaType.AVRO, "", json.dumps(definition).encode()))(payloads, None)
    choices: list[Any] = [None, 5, "text", b"\1\2\3\4", {"next": {"next": None}}]
    assert values == [
        {
            "fixed": b"\1\2\3\4",
            "choice": choice,
            "many": [True, 1.5, None],
            "date": date(2026, 11, 26),
            "millis": time(12, 34, 56, 789000),
            "micros": time(12, 34, 56, 789012),
            "at_millis": _MILLIS,
            "at_micros": _EPOCH + timedelta(microseconds=1700000000123456),
            "amount": Decimal("-123.45"),
            "id": UUID("3f333df6-90a4-4fda-8dd3-9485d27cee36"),
        }
        for choice in choices
    ]
    for value, payload in zip(values, payloads, strict=True):
        assert not isinstance(value, DecodeError)
        assert schema.encode(value) == payload


@pytest.mark.parametrize("encoding", list(KeyValueEncodingType))
def test_key_and_value_are_encoded_as_by_java(encoding: KeyValueEncodingType) -> None:
    vector = JAVA[f"key_value_{encoding.name.lower()}"]
    schema = schemas.KeyValueSchema(schemas.StringSchema(), schemas.Int32Schema(), encoding)
    assert schema.schema_info() == _info(vector)
    for payload in vector["payloads"]:
        pair = KeyValue(payload["key"], None if payload["value"] is None else int(payload["value"]))
        key, value = schema.encode_with_key(pair)
        assert value == (None if payload["payload"] is None else bytes.fromhex(payload["payload"]))
        is_separated = encoding is KeyValueEncodingType.SEPARATED
        assert key == (pair.key.encode() if is_separated and pair.key is not None else None)
        for decoder in (schema.make_decoder(None), schemas.AutoConsumeSchema().make_decoder(_info(vector))):
            assert decoder([value], [key]) == [pair]  # type: ignore[list-item]  # a message without a value


def test_key_and_value_may_be_records() -> None:
    pairs = schemas.KeyValueSchema(schemas.AvroSchema(Address), schemas.JsonSchema(Address))
    pair = KeyValue(Address(city="Ulm"), Address(number=5))
    key, payload = pairs.encode_with_key(pair)
    assert key is None
    assert payload is not None
    assert pairs.decode(payload) == pair
    theirs = _info(JAVA["key_value_records"])
    assert dict(pairs.schema_info().properties) | {"kv.encoding.type": "INLINE"} == {
        **theirs.properties,
        **{f"{part}.schema.properties": "{}" for part in ("key", "value")},
        "key.schema.name": "AVRO",
        "value.schema.name": "JSON",
    }
    broken_value, broken_key, short = pairs.make_decoder(None)(
        [payload[:-3] + b"###", b"\0\0\0\1\x09" + payload[-12:], payload[:-1]], [None] * 3
    )
    assert [type(value) for value in (broken_value, broken_key, short)] == [DecodeError] * 3


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"key.schema.type": "KEY_VALUE", "value.schema.type": "STRING"},
        {"key.schema.type": "STRING", "value.schema.type": "STRING", "kv.encoding.type": "BOTH"},
        {"key.schema.type": "STRING", "value.schema.type": "STRING", "key.schema.properties": "[1]"},
        {"key.schema.type": "STRING", "value.schema.type": "STRING", "key.schema.properties": "{"},
    ],
)
def test_key_value_definitions_that_are_not_valid_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(DecodeError):
        schemas.AutoConsumeSchema().make_decoder(SchemaInfo(SchemaType.KEY_VALUE, "", bytes(8), properties))


_MESSAGES: dict[str, Any] = {
    "Any": any_pb2.Any,
    "Duration": duration_pb2.Duration,
    "Empty": empty_pb2.Empty,
    "FieldMask": field_mask_pb2.FieldMask,
    "Struct": struct_pb2.Struct,
    "UninterpretedOption": descriptor_pb2.UninterpretedOption,
    **{
        f"{name}Value": getattr(wrappers_pb2, f"{name}Value")
        for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
    },
}


@pytest.mark.parametrize("name", _MESSAGES)
def test_protobuf_definitions_are_those_of_java_byte_for_byte(name: str) -> None:
    assert schemas.ProtobufSchema(_MESSAGES[name]).schema_info() == _info(JAVA["protobuf_definitions"][name])


def test_protobuf_messages_are_those_of_java_and_go() -> None:
    timestamp = Timestamp(seconds=1700000000, nanos=5)
    for schema, vector in (
        (schemas.ProtobufSchema(Timestamp), JAVA["protobuf"]),
        (schemas.ProtobufNativeSchema(Timestamp), JAVA["protobuf_native_timestamp"]),
    ):
        assert schema.make_decoder(_info(vector))(_payloads(vector), None) == [timestamp]
        assert schema.encode(timestamp) == _payloads(vector)[0]
    assert schemas.ProtobufSchema(Timestamp).schema_info() == _info(JAVA["protobuf"])
    assert bytes.fromhex(GO["protobuf_native"]["payloads"][0]) == timestamp.SerializeToString()


def test_messages_are_made_from_descriptors() -> None:
    vector = JAVA["protobuf_native"]
    (value,) = _decode(schemas.AutoConsumeSchema(), vector)
    assert MessageToDict(value) == {"number": 1.5, "list": [None]}
    go = GO["protobuf_native"]
    writer = SchemaInfo(SchemaType.PROTOBUF_NATIVE, "", bytes.fromhex(go["definition"]))
    decoded: list[Any] = schemas.AutoConsumeSchema().make_decoder(writer)([bytes.fromhex(go["payloads"][0])], None)
    (value,) = decoded
    assert (value.seconds, value.nanos) == (1700000000, 5)
    for definition in (b"", b"{}", b"[]", b'{"fileDescriptorSet": "AAAA", "rootMessageTypeName": "x"}'):
        with pytest.raises(DecodeError):
            schemas.AutoConsumeSchema().make_decoder(SchemaInfo(SchemaType.PROTOBUF_NATIVE, "", definition))


def test_auto_consume_decodes_every_type() -> None:
    auto = schemas.AutoConsumeSchema()
    for name, (_, values) in _PRIMITIVES.items():
        assert auto.make_decoder(_info(JAVA[name]))(_payloads(JAVA[name])[:1], None) == values[:1]
    (value, _) = _decode(auto, JAVA["json"])
    assert value["address"] == {"city": "Ulm", "number": 89073}
    (value, _) = _decode(auto, JAVA["avro"])
    assert (value["address"], value["color"]) == ({"city": "Ulm", "number": 89073}, "GREEN")
    assert auto.make_decoder(None)([b"\xff"], None) == [b"\xff"]
    assert auto.make_decoder(SchemaInfo(SchemaType.BYTES, ""))([b"\xff"], None) == [b"\xff"]
    with pytest.raises(EncodeError):
        auto.encode({})


def test_auto_produce_checks_payloads_by_the_topic_s_schema() -> None:
    schema = schemas.AutoProduceBytesSchema()
    assert schema.encode(b"anything") == b"anything"
    schema.set_topic_schema(_info(JAVA["avro"]))
    assert schema.schema_info() == _info(JAVA["avro"])
    payload = _payloads(JAVA["avro"])[0]
    assert schema.encode(payload) == payload
    with pytest.raises(EncodeError, match="does not match the topic's schema"):
        schema.encode(payload[:-1])
    with pytest.raises(TypeError):
        schema.encode("text")  # type: ignore[arg-type]


def test_auto_produce_checks_json_by_its_definition() -> None:
    reading = schemas.JsonSchema(GoReading)
    good = b'{"small": 1, "text": "a", "words": null}'
    for topic_schema, wrap in (
        (reading, lambda payload: payload),
        (schemas.KeyValueSchema(schemas.StringSchema(), reading), lambda payload: _sized(b"k") + _sized(payload)),
    ):
        schema = schemas.AutoProduceBytesSchema(topic_schema.schema_info())
        assert schema.encode(wrap(good)) == wrap(good)
        for bad in (b"5", b"null", b"[]", b'{"small": "text"}', b'{"small": 3000000000}', b"{"):
            with pytest.raises(EncodeError, match="does not match the topic's schema"):
                schema.encode(wrap(bad))
    old_style = SchemaInfo(SchemaType.JSON, "JSON", b'{"type": "object", "id": "x"}')
    assert schemas.AutoProduceBytesSchema(old_style).encode(b'{"a": 1}') == b'{"a": 1}'


def _sized(part: bytes) -> bytes:
    return len(part).to_bytes(4, "big") + part


class GoAddress(schemas.Record):
    city = schemas.String(required=True)


class GoReading(schemas.Record):
    small = schemas.Integer(required=True)
    large = schemas.Long(required=True)
    real = schemas.Double(required=True)
    flag = schemas.Boolean(required=True)
    text = schemas.String(required=True)
    raw = schemas.Bytes(required=True)
    maybe = schemas.String()
    words = schemas.Array(schemas.String(), required=True)
    numbers = schemas.Map(schemas.Long(), required=True)
    address = GoAddress(required=True)


_GO_READING: dict[str, Any] = {
    **{name: _READING[name] for name in ("small", "large", "flag", "text", "raw", "words", "numbers")},
    "real": 2.0,
    "maybe": "yes",
    "address": {"city": "Ulm"},
}


def test_avro_and_json_of_go_are_read() -> None:
    """Go writes an empty list, map or bytes as null in JSON, and bytes as base64."""
    for name, schema in (("avro", schemas.AvroSchema(GoReading)), ("json", schemas.JsonSchema(GoReading))):
        writer = SchemaInfo(SchemaType[name.upper()], "", bytes.fromhex(GO[name]["definition"]))
        found: list[Any] = schema.make_decoder(writer)([bytes.fromhex(each) for each in GO[name]["payloads"]], None)
        value, empty = found
        assert value == GoReading(**_GO_READING | ({"raw": "Ynl0ZXM="} if name == "json" else {}))
        assert (empty.small, empty.maybe, empty.words or [], empty.address.city) == (0, None, [], "")


def test_single_values_of_go_are_read() -> None:
    """Go writes ints of more than one byte little-endian, which no other client reads: they are not among these."""
    for name, values in (("string", ["naïve ☕"]), ("int8", [-128, 127]), ("float", [1.5, float("inf")])):
        schema, _ = _PRIMITIVES[name]
        assert [schema.decode(bytes.fromhex(payload)) for payload in GO[name]["payloads"]] == values
    assert bytes.fromhex(GO["int32"]["payloads"][1]) == bytes([4, 3, 2, 1])
