"""Schemas that commands take: from a file, from a Python class, or of a type that needs no definition.

A file has Pulsar's upload format, `{"type": …, "schema": …, "properties": …}`, or a definition, such as an Avro schema
(.avsc). `module:Class` names a dataclass, pydantic model or Record, or a schema object. The module is imported, also
from the current folder.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from magnetar.schema import Schema, SchemaInfo

__all__ = ["SchemaSource", "SchemaTypeName", "load_schema"]

SchemaSource = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="File with the schema: an Avro definition (.avsc), or Pulsar's {type, schema, properties}. Or "
        "module:Class, a Python class. Nothing for --schema-type string and other types without a definition.",
        show_default=False,
    ),
]
SchemaTypeName = Annotated[
    str,
    typer.Option(
        "--schema-type",
        metavar="TYPE",
        help="Type of the schema: avro, json, protobuf_native, string, int64, … [default: avro, or that of the file]",
        show_default=False,
    ),
]
# The registry has a lower limit. A larger file is a mistake.
_MAX_BYTES: Final = 16 * 1024 * 1024
_DEFINED: Final = ("AVRO", "JSON", "PROTOBUF", "PROTOBUF_NATIVE", "KEY_VALUE")


def load_schema(source: str, type_name: str = "") -> SchemaInfo | Schema[Any]:
    """Return the schema. Raises `typer.BadParameter`."""
    wanted = _parse_type(type_name)
    if not source:
        return _make_plain(wanted)
    if ":" in source and not Path(source).exists():
        return _load_class(source, wanted)
    return _read_file(source, wanted)


def _parse_type(name: str) -> str:
    from magnetar.schema import SchemaType

    wanted = name.upper().replace("-", "_")
    known = [one for one in SchemaType.__members__ if not one.startswith("AUTO_")]
    if wanted and wanted not in known:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(known).lower()}", param_hint="--schema-type")
    return wanted


def _make_plain(wanted: str) -> SchemaInfo:
    from magnetar.schema import SchemaInfo, SchemaType

    if not wanted or wanted in _DEFINED:
        raise typer.BadParameter(
            "name a file with a definition, a class as module:Class, or --schema-type with a type that needs no "
            "definition",
            param_hint="FILE",
        )
    return SchemaInfo(SchemaType[wanted], wanted)


def _read_file(source: str, wanted: str) -> SchemaInfo:
    from magnetar.schema import SchemaInfo, SchemaType

    try:
        with open(source, "rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise typer.BadParameter(f"{source} can't be read: {error.strerror}", param_hint="FILE") from None
    if len(content) > _MAX_BYTES:
        raise typer.BadParameter(f"{source} has more than {_MAX_BYTES:,} bytes", param_hint="FILE")
    try:
        text = content.decode("utf-8-sig")
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{source} is not JSON in UTF-8: {error}", param_hint="FILE") from None
    if isinstance(value, dict) and isinstance(value.get("schema"), str):
        return _read_upload(source, value, wanted)
    name = value.get("name") if isinstance(value, dict) else None
    return SchemaInfo(SchemaType[wanted or "AVRO"], name if isinstance(name, str) else "", text.strip().encode())


def _read_upload(source: str, value: dict[str, Any], wanted: str) -> SchemaInfo:
    """Read Pulsar's upload format."""
    from magnetar.schema import SchemaInfo
    from magnetar_protos.admin_pb2 import SchemaDefinitionRequest
    from magnetar_wire.admin.json.schemas import POSTED_SCHEMA
    from magnetar_wire.admin.json.values import InvalidJson

    request = SchemaDefinitionRequest()
    try:
        POSTED_SCHEMA.fill(request, value | ({"type": wanted} if wanted else {}), source)
    except InvalidJson as error:
        raise typer.BadParameter(str(error), param_hint="FILE") from None
    return SchemaInfo.from_message(request.schema)


def _load_class(source: str, wanted: str) -> Schema[Any]:
    from magnetar.schema import Schema

    module_name, _, name = source.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise typer.BadParameter(f"{source} is no file, and can't be imported: {error}", param_hint="FILE") from None
    if isinstance(found, Schema):
        return found
    return _schema_of_class(source, found, wanted)


def _schema_of_class(source: str, found: Any, wanted: str) -> Schema[Any]:
    from magnetar.schema import AvroSchema, JsonSchema, ProtobufNativeSchema

    kinds: dict[str, Any] = {
        "": AvroSchema,
        "AVRO": AvroSchema,
        "JSON": JsonSchema,
        "PROTOBUF_NATIVE": ProtobufNativeSchema,
    }
    if wanted not in kinds:
        raise typer.BadParameter(f"a class has no schema of the type {wanted.lower()}", param_hint="--schema-type")
    try:
        made: Schema[Any] = kinds[wanted](found)
    except (TypeError, ValueError, AttributeError) as error:
        raise typer.BadParameter(f"no schema can be made of {source}: {error}", param_hint="FILE") from None
    return made
