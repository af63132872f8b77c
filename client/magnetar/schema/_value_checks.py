"""Checks values against an Avro definition, and converts them to the form that is written.

fastavro writes some values that don't fit: it cuts off fractions, and numbers of more than 32 bits become invalid ints.
So values are checked before anything is written. A check returns the value to write: records as dicts, members of
enumerations as symbols. The error names the field.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from datetime import datetime, time
from enum import Enum
from typing import Any, Final, Literal

from fastavro.write import LOGICAL_WRITERS

from magnetar.schema._avro_decimal import BOUNDED_DECIMAL
from magnetar.schema._avro_definition import DEFAULT, NAMED, AvroDefinition, logical_key

__all__ = ["MAX_ENCODED_DEPTH", "Check", "Misfit", "check_depth", "make_json_check", "make_value_check"]

# Returns the value in the form that is wanted. Raises Misfit.
Check = Callable[[Any], Any]

_INT32: Final = (-(2**31), 2**31 - 1)
_INT64: Final = (-(2**63), 2**63 - 1)
_MAX_FLOAT32: Final = 3.4028235677973366e38  # from here on a float is rounded to infinity
# Branches of unions for the classes of Python.
_LIKELY: Final = {"bool": ("boolean",), "int": ("int", "long"), "float": ("double",)}
_ABSENT: Final[Any] = object()
# Classes whose values are valid for a type if a JSON parser has made them.
_VALID_IN_JSON: Final = {"string": str, "boolean": bool, "double": float}
# pydantic's JSON parser has this limit. AVRO payloads may be twice as deep (`MAX_VALUE_DEPTH`), but their unions count.
MAX_ENCODED_DEPTH: Final = 200


class Misfit(Exception):
    """A value that does not fit its definition."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []

    def __str__(self) -> str:
        if not self.path:
            return self.problem
        return f"field '{''.join(self.path).removeprefix('.')}': {self.problem}"


def make_value_check(
    definition: AvroDefinition,
    form: Literal["avro", "json"],
    *,
    allow_inf_nan: bool = True,
    refuse_unknown: bool = False,
) -> Check:
    """Return the check of values to encode: dicts, records, or other objects whose attributes are the fields.
    `refuse_unknown`: also of dicts with keys that are no fields."""
    return _Checks(definition, form, allow_inf_nan=allow_inf_nan, refuse_unknown=refuse_unknown).of(definition.root)


def make_json_check(definition: AvroDefinition) -> Check:
    """Return the check of values that were read from JSON. Fields that a record lacks stay absent; those that the
    definition lacks are left out, unless they have the alias of another one."""
    return _Checks(definition, "read").of(definition.root)


def check_depth(checked: Any) -> None:
    """Raise Misfit for a value that is too deep to be read. Only values of recursive definitions can be."""
    if _count_levels(checked) <= MAX_ENCODED_DEPTH:
        return
    misfit = Misfit(f"the value is deeper than {MAX_ENCODED_DEPTH} levels of records, lists and dicts")
    fields = checked.items() if isinstance(checked, dict) else ()
    misfit.path += [f".{name}" for name, value in fields if _count_levels(value) >= MAX_ENCODED_DEPTH][:1]
    raise misfit


def _count_levels(checked: Any) -> int:
    """Return the depth of a value, at most one more than the limit."""
    level = [checked]
    for depth in range(MAX_ENCODED_DEPTH + 1):
        containers = [value for value in map(_strip_branch, level) if isinstance(value, (dict, list))]
        if not containers:
            return depth
        level = [item for value in containers for item in (value.values() if isinstance(value, dict) else value)]
    return MAX_ENCODED_DEPTH + 1


def _strip_branch(value: Any) -> Any:
    """Return the value of a pair of a union's branch and value."""
    while type(value) is tuple:
        value = value[1]
    return value


