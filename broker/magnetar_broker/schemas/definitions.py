"""Definitions of schemas: whether they are valid, and their fingerprints.

AVRO, JSON and PROTOBUF have an Avro schema in JSON. Old clients for Java send a JSON schema as their definition of
JSON; that is only accepted and stored, because Avro's rules can't compare it. PROTOBUF_NATIVE has descriptors,
KEY_VALUE two definitions, and the other types none.
"""

from __future__ import annotations

import hashlib
from typing import Final

from magnetar_broker.schemas.avro_definitions import AvroType, UnionType, parse_avro
from magnetar_broker.schemas.avro_equality import describe_equality
from magnetar_broker.schemas.bounded_json import InvalidDefinition, JsonValue, parse_json
from magnetar_broker.schemas.key_value_definitions import KeyValueSchemas, split_schema
from magnetar_broker.schemas.protobuf_definitions import find_root_message
from magnetar_broker.schemas.work_budget import BYTES_PER_STEP, WorkBudget
from magnetar_protos.schema_pb2 import Schema, SchemaType

__all__ = [
    "AVRO_TYPES",
    "MAX_PROPERTIES",
    "MAX_PROPERTIES_LENGTH",
    "check_number_of_properties",
    "examine",
    "fingerprint",
    "parse_avro_schema",
    "read_schema_id",
    "takes_long",
]

AVRO_TYPES: Final = frozenset((SchemaType.AVRO, SchemaType.JSON, SchemaType.PROTOBUF))
# Types that a JSON schema can have.
_JSON_SCHEMA_TYPES: Final = frozenset(
    ("any", "array", "boolean", "integer", "null", "number", "object", "string"),
)
# What clients send as the definition of STRING, which has none.
_NO_STRING_DEFINITIONS: Final = (b"", b"null")
_LONG_BYTES: Final = 16 * 1024
MAX_PROPERTIES: Final = 1000
MAX_PROPERTIES_LENGTH: Final = 64 * 1024
# To handle a property takes as long as to handle that many bytes.
_BYTES_PER_PROPERTY: Final = 16


def takes_long(*schemas: Schema) -> bool:
    """Return whether to check or compare these schemas in a thread: with a megabyte it takes up to some seconds."""
    # Parts of KEY_VALUE have properties in a property, which is parsed.
    size = sum(len(schema.definition) + _BYTES_PER_PROPERTY * len(schema.properties) for schema in schemas)
    return size > _LONG_BYTES or size + sum(map(_measure_properties, schemas)) > _LONG_BYTES


def _measure_properties(schema: Schema) -> int:
    return sum(len(key) + len(value) for key, value in schema.properties.items())


def check_number_of_properties(number: int) -> None:
    """Raise `BrokerError` if they are too many. It costs nothing: call it before anything is done with each."""
    if number > MAX_PROPERTIES:
        raise InvalidDefinition(f"the schema has {number} properties, and {MAX_PROPERTIES} are allowed")


def examine(schema: Schema, budget: WorkBudget | None = None) -> bytes:
    """Check a schema and return its fingerprint: 32 bytes that are equal for schemas that mean the same.

    Raises `BrokerError` INVALID_ARGUMENT, about "schema", for a definition that is not one of its type.

    Equal are those that Pulsar takes for the same version: Avro schemas by Avro's comparison, others byte by byte. Name
    and properties don't count, but for what the properties of KEY_VALUE say about its parts.
    """
    budget = budget or WorkBudget()
    return fingerprint(schema, _check(schema, budget), budget)


def fingerprint(schema: Schema, parsed: AvroType | KeyValueSchemas | None, budget: WorkBudget) -> bytes:
    """Return what `examine` does, for a valid schema. `parsed`: its Avro schema, or its parts."""
    if isinstance(parsed, KeyValueSchemas):
        parts = f"{_describe_exactly(parsed.key)} {_describe_exactly(parsed.value)}"
        description = f"{schema.type} {parsed.encoding} {parts}"
    elif parsed is None:
        description = _describe_exactly(schema)
    else:
        description = f"{schema.type} avro {describe_equality(parsed, budget)}"
    return hashlib.sha256(description.encode("utf-8", "surrogateescape")).digest()


