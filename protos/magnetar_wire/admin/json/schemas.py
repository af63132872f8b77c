"""Schemas of topics in JSON, as Pulsar's REST API has them.

A definition is a text there. That of a KEY_VALUE schema is an object with the definitions of key and value, `""` for
types that have none; it is stored in another form (magnetar_wire/schemas.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.message import Message

from magnetar_protos.broker_pb2 import ErrorCode, Problem
from magnetar_protos.schema_pb2 import SchemaType
from magnetar_wire.admin.http.raw_answer import RawAnswer
from magnetar_wire.admin.json.parts import Field, Object, Part, Schema
from magnetar_wire.admin.json.policies import SCHEMA_COMPATIBILITY
from magnetar_wire.admin.json.values import (
    InvalidJson,
    OutOfRange,
    UnprocessableValue,
    check_text,
    check_type,
    format_value,
    join_path,
    parse_json,
)
from magnetar_wire.schemas import MAX_DEFINITION_BYTES, InvalidSchema, join_key_value, split_key_value

__all__ = [
    "MAX_SCHEMA_BODY_BYTES",
    "ONE_SCHEMA",
    "POSTED_SCHEMA",
    "SCHEMAS",
    "SCHEMA_METADATA",
    "SCHEMA_VERSION",
    "CheckAnswer",
    "format_definition",
    "parse_definition",
]

# Most of a definition's characters are themselves in JSON or have a backslash. Two bytes of UTF-8 can become six.
MAX_SCHEMA_BODY_BYTES: Final = 3 * MAX_DEFINITION_BYTES + 65_536
# Pulsar stores a schema of bytes as one of no type, and shows it so.
_NO_TYPE: Final = "NONE"
_TYPES: Final[Mapping[str, int]] = {**dict(SchemaType.items()), _NO_TYPE: SchemaType.BYTES}
_NAMES: Final = {number: name for name, number in _TYPES.items()}
# What clients ask for, and no topic has.
_OF_CLIENTS: Final = ("AUTO", "AUTO_CONSUME", "AUTO_PUBLISH")
# How Pulsar's internal errors begin.
_UNEXPECTED: Final = "--- An unexpected error occurred in the server --- Message: "
_EMPTY: Final = '""'
# Of the definition of a KEY_VALUE schema.
_MAX_VALUES: Final = 150_000
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_STRINGS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_VERSION: Final = {"type": "integer", "description": "-1: none"}


def format_definition(schema_type: int, definition: bytes) -> str:
    """Return the text of a stored definition."""
    if schema_type == SchemaType.KEY_VALUE:
        try:
            key, value = split_key_value(definition)
        except InvalidSchema:
            return definition.decode("utf-8", "replace")
        return f'{{"key":{_format_part(key)},"value":{_format_part(value)}}}'
    return definition.decode("utf-8", "replace")


def _format_part(definition: bytes | None) -> str:
    return definition.decode("utf-8", "replace") if definition else _EMPTY


def parse_definition(schema_type: int, text: str, where: str = "schema") -> bytes:
    """Return the definition as it is stored. Raises InvalidJson."""
    if schema_type != SchemaType.KEY_VALUE:
        return text.encode()
    try:
        parts = parse_json(text.encode(), _MAX_VALUES)
        if not isinstance(parts, dict) or "key" not in parts or "value" not in parts:
            raise UnprocessableValue(f"{where}: the definition of KEY_VALUE is an object with key and value")
        return join_key_value(_parse_part(parts["key"]), _parse_part(parts["value"]))
    except InvalidJson as error:
        raise UnprocessableValue(f"{where}: {str(error).replace('the body', 'the definition')}") from None
    except RecursionError:
        raise UnprocessableValue(f"{where}: the definition is nested too deeply") from None
    except ValueError:
        raise UnprocessableValue(f"{where}: the definition has a number that is too large") from None


def _parse_part(value: Any) -> bytes:
    return b"" if value in ("", None) else _encode(value).encode()


class _Posted(Part):
    """The request's field `schema`."""

    fields = frozenset(["schema"])

    def carries(self, message: Any) -> bool:
        """Pulsar's API has no names of schemas: that is lost."""
        schema = message.schema
        if not message.HasField("schema") or _NAMES.get(schema.type, "AUTO") in _OF_CLIENTS:
            return False
        try:
            parts = split_key_value(schema.definition) if schema.type == SchemaType.KEY_VALUE else (schema.definition,)
            for part in parts:
                (part or b"").decode()
            parse_definition(schema.type, format_definition(schema.type, schema.definition))
        except (InvalidSchema, InvalidJson, UnicodeDecodeError):
            return False
        return True

    def to_json(self, message: Any) -> Any:
        schema = message.schema
        return {
            "type": _NAMES.get(schema.type, str(schema.type)),
            "schema": format_definition(schema.type, schema.definition),
            "properties": dict(schema.properties),
        }

    def fill(self, message: Any, value: Any, where: str) -> None:
        given = check_type(value, dict, "an object", where)
        schema = message.schema
        schema.SetInParent()
        if given.get("type") is None:
            raise InvalidJson(f"{where}: type is missing")
        schema.type = _parse_type(given["type"], f"{where}.type")
        text = given.get("schema")
        text = "" if text is None else check_text(text, f"{where}.schema")
        schema.definition = parse_definition(schema.type, text, f"{where}.schema")
        _fill_properties(schema, given.get("properties"), f"{where}.properties")

    def schema(self, descriptor: Any) -> Schema:
        return {
            "title": "PostSchemaPayload",
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": [one for one in _TYPES if one not in _OF_CLIENTS]},
                "schema": {"type": "string", "description": "the definition; empty for types that have none"},
                "properties": _STRINGS,
            },
            "required": ["type"],
        }


