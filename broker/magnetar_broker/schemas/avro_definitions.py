"""Parses and checks Avro schemas.

The rules are those of Avro's specification, in the form in which Pulsar 4.0.7 applies them (Avro 1.11): names may have
letters of any alphabet, attributes that Avro does not define are properties, and a logical type is such a property, so
an unknown or invalid one does not matter. A default of a union may be of any branch, as in Avro 1.12.

A named type is one object, however often it is referred to, and may contain itself. So each definition is walked once,
by its JSON, whose nesting is bounded; a type is never expanded where it is only named.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from magnetar_broker.schemas.bounded_json import InvalidDefinition, JsonValue
from magnetar_broker.schemas.work_budget import WorkBudget

__all__ = [
    "MAX_NAMES_LENGTH",
    "MAX_NAME_LENGTH",
    "ArrayType",
    "AvroType",
    "EnumType",
    "Field",
    "FixedType",
    "MapType",
    "NamedType",
    "PrimitiveType",
    "RecordType",
    "UnionType",
    "parse_avro",
]

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_NAMED: Final = frozenset(("record", "error", "enum", "fixed"))
_ORDERS: Final = frozenset(("ascending", "descending", "ignore"))
_TYPE_ATTRIBUTES: Final = frozenset(
    ("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases")
)
_FIELD_ATTRIBUTES: Final = frozenset(("default", "doc", "name", "order", "type", "aliases"))
_MAX_FIXED_BYTES: Final = 2**31 - 9
# Types, fields, symbols, aliases and values of defaults together.
_MAX_PARTS: Final = 50_000
# Characters of a full name; real ones have less than 300. And of all full names: a long namespace is part of each.
MAX_NAME_LENGTH: Final = 1000
MAX_NAMES_LENGTH: Final = 4 * 1024 * 1024
_INTEGERS: Final = {"int": 31, "long": 63}
_ASCII_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
_MAX_FLOAT_LENGTH: Final = 1000
_JAVA_SPACES: Final = "".join(map(chr, range(33)))
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fFdD]?")
_HEXADECIMAL: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*+|\.[0-9a-fA-F]++)[pP][+-]?[0-9]++[fFdD]?")
_NO_NUMBER: Final = re.compile(r"[+-]?(?:NaN|Infinity)")


@dataclass(eq=False, slots=True)
class AvroType:
    # The attributes that Avro does not define, such as `logicalType`.
    properties: dict[str, JsonValue]

    @property
    def label(self) -> str:
        """The full name or the kind: the branches of a union must differ in it."""
        raise NotImplementedError


@dataclass(eq=False, slots=True)
class PrimitiveType(AvroType):
    kind: str

    @property
    def label(self) -> str:
        return self.kind


@dataclass(eq=False, slots=True)
class ArrayType(AvroType):
    items: AvroType

    @property
    def label(self) -> str:
        return "array"


@dataclass(eq=False, slots=True)
class MapType(AvroType):
    values: AvroType

    @property
    def label(self) -> str:
        return "map"


@dataclass(eq=False, slots=True)
class UnionType(AvroType):
    branches: list[AvroType]

    @property
    def label(self) -> str:
        return "union"


@dataclass(eq=False, slots=True)
class NamedType(AvroType):
    # Full names.
    name: str
    aliases: list[str]

    @property
    def label(self) -> str:
        return self.name

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]


@dataclass(eq=False, slots=True)
class EnumType(NamedType):
    # A dict, which keeps their order and is searched fast.
    symbols: dict[str, None]


@dataclass(eq=False, slots=True)
class FixedType(NamedType):
    size: int


@dataclass(eq=False, slots=True)
class Field:
    name: str
    type: AvroType
    has_default: bool
    default: JsonValue
    order: str
    aliases: list[str]
    properties: dict[str, JsonValue]


@dataclass(eq=False, slots=True)
class RecordType(NamedType):
    # Empty until all fields are parsed, which may refer to the record.
    fields: dict[str, Field] = field(default_factory=dict)
    complete: bool = False


def parse_avro(definition: JsonValue, budget: WorkBudget) -> AvroType:
    """Parse and check a definition. Raises `InvalidDefinition`, which names the field and the rule."""
    return _Parser(budget).parse(definition)


class _Parser:
    def __init__(self, budget: WorkBudget) -> None:
        self._budget = budget
        self._types: dict[str, NamedType] = {}
        self._namespace = ""
        # Names of the record and the fields that are being parsed.
        self._path: list[str] = []
        self._parts = 0
        self._names_length = 0
        self._defaults = _DefaultCheck(self._count)

    def parse(self, definition: JsonValue) -> AvroType:
        self._count()
        if isinstance(definition, str):
            return self._find(definition)
        if isinstance(definition, list):
            return self._parse_union(definition)
        if isinstance(definition, dict):
            return self._parse_object(definition)
        raise self._error(f"{_show(definition)} is not a type")

    def _find(self, name: str) -> AvroType:
        if name in PRIMITIVES:
            return PrimitiveType({}, name)
        found = self._types.get(self._qualify(name, self._namespace)) or self._types.get(name)
        if found is None:
            raise self._error(f"type {name!r:.100} is not defined")
        return found

    def _parse_union(self, definition: list[JsonValue]) -> UnionType:
        branches = [self.parse(branch) for branch in definition]
        labels = set()
        for branch in branches:
            if isinstance(branch, UnionType):
                raise self._error("a union contains a union")
            if branch.label in labels:
                raise self._error(f"a union has the branch {branch.label!r:.100} twice")
            labels.add(branch.label)
        return UnionType({}, branches)

    def _parse_object(self, definition: dict[str, JsonValue]) -> AvroType:
        kind = definition.get("type")
        if not isinstance(kind, str):
            raise self._error(f'a type has no "type" that is a string, but {_show(kind)}')
        properties = {key: value for key, value in definition.items() if key not in _TYPE_ATTRIBUTES}
        if kind in PRIMITIVES:
            return PrimitiveType(properties, kind)
        if kind == "array":
            return ArrayType(properties, self._parse_content(definition, "items", "array"))
        if kind == "map":
            return MapType(properties, self._parse_content(definition, "values", "map"))
        if kind in _NAMED:
            return self._parse_named(kind, definition, properties)
        found = self._types.get(self._qualify(kind, self._namespace))
        if found is None:
            raise self._error(f"type {kind!r:.100} is not defined")
        return found

    def _parse_content(self, definition: dict[str, JsonValue], attribute: str, kind: str) -> AvroType:
        if attribute not in definition:
            raise self._error(f'a type {kind} has no "{attribute}"')
        return self.parse(definition[attribute])

    def _parse_named(self, kind: str, definition: dict[str, JsonValue], properties: dict[str, JsonValue]) -> NamedType:
        name = self._parse_name(definition)
        enclosing = self._namespace
        self._namespace = name.rpartition(".")[0]
        aliases = [self._make_full_name(alias, self._namespace) for alias in self._parse_aliases(definition)]
        made: NamedType
        if kind == "enum":
            properties.pop("default", None)
            made = self._define(EnumType(properties, name, aliases, self._parse_symbols(name, definition)))
        elif kind == "fixed":
            made = self._define(FixedType(properties, name, aliases, self._parse_size(name, definition)))
        else:
            made = self._define(RecordType(properties, name, aliases))
            assert isinstance(made, RecordType)
            self._parse_fields(made, definition)
        self._namespace = enclosing
        return made

    def _parse_name(self, definition: dict[str, JsonValue]) -> str:
        name, namespace = definition.get("name"), definition.get("namespace")
        if not isinstance(name, str):
            raise self._error(f'a type {definition["type"]} has no "name" that is a string, but {_show(name)}')
        full = self._make_full_name(name, namespace if isinstance(namespace, str) else self._namespace)
        if full in PRIMITIVES:
            raise self._error(f"a type has the name of the primitive type {full!r}")
        if full in self._types:
            raise self._error(f"type {full!r:.100} is defined twice")
        return full

    def _make_full_name(self, name: str, namespace: str) -> str:
        length = len(name) + (0 if "." in name else len(namespace) + 1)
        if length > MAX_NAME_LENGTH:
            raise self._error(
                f"name {name!r:.100} has {length} characters with its namespace, and at most "
                f"{MAX_NAME_LENGTH} are allowed"
            )
        self._names_length += length
        if self._names_length > MAX_NAMES_LENGTH:
            raise self._error(f"all names have more than {MAX_NAMES_LENGTH} characters with their namespaces")
        return self._qualify(self._check_name(name), namespace)

    def _qualify(self, name: str, namespace: str) -> str:
        if "." in name:
            return name.removeprefix(".")
        return f"{namespace}.{name}" if namespace else name

    def _check_name(self, name: str) -> str:
        short = name.rpartition(".")[2]
        if not (_ASCII_NAME.fullmatch(short) or _is_java_name(short)):
            raise self._error(f"name {name!r:.100} is not valid: use letters, digits and '_', and no digit first")
        return name

    def _define(self, named: NamedType) -> NamedType:
        self._types[named.name] = named
        return named

    def _parse_aliases(self, definition: dict[str, JsonValue]) -> list[str]:
        aliases = definition.get("aliases", [])
        if not isinstance(aliases, list):
            raise self._error(f'"aliases" is not an array, but {_show(aliases)}')
        self._count(len(aliases))
        found = []
        for alias in aliases:
            if not isinstance(alias, str):
                raise self._error(f"alias {_show(alias)} is not a string")
            found.append(alias)
        return found

    def _parse_symbols(self, name: str, definition: dict[str, JsonValue]) -> dict[str, None]:
        symbols = definition.get("symbols")
        if not isinstance(symbols, list):
            raise self._error(f'enum {name!r:.100} has no "symbols" that are an array')
        self._count(len(symbols))
        found: dict[str, None] = {}
        for symbol in symbols:
            if not isinstance(symbol, str) or "." in symbol:
                raise self._error(f"symbol {_show(symbol)} of enum {name!r:.100} is not a name")
            if self._check_name(symbol) in found:
                raise self._error(f"enum {name!r:.100} has the symbol {symbol!r:.100} twice")
            found[symbol] = None
        default = definition.get("default")
        if isinstance(default, str) and default not in found:
            raise self._error(f"the default {default!r:.100} of enum {name!r:.100} is none of its symbols")
        return found

    def _parse_size(self, name: str, definition: dict[str, JsonValue]) -> int:
        size = definition.get("size")
        if type(size) is not int or not 0 <= size <= _MAX_FIXED_BYTES:
            raise self._error(
                f"fixed type {name!r:.100} has the size {_show(size)}: use a whole number from 0 to {_MAX_FIXED_BYTES}"
            )
        return size

    def _parse_fields(self, record: RecordType, definition: dict[str, JsonValue]) -> None:
        definitions = definition.get("fields")
        if not isinstance(definitions, list):
            raise self._error(f'record {record.name!r:.100} has no "fields" that are an array')
        at_root = not self._path
        if at_root:
            self._path.append(record.short_name)
        for each in definitions:
            parsed = self._parse_field(record, each)
            if parsed.name in record.fields:
                raise self._error(f"record {record.name!r:.100} has the field {parsed.name!r:.100} twice")
            record.fields[parsed.name] = parsed
        record.complete = True
        if at_root:
            self._path.pop()

    def _parse_field(self, record: RecordType, definition: JsonValue) -> Field:
        name = definition.get("name") if isinstance(definition, dict) else None
        if not isinstance(definition, dict) or not isinstance(name, str):
            raise self._error(f'a field of record {record.name!r:.100} has no "name" that is a string')
        if "." in name:
            raise self._error(f"field name {name!r:.100} is not valid: use letters, digits and '_', and no digit first")
        self._check_name(name)
        self._path.append(name)
        if "type" not in definition:
            raise self._error('it has no "type"')
        parsed = Field(
            name,
            self.parse(definition["type"]),
            "default" in definition,
            definition.get("default"),
            self._parse_order(definition),
            self._parse_aliases(definition),
            {key: value for key, value in definition.items() if key not in _FIELD_ATTRIBUTES},
        )
        if parsed.has_default:
            self._check_default(parsed)
        self._path.pop()
        return parsed

    def _parse_order(self, definition: dict[str, JsonValue]) -> str:
        order = definition.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise self._error(f"order {_show(order)} is none of ascending, descending, ignore")
        return order.lower()

    def _check_default(self, parsed: Field) -> None:
        kind = parsed.type.kind if isinstance(parsed.type, PrimitiveType) else ""
        if kind in ("float", "double") and isinstance(parsed.default, str):
            # As Avro's library for Java: so a default can be NaN.
            number = _parse_java_float(parsed.default)
            if number is None:
                raise self._error(f"its default {_show(parsed.default)} is not a {kind}")
            parsed.default = number
        elif not self._defaults.is_valid(parsed.type, parsed.default):
            raise self._error(
                f"its default {_show(parsed.default)} is not a value of its type {parsed.type.label:.100}"
            )

    def _count(self, parts: int = 1) -> None:
        self._parts += parts
        if self._parts > _MAX_PARTS:
            raise InvalidDefinition(
                f"the definition has more than {_MAX_PARTS} types, fields, symbols, aliases and defaults"
            )
        self._budget.spend(parts)

    def _error(self, rule: str) -> InvalidDefinition:
        if not self._path:
            return InvalidDefinition(f"the definition is no Avro schema: {rule}")
        path = ".".join(self._path)
        what = "record" if len(self._path) == 1 else "field"
        return InvalidDefinition(f"{what} {path:.200}: {rule}")


class _DefaultCheck:
    """Checks whether values are valid defaults of types.

    Each pair of a type and a value is checked once: with nested unions of records the number of checks would otherwise
    grow exponentially. A default of a record may omit fields that have defaults, which were checked when the fields
    were parsed.
    """

    def __init__(self, count: Callable[[int], None]) -> None:
        self._count = count
        # By the ids of type and value. Both belong to the parsed definition, so ids are unique while the parser exists.
        self._checked: dict[tuple[int, int], bool] = {}

    def is_valid(self, avro_type: AvroType, value: JsonValue) -> bool:
        self._count(1)
        if isinstance(avro_type, PrimitiveType):
            return _is_primitive(avro_type.kind, value)
        if isinstance(avro_type, EnumType):
            return isinstance(value, str) and value in avro_type.symbols
        if isinstance(avro_type, FixedType):
            return isinstance(value, str)
        if not isinstance(value, list | dict):
            return isinstance(avro_type, UnionType) and any(self.is_valid(each, value) for each in avro_type.branches)
        key = (id(avro_type), id(value))
        if key not in self._checked:
            self._checked[key] = self._is_container(avro_type, value)
        return self._checked[key]

    def _is_container(self, avro_type: AvroType, value: list[JsonValue] | dict[str, JsonValue]) -> bool:
        if isinstance(avro_type, UnionType):
            return any(self.is_valid(branch, value) for branch in avro_type.branches)
        if isinstance(avro_type, ArrayType):
            return isinstance(value, list) and all(self.is_valid(avro_type.items, each) for each in value)
        if not isinstance(value, dict):
            return False
        if isinstance(avro_type, MapType):
            return all(self.is_valid(avro_type.values, each) for each in value.values())
        assert isinstance(avro_type, RecordType)
        self._count(len(avro_type.fields))
        return avro_type.complete and all(
            self.is_valid(each.type, value[each.name]) if each.name in value else each.has_default
            for each in avro_type.fields.values()
        )


def _is_primitive(kind: str, value: JsonValue) -> bool:
    if kind in _INTEGERS:
        limit = 1 << _INTEGERS[kind]
        return type(value) is int and -limit <= value < limit
    if kind in ("float", "double"):
        return type(value) in (int, float)
    if kind in ("string", "bytes"):
        return isinstance(value, str)
    return value is None if kind == "null" else isinstance(value, bool)


def _is_java_name(name: str) -> bool:
    """Return whether Java accepts a name. It checks UTF-16 units, so characters above U+FFFF are never letters."""
    return (
        bool(name)
        and not name[0].isdecimal()
        and all((each.isalpha() or each.isdecimal() or each == "_") and each <= "\uffff" for each in name)
    )


def _parse_java_float(text: str) -> float | None:
    """Parse a number as Java does, which allows a suffix and hexadecimal digits. None: the text is not a number."""
    text = text[: _MAX_FLOAT_LENGTH + 1].strip(_JAVA_SPACES)
    if len(text) > _MAX_FLOAT_LENGTH:
        return None
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text[:-1] if text[-1] in "fFdD" else text)
        except OverflowError:
            return math.copysign(math.inf, -1 if text[0] == "-" else 1)
    return float(text) if _NO_NUMBER.fullmatch(text) else None


def _show(value: JsonValue) -> str:
    """Return the beginning of a value, in bounded time."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)}"
    if isinstance(value, str):
        return json.dumps(value[:100])
    return json.dumps(value)[:100]
