"""Payloads and definitions that would exhaust memory or the stack, or that match no schema (SCH-3).

A payload that can't be decoded gets a DecodeError, and the others of its batch are decoded.
"""

from __future__ import annotations

import json
import re
import struct
from typing import Any

import pytest

from magnetar import schema as schemas
from magnetar.exceptions import DecodeError, EncodeError
from magnetar.schema import (
    AutoConsumeSchema,
    AvroSchema,
    JsonSchema,
    Schema,
    SchemaInfo,
    SchemaType,
)
from magnetar_wire.schemas import MAX_DEFINITION_BYTES


def _avro(definition: Any) -> SchemaInfo:
    return SchemaInfo(SchemaType.AVRO, "", json.dumps(definition).encode())


def _record(name: str = "R", **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def _zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def _doubling(leaf: Any, depth: int) -> Any:
    """A definition of a few lines with 2 ** depth values."""
    definition = _record("R0", a=leaf, b=leaf)
    for level in range(1, depth):
        definition = _record(f"R{level}", a=definition, b=f"R{level - 1}")
    return definition


_NULLS = {f"f{number}": "null" for number in range(100)}
_EMPTIES = _record("Emptyish", a="boolean", b=_record("Empty"), **{f"f{number}": "Empty" for number in range(15)})
_HUGE = _zigzag(2**60)
_LIST = _record("Node", next=["null", "Node"])
_LISTS = _record("Node", next=["null", "Node"], fixed={"type": "array", "items": "double"})
_TREE = _record("Node", children={"type": "array", "items": "Node"})
_MAP_TREE = _record("Node", children={"type": "map", "values": "Node"})


@pytest.mark.parametrize(
    ("definition", "payload"),
    [
        (_record(a="string"), b"\x0aabc"),
        (_record(a="string"), _HUGE + b"abc"),
        (_record(a="string"), b"\x05abc"),
        (_record(a="string"), b"\x02\xff"),
        (_record(a="bytes"), _HUGE + b"abc"),
        (_record(a="bytes"), b"\x01abc"),
        (_record(a="int"), b""),
        (_record(a="int"), b"\xff" * 5),
        (_record(a="int"), b"\x02\x02"),
        (_record(a="boolean"), b""),
        (_record(a="float"), b"\0\0\0"),
        (_record(a="double"), b"\0" * 7),
        (_record(a={"type": "fixed", "name": "F", "size": 4}), b"\0\0\0"),
        (_record(a={"type": "fixed", "name": "F", "size": MAX_DEFINITION_BYTES}), b"\0\0\0"),
        (_record(a={"type": "enum", "name": "E", "symbols": ["A"]}), b"\x04"),
        (_record(a={"type": "enum", "name": "E", "symbols": ["A"]}), _HUGE),
        (_record(a=["null", "int"]), b"\x04"),
        (_record(a=["null", "int"]), _HUGE),
        (_record(a=["null", "int"]), b"\x01\x06"),
        (["null", "int"], b"\x01\x06"),
        (_record(a={"type": "enum", "name": "E", "symbols": ["A", "B"]}), b"\x01"),
        (_record(a={"type": "array", "items": "int"}), _HUGE + b"\x02"),
        (_record(a={"type": "array", "items": "null"}), _HUGE),
        (_record(a={"type": "array", "items": "null"}), _zigzag(-(2**60)) + b"\x00"),
        (_record(a={"type": "array", "items": "null"}), _zigzag(500) * 1000),
        (_record(a={"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}), _HUGE),
        (_record(a={"type": "array", "items": _record("Empty", b="null")}), _HUGE),
        (_record(a={"type": "map", "values": "null"}), _HUGE + b"\x02a"),
        (_record(a={"type": "int", "logicalType": "date"}), _zigzag(2**31 - 1)),
        (_record(a={"type": "long", "logicalType": "timestamp-millis"}), _zigzag(2**62)),
        (_record(a={"type": "string", "logicalType": "uuid"}), b"\x02a"),
        (_doubling("null", 30), b""),
        (_record(a="int", b=_doubling("null", 30)), b"\x02"),
        (_record(**{f"f{number}": "null" for number in range(2000)}), b""),
        (_record(a={"type": "array", "items": _record("Wide", b="boolean", **_NULLS)}), _zigzag(1000) + b"\1" * 1000),
        (_record(a={"type": "map", "values": _record("Wide", **_NULLS)}), _zigzag(1000) + b"\0" * 1000),
        (_record(a={"type": "array", "items": ["int", _record("Wide", **_NULLS)]}), _zigzag(1000) + b"\2" * 1000),
        (_record(a={"type": "array", "items": _EMPTIES}), _zigzag(1000) + b"\1" * 1000),
        (_LIST, b"\x02" * 1_000_000 + b"\0"),
        (_LIST, b"\x02" * 1000),
        (_LIST, b"\x04"),
        (_LISTS, b"\0" + _HUGE),
        (_LISTS, b"\0\x02\x0aabc"),
        (_TREE, b"\x02" * 1_000_000 + b"\0"),
        (_TREE, _HUGE),
        (_TREE, b"\xff" * 20),
        (_MAP_TREE, b"\x02\x02a" * 1_000_000 + b"\0"),
    ],
)
def test_hostile_avro_payloads_are_decode_errors(definition: Any, payload: bytes) -> None:
    for schema in (AutoConsumeSchema(), AvroSchema(None, definition)):
        (value,) = schema.make_decoder(_avro(definition))([payload], None)
        assert type(value) is DecodeError


@pytest.mark.parametrize(
    ("definition", "payload", "value"),
    [
        (_LIST, b"\x02\x02\x00", {"next": {"next": {"next": None}}}),
        (_TREE, b"\x04\x00\x00\x00", {"children": [{"children": []}, {"children": []}]}),
        (_MAP_TREE, b"\x02\x02a\x00\x00", {"children": {"a": {"children": {}}}}),
        (_record(a={"type": "array", "items": "null"}), b"\x06\x00", {"a": [None] * 3}),
        (_EMPTIES, b"\x01", {"a": True, **{name: {} for name in ("b", *(f"f{number}" for number in range(15)))}}),
        (_record(x="int", **_NULLS), b"\x02", {"x": 1, **dict.fromkeys(_NULLS)}),
        (_record(a={"type": "array", "items": "int"}), b"\x03\x04\x02\x04\x00", {"a": [1, 2]}),
    ],
)
def test_scanned_payloads_are_decoded(definition: Any, payload: bytes, value: Any) -> None:
    assert AutoConsumeSchema().make_decoder(_avro(definition))([payload], None) == [value]


@pytest.mark.parametrize("levels", [230, 300, 100_000])
def test_values_that_are_too_deep_are_encode_errors(levels: int) -> None:
    """What is sent can be read: the limits of consumers are those of producers."""
    value: Any = None
    for _ in range(levels):
        value = {"next": value}
    for schema in (AvroSchema(None, _LIST), JsonSchema(None, _LIST)):
        with pytest.raises(EncodeError):
            schema.encode(value)
    values = [None] * 100_000
    with pytest.raises(EncodeError, match="of memory"):
        AvroSchema(None, _record(a={"type": "array", "items": "null"})).encode({"a": values})


def test_payloads_of_a_batch_do_not_affect_one_another() -> None:
    """A payload that is too short does not read on in the next one, and one that is too long does not shift it."""

    class Text(schemas.Record):
        text = schemas.String(required=True)

    for schema, good, bad in (
        (AvroSchema(Text), b"\x02a", [b"\x04a", b"\x02ab", b"", b"\x02\xff"]),
        (JsonSchema(Text), b'{"text":"a"}', [b'{"text":"a"', b'{"text":"a"}}', b"", b'{"text":"\xff"}', b"null"]),
    ):
        for broken in bad:
            decoded: list[Any] = schema.make_decoder(None)([good, broken, good], None)
            assert [type(value) for value in decoded] == [Text, DecodeError, Text]


def _nested(levels: int) -> Any:
    definition: Any = "int"
    for _ in range(levels):
        definition = {"type": "array", "items": definition}
    return definition


@pytest.mark.parametrize(
    "definition",
    [
        b"",
        b"{",
        b"5",
        b"null",
        b"[]x",
        b'"record"',
        b'"unknown"',
        b"[" * 100_000,
        b"\xff",
        b" " * (MAX_DEFINITION_BYTES + 1),
        *(
            json.dumps(plain).encode()
            for plain in (
                {},
                {"type": 5},
                {"type": "record", "name": "R"},
                {"type": "record", "name": 5, "fields": []},
                {"type": "record", "name": "R", "fields": [5]},
                {"type": "record", "name": "R", "fields": [{"name": "a"}]},
                {"type": "record", "name": "R", "fields": {"a": "int"}},
                {"type": "enum", "name": "E", "symbols": "AB"},
                {"type": "enum", "name": "E", "symbols": [1]},
                {"type": "fixed", "name": "F", "size": -1},
                {"type": "fixed", "name": "F", "size": 2**40},
                {"type": "fixed", "name": "F", "size": "4"},
                {"type": "array"},
                {"type": "Missing", "fields": None},
                {"type": "map", "values": None},
                [["null"], "int"],
                {"type": "record", "name": "R", "fields": [{"name": "a", "type": "Missing"}]},
                {"type": "record", "name": "R", "fields": [{"name": "a", "type": "R"}]},
                _record("A", b=_record("B", a="A")),
                _nested(200),
            )
        ),
    ],
    ids=lambda definition: definition[:30],
)
def test_hostile_avro_definitions_are_decode_errors(definition: bytes) -> None:
    writer = SchemaInfo(SchemaType.AVRO, "", definition)
    for schema in (AutoConsumeSchema(), AvroSchema(None, _record(a="int"))):
        with pytest.raises(DecodeError):
            schema.make_decoder(writer)


def test_many_values_that_take_bytes_are_allowed() -> None:
    """The payload of a large definition is as large as its values."""
    (value,) = AutoConsumeSchema().make_decoder(_avro(_doubling("int", 30)))([b"\x02" * 1000], None)
    assert type(value) is DecodeError
    (value,) = AutoConsumeSchema().make_decoder(_avro(_doubling("int", 2)))([b"\x02" * 4], None)
    assert value == {"a": {"a": 1, "b": 1}, "b": {"a": 1, "b": 1}}


@pytest.mark.parametrize("items", [_record("Few", x="int"), {"type": "array", "items": "int"}])
def test_large_payloads_have_a_limit_of_memory(items: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of values that take bytes, and are no more memory than is usual."""
    for module in ("_avro_definition", "_avro_scan"):
        monkeypatch.setattr(f"magnetar.schema.{module}.MAX_BYTES", 1024 * 1024)
    decode: Any = AutoConsumeSchema().make_decoder(_avro(_record("Limited", a={"type": "array", "items": items})))
    good, bad = (_zigzag(count) + b"\0" * (count + 1) for count in (5000, 20_000))
    first, second, third = decode([good, bad, good], None)
    assert len(first["a"]) == len(third["a"]) == 5000
    assert "would take more than 1048576 bytes of memory" in str(second)


def test_a_union_of_many_branches_is_read_quickly() -> None:
    """It takes no time for each of its branches."""
    union = ["null", *({"type": "fixed", "name": f"F{number}", "size": 1} for number in range(10_000))]
    definition = _avro(_record(a={"type": "array", "items": union}))
    payload = _zigzag(200_000) + b"\0" * 200_001
    assert AutoConsumeSchema().make_decoder(definition)([payload], None) == [{"a": [None] * 200_000}]


@pytest.mark.parametrize("kind", [{"type": "bytes"}, {"type": "fixed", "name": "F", "size": 2_000_000}])
def test_a_large_decimal_is_refused(kind: Any) -> None:
    """The time to convert one grows with the square of its size."""
    definition = {**kind, "logicalType": "decimal", "precision": 4, "scale": 2}
    payload = b"\x7f" * 2_000_000 if "size" in kind else _zigzag(2_000_000) + b"\x7f" * 2_000_000
    decoded: list[Any] = AutoConsumeSchema().make_decoder(_avro(definition))([payload], None)
    assert type(decoded[0]) is DecodeError


def test_what_avro_ignores_in_a_definition_is_ignored() -> None:
    """Logical types that are not valid, and a writer's defaults that do not match: Pulsar's brokers accept them."""
    for logical in (
        {"logicalType": "decimal"},
        {"logicalType": 5},
        {"logicalType": "decimal", "precision": "x"},
        {"logicalType": "magnetar-decimal", "precision": 4, "scale": -(10**9)},
    ):
        assert AutoConsumeSchema().make_decoder(_avro({"type": "bytes", **logical}))([b"\x02a"], None) == [b"a"]
    writer: Any = _record(a="int")
    writer["fields"][0]["default"] = "text"
    assert AutoConsumeSchema().make_decoder(_avro(writer))([b"\x02"], None) == [{"a": 1}]
    with pytest.raises(DecodeError, match="the default of field 'a' does not match its type"):
        AvroSchema(None, {**writer, "fields": [{"name": "a", "type": "double", "default": "text"}]}).make_decoder(
            _avro(_record())
        )


def test_marks_of_the_library_are_not_trusted() -> None:
    """fastavro does not parse a definition that has its marks."""
    definition = {"__fastavro_parsed": True, "__named_schemas": {}, **_record(a="Missing")}
    with pytest.raises(DecodeError, match="Missing"):
        AutoConsumeSchema().make_decoder(_avro(definition))
    definition["fields"][0]["type"] = {"type": "int", "__fastavro_parsed": True}
    assert AutoConsumeSchema().make_decoder(_avro(definition))([b"\x02"], None) == [{"a": 1}]


def test_a_definition_may_repeat_the_word_type() -> None:
    """Java's parser takes it, fastavro does not."""
    definition = _record(a={"type": {"type": "string", "avro.java.string": "String"}})
    assert AutoConsumeSchema().make_decoder(_avro(definition))([b"\x02x"], None) == [{"a": "x"}]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"5",
        b"{",
        b'{"a": 1.5}',
        b'{"a": "1"}',
        b'{"a": 3000000000}',
        b'{"a": 1' + b"0" * 10_000 + b"}",
        b'{"a": NaN}',
        b'{"text": 5}',
        b'{"text": "\\ud800"}',
        b'{"color": "PURPLE"}',
        b'{"color": [1]}',
        b'{"color": {"a": 1}}',
        b'{"list": {"a": 1}}',
        b'{"list": ["a"]}',
        b'{"required": null}',
        b"[" * 1_000_000,
        b'{"list": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"unknown": ' * 10_000 + b"1" + b"}" * 10_000,
    ],
    ids=lambda payload: payload[:20],
)
def test_hostile_json_payloads_are_decode_errors(payload: bytes) -> None:
    from tests.unit.client.schema.declarations import Color

    class Everything(schemas.Record):
        a = schemas.Integer()
        text = schemas.String()
        color = Color
        list = schemas.Array(schemas.Integer())
        required = schemas.Integer(required=True)

    (value,) = JsonSchema(Everything).make_decoder(None)([payload], None)
    assert type(value) is DecodeError


def test_json_payloads_are_lenient_about_absent_and_unknown_fields() -> None:
    class Some(schemas.Record):
        a = schemas.Integer(default=5)
        b = schemas.Double(required=True)
        c = schemas.Array(schemas.String(), required=True)

    schema = JsonSchema(Some)
    assert schema.decode(b"{}") == Some()
    value = schema.decode(b'{"b": 1, "c": null, "unknown": {"x": []}}')
    assert (value.a, value.b, value.c) == (5, 1.0, None)
    assert type(value.b) is float
    assert str(schema.decode(b'{"b": "NaN"}').b) == str(schema.decode(b'{"b": NaN}').b) == "nan"


@pytest.mark.parametrize(
    "schema",
    [
        schemas.StringSchema(),
        schemas.Int32Schema(),
        AvroSchema(None, _record(a="int")),
        JsonSchema(None, _record(a="int")),
        schemas.KeyValueSchema(schemas.StringSchema(), schemas.Int32Schema()),
    ],
)
def test_a_writer_of_another_type_is_refused(schema: Schema[Any]) -> None:
    with pytest.raises(DecodeError, match="schema of type LOCAL_DATE"):
        schema.make_decoder(SchemaInfo(SchemaType.LOCAL_DATE, "LocalDate"))


@pytest.mark.parametrize(
    "payload",
    [b"", b"\0", struct.pack(">i", 2**31 - 1), struct.pack(">ii", 0, 5), struct.pack(">ii", 0, 0) + b"x"],
)
def test_hostile_key_value_payloads_are_decode_errors(payload: bytes) -> None:
    pairs = schemas.KeyValueSchema(schemas.BytesSchema(), schemas.BytesSchema())
    (value, good) = pairs.make_decoder(None)([payload, struct.pack(">ii", 0, -1)], [None, None])
    assert type(value) is DecodeError
    assert good == schemas.KeyValue(b"", None)


@pytest.mark.parametrize(
    ("kind", "payload", "problem"),
    [
        ("double", b"\x02", "field 'a.b': a value of 8 bytes, and 1 are left in the payload"),
        ("long", b"", "field 'a.b': the payload ends inside of a number"),
        ("long", b"\xff" * 11, "field 'a.b': a number has more than 64 bits"),
        ("string", b"\x08ab", "field 'a.b': a value of 4 bytes, and 2 are left in the payload"),
        ("string", b"\x02\xff", "field 'a.b': a string is not valid UTF-8"),
        (["null", "int"], b"\x08", "field 'a.b': branch 4 of a union with 2 branches"),
        ({"type": "enum", "name": "E", "symbols": ["X"]}, b"\x02", "symbol 1 of an enumeration with 1 symbols"),
        ({"type": "map", "values": "int"}, b"\x02", "field 'a.b': the payload ends inside of a number"),
        ({"type": "int", "logicalType": "date"}, b"\xff\xff\xff\xff\x0f", "ordinal must be >= 1"),
        ({"type": "string", "logicalType": "uuid"}, b"\x02x", "hexadecimal"),
        ("null", b"xy", "2 bytes behind the end"),
    ],
)
def test_the_error_of_an_avro_payload_names_field_and_reason_in_plain_words(
    kind: Any, payload: bytes, problem: str
) -> None:
    with pytest.raises(DecodeError, match=problem) as raised:
        AvroSchema(None, _record(a=_record("A", b=kind))).decode(payload)
    assert not re.search(r"Error|0x|<|None", str(raised.value))


def test_the_error_of_a_payload_that_is_scanned_names_the_field() -> None:
    with pytest.raises(DecodeError, match="field 'value': the payload ends inside of a number"):
        AvroSchema(None, _record("Q", next=["null", "Q"], value="long")).decode(b"\x00")


def test_errors_of_other_payloads_are_in_plain_words() -> None:
    for schema, payload, problem in (
        (schemas.StringSchema(), b"a\xff", "no valid STRING: a string is not valid UTF-8, from byte 1 on"),
        (schemas.DateSchema(), b"\x7f" * 8, "no valid DATE: a value is out of range"),
        (JsonSchema(None, _record(a="int")), b"{", "no valid JSON: EOF while parsing"),
    ):
        with pytest.raises(DecodeError, match=problem):
            schema.decode(payload)