class _Checks:
    def __init__(
        self,
        definition: AvroDefinition,
        form: Literal["avro", "json", "read"],
        *,
        allow_inf_nan: bool = True,
        refuse_unknown: bool = False,
    ) -> None:
        self._definition = definition
        self._form = form
        self._allow_inf_nan = allow_inf_nan
        self._refuse_unknown = refuse_unknown
        self._records: dict[str, Check] = {}

    def of(self, node: Any) -> Check:
        kind, node = self._definition.resolve(node)
        if kind == "union":
            return self._of_union(node)
        if kind == "record":
            return self._of_record(node)
        if kind in ("array", "map"):
            make = _array_check if kind == "array" else _map_check
            return self._lenient(make(self.of(node["items" if kind == "array" else "values"])))
        check = self._of_leaf(kind, node)
        prepare = LOGICAL_WRITERS.get(logical_key(node) or "")
        return check if prepare is None or self._form == "read" else _logical_check(prepare, node, check)

    def _of_leaf(self, kind: str, node: Any) -> Check:
        if kind == "enum" and self._form == "read":
            return _check_nothing  # the value of a member is accepted, too: see `CustomEnum.convert`
        if kind == "enum":
            return _enum_check(frozenset(node["symbols"]))
        if kind in ("float", "double") and self._form == "read":
            return _no_bool_check(_read_float_check(_LEAVES[kind]))
        if kind in ("float", "double") and not self._allow_inf_nan:
            return _finite_check(_LEAVES[kind])
        if kind in ("int", "long") and self._form == "read":
            return _no_bool_check(_LEAVES[kind])
        if kind in ("bytes", "fixed"):
            size = node["size"] if kind == "fixed" else None
            make = {"avro": _bytes_check, "json": _text_of_bytes_check, "read": _bytes_of_text_check}[self._form]
            return self._lenient(make(size))
        return _LEAVES[kind]

    def _lenient(self, check: Check) -> Check:
        """Go's client writes an empty list, map or bytes as null, and Pulsar's Python client accepts it."""
        return _optional_check(check) if self._form == "read" else check

    def _of_record(self, node: Any) -> Check:
        name = node["name"]
        if name in self._records:
            return lambda value: self._records[name](value)
        fields: list[tuple[str, Check, Any]] = []
        sources: list[tuple[str, str, type | None, Check]] = []
        check = (
            _read_record_check(sources)
            if self._form == "read"
            else _record_check(name, fields, refuse_unknown=self._refuse_unknown)
        )
        self._records[name] = check
        for field in node["fields"]:
            check_field = self.of(field["type"])
            valid_class = _VALID_IN_JSON.get(self._definition.resolve(field["type"])[0])
            sources += [
                (field["name"], source, valid_class, check_field)
                for source in (field["name"], *field.get("aliases", ()))
            ]
            default = field.get(DEFAULT, None if _is_nullable(self._definition, field["type"]) else _ABSENT)
            fields.append((field["name"], check_field, default))
        return check

    def _of_union(self, branches: list[Any]) -> Check:
        kinds = [self._definition.resolve(branch) for branch in branches]
        checks = {node["name"] if kind in NAMED else kind: self.of(node) for kind, node in kinds if kind != "null"}
        is_nullable = any(kind == "null" for kind, _ in kinds)
        if is_nullable and len(checks) == 1:
            ((name, check),) = checks.items()
            return _named_optional_check(name, check) if self._form == "avro" else _optional_check(check)
        fields = {
            node["name"]: frozenset(field["name"] for field in node["fields"])
            for kind, node in kinds
            if kind == "record"
        }
        return _union_check(is_nullable, checks, fields, keep_names=self._form == "avro")


def _is_nullable(definition: AvroDefinition, node: Any) -> bool:
    kind, node = definition.resolve(node)
    return kind == "null" or (kind == "union" and any(definition.resolve(branch)[0] == "null" for branch in node))


def _record_check(record_name: str, fields: list[tuple[str, Check, Any]], *, refuse_unknown: bool) -> Check:
    def check(value: Any) -> Any:
        given = value if type(value) is dict else _fields_of(value, record_name)
        checked = {}
        name = ""
        try:
            for name, check_field, default in fields:
                item = given.get(name, default)
                if item is _ABSENT:
                    raise Misfit("there is no value, and no default")
                checked[name] = check_field(item)
        except Misfit as misfit:
            misfit.path.insert(0, f".{name}")
            raise
        if refuse_unknown and not checked.keys() >= given.keys():
            unknown = next(name for name in given if name not in checked)
            unfit = Misfit(f"record {record_name:.100} has no such field, so the value would be lost")
            unfit.path.append(f".{unknown!s:.100}")
            raise unfit
        return checked

    return check


