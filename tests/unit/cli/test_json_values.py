"""Values of schemas as JSON, and back."""

from __future__ import annotations

import json
import math
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from magnetar.schema import AvroSchema
from magnetar_cli.messages.json_values import make_json_reader, value_to_json
from magnetar_cli.messages.message_input import InvalidValue


def record(**fields: Any) -> dict[str, Any]:
    listed = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "R", "namespace": "n", "fields": listed}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


EVERYTHING = record(
    text="string",
    raw="bytes",
    flag="boolean",
    small="int",
    large="long",
    single="float",
    double="double",
    nothing="null",
    maybe=["null", "string"],
    either=["null", "bytes", "string", "int"],
    suit={"type": "enum", "name": "Suit", "symbols": ["HEARTS", "SPADES"]},
    other_suit="Suit",
    two={"type": "fixed", "name": "Two", "size": 2},
    items={"type": "array", "items": "n.Two"},
    table={"type": "map", "values": ["null", "double"]},
    next=["null", "R"],
    price=logical("bytes", "decimal", precision=9, scale=2),
    id=logical("string", "uuid"),
    day=logical("int", "date"),
    clock=logical("int", "time-millis"),
    exact=logical("long", "time-micros"),
    at=logical("long", "timestamp-millis"),
    local=logical("long", "local-timestamp-micros"),
)
VALUE: dict[str, Any] = {
    "text": "☂",
    "raw": b"\x00\xffz",
    "flag": True,
    "small": -5,
    "large": 2**40,
    "single": 0.5,
    "double": -math.inf,
    "nothing": None,
    "maybe": None,
    "either": "text",
    "suit": "SPADES",
    "other_suit": "HEARTS",
    "two": b"\x01\x80",
    "items": [b"ab"],
    "table": {"x": 1.5, "y": None},
    "price": Decimal("12.30"),
    "id": uuid.UUID(int=7),
    "day": date(2026, 1, 31),
    "clock": time(12, 30, 0, 5000),
    "exact": time(12, 30, 0, 5),
    "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "local": datetime(2026, 1, 31, 12, 0, 0, 7),
}
VALUE["next"] = {**VALUE, "next": None}


def test_every_value_that_is_printed_is_read_again() -> None:
    """(SCH-3) `produce` encodes what `consume` has printed, of every type of Avro."""
    schema = AvroSchema(None, EVERYTHING)
    payload = schema.encode(VALUE)
    shown = json.dumps(value_to_json(schema.decode(payload)), allow_nan=False)
    read = make_json_reader(EVERYTHING)(json.loads(shown))
    assert schema.encode(read) == payload
    assert json.loads(shown) == {
        **json.loads(shown),
        "raw": "\x00ÿz",
        "double": "-Infinity",
        "price": "12.30",
        "day": "2026-01-31",
        "clock": "12:30:00.005000",
        "at": "2026-01-31T12:00:00+00:00",
    }


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        ("int", "5", "field 'f': '5' is not an integer"),
        ("int", True, "True is not an integer"),
        ("long", 1.5, "1.5 is not an integer"),
        ("double", "much", "'much' is not a number"),
        ("boolean", 1, "1 is not true or false"),
        ("string", None, "None is not a string"),
        ("bytes", "☂", "'☂' is no bytes: use a character from U"),
        (["null", "int"], "x", "field 'f': 'x' is not an integer"),
        (["null", "int", "boolean"], "x", "no type of the union fits: .*an integer; .*true or false"),
        ({"type": "array", "items": "int"}, [1, "x"], r"field 'f\[1\]': 'x' is not an integer"),
        ({"type": "array", "items": "int"}, {}, "{} is not an array"),
        ({"type": "map", "values": "int"}, {"a": "x"}, r"field \"f\['a'\]\": 'x' is not an integer"),
        ({"type": "map", "values": "int"}, [], r"\[\] is not an object"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "C", "'C' is none of A, B"),
        ({**record(g="int"), "name": "S"}, {"g": "x"}, "field 'f.g': 'x' is not an integer"),
        ({**record(g="int"), "name": "S"}, {"h": 1}, "field 'f': there is no field 'h': use g"),
        (logical("long", "timestamp-millis"), "2026-01-31T12:00", "no time zone: add one, e.g. Z"),
        (logical("long", "local-timestamp-millis"), "2026-01-31T12:00Z", "has a time zone: remove it"),
        (logical("int", "date"), "yesterday", "'yesterday' is not a date in ISO 8601, or its number"),
        (logical("bytes", "decimal", precision=4, scale=2), "x", "'x' is no decimal"),
        (logical("string", "uuid"), "x", "'x' is not a UUID"),
    ],
)
def test_an_error_names_the_field(kind: Any, value: Any, problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        make_json_reader(record(f=kind))({"f": value})
