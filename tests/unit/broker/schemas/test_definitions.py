"""Definitions that are refused: each error names where and why, and hostile ones cost little (SCH-2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas import compatibility
from magnetar_broker.schemas.avro_resolution import find_read_problem
from magnetar_broker.schemas.definitions import (
    MAX_PROPERTIES,
    MAX_PROPERTIES_LENGTH,
    examine,
    parse_avro_schema,
    takes_long,
)
from magnetar_broker.schemas.work_budget import WorkBudget
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema
from magnetar_wire.schemas import MAX_DEFINITION_BYTES


def _avro(definition: Any) -> Schema:
    return Schema(
        type="AVRO", definition=definition if isinstance(definition, bytes) else json.dumps(definition).encode()
    )


def _record(*fields: Any, name: str = "Reading") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _field(name: str, field_type: Any, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "type": field_type, **attributes}


_DEFAULTS: Final = _record(*(_field(f"f{number}", "int", default=0) for number in range(100)), name="Defaults")
_INNER: Final = _record(_field("unit", "text"), name="Unit")


@pytest.mark.parametrize(
    ("definition", "error"),
    [
        (_record(_field("unit", "text")), "field Reading.unit: type 'text' is not defined"),
        (_record(_field("units", {"type": "array", "items": _INNER})), "field Reading.units.unit: type 'text'"),
        (_record(_field("a", "int", default="x")), 'field Reading.a: its default "x" is not a value of its type int'),
        (_record(_field("a", ["int", "int"])), "field Reading.a: a union has the branch 'int' twice"),
        (_record(_field("a", "int"), _field("a", "int")), "record Reading: record 'Reading' has the field 'a' twice"),
        (_record({"name": "a"}), 'field Reading.a: it has no "type"'),
        (b"{", "the definition is not JSON"),
        (b"\xff", "the definition is not UTF-8: byte 0"),
        (b"5", "the definition is no Avro schema: 5 is not a type"),
        (b'{"type":"x","type":"y"}', "the key 'type' twice"),
        (b"NaN", "NaN is not a value"),
        (b"9" * 2000, "a number of the definition has 2000 digits, and 1000 are allowed"),
        (b"1e999", "number 1e999 of the definition is out of range"),
        (b'"\\ud800"', "half of a surrogate pair"),
        (b'"\\uD800"', "half of a surrogate pair"),
        (b'"\\uDC00"', "half of a surrogate pair"),
        (_record(_field("a", "Reading", default={})), "field Reading.a: its default an object of 0 is not a value of"),
        ({"type": "enum", "name": "E", "symbols": [f"s{n}" for n in range(50_001)]}, "more than 50000 types"),
        (_record(_field("a", {"type": "array", "items": _DEFAULTS}, default=[{}] * 600)), "more than 50000 types"),
        (b"[" * 1_000_000, "nested deeper than 100 levels"),
        (b'{"type":"array","items":' * 40_000, "nested deeper than 100 levels"),
        (b'"' + b'\\"' * 500_000, "the definition is not JSON"),
        (b" " * (MAX_DEFINITION_BYTES + 1), "has 1048577 bytes, and 1048576 are allowed"),
        (b'["int"' + b',"int"' * 100_000 + b"]", "more than 50000 types, fields, symbols, aliases and defaults"),
    ],
)
def test_error_names_where_and_why(definition: Any, error: str) -> None:
    with pytest.raises(BrokerError) as raised:
        examine(_avro(definition))
    assert error in str(raised.value)
    assert len(str(raised.value)) < 1000
    assert (raised.value.code, raised.value.about) == (ErrorCode.INVALID_ARGUMENT, "schema")


def test_error_names_the_part_of_a_key_value() -> None:
    schema = Schema(type="KEY_VALUE", definition=b"\0\0\0\0\0\0\0\1x", properties={"value.schema.type": "AVRO"})
    with pytest.raises(BrokerError, match="value: the definition is not JSON"):
        examine(schema)


def test_properties_count_as_work() -> None:
    """(SCH-2) Those of KEY_VALUE have properties of its parts in them."""
    assert not takes_long(Schema(properties={"x": "y" * 8_000}))
    assert takes_long(Schema(properties={"x": "y" * 17_000}))
    assert takes_long(Schema(properties={str(number): "" for number in range(1025)}))


def test_properties_are_bounded() -> None:
    with pytest.raises(BrokerError, match="has 1001 properties, and 1000 are allowed"):
        examine(Schema(properties={str(number): "" for number in range(MAX_PROPERTIES + 1)}))
    with pytest.raises(BrokerError, match="65537 characters, and 65536 are allowed"):
        examine(Schema(properties={"x": "y" * MAX_PROPERTIES_LENGTH}))


@pytest.mark.parametrize("linked", ["L{}", ["null", "L{}"]])
def test_long_chain_of_types_is_compared(linked: Any) -> None:
    """(SCH-2) Far more types than there are frames on a stack, each with two fields of the one before."""
    fields = [_field("f0", _record(name="L0"))]
    for number in range(1, 2000):
        inner = json.loads(json.dumps(linked).replace("{}", str(number - 1)))
        fields.append(_field(f"f{number}", _record(_field("a", inner), _field("b", inner), name=f"L{number}")))
    old, new = _avro(_record(*fields)), _avro(_record(*fields, _field("added", "int", default=0)))
    examine(new)
    assert examine(old) != examine(new)
    assert takes_long(old, new)
    compatibility.check_compatible(new, [(0, old)], SchemaCompatibility.FULL_TRANSITIVE)


def test_nesting_up_to_the_limit_is_compared() -> None:
    nested: Any = "int"
    value: Any = 1
    for _ in range(95):
        nested, value = {"type": "array", "items": nested}, [value]
    old, new = _record(_field("a", nested)), _record(_field("a", nested), _field("b", nested, default=value))
    compatibility.check_compatible(_avro(new), [(0, _avro(old))], SchemaCompatibility.FULL)
    examine(_avro(new))


def test_comparison_ends_with_an_error_when_it_takes_too_much_work() -> None:
    """(SCH-2) A union of many records, and another one of records with other names: each is compared with each."""

    def union(prefix: str) -> Schema:
        branches = [_record(_field("a", "int"), name=f"{prefix}{number}") for number in range(100)]
        return _avro(_record(_field("u", branches)))

    writer, reader = parse_avro_schema(union("A")), parse_avro_schema(union("B"))
    assert writer is not None
    assert reader is not None
    with pytest.raises(BrokerError, match="too complex to check or compare: it takes more than 5000") as raised:
        find_read_problem(writer, reader, WorkBudget(5000))
    assert (raised.value.code, raised.value.about) == (ErrorCode.INVALID_ARGUMENT, "schema")
    assert find_read_problem(writer, reader, WorkBudget()) is None


def test_records_are_tried_as_branches_to_a_bounded_depth() -> None:
    """Each record of the writer's can only be a branch of the reader's if the records in it can be, too."""

    def chain(records: int, prefix: str, fields: str, linked: Callable[[str], Any], **default: Any) -> Schema:
        links = [_field(f"{fields}0", _record(name=f"{prefix}0"), **default)]
        for number in range(1, records):
            link = _record(_field("a", linked(f"{prefix}{number - 1}")), name=f"{prefix}{number}")
            links.append(_field(f"{fields}{number}", link, **({"default": {"a": None}} if default else {})))
        return _avro(_record(*links, _field("top", linked(f"{prefix}{records - 1}"))))

    def compare(records: int) -> None:
        writer = chain(records, "A", "f", lambda name: name)
        reader = chain(records, "B", "g", lambda name: ["null", name], default={})
        compatibility.check_compatible(reader, [(0, writer)], SchemaCompatibility.BACKWARD)

    compare(40)
    with pytest.raises(BrokerError, match="nested deeper than 50 levels"):
        compare(60)
