"""Values of random Avro definitions, through AVRO and JSON schemas, and beside fastavro's own validation."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from hypothesis import assume, given
from hypothesis import strategies as st

from magnetar import schema as ours
from magnetar.exceptions import DecodeError
from magnetar.schema import AutoConsumeSchema, AvroSchema, JsonSchema, SchemaInfo, SchemaType
from tests.examples import examples
from tests.property.avro_schemas import AvroSchemas
from tests.unit.client.schema.declarations import Color, declare_everything

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=8),
    "string": st.text(max_size=8),
}
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
}


@st.composite
def definitions(draw: st.DrawFn, path: str = "") -> tuple[Any, st.SearchStrategy[Any]]:
    """A type, and a strategy of its values. Named types have names by their position."""
    depth = len(path)
    kinds = [*_VALUES, "enum", "fixed"]
    if depth < 3:
        kinds += ["array", "map", "optional", "record", "record"]
    kind = draw(st.sampled_from(kinds)) if depth else "record"
    name = f"{kind.capitalize()}{path}"
    if kind in _VALUES:
        return kind, _VALUES[kind]
    if kind == "enum":
        symbols = ["A", "B", "C"][: draw(st.integers(1, 3))]
        return {"type": "enum", "name": name, "symbols": symbols}, st.sampled_from(symbols)
    if kind == "fixed":
        size = draw(st.integers(0, 4))
        return {"type": "fixed", "name": name, "size": size}, st.binary(min_size=size, max_size=size)
    if kind == "record":
        fields = [draw(definitions(f"{path}{number}")) for number in range(draw(st.integers(0, 3)))]
        definition = {
            "type": "record",
            "name": name,
            "fields": [{"name": f"f{number}", "type": field} for number, (field, _) in enumerate(fields)],
        }
        return definition, st.fixed_dictionaries({f"f{number}": values for number, (_, values) in enumerate(fields)})
    inner, values = draw(definitions(f"{path}i"))
    if kind == "array":
        return {"type": "array", "items": inner}, st.lists(values, max_size=3)
    if kind == "map":
        return {"type": "map", "values": inner}, st.dictionaries(st.text(max_size=3), values, max_size=3)
    assume(inner != "null" and not isinstance(inner, list))
    return ["null", inner], st.none() | values


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[Any, Any]:
    definition, values = draw(definitions())
    return definition, draw(values)


@given(typed_values())
def test_avro_values_round_trip_as_in_fastavro(typed: tuple[Any, Any]) -> None:
    definition, value = typed
    schema = AvroSchema(None, definition)
    payload = schema.encode(value)
    assert schemaless_reader(io.BytesIO(payload), parse_schema(definition), None) == value
    assert schema.decode(payload) == value
    assert AutoConsumeSchema().make_decoder(schema.schema_info())([payload], None) == [value]


@given(typed_values())
def test_json_values_round_trip(typed: tuple[Any, Any]) -> None:
    definition, value = typed
    schema = JsonSchema(None, definition)
    text = json.dumps(definition)
    assume('"bytes"' not in text and '"fixed"' not in text)  # JSON has no bytes
    assert schema.decode(schema.encode(value)) == value


@given(typed_values(), st.binary(max_size=40))
def test_any_payload_is_a_value_or_a_decode_error(typed: tuple[Any, Any], payload: bytes) -> None:
    definition, value = typed
    schema = AvroSchema(None, definition)
    good = schema.encode(value)
    decoded = schema.make_decoder(None)([good, payload, good, good[:-1], good + b"\0"], None)
    assert decoded[0] == decoded[2] == value
    assert isinstance(decoded[1], (dict, DecodeError))
    assert isinstance(decoded[4], DecodeError)
    if good:
        assert isinstance(decoded[3], DecodeError)


def _widen(node: Any) -> Any:
    """Return a reader's definition for a writer's: each number is widened, and each record has one more field."""
    if isinstance(node, list):
        return [_widen(branch) for branch in node]
    if isinstance(node, str):
        return _PROMOTIONS.get(node, (node,))[-1] if node != "string" else node
    if node["type"] == "record":
        fields = [{**field, "type": _widen(field["type"])} for field in reversed(node["fields"])]
        more = {"name": "more", "type": ["null", "int"], "default": None}
        return {"type": "record", "name": "R" + node["name"], "fields": [more, *fields]}
    if node["type"] in ("array", "map"):
        part = "items" if node["type"] == "array" else "values"
        return {"type": node["type"], part: _widen(node[part])}
    return node


def _widened(node: Any, value: Any) -> Any:
    if isinstance(node, list):
        return None if value is None else _widened(node[1], value)
    kind = node if isinstance(node, str) else node["type"]
    if kind in ("int", "long"):
        return float(value)
    if kind == "record":
        return {"more": None, **{f["name"]: _widened(f["type"], value[f["name"]]) for f in node["fields"]}}
    if kind == "array":
        return [_widened(node["items"], item) for item in value]
    if kind == "map":
        return {key: _widened(node["values"], item) for key, item in value.items()}
    return value


@given(typed_values())
def test_values_are_resolved_into_a_wider_definition(typed: tuple[Any, Any]) -> None:
    definition, value = typed
    writer = AvroSchema(None, definition)
    reader = AvroSchema(None, _widen(definition))
    assert reader.make_decoder(writer.schema_info())([writer.encode(value)], None) == [_widened(definition, value)]


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["record", "enum", "int", "R"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "size", "default", "logicalType"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(_JSON, st.binary(max_size=20))
def test_any_definition_is_understood_or_refused(definition: Any, payload: bytes) -> None:
    writer = SchemaInfo(SchemaType.AVRO, "", json.dumps(definition).encode())
    try:
        decode = AutoConsumeSchema().make_decoder(writer)
    except DecodeError:
        return
    decode([payload], None)


@given(st.data())
def test_records_of_the_stock_client_and_ours_are_the_same(data: st.DataObject) -> None:
    """Each reads what the other has written, and the payloads of AVRO are equal."""
    stock: Any = pytest.importorskip("pulsar.schema")
    their_class, my_class = declare_everything(stock), declare_everything(ours)
    address = st.fixed_dictionaries({}, optional={"city": st.text(max_size=5), "number": _VALUES["int"]})
    values = data.draw(
        st.fixed_dictionaries(
            {"small": _VALUES["int"], "other": address},
            optional={
                "large": _VALUES["long"],
                "short": _VALUES["float"],
                "real": _VALUES["double"],
                "text": _VALUES["string"],
                "raw": st.text(max_size=5).map(str.encode),
                "flag": st.booleans(),
                "color": st.sampled_from(Color),
                "words": st.lists(st.text(max_size=3), max_size=3),
                "numbers": st.dictionaries(st.text(max_size=3), _VALUES["long"], max_size=3),
                "address": address,
                "addresses": st.lists(address, max_size=3),
                "by_name": st.dictionaries(st.text(max_size=3), address, max_size=3),
            },
        )
    )
    theirs, mine = their_class(**values), my_class(**values)
    for name in ("AvroSchema", "JsonSchema"):
        their_schema, my_schema = getattr(stock, name)(their_class), getattr(ours, name)(my_class)
        their_payload, my_payload = their_schema.encode(theirs), my_schema.encode(mine)
        assert their_schema.decode(my_payload) == theirs
        assert my_schema.decode(their_payload) == mine
        if name == "AvroSchema":
            assert their_payload == my_payload


@examples(800)
@given(st.integers(0, 2**32))
def test_values_are_resolved_as_by_fastavro(seed: int) -> None:
    """(SCH-3) Also those of unions whose branches have values of one class."""
    random = Random(seed)
    schemas = AvroSchemas(random)
    union = {"type": "array", "items": [schemas.make_record(2), *_distinct(schemas.make_type(1) for _ in range(4))]}
    old = {"type": "record", "name": "Root", "fields": [{"name": "a", "type": union}]}
    new = _evolve(random, old)
    writer, reader = parse_schema(copy.deepcopy(old)), parse_schema(copy.deepcopy(new))
    decode = AvroSchema(None, new).make_decoder(SchemaInfo(SchemaType.AVRO, "", json.dumps(old).encode()))
    buffer = io.BytesIO()
    schemaless_writer(buffer, writer, {"a": [schemas.make_value(union["items"]) for _ in range(8)]})
    payload = buffer.getvalue()
    expected = schemaless_reader(io.BytesIO(payload), writer, reader)
    assert [_unpromoted(value) for value in decode([payload], None)] == [_unpromoted(expected)]


def _distinct(kinds: Iterable[Any]) -> list[Any]:
    return list({str(kind): kind for kind in kinds if not isinstance(kind, list)}.values())


def _evolve(random: Random, node: Any) -> Any:
    if isinstance(node, list):
        return [branch if isinstance(branch, str) else _evolve(random, branch) for branch in node]
    if isinstance(node, str):
        return random.choice([node, *_PROMOTIONS.get(node, ())])
    if node["type"] == "record":
        fields = [{**field, "type": _evolve(random, field["type"])} for field in node["fields"]]
        random.shuffle(fields)
        return {**node, "fields": [*fields, {"name": "more", "type": "int", "default": 5}]}
    if node["type"] == "enum":
        return {**node, "symbols": ["B", "D"], "default": "D"}
    part = {"array": "items", "map": "values"}.get(node["type"])
    return {**node, part: _evolve(random, node[part])} if part else node


def _unpromoted(value: Any) -> Any:
    """fastavro promotes to the first branch of a union that can read a value, where another has the type itself."""
    if isinstance(value, dict):
        return {key: _unpromoted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_unpromoted(item) for item in value]
    if type(value) in (int, float):
        return float(value)
    return value.encode() if isinstance(value, str) else value