def _parse_type(value: Any, where: str) -> int:
    name = check_type(value, str, "a text", where)
    if name in _OF_CLIENTS:
        raise UnprocessableValue(f"{where}: {name} is a type of clients, which no topic can have")
    if name not in _TYPES:
        raise InvalidJson(f"{where}: {format_value(name)} is none of {', '.join(_TYPES)}")
    return _TYPES[name]


def _fill_properties(schema: Any, value: Any, where: str) -> None:
    if value is None:
        return
    for name, one in check_type(value, dict, "an object", where).items():
        path = join_path(where, name)
        schema.properties[name] = check_text(one, path)


class _Stored(Part):
    """A `TopicSchema`."""

    fields = frozenset(["version", "schema", "created_ms"])

    def to_json(self, message: Any) -> Any:
        schema = message.schema
        return {
            "version": message.version,
            "type": _NAMES.get(schema.type, str(schema.type)),
            "timestamp": message.created_ms,
            "data": format_definition(schema.type, schema.definition),
            "properties": dict(schema.properties),
        }

    def fill(self, message: Any, value: Any, where: str) -> None:
        given = check_type(value, dict, "an object", where)
        message.version = _parse_number(given.get("version"), f"{where}.version")
        message.created_ms = _parse_number(given.get("timestamp"), f"{where}.timestamp")
        schema = message.schema
        schema.type = _parse_type(given.get("type"), f"{where}.type")
        text = check_text(given.get("data") or "", f"{where}.data")
        schema.definition = parse_definition(schema.type, text, f"{where}.data")
        _fill_properties(schema, given.get("properties"), f"{where}.properties")

    def schema(self, descriptor: Any) -> Schema:
        return {
            "title": "GetSchemaResponse",
            "type": "object",
            "properties": {
                "version": _VERSION,
                "type": {"type": "string", "enum": [one for one in _TYPES if one != "BYTES"]},
                "timestamp": {"type": "integer", "description": "when it was stored, in ms since 1970"},
                "data": {"type": "string", "description": "the definition"},
                "properties": _STRINGS,
            },
        }


