"""Avro's schema resolution: values that were read with the writer's schema become values of the reader's.

Payloads are read by fastavro with the writer's schema alone, which is its fast path. If the schemas differ, a
conversion of the values is made, once per writer. Rules are those of the Avro specification, with the leniency of
Java's library: names of records, enumerations and fixed types need not be equal, except to choose a branch of a union.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

from fastavro.read import LOGICAL_READERS
from fastavro.write import LOGICAL_WRITERS

from magnetar.exceptions import DecodeError
from magnetar.schema._avro_definition import DEFAULT, NAMED, AvroDefinition, logical_key
from magnetar.schema._avro_reading import find_value_classes

__all__ = ["Convert", "make_conversion"]

Convert = Callable[[Any], Any]

_PROMOTIONS: Final[dict[tuple[str, str], Convert | None]] = {
    ("int", "long"): None,
    ("int", "float"): float,
    ("int", "double"): float,
    ("long", "float"): float,
    ("long", "double"): float,
    ("float", "double"): None,
    ("string", "bytes"): str.encode,
    ("bytes", "string"): bytes.decode,
}
# The classes of defaults in JSON.
_JSON_CLASSES: Final[dict[str, type]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": str,
    "string": str,
    "array": list,
    "map": dict,
    "record": dict,
    "enum": str,
    "fixed": str,
}
# How many pairs of types are compared: a definition from the network could need the product of both sizes.
_MAX_STEPS: Final = 50_000


def make_conversion(writer: AvroDefinition, reader: AvroDefinition, *, marks_branches: bool = False) -> Convert | None:
    """Return what converts a value of the writer's, read with marked branches (`_avro_reading.py`), into one of the
    reader's; None if nothing has to be converted. `marks_branches`: the result has marks, too, of the reader's unions.
    Raises DecodeError if no value can be converted."""
    if writer.root == reader.root:
        return None
    return _Resolution(writer, reader, marks_branches=marks_branches).convert_root()


class _Resolution:
    """Finds the conversion of each pair of a writer's and a reader's record once, also if there is none.

    A pair inside of itself counts as one that has a conversion. If it has none in the end, everything is found again,
    since something has relied on it. A pair that has none stays so: fewer others never give it one.
    """

    def __init__(self, writer: AvroDefinition, reader: AvroDefinition, *, marks_branches: bool) -> None:
        self._writer = writer
        self._reader = reader
        self._marks_branches = marks_branches
        # By names of writer's and reader's record; an empty list while the conversion is being made.
        self._records: dict[tuple[str, str], list[Convert | None]] = {}
        self._failed: dict[tuple[str, str], DecodeError] = {}
        self._relied_on: set[tuple[str, str]] = set()
        self._steps = 0

    def convert_root(self) -> Convert | None:
        """Raises DecodeError."""
        while True:
            self._records.clear()
            self._relied_on.clear()
            try:
                found = self.convert(self._writer.root, self._reader.root, "the value")
            finally:
                if self._steps > _MAX_STEPS:  # which may have caused another error
                    raise DecodeError(f"more than {_MAX_STEPS} pairs of the writer's and the reader's types")
            if self._relied_on.isdisjoint(self._failed):
                return found

    def convert(self, written: Any, read: Any, path: str) -> Convert | None:
        """Return the conversion, None if the value stays as it is. Raises DecodeError."""
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise DecodeError("too many pairs of types")
        kind, written = self._writer.resolve(written)
        if kind == "union":
            return self._from_union(written, read, path)
        read_kind, read = self._reader.resolve(read)
        if read_kind == "union":
            return self._to_union(kind, written, read, path)
        if kind == read_kind and kind in ("record", "array", "map", "enum", "fixed"):
            method: Callable[[Any, Any, str], Convert | None] = getattr(self, f"_convert_{kind}")
            return method(written, read, path)
        if kind == read_kind or (kind, read_kind) in _PROMOTIONS:
            return _chain(_logical_steps(kind, written, read_kind, read))
        raise DecodeError(f"{path}: the writer's type is {kind}, and the reader's is {read_kind}")

    def _convert_record(self, written: Any, read: Any, path: str) -> Convert | None:
        key = (written["name"], read["name"])
        if key in self._failed:
            raise self._failed[key]
        made = self._records.get(key)
        if made is None:
            made = self._records[key] = []
            try:
                made.append(self._convert_fields(written, read, path))
            except DecodeError as error:
                self._failed[key] = error
                raise
        if made:
            return made[0]
        self._relied_on.add(key)
        return lambda value: value if made[0] is None else made[0](value)

    def _convert_fields(self, written: Any, read: Any, path: str) -> Convert | None:
        fields = {field["name"]: field for field in written["fields"]}
        shared: list[tuple[str, str, Convert | None]] = []
        defaults: list[tuple[str, Any]] = []
        for field in read["fields"]:
            name = field["name"]
            source = next((known for known in (name, *field.get("aliases", ())) if known in fields), None)
            if source is not None:
                inside = f"{path}.{name}" if path != "the value" else f"field {name}"
                shared.append((name, source, self.convert(fields[source]["type"], field["type"], inside)))
            elif DEFAULT in field:
                defaults.append((name, self._checked_default(name, field)))
            else:
                raise DecodeError(f"{path}: the writer has no field {name!r}, and the reader no default for it")
        if not defaults and len(shared) == len(fields) and all(name == old and not to for name, old, to in shared):
            return None
        return _record_conversion(shared, defaults)

    def _convert_array(self, written: Any, read: Any, path: str) -> Convert | None:
        item = self.convert(written["items"], read["items"], path)
        return None if item is None else lambda value: [item(each) for each in value]

    def _convert_map(self, written: Any, read: Any, path: str) -> Convert | None:
        item = self.convert(written["values"], read["values"], path)
        return None if item is None else lambda value: {key: item(each) for key, each in value.items()}

    def _convert_enum(self, written: Any, read: Any, path: str) -> Convert | None:
        symbols, default = frozenset(read["symbols"]), read.get("default")
        if symbols.issuperset(written["symbols"]):
            return None

        def convert(symbol: str) -> str:
            if symbol in symbols:
                return symbol
            if default is None:
                raise DecodeError(f"{path}: the reader has no symbol {symbol!r}")
            return str(default)

        return convert

    def _convert_fixed(self, written: Any, read: Any, path: str) -> Convert | None:
        if written["size"] != read["size"]:
            raise DecodeError(f"{path}: the writer has {written['size']} bytes, and the reader {read['size']}")
        return _chain(_logical_steps("fixed", written, "fixed", read))

    def _to_union(self, kind: str, written: Any, read: list[Any], path: str) -> Convert | None:
        self._steps += len(read)
        for branch in sorted(read, key=lambda branch: self._distance(kind, written, branch)):
            try:
                convert = self.convert(written, branch, path)
            except DecodeError:
                continue
            return _marking(read.index(branch), convert) if self._is_marked(read) else convert
        raise DecodeError(f"{path}: the writer's type is {kind}, which no branch of the reader's union can read")

    def _is_marked(self, union: list[Any]) -> bool:
        return self._marks_branches and find_value_classes(self._reader, union) is None

    def _distance(self, kind: str, written: Any, branch: Any) -> int:
        """Return how far a branch of the reader's is from the writer's type: equal ones come first."""
        read_kind, read = self._reader.resolve(branch)
        if kind != read_kind:
            return 2
        return int(kind in NAMED and _short_name(written) != _short_name(read))

    def _from_union(self, branches: list[Any], read: Any, path: str) -> Convert | None:
        converts: list[Convert | None] = []
        errors: list[DecodeError] = []
        for branch in branches:
            try:
                converts.append(self.convert(branch, read, path))
            except DecodeError as error:
                errors.append(error)
                converts.append(_raiser(str(error)))
        if len(errors) == len(branches):
            raise errors[0] if errors else DecodeError(f"{path}: the writer's union is empty")
        classes = find_value_classes(self._writer, branches)
        if classes is None:
            return _marked_conversion(converts)
        if len(branches) == 1 or not any(converts):
            return converts[0]
        return _class_conversion(dict(zip(classes, converts, strict=True)))

    def _checked_default(self, name: str, field: Any) -> Any:
        try:
            return self._default(field["type"], field[DEFAULT])
        except Exception as error:
            raise DecodeError(f"the default of field {name!r} does not match its type: {error!s:.200}") from error

    def _default(self, read: Any, default: Any) -> Any:
        """Return the value of a default in JSON."""
        kind, read = self._reader.resolve(read)
        if kind == "union":
            branch = _branch_of(self._reader, read, default)
            value = self._default(branch, default)
            return {read.index(branch): value} if self._is_marked(read) else value
        if kind == "record":
            return {
                field["name"]: self._default(field["type"], default.get(field["name"], field.get(DEFAULT)))
                for field in read["fields"]
            }
        if kind == "array":
            return [self._default(read["items"], item) for item in default]
        if kind == "map":
            return {key: self._default(read["values"], item) for key, item in default.items()}
        if kind in ("bytes", "fixed"):
            default = default.encode("latin-1")
        elif kind in ("float", "double"):
            default = float(default)
        return _to_logical(default, read)


def _record_conversion(shared: list[tuple[str, str, Convert | None]], defaults: list[tuple[str, Any]]) -> Convert:
    constants = {name: value for name, value in defaults if not isinstance(value, (list, dict))}
    copied = [(name, value) for name, value in defaults if isinstance(value, (list, dict))]

    def convert(value: Any) -> Any:
        converted = {name: value[old] if to is None else to(value[old]) for name, old, to in shared}
        converted.update(constants)
        for name, default in copied:
            converted[name] = copy.deepcopy(default)
        return converted

    return convert


def _marked_conversion(converts: list[Convert | None]) -> Convert:
    def convert(value: Any) -> Any:
        ((index, value),) = value.items()
        to = converts[index]
        return value if to is None else to(value)

    return convert


def _marking(index: int, convert: Convert | None) -> Convert:
    return lambda value: {index: value if convert is None else convert(value)}


def _class_conversion(converts: dict[type, Convert | None]) -> Convert:
    def convert(value: Any) -> Any:
        to = converts[type(value)]
        return value if to is None else to(value)

    return convert


def _branch_of(definition: AvroDefinition, union: list[Any], default: Any) -> Any:
    """Return the first branch that a default in JSON fits."""
    for branch in union:
        kind, _ = definition.resolve(branch)
        is_number = kind in ("float", "double") and type(default) is int
        if type(default) is _JSON_CLASSES[kind] or is_number:
            return branch
    return union[0]


def _logical_steps(kind: str, written: Any, read_kind: str, read: Any) -> Iterable[Convert | None]:
    """Return what leads from one logical type to another: first to the value as it is stored."""
    if kind == read_kind and logical_key(written) == logical_key(read):
        return ()
    from_logical = LOGICAL_WRITERS.get(logical_key(written) or "")
    return (
        None if from_logical is None else lambda value: from_logical(value, written),
        _PROMOTIONS.get((kind, read_kind)),
        None if logical_key(read) not in LOGICAL_READERS else lambda value: _to_logical(value, read),
    )


def _to_logical(value: Any, read: Any) -> Any:
    to_logical = LOGICAL_READERS.get(logical_key(read) or "")
    return value if to_logical is None else to_logical(value, read, read)


def _chain(steps: Iterable[Convert | None]) -> Convert | None:
    functions = [step for step in steps if step is not None]
    if len(functions) < 2:
        return functions[0] if functions else None

    def convert(value: Any) -> Any:
        for function in functions:
            value = function(value)
        return value

    return convert


def _short_name(node: Any) -> str:
    return str(node["name"]).rpartition(".")[2]


def _raiser(text: str) -> Convert:
    def convert(value: Any) -> NoReturn:
        raise DecodeError(text)

    return convert
