"""Values of schemas as JSON, for `consume` and `tail` to print, and JSON as values, for `produce` to encode.

Values of types that JSON does not have are strings, as in Avro's JSON encoding: bytes have a character for each byte,
U+0000 to U+00FF. Dates, times and timestamps are in ISO 8601 (their numbers are read, too), decimals and UUIDs are
written out, and NaN and the infinities are "NaN", "Infinity" and "-Infinity". Unlike there, values of unions are plain.
`make_json_reader` makes readers of what `value_to_json` returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Final
from uuid import UUID

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from magnetar.schema import KeyValue
from magnetar_cli.messages.message_input import InvalidValue

__all__ = ["PRIMITIVE_READERS", "JsonReader", "make_json_reader", "value_to_json"]

# Returns the value that a schema encodes. Raises InvalidValue.
JsonReader = Callable[[Any], Any]

_SPECIAL_FLOATS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def value_to_json(value: Any) -> Any:
    """Return a decoded value as the types of the `json` module."""
    if value is None or isinstance(value, (bool, int)) or type(value) is str:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, Mapping):
        return {str(name): value_to_json(one) for name, one in value.items()}
    if isinstance(value, (bytes, bytearray)):
        return value.decode("latin-1")
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [value_to_json(one) for one in value]
    if isinstance(value, KeyValue):
        return {"key": value_to_json(value.key), "value": value_to_json(value.value)}
    if isinstance(value, Message):
        return MessageToDict(value, preserving_proto_field_name=True)
    if isinstance(value, (date, time)):  # a datetime is a date
        return value.isoformat()
    return str(value)


def make_json_reader(definition: Any) -> JsonReader:
    """Return the function that reads values of an Avro definition, which is valid, and given as JSON."""
    return _Readers().of(definition, "")


class _Readers:
    def __init__(self) -> None:
        # By full names. A record may refer to itself, so it is here before its fields are known.
        self._named: dict[str, JsonReader] = {}

    def of(self, node: Any, namespace: str) -> JsonReader:
        if isinstance(node, list):
            return self._of_union(node, namespace)
        if isinstance(node, str):
            return _LEAVES.get(node) or self._find(node, namespace)
        kind = node["type"]
        if not isinstance(kind, str):
            return self.of(kind, namespace)
        if kind == "array":
            return _array_reader(self.of(node["items"], namespace))
        if kind == "map":
            return _map_reader(self.of(node["values"], namespace))
        if kind in ("record", "error", "enum", "fixed"):
            return self._of_named(kind, node, namespace)
        logical = node.get("logicalType")
        return _LOGICAL.get((kind, logical)) or _LEAVES.get(kind) or self._find(kind, namespace)

    def _find(self, name: str, namespace: str) -> JsonReader:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        return lambda value: (self._named.get(full) or self._named[name])(value)

    def _of_named(self, kind: str, node: Any, namespace: str) -> JsonReader:
        name = node["name"]
        namespace = name.rpartition(".")[0] or node.get("namespace", namespace)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if kind == "enum":
            reader: JsonReader = _enum_reader(node["symbols"])
        elif kind == "fixed":
            reader = _read_decimal if node.get("logicalType") == "decimal" else _read_bytes
        else:
            fields: dict[str, JsonReader] = {}
            reader = _record_reader(fields)
            self._named[full] = reader
            fields.update({field["name"]: self.of(field["type"], namespace) for field in node["fields"]})
        self._named[full] = reader
        return reader

    def _of_union(self, branches: Sequence[Any], namespace: str) -> JsonReader:
        # Texts before what is written as text: otherwise every string of a union with bytes would be bytes.
        ordered = sorted(branches, key=lambda branch: branch != "string")
        return _union_reader([self.of(branch, namespace) for branch in ordered])


def _union_reader(branches: Sequence[JsonReader]) -> JsonReader:
    def read(value: Any) -> Any:
        problems = []
        for branch in branches:
            try:
                return branch(value)
            except InvalidValue as error:
                problems.append(error)
        # If the value is optional, this is the error of the type that is not null.
        raise problems[-1] if len(branches) <= 2 else InvalidValue(f"no type of the union fits: {_join(problems)}")

    return read


def _join(problems: Sequence[InvalidValue]) -> str:
    return "; ".join(map(str, problems))


def _record_reader(fields: Mapping[str, JsonReader]) -> JsonReader:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(value, "an object")
        found = {}
        for name, item in value.items():
            reader = fields.get(name)
            if reader is None:
                raise InvalidValue(f"there is no field {name!r}: use {', '.join(fields)}")
            found[name] = _read_inside(reader, item, f".{name}")
        return found

    return read


def _array_reader(reader: JsonReader) -> JsonReader:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise _mismatch(value, "an array")
        return [_read_inside(reader, item, f"[{index}]") for index, item in enumerate(value)]

    return read


def _map_reader(reader: JsonReader) -> JsonReader:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(value, "an object")
        return {name: _read_inside(reader, item, f"[{name!r:.100}]") for name, item in value.items()}

    return read


def _read_inside(reader: JsonReader, value: Any, name: str) -> Any:
    try:
        return reader(value)
    except InvalidValue as error:
        error.add_field(name)
        raise


def _enum_reader(symbols: Sequence[str]) -> JsonReader:
    def read(value: Any) -> Any:
        if value not in symbols:
            raise InvalidValue(f"{value!r:.100} is none of {', '.join(symbols[:20])}")
        return value

    return read


def _typed_reader(expected: str, *classes: type) -> JsonReader:
    def read(value: Any) -> Any:
        # A bool is an int in Python.
        if not isinstance(value, classes) or (isinstance(value, bool) and bool not in classes):
            raise _mismatch(value, expected)
        return value

    return read


def _read_float(value: Any) -> Any:
    if isinstance(value, str) and value in _SPECIAL_FLOATS:
        return _SPECIAL_FLOATS[value]
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _mismatch(value, "a number")
    return value


def _read_bytes(value: Any) -> Any:
    if not isinstance(value, str):
        raise _mismatch(value, "a string with a character for each byte")
    try:
        return value.encode("latin-1")
    except UnicodeEncodeError:
        raise InvalidValue(f"{value!r:.100} is no bytes: use a character from U+0000 to U+00FF for each byte") from None


def _read_decimal(value: Any) -> Any:
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise _mismatch(value, "a decimal")
    try:
        return Decimal(str(value))
    except InvalidOperation:
        raise InvalidValue(f"{value!r:.100} is no decimal") from None


def _read_uuid(value: Any) -> Any:
    try:
        return str(UUID(value))
    except (ValueError, TypeError, AttributeError):
        raise _mismatch(value, "a UUID") from None


def _time_reader(
    what: str, parse: Callable[[str], Any], *, has_zone: bool | None = None, takes_number: bool = True
) -> JsonReader:
    """`has_zone`: None: a date, which has none."""

    def read(value: Any) -> Any:
        if takes_number and isinstance(value, int) and not isinstance(value, bool):
            return value
        try:
            found = parse(value)
        except (TypeError, ValueError):
            raise _mismatch(value, f"{what} in ISO 8601{', or its number' * takes_number}") from None
        if has_zone is not None and (found.tzinfo is not None) != has_zone:
            raise InvalidValue(
                f"{value!r} has no time zone: add one, e.g. Z" if has_zone else f"{value!r} has a time zone: remove it"
            )
        return found

    return read


def _mismatch(value: Any, expected: str) -> InvalidValue:
    return InvalidValue(f"{value!r:.100} is not {expected}")


_read_integer: Final = _typed_reader("an integer", int)
_LEAVES: Final[Mapping[str, JsonReader]] = {
    "null": _typed_reader("null", type(None)),
    "boolean": _typed_reader("true or false", bool),
    "int": _read_integer,
    "long": _read_integer,
    "float": _read_float,
    "double": _read_float,
    "string": _typed_reader("a string", str),
    "bytes": _read_bytes,
}
_read_timestamp: Final = _time_reader("a timestamp", datetime.fromisoformat, has_zone=True)
_read_local_timestamp: Final = _time_reader("a local timestamp", datetime.fromisoformat, has_zone=False)
_read_time: Final = _time_reader("a time", time.fromisoformat, has_zone=False)
_LOGICAL: Final[Mapping[tuple[str, Any], JsonReader]] = {
    ("bytes", "decimal"): _read_decimal,
    ("string", "uuid"): _read_uuid,
    ("int", "date"): _time_reader("a date", date.fromisoformat),
    ("int", "time-millis"): _read_time,
    ("long", "time-micros"): _read_time,
    **{("long", f"timestamp-{unit}"): _read_timestamp for unit in ("millis", "micros", "nanos")},
    **{("long", f"local-timestamp-{unit}"): _read_local_timestamp for unit in ("millis", "micros", "nanos")},
}
_read_moment: Final = _time_reader("a time with a date", datetime.fromisoformat, has_zone=True, takes_number=False)
_read_time_of_day: Final = _time_reader("a time", time.fromisoformat, has_zone=False, takes_number=False)
# Readers for schemas without a definition, by the names of their types.
PRIMITIVE_READERS: Final[Mapping[str, JsonReader]] = {
    "STRING": _LEAVES["string"],
    "BOOLEAN": _LEAVES["boolean"],
    "BYTES": _read_bytes,
    **dict.fromkeys(("INT8", "INT16", "INT32", "INT64"), _read_integer),
    **dict.fromkeys(("FLOAT", "DOUBLE"), _read_float),
    **dict.fromkeys(("DATE", "TIMESTAMP", "INSTANT"), _read_moment),
    **dict.fromkeys(("TIME", "LOCAL_TIME"), _read_time_of_day),
    "LOCAL_DATE": _time_reader("a date", date.fromisoformat, takes_number=False),
    "LOCAL_DATE_TIME": _time_reader("a local time", datetime.fromisoformat, has_zone=False, takes_number=False),
}