def _parse_number(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidJson(f"{where}: {format_value(value)} is not a whole number")
    if not 0 <= value < 2**63:
        raise OutOfRange(f"{where}: {format_value(value)} is not from 0 to {2**63 - 1}")
    return value


class _Version(Part):
    """The field `version` of a response. -1 stands for an absent one."""

    fields = frozenset(["version"])

    def to_json(self, message: Any) -> Any:
        return message.version if message.HasField("version") else -1

    def fill(self, message: Any, value: Any, where: str) -> None:
        if value != -1:
            message.version = _parse_number(value, where)

    def schema(self, descriptor: Any) -> Schema:
        return _VERSION


class _Metadata(Part):
    """The positions of all versions, and again that of the last one. There is no JSON value without a version."""

    fields = frozenset(["versions"])

    def to_json(self, message: Any) -> Any:
        entries = [
            {
                "ledgerId": one.ledger_id if one.HasField("ledger_id") else -1,
                "entryId": 0 if one.HasField("ledger_id") else -1,
                "version": one.version,
            }
            for one in message.versions
        ]
        return {"info": entries[-1], "index": entries} if entries else None

    def fill(self, message: Any, value: Any, where: str) -> None:
        for one in check_type(value, dict, "an object", where).get("index") or ():
            entry = check_type(one, dict, "an object", f"{where}.index")
            added = message.versions.add(version=_parse_number(entry.get("version"), f"{where}.version"))
            if entry.get("ledgerId") != -1:
                added.ledger_id = _parse_number(entry.get("ledgerId"), f"{where}.ledgerId")

    def schema(self, descriptor: Any) -> Schema:
        number = {"type": "integer", "description": "-1: none"}
        entry = {"type": "object", "properties": {"ledgerId": number, "entryId": number, "version": number}}
        return {
            "title": "SchemaMetadata",
            "type": "object",
            "properties": {"info": entry, "index": {"type": "array", "items": entry}},
        }


class CheckAnswer(RawAnswer):
    """Whether a schema is compatible. Pulsar's brokers answer 500 if it is not."""

    status = 202
    content_type = "application/json"
    schema = {
        "title": "IsCompatibilityResponse",
        "type": "object",
        "properties": {
            "compatibility": {"type": "boolean"},
            "schemaCompatibilityStrategy": {"type": "string", "enum": list(SCHEMA_COMPATIBILITY)},
            "reason": {"type": "string", "description": "why it is not compatible: the field and the rule"},
        },
    }
    _INCOMPATIBLE: Final = ("Incompatible schema", "schema compatibility check with strategy ")

    def to_http(self, message: Message) -> tuple[dict[str, str], bytes]:
        return {}, _encode(_CHECK.to_json(message)).encode()

    def fill(self, message: Message, headers: Mapping[str, str], body: bytes) -> None:
        _CHECK.fill(message, parse_json(body), "the answer")

    def fill_refusal(self, message: Any, status: int, reason: str) -> bool:
        if status == 500 and "Invalid schema definition" in reason:
            message.problem.CopyFrom(Problem(code=ErrorCode.INVALID_ARGUMENT, text=reason.removeprefix(_UNEXPECTED)))
            return True
        found = next((text for text in self._INCOMPATIBLE if text in reason), None)
        if status != 500 or found is None:
            return False
        message.reason = reason.removeprefix(_UNEXPECTED)
        name = reason.partition(self._INCOMPATIBLE[1])[2].partition(":")[0]
        message.strategy = SCHEMA_COMPATIBILITY.get(name, SCHEMA_COMPATIBILITY["UNDEFINED"])
        return True


POSTED_SCHEMA: Final = _Posted()
SCHEMA_VERSION: Final = _Version()
SCHEMA_METADATA: Final = _Metadata()
ONE_SCHEMA: Final = Field("schema", of=_Stored())
SCHEMAS: Final = Object({"getSchemaResponses": Field("schemas", of=_Stored())})
_CHECK: Final = Object(
    {
        "schemaCompatibilityStrategy": Field("strategy", names=SCHEMA_COMPATIBILITY),
        "compatibility": "is_compatible",
        "reason": Field("reason", absent_if_empty=True),
    }
)
