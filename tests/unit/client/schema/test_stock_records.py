"""Records, AVRO and JSON schemas beside those of the stock client: definitions, errors, payloads (SCH-3)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from magnetar import schema as ours
from magnetar.exceptions import EncodeError
from tests.unit.client.schema.declarations import DECLARATIONS, Color, Level, declare_everything

stock: Any = pytest.importorskip("pulsar.schema")

_VALUES: dict[str, Any] = {
    "small": -7,
    "large": 2**60,
    "short": 0.5,
    "text": "naïve",
    "raw": b"bytes",
    "flag": True,
    "color": Color.GREEN,
    "level": "LOW",
    "words": ["a", "b"],
    "numbers": {"one": 1},
    "address": {"city": "Ulm"},
    "other": {"city": "Aalen", "number": 9},
    "addresses": [{"city": "Bonn"}],
    "by_name": {"x": {"number": 1}},
}


@pytest.mark.parametrize("declare", DECLARATIONS, ids=lambda declare: declare.__name__)
def test_definitions_are_those_of_the_stock_client_byte_for_byte(declare: Callable[[Any], Any]) -> None:
    theirs, mine = declare(stock), declare(ours)
    assert json.dumps(theirs.schema()) == json.dumps(mine.schema())
    for name in ("AvroSchema", "JsonSchema"):
        info = getattr(ours, name)(mine).schema_info()
        assert info.definition.decode() == getattr(stock, name)(theirs).schema_info().schema()
        assert info.name == getattr(stock, name)(theirs).schema_info().name()


@pytest.mark.parametrize("name", ["AvroSchema", "JsonSchema"])
def test_payloads_are_read_by_the_stock_client_and_the_other_way_round(name: str) -> None:
    theirs, mine = declare_everything(stock), declare_everything(ours)
    # Members whose values are strings: the stock client can't read what it writes.
    values = {key: value for key, value in _VALUES.items() if key != "level" or name == "AvroSchema"}
    their_value, my_value = theirs(**values), mine(**values)
    their_schema, my_schema = getattr(stock, name)(theirs), getattr(ours, name)(mine)
    assert my_schema.decode(their_schema.encode(their_value)) == my_value
    assert their_schema.decode(my_schema.encode(my_value)) == their_value
    if name == "AvroSchema":
        assert my_schema.encode(my_value) == their_schema.encode(their_value)


def test_enumerations_are_read_by_name_and_by_value() -> None:
    mine = declare_everything(ours)
    schema = ours.JsonSchema(mine)
    payload = schema.encode(mine(**_VALUES))
    assert [json.loads(payload)[name] for name in ("level", "color")] == ["LOW", "GREEN"]
    written_by_value = json.dumps({"small": 1, "other": {}, "level": "low", "color": 2}).encode()
    assert (schema.decode(written_by_value).level, schema.decode(written_by_value).color) == (Level.LOW, Color.GREEN)


def _assign(record: Any, name: str, value: Any) -> None:
    setattr(record, name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("small", "1"),
        ("small", None),
        ("large", 1.5),
        ("short", "1"),
        ("text", 5),
        ("flag", 1),
        ("color", "PURPLE"),
        ("color", 3),
        ("color", 1.5),
        ("level", Color.RED),
        ("words", ("a",)),
        ("words", [1]),
        ("numbers", {1: 1}),
        ("numbers", {"a": "b"}),
        ("address", "Ulm"),
        ("other", None),
        ("addresses", [5]),
        ("nothing", 5),
    ],
)
def test_values_of_another_type_are_refused_with_type_error(name: str, value: Any) -> None:
    for module in (stock, ours):
        record = declare_everything(module)(small=1)
        with pytest.raises(TypeError):
            _assign(record, name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("text", b"bytes"),
        ("raw", "text"),
        ("large", True),
        ("real", 3),
        ("color", 1),
        ("level", "HIGH"),
        ("text", None),
    ],
)
def test_values_are_stored_as_the_stock_client_does(name: str, value: Any) -> None:
    their, my = declare_everything(stock)(small=1), declare_everything(ours)(small=1)
    _assign(their, name, value)
    _assign(my, name, value)
    assert getattr(my, name) == getattr(their, name)


def test_undeclared_attributes_and_other_classes_are_refused() -> None:
    mine = declare_everything(ours)
    with pytest.raises(AttributeError, match="declares no field"):
        mine(small=1).smal = 2
    for schema in (ours.AvroSchema(mine), ours.JsonSchema(mine)):
        with pytest.raises(TypeError, match="the schema encodes values of"):
            schema.encode({"small": 1})
    for module in (stock, ours):
        with pytest.raises(AssertionError):
            module.AvroSchema(None)
        with pytest.raises(ValueError, match="dict"):
            module.AvroSchema(None, declare_everything(module).schema()).encode(5)


def test_a_field_without_values_has_a_definition_that_brokers_accept() -> None:
    class Nothing(ours.Record):
        nothing = ours.Null()
        colors = ours.Array(ours.CustomEnum(Color))

    colors = {"type": "array", "items": {"type": "enum", "name": "Color", "symbols": ["RED", "GREEN"]}}
    assert [field["type"] for field in Nothing.schema()["fields"]] == ["null", ["null", colors]]
    schema = ours.AvroSchema(Nothing)
    assert schema.decode(schema.encode(Nothing(colors=[Color.RED]))) == Nothing(colors=[Color.RED])


def test_records_do_not_share_their_defaults() -> None:
    mine = declare_everything(ours)
    first, second = mine(small=1), mine(small=1)
    assert first == second
    first.address.city = "Ulm"
    assert second.address.city is None
    assert first != second
    assert first != declare_everything(stock)


def test_a_dict_and_a_definition_of_one_s_own() -> None:
    definition = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "int"]}]}
    mine, theirs = ours.AvroSchema(None, definition), stock.AvroSchema(None, definition)
    assert mine.encode({"a": 5}) == theirs.encode({"a": 5})
    assert mine.decode(b"\x02\x0a") == {"a": 5}
    assert mine.decode(mine.encode({})) == {"a": None}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"small": 2**31}, "field 'small': 2147483648 does not fit into 32 bits"),
        ({"large": -(2**63) - 1}, "field 'large': .* does not fit into 64 bits"),
        ({"short": 1e39}, "field 'short': 1e"),
        ({"numbers": {"a": 2**63}}, r"field 'numbers\['a'\]': "),
        ({"text": "\ud800"}, "field 'text': a string that is not valid Unicode"),
        ({"small": None}, "field 'small': None .* is not an int"),
    ],
)
def test_encoding_a_value_that_does_not_fit_names_the_field(values: dict[str, Any], problem: str) -> None:
    mine = declare_everything(ours)
    record = mine(small=1, other={})
    record.__dict__.update(values)
    for schema in (ours.AvroSchema(mine), ours.JsonSchema(mine)):
        with pytest.raises(EncodeError, match=problem):
            schema.encode(record)


def test_changed_collections_are_checked_when_they_are_encoded() -> None:
    mine = declare_everything(ours)
    record = mine(small=1, other={}, addresses=[{"city": "Ulm"}])
    record.addresses.append("Bonn")
    with pytest.raises(EncodeError, match=r"field 'addresses\[1\]': 'Bonn'"):
        ours.AvroSchema(mine).encode(record)
    record.addresses.pop()
    record.addresses[0].number = 2**40
    with pytest.raises(EncodeError, match=r"field 'addresses\[0\]\.number'"):
        ours.JsonSchema(mine).encode(record)
