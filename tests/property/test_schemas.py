"""Rules of schemas against fastavro, and against hostile definitions."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from random import Random
from typing import Any, Final

import fastavro
from hypothesis import assume, example, given
from hypothesis import strategies as st

from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas.avro_resolution import find_read_problem
from magnetar_broker.schemas.compatibility import check_compatible, check_readable
from magnetar_broker.schemas.definitions import examine, parse_avro_schema
from magnetar_broker.schemas.work_budget import WorkBudget
from magnetar_protos.catalog_pb2 import SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema
from magnetar_wire.schemas import join_key_value
from tests.examples import examples
from tests.property.avro_schemas import AvroSchemas, mutate

_SEEDS: Final = st.integers(0, 2**32)
_TYPES: Final = st.sampled_from(("AVRO", "JSON", "PROTOBUF", "PROTOBUF_NATIVE", "KEY_VALUE", "STRING", "INT32", "DATE"))
_WORDS: Final = st.sampled_from(
    ("record", "enum", "fixed", "array", "map", "null", "int", "string", "object", "a.b", "E")
)
_KEYS: Final = st.sampled_from(
    ("type", "name", "namespace", "fields", "items", "values", "symbols", "size", "default", "aliases", "order", "doc")
)
_DOCUMENTS: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _WORDS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=12,
)

_DEFINITIONS: Final = st.binary(max_size=60) | _DOCUMENTS.map(lambda value: json.dumps(value).encode())


def _avro(definition: Any, schema_type: str = "AVRO") -> Schema:
    return Schema(type=schema_type, definition=json.dumps(definition).encode())


@examples(800)
@given(_SEEDS)
def test_fastavro_reads_what_is_backward_compatible(seed: int) -> None:
    """(SCH-2) A reader with the new schema reads what was written with the old one."""
    random = Random(seed)
    schemas = AvroSchemas(random)
    old = schemas.make_record()
    new = mutate(random, old)
    try:
        examine(_avro(new))
        check_compatible(_avro(new), [(0, _avro(old))], SchemaCompatibility.BACKWARD)
    except BrokerError:
        assume(False)
    writer, reader = fastavro.parse_schema(old), fastavro.parse_schema(new)
    for _ in range(3):
        written = io.BytesIO()
        fastavro.schemaless_writer(written, writer, schemas.make_value(old))
        written.seek(0)
        assert fastavro.validate(fastavro.schemaless_reader(written, writer, reader), reader)


@examples(400)
@given(_SEEDS)
def test_forward_is_backward_of_the_other_and_full_is_both(seed: int) -> None:
    """(SCH-2)"""
    random = Random(seed)
    old = AvroSchemas(random).make_record()
    new = mutate(random, old)
    try:
        examine(_avro(new))
    except BrokerError:
        assume(False)
    backward = _is_compatible(old, new, SchemaCompatibility.BACKWARD)
    forward = _is_compatible(old, new, SchemaCompatibility.FORWARD)
    assert forward == _is_compatible(new, old, SchemaCompatibility.BACKWARD)
    assert _is_compatible(old, new, SchemaCompatibility.FULL) == (backward and forward)


def _is_compatible(old: Any, new: Any, strategy: SchemaCompatibility) -> bool:
    try:
        check_compatible(_avro(new), [(0, _avro(old))], strategy)
    except BrokerError:
        return False
    return True


@given(_SEEDS)
def test_fingerprint_ignores_spaces_order_of_keys_and_documentation(seed: int) -> None:
    definition = AvroSchemas(Random(seed)).make_record()
    expected = examine(_avro(definition))
    reordered = dict(reversed(definition.items())) | {"doc": "x"}
    assert examine(Schema(type="AVRO", definition=json.dumps(reordered, indent=3).encode())) == expected
    assert examine(_avro(definition, "JSON")) != expected


@examples(400)
@given(_SEEDS)
def test_fingerprints_differ_for_schemas_that_differ(seed: int) -> None:
    random = Random(seed)
    old = AvroSchemas(random).make_record()
    new = mutate(random, old)
    try:
        examine(_avro(new))
    except BrokerError:
        assume(False)
    aliases_apart = [json.dumps(_without_aliases(each), sort_keys=True) for each in (old, new)]
    assert (examine(_avro(old)) == examine(_avro(new))) == (aliases_apart[0] == aliases_apart[1])


def _without_aliases(definition: Any) -> Any:
    """Leave out what doesn't count: aliases, and defaults of enums."""
    if isinstance(definition, list):
        return [_without_aliases(each) for each in definition]
    if not isinstance(definition, dict):
        return definition
    left_out = {"aliases", "default"} if definition["type"] == "enum" else {"aliases"}
    return {key: _without_aliases(value) for key, value in definition.items() if key not in left_out}


@examples(1000)
@given(_TYPES, _TYPES, _DEFINITIONS, _DEFINITIONS)
@example("JSON", "JSON", b'{"type":["object"]}', b'{"type":"object"}')
def test_any_definition_is_accepted_or_gets_a_broker_error(
    schema_type: str, other_type: str, definition: bytes, other: bytes
) -> None:
    """(SCH-2)"""
    schema = Schema(type=schema_type, definition=definition)
    others = Schema(type=other_type, definition=other)
    both = Schema(
        type="KEY_VALUE",
        definition=join_key_value(definition, other),
        properties={"key.schema.type": schema_type, "value.schema.type": other_type},
    )
    for each in (schema, both):
        with suppress(BrokerError):
            examine(each)
        with suppress(BrokerError):
            examine(each)
        with suppress(BrokerError):
            check_compatible(each, [(0, others), (1, both)], SchemaCompatibility.FULL_TRANSITIVE)
        with suppress(BrokerError):
            check_readable(each, [(0, both)], SchemaCompatibility.BACKWARD)


@given(st.integers(1, 100), st.sampled_from(("", "null")))
def test_work_grows_with_definitions_and_not_with_what_they_expand_to(records: int, branch: str) -> None:
    """(SCH-2) Each record has two fields of the one before: expanded, there would be a power of two of them."""
    fields: list[Any] = [{"name": "f0", "type": {"type": "record", "name": "L0", "fields": []}}]
    for number in range(1, records):
        inner: Any = [branch, f"L{number - 1}"] if branch else f"L{number - 1}"
        record = {"type": "record", "name": f"L{number}", "fields": [_field("a", inner), _field("b", inner)]}
        fields.append(_field(f"f{number}", record))
    definition = {"type": "record", "name": "R", "fields": fields}
    writer = parse_avro_schema(_avro(definition))
    # Other names, so that each union is compared branch by branch.
    reader = parse_avro_schema(Schema(type="AVRO", definition=json.dumps(definition).replace("L", "M").encode()))
    assert writer is not None
    assert reader is not None
    # Raises an error after more steps.
    assert find_read_problem(writer, reader, WorkBudget(125 * records)) is None


def _field(name: str, field_type: Any) -> dict[str, Any]:
    return {"name": name, "type": field_type}
