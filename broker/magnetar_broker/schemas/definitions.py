"""Definitions of schemas: whether they are valid, and their fingerprints.

AVRO, JSON and PROTOBUF have an Avro schema in JSON. Old clients for Java send a JSON schema as their definition of
JSON; that is only accepted and stored, because Avro's rules can't compare it. PROTOBUF_NATIVE has descriptors,
KEY_VALUE two definitions, and the other types none.
"""

from __future__ import annotations

import hashlib
from typing import Final

from magnetar_broker.schemas.avro_definitions import AvroType, UnionType, describe_equality, parse_avro
from magnetar_broker.schemas.bounded_json import InvalidDefinition, JsonValue, parse_json
from magnetar_broker.schemas.key_value_definitions import split_schema
from magnetar_broker.schemas.protobuf_definitions import find_root_message
from magnetar_protos.schema_pb2 import Schema, SchemaType

__all__ = [
    "MAX_PROPERTIES_LENGTH",
    "check_definition",
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
MAX_PROPERTIES_LENGTH: Final = 64 * 1024


def takes_long(*schemas: Schema) -> bool:
    """Return whether to check or compare these schemas in a thread: with a megabyte it takes up to some seconds."""
    return sum(len(schema.definition) for schema in schemas) > _LONG_BYTES


def check_definition(schema: Schema) -> None:
    """Raise `BrokerError` INVALID_ARGUMENT, about "schema", for a definition that is not one of its type."""
    _check_properties(schema)
    if schema.type in AVRO_TYPES:
        parse_avro_schema(schema)
    elif schema.type == SchemaType.PROTOBUF_NATIVE:
        find_root_message(schema.definition)
    elif schema.type == SchemaType.KEY_VALUE:
        _check_key_value(schema)
    elif schema.type == SchemaType.STRING:
        if schema.definition not in _NO_STRING_DEFINITIONS:
            raise InvalidDefinition(f"a STRING schema has no definition, but there are {len(schema.definition)} bytes")
    elif schema.type == SchemaType.AUTO_CONSUME or schema.type not in SchemaType.values():
        raise InvalidDefinition(f"schema type {schema.type} is no type of a topic's schema")
    elif schema.definition and schema.type != SchemaType.BYTES:
        raise InvalidDefinition(
            f"{SchemaType.Name(schema.type)} schemas have no definition, but there are {len(schema.definition)} bytes"
        )


def _check_properties(schema: Schema) -> None:
    size = len(schema.name) + sum(len(key) + len(value) for key, value in schema.properties.items())
    if size > MAX_PROPERTIES_LENGTH:
        raise InvalidDefinition(
            f"name and properties of the schema have {size} characters, and {MAX_PROPERTIES_LENGTH} are allowed"
        )


def _check_key_value(schema: Schema) -> None:
    parts = split_schema(schema)
    for name, part in (("key", parts.key), ("value", parts.value)):
        try:
            check_definition(part)
        except InvalidDefinition as error:
            raise InvalidDefinition(f"{name}: {error}") from None


def parse_avro_schema(schema: Schema) -> AvroType | None:
    """Return the Avro schema; None: it is a JSON schema. Raises `InvalidDefinition`."""
    document = parse_json(schema.definition)
    try:
        parsed = parse_avro(document)
    except InvalidDefinition:
        if schema.type == SchemaType.JSON and _is_json_schema(document):
            return None
        raise
    if schema.type == SchemaType.AVRO and isinstance(parsed, UnionType):
        raise InvalidDefinition("the definition is a union: use a record with a field of this union")
    return parsed


def _is_json_schema(document: JsonValue) -> bool:
    if not isinstance(document, dict):
        return False
    kind = document.get("type")
    return isinstance(kind, str) and kind in _JSON_SCHEMA_TYPES and isinstance(document.get("properties", {}), dict)


def read_schema_id(schema: Schema) -> JsonValue:
    """Return the id of a JSON schema."""
    document = parse_json(schema.definition)
    return document.get("id") if isinstance(document, dict) else None


def fingerprint(schema: Schema) -> bytes:
    """Return 32 bytes that are equal for schemas that mean the same. The schema is valid.

    Equal are those that Pulsar takes for the same version: Avro schemas by Avro's comparison, others byte by byte. Name
    and properties don't count, but for what the properties of KEY_VALUE say about its parts.
    """
    return hashlib.sha256(_describe(schema).encode("utf-8", "surrogateescape")).digest()


def _describe(schema: Schema) -> str:
    if schema.type == SchemaType.KEY_VALUE:
        parts = split_schema(schema)
        return f"{schema.type} {parts.encoding} {_describe_exactly(parts.key)} {_describe_exactly(parts.value)}"
    parsed = parse_avro_schema(schema) if schema.type in AVRO_TYPES else None
    return _describe_exactly(schema) if parsed is None else f"{schema.type} avro {describe_equality(parsed)}"


def _describe_exactly(schema: Schema) -> str:
    return f"{schema.type} {hashlib.sha256(schema.definition).hexdigest()}"
