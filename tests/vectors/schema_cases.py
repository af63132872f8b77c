"""Schemas whose verdicts are recorded from a real Pulsar in `schema_verdicts.json`, by capture_schemas.py.

EVOLUTIONS      earlier versions and a new schema: may a producer, may a consumer use it, by each strategy
DEFINITIONS     one schema: is it valid
PAIRS           two schemas: does the second one get the version of the first
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

__all__ = ["DEFINITIONS", "EVOLUTIONS", "PAIRS", "STRATEGIES", "CaseSchema", "Evolution"]

STRATEGIES: Final = (
    "UNDEFINED",
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)


@dataclass(frozen=True)
class CaseSchema:
    type: str
    definition: bytes = b""
    properties: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Evolution:
    earlier: tuple[CaseSchema, ...]
    new: CaseSchema


def _avro(definition: Any, schema_type: str = "AVRO") -> CaseSchema:
    return CaseSchema(schema_type, json.dumps(definition).encode())


def _field(name: str, field_type: Any, **attributes: Any) -> dict[str, Any]:
    return {"name": name, "type": field_type, **attributes}


def _record(*fields: dict[str, Any], name: str = "R", **attributes: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **attributes}


def _enum(*symbols: str, name: str = "E", **attributes: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **attributes}


def _fixed(size: int, name: str = "F", **attributes: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **attributes}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _map(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def _sub(*fields: dict[str, Any], name: str = "S", **attributes: Any) -> dict[str, Any]:
    return _record(*fields, name=name, **attributes)


_A: Final = _field("a", "int")
_B: Final = _field("b", "string")
_B_DEFAULT: Final = _field("b", "string", default="")
_C_DEFAULT: Final = _field("c", "int", default=0)

# Types of a field `f`, before and after.
_FIELD_TYPES: Final[dict[str, tuple[Any, Any]]] = {
    "int to long": ("int", "long"),
    "long to int": ("long", "int"),
    "int to float": ("int", "float"),
    "int to double": ("int", "double"),
    "long to float": ("long", "float"),
    "long to double": ("long", "double"),
    "float to double": ("float", "double"),
    "double to float": ("double", "float"),
    "string to bytes": ("string", "bytes"),
    "int to string": ("int", "string"),
    "boolean to int": ("boolean", "int"),
    "null to int": ("null", "int"),
    "int to nullable": ("int", ["null", "int"]),
    "int to nullable long": ("int", ["null", "long"]),
    "string to nullable bytes": ("string", ["null", "bytes"]),
    "int to union without it": ("int", ["null", "string"]),
    "branch added": (["null", "int"], ["null", "int", "string"]),
    "branches reordered": (["null", "int"], ["int", "null"]),
    "branch promoted": (["null", "int"], ["null", "long"]),
    "branch to float and double": (["null", "int"], ["null", "double", "float"]),
    "symbol added": (_enum("X"), _enum("X", "Y")),
    "symbol removed but default": (_enum("X", "Y"), _enum("X", default="X")),
    "symbols reordered": (_enum("X", "Y"), _enum("Y", "X")),
    "symbols replaced": (_enum("X"), _enum("Y")),
    "enum renamed": (_enum("X"), _enum("X", name="G")),
    "enum renamed with alias": (_enum("X"), _enum("X", name="G", aliases=["E"])),
    "enum to another namespace": (_enum("X"), _enum("X", namespace="n")),
    "enum to string": (_enum("X"), "string"),
    "enum with full alias": (_enum("X", name="n.E"), _enum("X", name="m.G", aliases=["n.E"])),
    "enum with alias in its namespace": (_enum("X", name="n.E"), _enum("X", name="n.G", aliases=["E"])),
    "enum with alias in another namespace": (_enum("X", name="n.E"), _enum("X", name="m.G", aliases=["E"])),
    "fixed size": (_fixed(4), _fixed(8)),
    "fixed renamed": (_fixed(4), _fixed(4, name="G")),
    "fixed renamed with alias": (_fixed(4), _fixed(4, name="G", aliases=["F"])),
    "fixed to another namespace": (_fixed(4), _fixed(4, namespace="n")),
    "fixed to bytes": (_fixed(4), "bytes"),
    "enum default removed": (_enum("X", default="X"), _enum("X")),
    "items of unions": (_array(["null", "int"]), _array(["double", "null"])),
    "branch record promoted by structure": (
        _sub(_field("x", ["null", "int"]), name="T"),
        [_sub(_field("x", ["null", "string"]), name="U"), _sub(_field("x", ["null", "long"]), name="V")],
    ),
    "branch record in record": (
        _sub(_field("x", _sub(_A, name="X")), name="T"),
        [
            _sub(_field("x", _sub(_field("a", "string"), name="Y")), name="U"),
            _sub(_field("x", ["null", _sub(_field("a", "long"), name="Z")]), name="V"),
        ],
    ),
    "items promoted": (_array("int"), _array("long")),
    "items replaced": (_array("int"), _array("string")),
    "items nullable": (_array("int"), _array(["null", "int"])),
    "values promoted": (_map("int"), _map("long")),
    "values replaced": (_map("int"), _map("string")),
    "array to map": (_array("int"), _map("int")),
    "arrays of arrays": (_array(_array("int")), _array(_array("string"))),
    "field in record": (_sub(_A), _sub(_A, _B)),
    "field with default in record": (_sub(_A), _sub(_A, _B_DEFAULT)),
    "field in items": (_array(_sub(_A)), _array(_sub(_A, _B))),
    "field in values": (_map(_sub(_A)), _map(_sub(_A, _B))),
    "field in branch": (["null", _sub(_A)], ["null", _sub(_A, _B)]),
    "field with default in branch": (["null", _sub(_A)], ["null", _sub(_A, _B_DEFAULT)]),
    "inner record renamed": (_sub(_A), _sub(_A, name="T")),
    "inner record to int": (_sub(_A), "int"),
    "branch renamed": (["null", _sub(_A)], ["null", _sub(_A, name="T")]),
    "branch renamed and changed": (["null", _sub(_A)], ["null", _sub(_B, name="T")]),
    "branch renamed with alias": (["null", _sub(_A)], ["null", _sub(_A, name="T", aliases=["S"])]),
    "branch to another namespace": (["null", _sub(_A)], ["null", _sub(_A, namespace="n")]),
    "branch to record": (["null", _sub(_A)], _sub(_A)),
    "branch by structure": (
        _sub(_A, name="T"),
        [_sub(_B, name="U"), _sub(_A, name="V"), _sub(_A, _B_DEFAULT, name="T", namespace="n")],
    ),
    "branch by structure in items": (
        ["null", _sub(_field("x", _array("int")), name="T")],
        [_sub(_field("x", _array("string")), name="U"), _sub(_field("x", _array("int")), name="V"), "null"],
    ),
    "enum branch to another namespace": (["null", _enum("X")], ["null", _enum("X", namespace="n")]),
    "enum branch to another namespace and symbol": (["null", _enum("X")], ["null", _enum("X", "Y", namespace="n")]),
    "fixed branch to another namespace": (["null", _fixed(4)], [_fixed(4, namespace="n"), "null"]),
    "logical type added": ("long", {"type": "long", "logicalType": "timestamp-millis"}),
    "logical type replaced": (
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "timestamp-micros"},
    ),
    "decimal scale": (
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 3},
    ),
    "date to timestamp": (
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "timestamp-millis"},
    ),
}
# Records, before and after.
_RECORDS: Final[dict[str, tuple[Any, Any]]] = {
    "the same": (_record(_A), _record(_A)),
    "field added": (_record(_A), _record(_A, _B)),
    "field added with default": (_record(_A), _record(_A, _B_DEFAULT)),
    "nullable field added": (_record(_A), _record(_A, _field("b", ["null", "string"]))),
    "nullable field added with default": (_record(_A), _record(_A, _field("b", ["null", "string"], default=None))),
    "field with default removed": (_record(_A, _B_DEFAULT), _record(_A)),
    "fields replaced": (_record(_A, _B), _record(_A, _C_DEFAULT)),
    "fields reordered": (_record(_A, _B), _record(_B, _A)),
    "field renamed": (_record(_A, _B), _record(_A, _field("d", "string"))),
    "field renamed with alias": (_record(_A, _B), _record(_A, _field("d", "string", aliases=["b"]))),
    "two fields by alias": (_record(_A, _B), _record(_field("d", "int", aliases=["a"]), _field("b", "string"))),
    "all fields removed": (_record(_A, _B_DEFAULT), _record()),
    "record renamed": (_record(_A), _record(_A, name="Q")),
    "record renamed with alias": (_record(_A), _record(_field("d", "int", aliases=["a"]), name="Q", aliases=["R"])),
    "record in another namespace": (_record(_A), _record(_A, namespace="n")),
    "default added": (_record(_A, _B), _record(_A, _B_DEFAULT)),
    "default changed": (_record(_A, _B_DEFAULT), _record(_A, _field("b", "string", default="x"))),
    "documentation added": (_record(_A), _record(_field("a", "int", doc="x"), doc="y")),
    "order changed": (_record(_A), _record(_field("a", "int", order="descending"))),
    "property added": (_record(_A), _record(_field("a", "int", unit="m"), owner="x")),
    "list": (
        _record(_A, _field("next", ["null", "R"])),
        _record(_A, _field("next", ["null", "R"]), _B_DEFAULT),
    ),
    "list without default": (
        _record(_A, _field("next", ["null", "R"])),
        _record(_A, _field("next", ["null", "R"]), _B),
    ),
    "list promoted": (
        _record(_A, _field("next", ["null", "R"])),
        _record(_field("a", "long"), _field("next", ["null", "R"])),
    ),
    "tree": (
        _record(_A, _field("children", _array("R"))),
        _record(_A, _field("children", _array("R"))),
    ),
    "nullable field added with default of second branch": (
        _record(_A),
        _record(_A, _field("b", ["null", "string"], default="x")),
    ),
    "namespace of an inner enum": (
        _record(_field("e", _enum("X")), namespace="m"),
        _record(_field("e", _enum("X")), namespace="n"),
    ),
    "namespace of an enum in a union": (
        _record(_field("e", ["null", _enum("X")]), namespace="m"),
        _record(_field("e", ["null", _enum("X")]), namespace="n"),
    ),
    "namespace of an enum in a union that changes": (
        _record(_field("e", ["null", _enum("X")]), namespace="m"),
        _record(_field("e", ["null", _enum("X"), "int"]), namespace="n"),
    ),
    "namespace of a record in a union that changes": (
        _record(_field("e", ["null", _sub(_A)]), namespace="m"),
        _record(_field("e", ["null", _sub(_A, _B_DEFAULT), "int"]), namespace="n"),
    ),
    "two records in a circle": (
        _record(_field("s", _sub(_A, _field("r", ["null", "R"])))),
        _record(_field("s", _sub(_field("a", "long"), _field("r", ["null", "R"]), _B_DEFAULT))),
    ),
    "two records in a circle without default": (
        _record(_field("s", _sub(_A, _field("r", _array("R"))))),
        _record(_field("s", _sub(_A, _field("r", _array("R")), _B))),
    ),
    "circle in a union renamed": (
        _record(_field("s", [_sub(_A, _field("s", ["null", "S"])), "null"])),
        _record(_field("s", [_sub(_A, _field("s", ["null", "T"]), name="T"), "null"])),
    ),
    "alias of another record": (
        _record(_field("s", _sub(_A)), _field("t", _sub(_B, name="T"))),
        _record(_field("s", _sub(_A)), _field("t", _sub(_B, name="U", aliases=["S", "T"]))),
    ),
    "alias of a field of an aliased record": (
        _record(_field("s", ["null", _sub(_A)])),
        _record(_field("s", ["null", _sub(_field("d", "int", aliases=["a"]), name="T", aliases=["S"])])),
    ),
    "record to error": (_record(_A), {**_record(_A), "type": "error"}),
}


def _message(name: str, *fields: tuple[str, int, int], nested: str = "") -> DescriptorProto:
    message = DescriptorProto(name=name)
    for field_name, number, field_type in fields:
        message.field.add(name=field_name, number=number, type=field_type, label=1)
    if nested:
        message.nested_type.add(name=nested)
    return message


_STRING: Final = FieldDescriptorProto.TYPE_STRING
_INT64: Final = FieldDescriptorProto.TYPE_INT64


def _native(*messages: DescriptorProto, root: str, package: str = "p", file: str = "p.proto") -> CaseSchema:
    proto = FileDescriptorProto(name=file, package=package, syntax="proto3", message_type=messages)
    return _native_definition(FileDescriptorSet(file=[proto]).SerializeToString(), root, file)


def _native_definition(files: bytes, root: str, file: str) -> CaseSchema:
    definition = {
        "fileDescriptorSet": base64.b64encode(files).decode(),
        "rootMessageTypeName": root,
        "rootFileDescriptorName": file,
    }
    return CaseSchema("PROTOBUF_NATIVE", json.dumps(definition).encode())


_M: Final = _message("M", ("a", 1, _STRING))
_NATIVE: Final[dict[str, tuple[CaseSchema, CaseSchema]]] = {
    "the same": (_native(_M, root="p.M"), _native(_M, root="p.M")),
    "field added": (_native(_M, root="p.M"), _native(_message("M", ("a", 1, _STRING), ("b", 2, _INT64)), root="p.M")),
    "field's type changed": (_native(_M, root="p.M"), _native(_message("M", ("a", 1, _INT64)), root="p.M")),
    "field's number changed": (_native(_M, root="p.M"), _native(_message("M", ("a", 2, _STRING)), root="p.M")),
    "all fields removed": (_native(_M, root="p.M"), _native(_message("M"), root="p.M")),
    "message renamed": (_native(_M, root="p.M"), _native(_message("N", ("a", 1, _STRING)), root="p.N")),
    "another message of the file": (
        _native(_M, _message("N"), root="p.M"),
        _native(_M, _message("N"), root="p.N"),
    ),
    "nested message": (
        _native(_message("M", nested="N"), root="p.M"),
        _native(_message("M", nested="N"), root="p.M.N"),
    ),
    "package changed": (_native(_M, root="p.M"), _native(_M, root="q.M", package="q")),
    "file renamed": (_native(_M, root="p.M"), _native(_M, root="p.M", file="q.proto")),
}


def _key_value(key: CaseSchema, value: CaseSchema, encoding: str = "INLINE") -> CaseSchema:
    definition = b"".join(len(part.definition).to_bytes(4, "big") + part.definition for part in (key, value))
    properties = {"kv.encoding.type": encoding}
    for name, part in (("key", key), ("value", value)):
        properties |= {
            f"{name}.schema.name": "",
            f"{name}.schema.type": part.type,
            f"{name}.schema.properties": json.dumps(part.properties),
        }
    return CaseSchema("KEY_VALUE", definition, properties)


_STR: Final = CaseSchema("STRING")
_I32: Final = CaseSchema("INT32")
_I64: Final = CaseSchema("INT64")
_OLD: Final = _avro(_record(_A))
_ADDED: Final = _avro(_record(_A, _B))
_ADDED_DEFAULT: Final = _avro(_record(_A, _B_DEFAULT))
_KEY_VALUE: Final[dict[str, tuple[CaseSchema, CaseSchema]]] = {
    "the same": (_key_value(_OLD, _OLD), _key_value(_OLD, _OLD)),
    "field added to value": (_key_value(_STR, _OLD), _key_value(_STR, _ADDED)),
    "field with default added to value": (_key_value(_STR, _OLD), _key_value(_STR, _ADDED_DEFAULT)),
    "field added to key": (_key_value(_OLD, _STR), _key_value(_ADDED, _STR)),
    "field with default added to key": (_key_value(_OLD, _STR), _key_value(_ADDED_DEFAULT, _STR)),
    "field removed from key, added to value": (_key_value(_ADDED, _OLD), _key_value(_OLD, _ADDED)),
    "type of value": (_key_value(_STR, _OLD), _key_value(_STR, _I32)),
    "type of key": (_key_value(_STR, _OLD), _key_value(_I32, _OLD)),
    "avro to json": (_key_value(_STR, _OLD), _key_value(_STR, CaseSchema("JSON", _OLD.definition))),
    "primitive types": (_key_value(_STR, _I32), _key_value(_I64, _STR)),
    "encoding": (_key_value(_STR, _OLD), _key_value(_STR, _OLD, "SEPARATED")),
    "encoding and field": (_key_value(_STR, _OLD), _key_value(_STR, _ADDED_DEFAULT, "SEPARATED")),
    "message renamed": (
        _key_value(_STR, _native(_M, root="p.M")),
        _key_value(_STR, _native(_message("N"), root="p.N")),
    ),
}

_JACKSON: Final = CaseSchema("JSON", b'{"type":"object","id":"urn:jsonschema:A","properties":{"a":{"type":"integer"}}}')
_JACKSON_FIELD: Final = CaseSchema(
    "JSON",
    b'{"type":"object","id":"urn:jsonschema:A","properties":{"a":{"type":"integer"},"b":{"type":"string"}}}',
)
_JACKSON_OTHER: Final = CaseSchema("JSON", b'{"type":"object","id":"urn:jsonschema:B"}')
_OLD_JSON: Final = CaseSchema("JSON", _OLD.definition)
_TYPES: Final[dict[str, tuple[CaseSchema, CaseSchema]]] = {
    "avro to json": (_OLD, _OLD_JSON),
    "json to avro": (_OLD_JSON, _OLD),
    "avro to string": (_OLD, _STR),
    "string to avro": (_STR, _OLD),
    "string to int32": (_STR, _I32),
    "int32 to int64": (_I32, _I64),
    "string to string": (_STR, _STR),
    "string to python's string": (_STR, CaseSchema("STRING", b"null")),
    "avro to key value": (_OLD, _key_value(_STR, _OLD)),
    "avro to native": (_OLD, _native(_M, root="p.M")),
    "avro to protobuf": (_OLD, CaseSchema("PROTOBUF", _OLD.definition)),
    "protobuf: field added": (CaseSchema("PROTOBUF", _OLD.definition), CaseSchema("PROTOBUF", _ADDED.definition)),
    "protobuf: replaced": (
        CaseSchema("PROTOBUF", _OLD.definition),
        _avro(_record(_field("a", "string"), name="Z"), "PROTOBUF"),
    ),
    "json schema: field added": (_JACKSON, _JACKSON_FIELD),
    "json schema: another id": (_JACKSON, _JACKSON_OTHER),
    "json schema to avro": (_JACKSON, _OLD_JSON),
    "avro to json schema": (_OLD_JSON, _JACKSON),
}
# Several earlier versions.
_HISTORIES: Final[dict[str, tuple[tuple[CaseSchema, ...], CaseSchema]]] = {
    "default removed again": ((_OLD, _ADDED_DEFAULT), _ADDED),
    "field removed again": ((_ADDED, _ADDED_DEFAULT), _OLD),
    "first version can't be read": ((_avro(_record(_field("a", "string"))), _OLD), _avro(_record(_field("a", "long")))),
    "second version can't be read": (
        (_OLD, _avro(_record(_field("a", "string")))),
        _avro(_record(_field("a", "long"))),
    ),
    "another type before": ((_STR, _OLD), _ADDED_DEFAULT),
    "the first version again": ((_OLD, _ADDED), _OLD),
    "same but for defaults": ((_avro(_record(_A, _B)), _OLD), _ADDED_DEFAULT),
    "native": ((_native(_message("N"), root="p.N"), _native(_M, root="p.M")), _native(_M, _message("O"), root="p.M")),
    "key value": ((_key_value(_STR, _ADDED), _key_value(_STR, _OLD)), _key_value(_STR, _ADDED_DEFAULT)),
    "key value of another type before": ((_key_value(_I32, _OLD), _key_value(_STR, _OLD)), _key_value(_STR, _ADDED)),
    "strings": ((_STR, _STR), _STR),
    "json schema": ((_JACKSON, _JACKSON_FIELD), _JACKSON),
}


def _evolutions() -> Iterator[tuple[str, Evolution]]:
    for name, (old, new) in _FIELD_TYPES.items():
        before, after = _record(_field("f", old)), _record(_field("f", new))
        yield f"avro: {name}", Evolution((_avro(before),), _avro(after))
        yield f"avro: {name}, reversed", Evolution((_avro(after),), _avro(before))
    for name, (old, new) in _RECORDS.items():
        yield f"avro: {name}", Evolution((_avro(old),), _avro(new))
        yield f"json: {name}", Evolution((_avro(old, "JSON"),), _avro(new, "JSON"))
    for kind, table in (("native", _NATIVE), ("key value", _KEY_VALUE), ("types", _TYPES)):
        for name, (before_schema, after_schema) in table.items():
            yield f"{kind}: {name}", Evolution((before_schema,), after_schema)
    for name, (earlier, new_schema) in _HISTORIES.items():
        yield f"history: {name}", Evolution(earlier, new_schema)


EVOLUTIONS: Final = dict(_evolutions())


def _with_default(field_type: Any, default: Any) -> CaseSchema:
    return _avro(_record(_field("a", field_type, default=default)))


_FILES: Final = FileDescriptorSet(
    file=[
        FileDescriptorProto(name="a.proto", package="p", dependency=["b.proto"], message_type=[_message("M")]),
        FileDescriptorProto(name="b.proto", package="p", message_type=[_message("N")]),
    ]
)
_CIRCLE: Final = FileDescriptorSet(
    file=[
        FileDescriptorProto(name="a.proto", dependency=["b.proto"], message_type=[_message("M")]),
        FileDescriptorProto(name="b.proto", dependency=["a.proto"]),
    ]
)
# As texts, for Java's Double.valueOf and Python's float.
_NUMBERS: Final = (
    *("inf", "nan", "infinity", "Infinity", "+Infinity", "-NaN", "1_0", "\u0661", "1d", "1F", "0x1.8p1", "0x1p3f"),
    *("0x1", "0x1p99999", " 1\n", "\u00a01", ".5", "5.", "1e400", "", "1e"),
)
# What is in a JSON schema of type object, or array.
_IN_OBJECT: Final[dict[str, Any]] = {
    "required": {"required": True},
    "required: text": {"required": "true"},
    "required: number": {"required": 1},
    "required: list": {"required": ["a"]},
    "required: other text": {"required": "x"},
    "required in property": {"properties": {"a": {"type": "string", "required": ["x"]}}},
    "properties null": {"properties": None},
    "property null": {"properties": {"a": None}},
    "property is a number": {"properties": {"a": 5}},
    "property without type": {"properties": {"a": {}}},
    "no others": {"additionalProperties": False},
    "others": {"additionalProperties": {"type": "string"}},
    "others is a number": {"additionalProperties": 5},
}
_ITEMS: Final[dict[str, Any]] = {
    "items": {"type": "string"},
    "list of items": [{"type": "string"}],
    "items is a number": 5,
    "items without type": {},
    "items null": None,
}
DEFINITIONS: Final[dict[str, CaseSchema]] = {
    "empty": CaseSchema("AVRO"),
    "not JSON": CaseSchema("AVRO", b"{"),
    "json: not JSON": CaseSchema("JSON", b"{"),
    "null": CaseSchema("AVRO", b"null"),
    "number": CaseSchema("AVRO", b"5"),
    "primitive": CaseSchema("AVRO", b'"string"'),
    "primitive object": CaseSchema("AVRO", b'{"type":"string"}'),
    "json: primitive": CaseSchema("JSON", b'"string"'),
    "array": _avro(_array("int")),
    "union": _avro(["null", "int"]),
    "json: union": _avro(["null", "int"], "JSON"),
    "empty union": _avro(_record(_field("a", []))),
    "unknown type": _avro(_record(_field("a", "T"))),
    "unknown type of object": _avro(_record(_field("a", {"type": "T"}))),
    "type of type": _avro(_record(_field("a", {"type": {"type": "int"}}))),
    "union in type": _avro(_record(_field("a", {"type": ["null", "int"]}))),
    "no name": _avro({"type": "record", "fields": []}),
    "empty name": _avro(_record(name="")),
    "bad name": _avro(_record(name="a b")),
    "name with digit first": _avro(_record(name="1a")),
    "name with hyphen": _avro(_record(_field("a-b", "int"))),
    "name in another alphabet": _avro(_record(_field("größe", "int"))),
    **{
        f"name {name!a}": _avro(_record(name=name))
        for name in ("a\u00b2", "\U00010400", "a\U00010400", "a\u0663", "\u0663a", "\u2167", "\u02b0", "n\u00b2.R")
    },
    "field name with exponent": _avro(_record(_field("a\u00b2", "int"))),
    "symbol with exponent": _avro(_record(_field("a", _enum("a\u00b2")))),
    "name of 2000 letters": _avro(_record(name="n" * 2000)),
    "field name with dot": _avro(_record(_field("a.b", "int"))),
    "bad namespace": _avro(_record(namespace="a b")),
    "name of a primitive": _avro(_record(name="int")),
    "no fields": _avro({"type": "record", "name": "R"}),
    "fields no array": _avro({"type": "record", "name": "R", "fields": {}}),
    "field without name": _avro(_record({"type": "int"})),
    "field without type": _avro(_record({"name": "a"})),
    "field twice": _avro(_record(_A, _A)),
    "type defined twice": _avro(_record(_field("a", _enum("X")), _field("b", _enum("X")))),
    "type referred to": _avro(_record(_field("a", _enum("X")), _field("b", "E"))),
    "type by full name": _avro(_record(_field("a", _enum("X", namespace="n")), _field("b", "n.E"))),
    "type of namespace": _avro(_record(_field("a", _enum("X")), _field("b", "E"), namespace="n")),
    "type outside of namespace": _avro(_record(_field("a", _sub(_field("x", "R"), namespace="m")))),
    "type by object": _avro(_record(_field("a", _enum("X")), _field("b", {"type": "E"}))),
    "union in union": _avro(_record(_field("a", ["null", ["int"]]))),
    "branch twice": _avro(_record(_field("a", ["int", "int"]))),
    "two arrays": _avro(_record(_field("a", [_array("int"), _array("string")]))),
    "two records": _avro(_record(_field("a", [_sub(name="S"), _sub(name="T")]))),
    "enum without symbols": _avro(_record(_field("a", {"type": "enum", "name": "E"}))),
    "empty enum": _avro(_record(_field("a", _enum()))),
    "symbol twice": _avro(_record(_field("a", _enum("X", "X")))),
    "bad symbol": _avro(_record(_field("a", _enum("X-Y")))),
    "default symbol": _avro(_record(_field("a", _enum("X", default="X")))),
    "default is no symbol": _avro(_record(_field("a", _enum("X", default="Y")))),
    "default symbol is a number": _avro(_record(_field("a", _enum("X", default=1)))),
    "fixed without size": _avro(_record(_field("a", {"type": "fixed", "name": "F"}))),
    "fixed of size 0": _avro(_record(_field("a", _fixed(0)))),
    "fixed of negative size": _avro(_record(_field("a", _fixed(-1)))),
    "fixed of text size": _avro(_record(_field("a", {"type": "fixed", "name": "F", "size": "4"}))),
    "array without items": _avro(_record(_field("a", {"type": "array"}))),
    "map without values": _avro(_record(_field("a", {"type": "map"}))),
    "aliases no array": _avro(_record(_field("a", "int", aliases="b"))),
    "alias no text": _avro(_record(_field("a", "int", aliases=[1]))),
    "bad alias": _avro(_record(_A, aliases=["a b"])),
    "bad order": _avro(_record(_field("a", "int", order="up"))),
    "order in capitals": _avro(_record(_field("a", "int", order="IGNORE"))),
    "unknown logical type": _avro(_record(_field("a", {"type": "int", "logicalType": "x"}))),
    "invalid decimal": _avro(_record(_field("a", {"type": "bytes", "logicalType": "decimal"}))),
    "logical type no text": _avro(_record(_field("a", {"type": "int", "logicalType": 5}))),
    "documentation no text": _avro(_record(_field("a", "int", doc=5), doc=[])),
    "recursive": _avro(_record(_field("a", ["null", "R"]))),
    "recursive without end": _avro(_record(_field("a", "R"))),
    "error": _avro({"type": "error", "name": "R", "fields": [_A]}),
    "request": _avro({"type": "request", "name": "R", "fields": []}),
    "default": _with_default("int", 5),
    "default of wrong type": _with_default("int", "x"),
    "default null of int": _with_default("int", None),
    "default out of range": _with_default("int", 2**31),
    "default 1.0 of int": _with_default("int", 1.0),
    "default true of int": _with_default("int", True),
    "default int of double": _with_default("double", 1),
    "default text of double": _with_default("double", "NaN"),
    **{f"default text {text!a} of double": _with_default("double", text) for text in _NUMBERS},
    "default text 1e400 of float": _with_default("float", "1e400"),
    "default of second branch": _with_default(["null", "int"], 5),
    "default of no branch": _with_default(["null", "int"], "x"),
    "default of array": _with_default(_array("int"), [1]),
    "wrong default of array": _with_default(_array("int"), ["x"]),
    "default of map": _with_default(_map("int"), {"x": 1}),
    "default of record": _with_default(_sub(_A, _B_DEFAULT), {"a": 1}),
    "incomplete default of record": _with_default(_sub(_A, _B_DEFAULT), {}),
    "default of enum": _with_default(_enum("X"), "X"),
    "wrong default of enum": _with_default(_enum("X"), "Y"),
    "default of fixed": _with_default(_fixed(1), "x"),
    "key twice": CaseSchema("AVRO", b'{"type":"string","type":"record","name":"R","fields":[]}'),
    "comment": CaseSchema("AVRO", b'/* x */ {"type":"record","name":"R","fields":[]}'),
    "content behind": CaseSchema("AVRO", b'{"type":"record","name":"R","fields":[]} x'),
    "NaN": CaseSchema("AVRO", b'{"type":"record","name":"R","fields":[],"x":NaN}'),
    "NUL behind": CaseSchema("AVRO", b'{"type":"record","name":"R","fields":[]}\0'),
    "number out of range": CaseSchema("AVRO", b'{"type":"record","name":"R","fields":[],"x":1e400}'),
    "200 levels": CaseSchema("AVRO", b'{"type":"record","name":"R","fields":[],"x":' + b"[" * 200 + b"]" * 200 + b"}"),
    "invalid UTF-8": CaseSchema("AVRO", b'{"type":"record","name":"R","fields":[],"x":"\xff"}'),
    "surrogate": CaseSchema("AVRO", b'{"type":"record","name":"R","fields":[],"x":"\\ud800"}'),
    "huge number": CaseSchema("AVRO", b'{"type":"record","name":"R","fields":[],"x":' + b"9" * 900 + b"}"),
    "json schema": _JACKSON,
    "json schema: string": CaseSchema("JSON", b'{"type":"string","format":"date"}'),
    "json schema: unknown type": CaseSchema("JSON", b'{"type":"x"}'),
    "json schema: no type": CaseSchema("JSON", b'{"properties":{}}'),
    "json schema: empty": CaseSchema("JSON", b"{}"),
    "json schema: reference": CaseSchema("JSON", b'{"$ref":"x"}'),
    "json schema: unknown attribute": CaseSchema("JSON", b'{"type":"object","x":1}'),
    "json schema: types": CaseSchema("JSON", b'{"type":["object","string"]}'),
    "json schema: wrong properties": CaseSchema("JSON", b'{"type":"object","properties":[]}'),
    **{
        f"json schema: {name}": CaseSchema("JSON", json.dumps({"type": "object", **more}).encode())
        for name, more in _IN_OBJECT.items()
    },
    **{
        f"json schema: {name}": CaseSchema("JSON", json.dumps({"type": "array", "items": items}).encode())
        for name, items in _ITEMS.items()
    },
    "json schema: properties of a string": CaseSchema("JSON", b'{"type":"string","properties":{"a":5}}'),
    "avro: json schema": CaseSchema("AVRO", _JACKSON.definition),
    "protobuf": CaseSchema("PROTOBUF", _OLD.definition),
    "protobuf: empty": CaseSchema("PROTOBUF"),
    "native": _native(_M, root="p.M"),
    "native: nested message": _native(_message("M", nested="N"), root="p.M.N"),
    "native: without package": _native(_M, root="M"),
    "native: missing message": _native(_M, root="p.N"),
    "native: missing file": _native_definition(_FILES.SerializeToString(), "p.M", "c.proto"),
    "native: with import": _native_definition(_FILES.SerializeToString(), "p.M", "a.proto"),
    "native: message of import": _native_definition(_FILES.SerializeToString(), "p.N", "a.proto"),
    "native: missing import": _native_definition(
        FileDescriptorSet(file=[_FILES.file[0]]).SerializeToString(), "p.M", "a.proto"
    ),
    "native: circle": _native_definition(_CIRCLE.SerializeToString(), "M", "a.proto"),
    "native: no descriptors": _native_definition(b"\xff\xff", "p.M", "p.proto"),
    "native: unknown field type": _native(
        DescriptorProto(name="M", field=[FieldDescriptorProto(name="a", number=1, type_name=".p.X")]), root="p.M"
    ),
    "native: not JSON": CaseSchema("PROTOBUF_NATIVE", b"x"),
    "native: no base64": CaseSchema(
        "PROTOBUF_NATIVE",
        b'{"fileDescriptorSet":"!","rootMessageTypeName":"p.M","rootFileDescriptorName":"p.proto"}',
    ),
    "native: empty object": CaseSchema("PROTOBUF_NATIVE", b"{}"),
    "native: more attributes": CaseSchema("PROTOBUF_NATIVE", _native(_M, root="p.M").definition[:-1] + b', "more": 1}'),
    "string": _STR,
    "string: python's": CaseSchema("STRING", b"null"),
    "string: quotes": CaseSchema("STRING", b'""'),
    "string: definition": CaseSchema("STRING", b'"string"'),
    "int32": _I32,
    "int32: python's": CaseSchema("INT32", b"null"),
    "int32: definition": CaseSchema("INT32", b'"int"'),
    **{name.lower(): CaseSchema(name) for name in ("BOOLEAN", "INT8", "DOUBLE", "DATE", "INSTANT", "LOCAL_DATE_TIME")},
    "key value": _key_value(_STR, _OLD),
    "key value: separated": _key_value(_STR, _OLD, "SEPARATED"),
    "key value: unknown encoding": _key_value(_STR, _OLD, "OTHER"),
    "key value: no properties": CaseSchema("KEY_VALUE", _key_value(_STR, _OLD).definition),
    "key value: unknown type": _key_value(CaseSchema("OTHER"), _OLD),
    "key value: wrong key": _key_value(CaseSchema("STRING", b"x"), _OLD),
    "key value: wrong value": _key_value(_STR, CaseSchema("AVRO", b"x")),
    "key value: bytes": _key_value(CaseSchema("BYTES"), CaseSchema("BYTES")),
    "key value: in key value": _key_value(_STR, _key_value(_STR, _STR)),
    "key value: empty": CaseSchema("KEY_VALUE"),
    "key value: short": CaseSchema(
        "KEY_VALUE", _key_value(_STR, _OLD).definition[:-1], _key_value(_STR, _OLD).properties
    ),
    "key value: long": CaseSchema(
        "KEY_VALUE", _key_value(_STR, _OLD).definition + b"x", _key_value(_STR, _OLD).properties
    ),
    "key value: no key": CaseSchema(
        "KEY_VALUE", b"\xff\xff\xff\xff" + _key_value(_STR, _OLD).definition[4:], _key_value(_STR, _OLD).properties
    ),
    "key value: wrong properties": CaseSchema(
        "KEY_VALUE",
        _key_value(_STR, _OLD).definition,
        {**_key_value(_STR, _OLD).properties, "value.schema.properties": "x"},
    ),
}


def _spaced(schema: CaseSchema) -> CaseSchema:
    return CaseSchema(schema.type, json.dumps(json.loads(schema.definition), indent=2).encode(), schema.properties)


def _sorted(schema: CaseSchema) -> CaseSchema:
    definition = json.dumps(json.loads(schema.definition), sort_keys=True, separators=(",", ":"))
    return CaseSchema(schema.type, definition.encode(), schema.properties)


def _pairs() -> Iterator[tuple[str, tuple[CaseSchema, CaseSchema]]]:
    base = _avro(_record(_A, _B_DEFAULT))
    yield "spaces", (base, _spaced(base))
    yield "order of keys", (base, _sorted(base))
    yield "json: spaces", (_avro(_record(_A), "JSON"), _spaced(_avro(_record(_A), "JSON")))
    yield "protobuf: spaces", (_avro(_record(_A), "PROTOBUF"), _spaced(_avro(_record(_A), "PROTOBUF")))
    yield "properties of the schema", (base, CaseSchema("AVRO", base.definition, {"x": "y"}))
    for name, (old, new) in _RECORDS.items():
        yield f"avro: {name}", (_avro(old), _avro(new))
    for name in ("symbol added", "symbol removed but default", "logical type added", "decimal scale"):
        old, new = _FIELD_TYPES[name]
        yield f"avro: {name}", (_avro(_record(_field("f", old))), _avro(_record(_field("f", new))))
    others: dict[str, tuple[Any, Any]] = {
        "enum default": (_enum("X"), _enum("X", default="X")),
        "enum documentation": (_enum("X"), _enum("X", doc="d")),
        "enum alias": (_enum("X"), _enum("X", aliases=["G"])),
        "primitive as object": ("int", {"type": "int"}),
        "namespace in name": (_enum("X", namespace="n"), _enum("X", name="n.E")),
        "property of type": ("int", {"type": "int", "unit": "m"}),
        "property 1 and 1.0": ({"type": "int", "x": 1}, {"type": "int", "x": 1.0}),
        "order of keys of a property": ({"type": "int", "x": {"a": 1, "b": 2}}, {"type": "int", "x": {"b": 2, "a": 1}}),
        "java string": ("string", {"type": "string", "avro.java.string": "String"}),
    }
    for name, (old, new) in others.items():
        yield f"avro: {name}", (_avro(_record(_field("f", old))), _avro(_record(_field("f", new))))
    yield "avro: default 1 and 1.0", (_with_default("double", 1), _with_default("double", 1.0))
    yield "avro: default text of double", (_with_default("double", "1"), _with_default("double", 1.0))
    yield "avro: field alias", (_avro(_record(_A)), _avro(_record(_field("a", "int", aliases=["b"]))))
    yield "avro: record alias", (_avro(_record(_A)), _avro(_record(_A, aliases=["Q"])))
    yield "avro: default order", (_avro(_record(_A)), _avro(_record(_field("a", "int", order="ascending"))))
    yield (
        "avro: type by name and by full name",
        (
            _avro(_record(_field("a", _enum("X")), _field("b", "E"), namespace="n")),
            _avro(_record(_field("a", _enum("X")), _field("b", "n.E"), namespace="n")),
        ),
    )
    wrong = _with_default("int", None)
    yield "avro: wrong default", (wrong, wrong)
    second_branch = _with_default(["null", "int"], 5)
    yield "avro: default of second branch", (second_branch, second_branch)
    yield "native: spaces", (_native(_M, root="p.M"), _spaced(_native(_M, root="p.M")))
    yield "native: field added", _NATIVE["field added"]
    yield "string: python's", (_STR, CaseSchema("STRING", b"null"))
    yield "string: again", (_STR, _STR)
    yield "types: avro to json", (_OLD, _OLD_JSON)
    for name in ("the same", "encoding", "primitive types", "field added to value"):
        yield f"key value: {name}", _KEY_VALUE[name]
    yield "key value: spaces", (_key_value(_STR, base), _key_value(_STR, _spaced(base)))
    yield (
        "key value: other properties",
        (_key_value(_STR, _OLD), _key_value(_STR, CaseSchema("AVRO", _OLD.definition, {"x": "y"}))),
    )


PAIRS: Final = dict(_pairs())
