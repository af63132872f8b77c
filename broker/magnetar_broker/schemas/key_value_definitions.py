"""KEY_VALUE schemas: a schema of keys and one of values in one definition.

The definition has both definitions; what else belongs to them is in the schema's properties, under Pulsar's names. A
part may be a KEY_VALUE schema, too. Its properties are quoted in a property, which doubles their size with each level,
so there can't be many levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from magnetar_broker.schemas.bounded_json import InvalidDefinition, check_size, parse_json
from magnetar_protos.schema_pb2 import Schema, SchemaType
from magnetar_wire.schemas import InvalidSchema, split_key_value

__all__ = ["KeyValueSchemas", "split_schema"]

_ENCODINGS: Final = ("INLINE", "SEPARATED")
# Of clients only: no schema that is stored has one of them.
_CLIENT_TYPES: Final = frozenset((SchemaType.AUTO_CONSUME,))


@dataclass(frozen=True, slots=True)
class KeyValueSchemas:
    key: Schema
    value: Schema
    encoding: str


def split_schema(schema: Schema) -> KeyValueSchemas:
    """Raises `InvalidDefinition`."""
    check_size(schema.definition)
    try:
        key, value = split_key_value(schema.definition)
    except InvalidSchema as error:
        raise InvalidDefinition(str(error)) from None
    encoding = schema.properties.get("kv.encoding.type") or "INLINE"
    if encoding not in _ENCODINGS:
        raise InvalidDefinition(f"property kv.encoding.type is {encoding!r:.100}: use {' or '.join(_ENCODINGS)}")
    return KeyValueSchemas(_make_part(schema, "key", key), _make_part(schema, "value", value), encoding)


def _make_part(schema: Schema, part: str, definition: bytes | None) -> Schema:
    # A property that is missing stands for bytes, as in Pulsar.
    type_name = schema.properties.get(f"{part}.schema.type", "BYTES")
    number = SchemaType.DESCRIPTOR.values_by_name.get(type_name)
    if type_name == "NONE":
        number = SchemaType.DESCRIPTOR.values_by_name["BYTES"]
    if number is None or number.number in _CLIENT_TYPES:
        raise InvalidDefinition(f"property {part}.schema.type is {type_name!r:.100}, which is no type of a schema")
    return Schema(
        type=SchemaType.Name(number.number),
        name=schema.properties.get(f"{part}.schema.name", ""),
        definition=definition or b"",
        properties=_parse_properties(schema, part),
    )


def _parse_properties(schema: Schema, part: str) -> dict[str, str]:
    name = f"{part}.schema.properties"
    text = schema.properties.get(name)
    if not text:
        return {}
    try:
        properties = parse_json(text.encode())
    except InvalidDefinition as error:
        raise InvalidDefinition(f"property {name} is not valid: {error}") from None
    if not isinstance(properties, dict):
        raise InvalidDefinition(f"property {name} is not a JSON object")
    return {key: value if isinstance(value, str) else str(value) for key, value in properties.items()}
