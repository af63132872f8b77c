"""`produce --schema`: payloads of JSON values."""

from __future__ import annotations

import json
import struct
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner

from magnetar.schema import (
    AvroSchema,
    Integer,
    JsonSchema,
    KeyValue,
    KeyValueEncodingType,
    KeyValueSchema,
    ProtobufNativeSchema,
    Record,
    SchemaInfo,
    SchemaType,
    String,
    StringSchema,
)
from magnetar_cli.messages import produce, value_encoder
from magnetar_cli.messages.json_values import value_to_json
from magnetar_cli.messages.message_input import (
    InputMessage,
    InvalidInput,
    InvalidValue,
    make_json_parser,
    make_keyed_line_parser,
    make_line_parser,
    parse_json_message,
)
from magnetar_cli.messages.value_encoder import find_encoder, make_encoder
from magnetar_protos.entry_pb2 import MessageMetadata

DEFINITION = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "sensor", "type": "string"},
        {"name": "celsius", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
AVRO = AvroSchema(None, DEFINITION)
ENCODE = make_encoder(AVRO.schema_info()).encode


class Measured(BaseModel):
    sensor: str
    at: datetime
    celsius: float = Field(default=0.0, gt=-273.15)


class Reading(Record):
    sensor = String(required=True)
    level = Integer(required=True)


def test_values_are_encoded_by_an_avro_schema() -> None:
    """(SCH-3) Lines, lines with keys, and objects as `consume --json` prints them."""
    payload = AVRO.encode({"sensor": "hall", "celsius": 21.5, "note": None})
    line = b'{"sensor": "hall", "celsius": 21.5}'
    assert make_line_parser(ENCODE)(line) == InputMessage(payload)
    assert make_line_parser(ENCODE)(b"null") == InputMessage(None)
    assert make_keyed_line_parser(b":", ENCODE)(b"k:" + line) == InputMessage(payload, "k")
    shown = b'{"value": %b, "key": "k", "schema_version": 3, "properties": {"a": "b"}, "event_time": 5}' % line
    assert make_json_parser(ENCODE)(shown) == InputMessage(payload, "k", {"a": "b"}, 5)
    assert make_json_parser(ENCODE)(b'{"value": null}') == InputMessage(None)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"sensor": "hall", "celsius": "warm"}', r"""celsius": "warm"}': field 'celsius': 'warm' is not a number"""),
        (b'{"sensor": "hall"}', "field 'celsius': there is no value, and no default"),
        (b'{"sensor": "hall", "celsius": 1, "x": 2}', "there is no field 'x': use sensor, celsius, note"),
        (b"21.5", "21.5 is not an object"),
        (b"warm", "'warm' is not JSON"),
        (b'{"sensor": ' + b'{"a": ' * 5000, "is not JSON"),
    ],
)
def test_a_line_that_is_no_value_of_the_schema_is_refused_with_the_field(line: bytes, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        make_line_parser(ENCODE)(line)
    with pytest.raises(InvalidInput, match=r"is not JSON|: "):
        make_json_parser(ENCODE)(b'{"value": %b}' % line)


def test_decoded_values_are_not_published_as_text_by_mistake() -> None:
    with pytest.raises(InvalidInput, match="use --schema to encode it, or print messages with --no-decode"):
        parse_json_message(b'{"value": {"sensor": "hall"}, "schema_version": 0}')
    with pytest.raises(InvalidInput, match="value_base64 is a payload already"):
        make_json_parser(ENCODE)(b'{"value_base64": "aGk="}')


@pytest.mark.parametrize(
    ("name", "value", "payload"),
    [
        ("STRING", "ö", "ö".encode()),
        ("BOOLEAN", True, b"\x01"),
        ("INT8", -1, b"\xff"),
        ("INT64", 5, struct.pack(">q", 5)),
        ("DOUBLE", "NaN", struct.pack(">d", float("nan"))),
        ("LOCAL_DATE", "1970-01-02", struct.pack(">q", 1)),
        ("TIMESTAMP", "1970-01-01T00:00:01Z", struct.pack(">q", 1000)),
        ("TIME", "00:00:01", struct.pack(">q", 1000)),
    ],
)
def test_values_of_primitive_schemas(name: str, value: Any, payload: bytes) -> None:
    encoder = make_encoder(SchemaInfo(SchemaType[name], name))
    assert encoder.encode(value) == (None, payload)
    assert encoder.schema.schema_info().type.name == name
    with pytest.raises(InvalidValue):
        encoder.encode({})


@pytest.mark.parametrize("encoding", KeyValueEncodingType)
def test_values_of_a_key_value_schema(encoding: KeyValueEncodingType) -> None:
    schema = KeyValueSchema(StringSchema(), AVRO, encoding)
    encode = make_encoder(schema.schema_info()).encode
    value = {"sensor": "hall", "celsius": 1.0, "note": None}
    assert encode({"key": "k", "value": value}) == schema.encode_with_key(KeyValue("k", value))
    assert encode({"key": "k"}) == schema.encode_with_key(KeyValue("k", None))
    assert value_to_json(KeyValue("k", value)) == {"key": "k", "value": value}
    with pytest.raises(InvalidValue, match=r"field 'value\.celsius': 'x' is not a number"):
        encode({"key": "k", "value": {**value, "celsius": "x"}})
    with pytest.raises(InvalidValue, match="not an object with the fields key and value"):
        encode({"keys": "k"})


def test_values_of_a_protobuf_schema() -> None:
    schema: ProtobufNativeSchema[Any] = ProtobufNativeSchema(MessageMetadata)
    encode = make_encoder(schema.schema_info()).encode
    message = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)
    shown = value_to_json(message)
    assert shown == {"producer_name": "p", "sequence_id": "1", "publish_time": "2"}
    assert encode(shown) == (None, message.SerializeToString())
    with pytest.raises(InvalidValue, match='no field named "producer"'):
        encode({"producer": "p"})


def test_a_line_for_a_string_schema_may_be_plain_text() -> None:
    """As `consume` prints strings. JSON strings and null are values in JSON."""
    encoder = make_encoder(SchemaInfo(SchemaType.STRING, "STRING"))
    assert encoder.takes_text
    assert not make_encoder(AVRO.schema_info()).takes_text
    parse = make_line_parser(encoder.encode, takes_text=True)
    for line, payload in ((b"hello", b"hello"), (b'"a b"', b"a b"), (b"5", b"5"), (b'{"a"', b'{"a"'), (b"null", None)):
        assert parse(line) == InputMessage(payload)
    with pytest.raises(InvalidInput, match="is not UTF-8"):
        parse(b"\xff")
    assert make_keyed_line_parser(b":", encoder.encode, takes_text=True)(b"k:v") == InputMessage(b"v", "k")


def test_the_key_of_a_pair_is_not_given_twice() -> None:
    """One that differs would be dropped silently."""
    schema = KeyValueSchema(StringSchema(), AVRO, KeyValueEncodingType.SEPARATED)
    encoder = make_encoder(schema.schema_info())
    assert encoder.sets_key
    assert not make_encoder(KeyValueSchema(StringSchema(), AVRO).schema_info()).sets_key
    parse = make_json_parser(encoder.encode)
    line = b'{"value": {"key": "k"}, "key": "%s"}'
    assert parse(line % b"k") == InputMessage(None, "k")
    with pytest.raises(InvalidInput, match="key is not that of the value: leave it out"):
        parse(line % b"other")


@pytest.mark.parametrize("option", ["--key", "--key-separator"])
def test_a_key_is_refused_if_it_is_a_part_of_the_value(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    schema = KeyValueSchema(StringSchema(), AVRO, KeyValueEncodingType.SEPARATED)
    monkeypatch.setattr(value_encoder, "find_encoder", lambda *arguments: make_encoder(schema.schema_info()))
    ended = CliRunner().invoke(produce.app, ["ckv", "{}", "--schema", "topic", option, "x"])
    assert ended.exit_code == 2
    assert f"Invalid value for {option}: leave it out" in " ".join(ended.stderr.replace("│", " ").split())


def test_the_source_of_a_schema(tmp_path: Path) -> None:
    file = tmp_path / "reading.avsc"
    file.write_text(json.dumps(DEFINITION))
    value = {"sensor": "hall", "celsius": 1, "note": "ü"}
    assert find_encoder("", "t", str(file), "").encode(value) == (None, AVRO.encode(value))
    as_json = find_encoder("", "t", str(file), "json")
    assert as_json.schema.schema_info().type is SchemaType.JSON
    assert as_json.encode(value) == (None, JsonSchema(None, DEFINITION).encode(value))
    of_class = find_encoder("", "t", f"{__name__}:Reading", "")
    assert of_class.encode({"sensor": "hall", "level": 2}) == (
        None,
        AvroSchema(Reading).encode(Reading(sensor="hall", level=2)),
    )
    of_model = find_encoder("", "t", f"{__name__}:Measured", "")
    measured = {"sensor": "hall", "at": "2026-01-31T12:00:00Z", "celsius": 2.5}
    assert of_model.encode(measured) == (None, AvroSchema(Measured).encode(Measured.model_validate(measured)))
    with pytest.raises(InvalidValue, match=r"(?s)celsius.*greater than -273"):
        of_model.encode({**measured, "celsius": -300})
    file.write_text('{"type": "record"}')
    for source, kind, problem in [
        (str(file), "", "not a schema of the type avro"),
        (str(file), "protobuf", "type protobuf can't be encoded from JSON"),
        ("no.such.module:Class", "", "can't be imported"),
        ("", "strin", "is none of"),
        ("", "avro", "or --schema-type with a type that needs no definition"),
        ("topic", "avro", "leave it out"),
    ]:
        with pytest.raises(typer.BadParameter, match=problem):
            find_encoder("", "t", source, kind)
