"""Values of a writer's Avro schema as values of the reader's: evolution by Avro's rules (SCH-3)."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from magnetar.exceptions import DecodeError, EncodeError
from magnetar.schema import AvroSchema, JsonSchema, SchemaInfo, SchemaType


def _record(name: str = "R", **fields: Any) -> dict[str, Any]:
    """Return a record; a pair is a type and a default."""
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": field, "type": kind[0], "default": kind[1]}
            if isinstance(kind, tuple)
            else {"name": field, "type": kind}
            for field, kind in fields.items()
        ],
    }


def _enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def _make_decoder(writer: Any, reader: Any) -> Any:
    return AvroSchema(None, reader).make_decoder(SchemaInfo(SchemaType.AVRO, "", json.dumps(writer).encode()))


def _resolve(writer: Any, reader: Any, value: Any) -> Any:
    """Return the value as the reader has it: written with one schema, read with the other."""
    buffer = io.BytesIO()
    schemaless_writer(buffer, parse_schema(writer), value)
    decoded = _make_decoder(writer, reader)([buffer.getvalue()], None)
    if isinstance(decoded[0], DecodeError):
        raise decoded[0]
    return decoded[0]


_INNER = _record("Inner", x="int")
_OTHER_INNER = _record("Other", x="long", y=("string", "d"))


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("int", "long", 5, 5),
        ("int", "double", 5, 5.0),
        ("long", "float", 5, 5.0),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", b"a", "a"),
        ("int", ["null", "long"], 5, 5),
        ("int", ["string", "double", "long"], 5, 5.0),
        (["null", "int"], "int", 5, 5),
        (["null", "int"], ["double", "null"], 5, 5.0),
        (["null", "int", "string"], ["null", "string", "double"], 5, 5.0),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "double"}, [1], [1.0]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": ["null", "double"]}, {"a": 1}, {"a": 1.0}),
        (_enum("A", "B"), _enum("B", "A", "C"), "A", "A"),
        (_enum("A", "B"), _enum("A", default="A"), "B", "A"),
        (_record(a="int", b="string"), _record(b="string", a="int"), {"a": 1, "b": "x"}, {"a": 1, "b": "x"}),
        (_record(a="int", b="string"), _record(b="string"), {"a": 1, "b": "x"}, {"b": "x"}),
        (_record(a="int"), _record("Renamed", a="int"), {"a": 1}, {"a": 1}),
        (_record(a=_INNER), _record(a=_OTHER_INNER), {"a": {"x": 1}}, {"a": {"x": 1, "y": "d"}}),
        (_record(a=["null", _INNER]), _record(a=["null", _OTHER_INNER]), {"a": {"x": 1}}, {"a": {"x": 1, "y": "d"}}),
        (
            _record(a=[_INNER, _record("Second", x="int")]),
            _record(a=[_record("Second", x="double"), _record("Inner", x="long")]),
            {"a": ("Second", {"x": 1})},
            {"a": {"x": 1.0}},
        ),
        (
            _record(a=["string", _enum("A"), {"type": "map", "values": "int"}, _INNER]),
            _record(a=["bytes", _enum("A", "B"), {"type": "map", "values": "double"}, _INNER]),
            {"a": {"k": 1}},
            {"a": {"k": 1.0}},
        ),
        (
            _record(old="int"),
            {"type": "record", "name": "R", "fields": [{"name": "new", "type": "int", "aliases": ["old"]}]},
            {"old": 1},
            {"new": 1},
        ),
        (
            {"type": "int", "logicalType": "date"},
            "int",
            date(1970, 1, 2),
            1,
        ),
        ("int", {"type": "int", "logicalType": "date"}, 1, date(1970, 1, 2)),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            {"type": "long", "logicalType": "timestamp-micros"},
            datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
            datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC),
        ),
    ],
)
def test_values_are_resolved(writer: Any, reader: Any, value: Any, expected: Any) -> None:
    found = _resolve(writer, reader, value)
    assert found == expected
    assert type(found) is type(expected)


def test_defaults_of_every_type() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    reader = _record(
        "Reader",
        number=("int", 3),
        real=("double", 1),
        raw=("bytes", "ÿ"),
        maybe=(["null", "string"], None),
        text=(["string", "null"], "x"),
        late=(["null", "double"], 5),
        symbol=(_enum("A", "B"), "B"),
        words=({"type": "array", "items": "string"}, ["a"]),
        raws=({"type": "map", "values": "bytes"}, {"k": "ÿ"}),
        day=({"type": "int", "logicalType": "date"}, 1),
        amount=(decimal, "\x01"),
        inner=(_record("In", x=("int", 7), y="bytes"), {"y": "ÿ"}),
    )
    expected = {
        "number": 3,
        "real": 1.0,
        "raw": b"\xff",
        "maybe": None,
        "text": "x",
        "late": 5.0,
        "symbol": "B",
        "words": ["a"],
        "raws": {"k": b"\xff"},
        "day": date(1970, 1, 2),
        "amount": Decimal("0.01"),
        "inner": {"x": 7, "y": b"\xff"},
    }
    first, second = (_resolve(_record("Writer"), reader, {}) for _ in range(2))
    assert first == expected
    assert type(first["real"]) is type(first["late"]) is float
    writer = SchemaInfo(SchemaType.AVRO, "", json.dumps(_record("Writer")).encode())
    one, two = AvroSchema(None, reader).make_decoder(writer)([b"", b""], None)
    assert not isinstance(one, DecodeError)
    one["words"].append("b")
    one["inner"]["x"] = 8
    assert two == second == expected


@pytest.mark.parametrize("kind", [{"type": "bytes"}, {"type": "fixed", "name": "F", "size": 8}])
def test_decimals_are_exact(kind: Any) -> None:
    schema = AvroSchema(None, _record(a={**kind, "logicalType": "decimal", "precision": 12, "scale": 3}))
    for text in ("0.000", "-1.500", "123456789.012", "-0.001"):
        assert str(schema.decode(schema.encode({"a": Decimal(text)}))["a"]) == text
    with pytest.raises(EncodeError, match=r"field 'a': .* is no decimal"):
        schema.encode({"a": Decimal("0.0001")})


@pytest.mark.parametrize(
    ("logical", "value"),
    [
        ({"type": "int", "logicalType": "date"}, datetime(2026, 1, 1, 12)),
        ({"type": "int", "logicalType": "time-millis"}, time(1, 2, 3, 4)),
        ({"type": "long", "logicalType": "timestamp-millis"}, datetime(2026, 1, 1, 1, 1, 1, 1, tzinfo=UTC)),
        ({"type": "int", "logicalType": "date"}, "no date"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1.5),
        ({"type": "long", "logicalType": "timestamp-micros"}, datetime(2026, 1, 1)),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, datetime(2026, 1, 1, tzinfo=UTC)),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_logical_values_that_would_lose_something_are_refused(logical: Any, value: Any) -> None:
    with pytest.raises(EncodeError, match="field 'a'"):
        AvroSchema(None, _record(a=logical)).encode({"a": value})


_POINT = _record("Point", x="int")
_POINT_AND_MORE = _record("Point", x="int", more=("int", 5))
_COUNTS = {"type": "map", "values": "int"}
_FIXED = {"type": "fixed", "name": "F", "size": 1}


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ([_POINT, _COUNTS], [_POINT_AND_MORE, _COUNTS], ("Point", {"x": 3}), {"x": 3, "more": 5}),
        ([_POINT, _COUNTS], [_POINT_AND_MORE, _COUNTS], {"x": 3, "y": 4}, {"x": 3, "y": 4}),
        ([_COUNTS, _POINT], [_POINT_AND_MORE, _COUNTS], {"z": 3}, {"z": 3}),
        ([_enum("A", "B"), "string"], [_enum("A", default="A"), "string"], "hello", "hello"),
        ([_enum("A", "B"), "string"], [_enum("A", default="A"), "string"], ("E", "B"), "A"),
        (["bytes", _FIXED], ["string", _FIXED], b"ab", "ab"),
        (["bytes", _FIXED], ["string", _FIXED], ("F", b"a"), b"a"),
        (["int", "long"], ["long", "float"], 2**40, 2**40),
        (["float", "double", "null"], ["null", "double"], 0.5, 0.5),
        (["int", "string"], "double", 5, 5.0),
        (
            {"type": "array", "items": [_POINT, "Point2", _COUNTS]},
            {"type": "array", "items": _COUNTS},
            [{"y": 1}],
            [{"y": 1}],
        ),
    ],
)
def test_values_of_unions_keep_their_branch(writer: Any, reader: Any, value: Any, expected: Any) -> None:
    """(SCH-3) Also where values of two branches have one class."""
    if "Point2" in str(writer):
        writer["items"][1] = _record("Point2", x="int")
    for reader_record in (_record(a=reader), _record(a=reader, b=("int", 0))):
        found = _resolve(_record(a=writer), reader_record, {"a": value})["a"]
        assert found == expected
        assert type(found) is type(expected)


def test_keys_that_are_no_fields_are_refused() -> None:
    definition = _record(a=["null", _INNER, _COUNTS], b=("int", 1))
    avro = AvroSchema(None, definition)
    assert avro.decode(avro.encode({"a": {"x": 1, "y": 2}})) == {"a": {"x": 1, "y": 2}, "b": 1}
    for schema in (avro, JsonSchema(None, definition)):
        with pytest.raises(EncodeError, match=r"field 'c': record R has no such field"):
            schema.encode({"a": None, "c": 2})


def test_recursive_records_are_resolved() -> None:
    writer = _record("Node", value="int", next=["null", "Node"])
    reader = _record("Knot", next=["null", "Knot"], value="double", more=("string", "d"))
    value = {"value": 1, "next": {"value": 2, "next": None}}
    expected = {"value": 1.0, "more": "d", "next": {"value": 2.0, "more": "d", "next": None}}
    assert _resolve(writer, reader, value) == expected


@pytest.mark.parametrize(
    ("writer", "reader", "problem"),
    [
        ("string", "int", "the value: the writer's type is string, and the reader's is int"),
        (_record(a="string"), _record(a="int"), "field a: the writer's type is string, and the reader's is int"),
        (_record(a=_INNER), _record(a=_record("I", x="boolean")), "field a.x: "),
        (_record(a="int"), _record(b="int"), "the writer has no field 'b', and the reader no default for it"),
        (_record(a="long"), _record(a=["null", "int"]), "field a: .* no branch"),
        (["null", "int"], ["string"], "the writer's type is"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, "2 bytes"),
        (_record(a="int"), {"type": "map", "values": "int"}, "the writer's type is record, and the reader's is map"),
        ([], "int", "empty"),
    ],
)
def test_schemas_that_do_not_resolve_are_refused_at_once(writer: Any, reader: Any, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        AvroSchema(None, reader).make_decoder(SchemaInfo(SchemaType.AVRO, "", json.dumps(writer).encode()))


def test_a_value_that_the_reader_has_not_is_an_error_of_its_message() -> None:
    with pytest.raises(DecodeError, match="no symbol 'B'"):
        _resolve(_record(a=_enum("A", "B")), _record(a=_enum("A", "C")), {"a": "B"})
    with pytest.raises(DecodeError, match="the writer's type is null"):
        _resolve(["null", "int"], "int", None)
    assert _resolve(["null", "int"], "int", 1) == 1


def _nested_pairs(depth: int) -> Any:
    """Each record has two values of the next one, and each could be read as one of two records."""
    kinds: list[Any] = []
    for level in range(depth):
        inner = f"W{level - 1}" if level else "string"
        kinds.append(_record(f"W{level}", a=inner, b=inner, c="long"))
    return _record(**{f"d{level}": kind for level, kind in enumerate(kinds)}, root=f"W{depth - 1}")


def test_resolution_takes_no_exponential_time() -> None:
    """Each pair of records is compared once, also if one can't be read as the other."""
    add = _record(
        "Add", a=["Add", _record("Mul", a=["Add", "Mul"], b=["Add", "Mul"], d="int")], b=["Add", "Mul"], e="int"
    )
    with pytest.raises(DecodeError, match="field root"):
        _make_decoder(_nested_pairs(60), _record(root=[add, "Mul"]))
    wide = [_record(f"N{number}", a="int") for number in range(200)]
    union = [_record(f"R{number}", b="int") for number in range(200)]
    with pytest.raises(DecodeError, match="pairs of the writer's and the reader's types"):
        _make_decoder(_record(a=["null", *wide], c="int"), _record(a=union))


def test_what_relies_on_records_that_do_not_resolve_takes_another_branch() -> None:
    """A's list of B can be read only as D, since A itself can't be read as a C, which B has inside."""
    a = _record("A", list={"type": "array", "items": _record("B", back={"type": "array", "items": "A"})}, x="string")
    c = _record(
        "C",
        list={"type": "array", "items": _record("D", back={"type": "array", "items": "C"})},
        x="int",
    )
    reader = _record(first=[c, _record("E", x="string")], second=["D", _record("G", y=("int", 1))])
    writer = _record(first=a, second="B")
    value = {"first": {"list": [], "x": "t"}, "second": {"back": [{"list": [], "x": "u"}]}}
    assert _resolve(writer, reader, value) == {"first": {"x": "t"}, "second": {"y": 1}}