def _check(schema: Schema, budget: WorkBudget) -> AvroType | KeyValueSchemas | None:
    """Return the Avro schema, or the parts."""
    _check_properties(schema)
    if schema.type in AVRO_TYPES:
        return parse_avro_schema(schema, budget)
    if schema.type == SchemaType.KEY_VALUE:
        parts = split_schema(schema)
        _check_parts(parts, budget)
        return parts
    if schema.type == SchemaType.PROTOBUF_NATIVE:
        find_root_message(schema.definition, budget)
    elif schema.type == SchemaType.STRING:
        if schema.definition not in _NO_STRING_DEFINITIONS:
            raise InvalidDefinition(f"a STRING schema has no definition, but there are {len(schema.definition)} bytes")
    elif schema.type == SchemaType.AUTO_CONSUME or schema.type not in SchemaType.values():
        raise InvalidDefinition(f"schema type {schema.type} is no type of a topic's schema")
    elif schema.definition and schema.type != SchemaType.BYTES:
        raise InvalidDefinition(
            f"{SchemaType.Name(schema.type)} schemas have no definition, but there are {len(schema.definition)} bytes"
        )
    return None


def _check_properties(schema: Schema) -> None:
    check_number_of_properties(len(schema.properties))
    size = len(schema.name) + _measure_properties(schema)
    if size > MAX_PROPERTIES_LENGTH:
        raise InvalidDefinition(
            f"name and properties of the schema have {size} characters, and {MAX_PROPERTIES_LENGTH} are allowed"
        )


def _check_parts(parts: KeyValueSchemas, budget: WorkBudget) -> None:
    for name, part in (("key", parts.key), ("value", parts.value)):
        try:
            _check(part, budget)
        except InvalidDefinition as error:
            raise InvalidDefinition(f"{name}: {error}") from None


def parse_avro_schema(schema: Schema, budget: WorkBudget | None = None) -> AvroType | None:
    """Return the Avro schema; None: it is a JSON schema. Raises `InvalidDefinition`."""
    budget = budget or WorkBudget()
    budget.spend(len(schema.definition) // BYTES_PER_STEP)
    document = parse_json(schema.definition)
    try:
        parsed = parse_avro(document, budget)
    except InvalidDefinition:
        if schema.type == SchemaType.JSON and _is_json_schema(document):
            return None
        raise
    if schema.type == SchemaType.AVRO and isinstance(parsed, UnionType):
        raise InvalidDefinition("the definition is a union: use a record with a field of this union")
    return parsed


def _is_json_schema(document: JsonValue) -> bool:
    """Return whether it is one for Pulsar, which reads it with Jackson's module for JSON schemas."""
    if not isinstance(document, dict) or not _is_boolean(document.get("required")):
        return False
    kind = document.get("type")
    if kind == "object":
        properties, others = document.get("properties"), document.get("additionalProperties")
        if not (others is None or isinstance(others, bool) or _is_json_schema(others)):
            return False
        if not isinstance(properties, dict):
            return properties is None
        return all(each is None or _is_json_schema(each) for each in properties.values())
    if kind == "array":
        items = document.get("items")
        return items is None or all(map(_is_json_schema, items if isinstance(items, list) else [items]))
    return isinstance(kind, str) and kind in _JSON_SCHEMA_TYPES


def _is_boolean(value: JsonValue) -> bool:
    """Return whether Jackson takes it for a boolean, or for none."""
    return value is None or isinstance(value, int) or value in ("true", "false", "")


def read_schema_id(schema: Schema) -> JsonValue:
    """Return the id of a JSON schema."""
    document = parse_json(schema.definition)
    return document.get("id") if isinstance(document, dict) else None


def _describe_exactly(schema: Schema) -> str:
    return f"{schema.type} {hashlib.sha256(schema.definition).hexdigest()}"