def _read_record_check(sources: list[tuple[str, str, type | None, Check]]) -> Check:
    """Each of the `sources` has the name of a field, a name by which it is read, the class of values that need no
    check, and the check of others."""

    def check(value: Any) -> Any:
        if type(value) is not dict:
            raise _misfit(value, "an object")
        checked = {}
        name = ""
        try:
            for name, source, valid_class, check_field in sources:
                if source in value and name not in checked:
                    item = value[source]
                    checked[name] = item if type(item) is valid_class else check_field(item)
        except Misfit as misfit:
            misfit.path.insert(0, f".{name}")
            raise
        return checked

    return check


def _fields_of(value: Any, record_name: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    fields = getattr(value, "__dict__", None)
    if fields is None or isinstance(value, (type, Enum)):
        raise _misfit(value, f"a record {record_name}")
    return dict(fields)


def _array_check(check_item: Check) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise _misfit(value, "a list")
        checked: list[Any] = []
        try:
            checked.extend(map(check_item, value))
        except Misfit as misfit:
            misfit.path.insert(0, f"[{_first_misfit(check_item, value)}]")
            raise
        return checked

    return check


def _first_misfit(check_item: Check, items: Any) -> int:
    for index, item in enumerate(items):
        try:
            check_item(item)
        except Misfit:
            return index
    return 0


def _map_check(check_item: Check) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _misfit(value, "a dict")
        checked = {}
        for key, item in value.items():
            try:
                checked[_check_string(key)] = check_item(item)
            except Misfit as misfit:
                misfit.path.insert(0, f"[{key!r:.100}]")
                raise
        return checked

    return check


def _optional_check(check_value: Check) -> Check:
    return lambda value: None if value is None else check_value(value)


def _named_optional_check(name: str, check_value: Check) -> Check:
    """fastavro takes the branch of a union from a pair of name and value. Otherwise it checks the value again."""
    return lambda value: None if value is None else (name, check_value(value))


def _union_check(
    is_nullable: bool, checks: Mapping[str, Check], fields: Mapping[str, frozenset[str]], *, keep_names: bool
) -> Check:
    """`checks` are by the names of the branches, and `fields` by those of records. A value may be a pair of name and
    value."""

    def check(value: Any) -> Any:
        if value is None and is_nullable:
            return None
        name, checked = choose(value)
        return (name, checked) if keep_names else checked

    def choose(value: Any) -> tuple[str, Any]:
        given = value[0] if type(value) is tuple and len(value) == 2 else None
        if isinstance(given, str) and given in checks:
            return given, checks[given](value[1])
        problems = []
        for name in sorted(checks, key=lambda name: _mismatch(value, name, fields.get(name))):
            try:
                return name, checks[name](value)
            except Misfit as misfit:
                problems.append(str(misfit))
        raise Misfit(f"no type of the union fits: {'; '.join(problems)}")

    return check


def _mismatch(value: Any, name: str, fields: frozenset[str] | None) -> tuple[int, int]:
    """Return how little a value looks like one of a branch."""
    class_name = type(value).__name__
    if name in _LIKELY.get(class_name, ()) or name.rpartition(".")[2] == class_name:
        return 0, 0
    if fields is not None and isinstance(value, Mapping):
        return 1, -len(fields.intersection(value))
    return 2, int(name == "float")  # a double loses less


def _logical_check(prepare: Callable[[Any, Any], Any], node: Any, check_raw: Check) -> Check:
    name = "decimal" if node["logicalType"] == BOUNDED_DECIMAL else node["logicalType"]
    is_date, in_milliseconds = name == "date", name.endswith("-millis")
    moment_has_zone = True if name.startswith("timestamp-") else False if name.startswith("local-timestamp-") else None

    def check(value: Any) -> Any:
        if isinstance(value, time) and value.tzinfo is not None:
            raise Misfit(
                f"{value!r:.100} has a time zone, which would be lost: convert it, and use replace(tzinfo=None)"
            )
        if moment_has_zone is not None and isinstance(value, datetime):
            _check_zone(value, has_zone=moment_has_zone)
        if in_milliseconds and getattr(value, "microsecond", 0) % 1000:
            raise Misfit(f"the microseconds of {value!r:.100} would be lost: round the value to milliseconds")
        if is_date and isinstance(value, datetime):
            raise Misfit(f"{value!r:.100} is a datetime: use its date()")
        try:
            raw = prepare(value, node)
        except Exception as error:
            raise Misfit(f"{value!r:.100} is no {name}: {error}") from error
        return check_raw(raw)

    return check


def _check_zone(value: datetime, *, has_zone: bool) -> None:
    if (value.utcoffset() is not None) is not has_zone:
        raise Misfit(
            f"{value!r:.100} has no time zone: add one, e.g. .replace(tzinfo=UTC)"
            if has_zone
            else f"{value!r:.100} has a time zone, which would be lost: convert it, and use replace(tzinfo=None)"
        )


def _enum_check(symbols: frozenset[str]) -> Check:
    def check(value: Any) -> Any:
        symbol = value.name if isinstance(value, Enum) else value
        if not isinstance(symbol, str) or symbol not in symbols:
            raise Misfit(f"{value!r:.100} is none of {', '.join(sorted(symbols)[:20])}")
        return symbol

    return check


def _bytes_check(size: int | None) -> Check:
    def check(value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise _misfit(value, "bytes")
        if size is not None and len(value) != size:
            raise Misfit(f"{len(value)} bytes do not fit {size}")
        return bytes(value)

    return check


def _text_of_bytes_check(size: int | None) -> Check:
    """Bytes are strings in JSON, as Pulsar's Python client writes them."""
    check_bytes = _bytes_check(size)

    def check(value: Any) -> str:
        try:
            return str(check_bytes(value), "utf-8")
        except UnicodeDecodeError as error:
            raise Misfit(f"JSON can have only bytes that are UTF-8: use AvroSchema ({error})") from error

    return check


def _bytes_of_text_check(size: int | None) -> Check:
    return lambda value: _check_string(value).encode()


def _integer_check(low: int, high: int) -> Check:
    bits = high.bit_length() + 1

    def check(value: Any) -> int:
        if type(value) is not int:
            value = _as_integer(value)
        if low <= value <= high:
            return value  # type: ignore[no-any-return]
        raise Misfit(f"{value} does not fit into {bits} bits")

    return check


def _as_integer(value: Any) -> int:
    try:
        return int(operator.index(value))
    except TypeError:
        raise _misfit(value, "an int") from None


def _check_float(value: Any) -> float:
    checked = _check_double(value)
    if math.isfinite(checked) and abs(checked) >= _MAX_FLOAT32:
        raise Misfit(f"{value} does not fit into a float of 32 bits")
    return checked


def _check_double(value: Any) -> float:
    if type(value) is float:
        return value
    if not hasattr(value, "__float__"):
        raise _misfit(value, "a float")
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise Misfit(f"{value!r:.50} does not fit into a float: {error}") from error


def _finite_check(check_float: Check) -> Check:
    def check(value: Any) -> float:
        checked: float = check_float(value)
        if not math.isfinite(checked):
            raise Misfit(
                f"JSON has no {checked}: use None, AvroSchema, or pydantic's ser_json_inf_nan='strings' (which Java "
                "reads) or 'constants' (which Python reads)"
            )
        return checked

    return check


def _no_bool_check(check_number: Check) -> Check:
    """A bool is a number for Python, but not in JSON."""

    def check(value: Any) -> Any:
        if isinstance(value, bool):
            raise _misfit(value, "a number")
        return check_number(value)

    return check


def _read_float_check(check_float: Check) -> Check:
    """Java's library writes these three numbers as strings; Python's as constants, which JSON does not have."""
    return lambda value: check_float(float(value) if value in ("NaN", "Infinity", "-Infinity") else value)


def _check_string(value: Any) -> str:
    if not isinstance(value, str):
        raise _misfit(value, "a string")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Misfit(f"a string that is not valid Unicode: {error}") from error
    return value


def _check_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _misfit(value, "a bool")
    return value


def _check_nothing(value: Any) -> Any:
    return value


def _check_null(value: Any) -> None:
    if value is not None:
        raise _misfit(value, "None")


_LEAVES: Final[Mapping[str, Check]] = {
    "null": _check_null,
    "boolean": _check_boolean,
    "int": _integer_check(*_INT32),
    "long": _integer_check(*_INT64),
    "float": _check_float,
    "double": _check_double,
    "string": _check_string,
}


def _misfit(value: Any, expected: str) -> Misfit:
    return Misfit(f"{value!r:.100} (a {type(value).__name__}) is not {expected}")
