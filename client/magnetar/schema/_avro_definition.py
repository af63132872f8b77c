"""Avro definitions: parsed once, and checked before any payload is read with them.

A writer's definition comes from the network. fastavro reads payloads in C: it limits neither the depth of recursion nor
memory. *Free* values take no bytes of the payload: nulls, and records that consist of them. So a definition whose
values have no end is refused, and `scan_from` is the size of payloads that are scanned before they are read
(`_avro_scan.py`): 0 if values can be deep, or take much more memory than bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import fastavro
from pydantic_core import from_json

from magnetar.exceptions import DecodeError
from magnetar.schema._avro_decimal import BOUNDED_DECIMAL, is_valid_decimal
from magnetar_wire.schemas import MAX_DEFINITION_BYTES

__all__ = [
    "DEFAULT",
    "FIELD_BYTES",
    "MAX_BYTES",
    "MAX_BYTES_PER_BYTE",
    "MAX_CACHED_BYTES",
    "MAX_VALUE_DEPTH",
    "NAMED",
    "PRIMITIVES",
    "RECORD_BYTES",
    "AvroDefinition",
    "dump_definition",
    "logical_key",
    "parse_definition",
]

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "enum", "fixed"})
# The key of a field's default in a parsed definition.
DEFAULT: Final = "magnetar_default"
# Larger definitions would make the caches large.
MAX_CACHED_BYTES: Final = 64 * 1024
_MAX_DEPTH: Final = 100
_SYMBOL: Final = re.compile("[A-Za-z_][A-Za-z0-9_]*")
# How deep values may be. fastavro's stack grows by about a kilobyte for each level.
MAX_VALUE_DEPTH: Final = 400
_MAX_FIXED_BYTES: Final = 2**31 - 9
# The memory of a dict, and of each item in it.
RECORD_BYTES: Final = 64
FIELD_BYTES: Final = 48
_REFERENCE_BYTES: Final = 8
# How much memory containers may take for each byte of the payload, and in all.
MAX_BYTES_PER_BYTE: Final = 512
MAX_BYTES: Final = 1024 * 1024 * 1024
# Keys by which fastavro marks what it has parsed: it would trust them.
_MARKS: Final = frozenset({"__fastavro_parsed", "__named_schemas"})


class AvroDefinition:
    """A parsed definition."""

    def __init__(self, plain: Any) -> None:
        """Raises DecodeError."""
        _check_depth(plain)
        self.names: dict[str, Any] = {}
        normalized = _normalize(plain)
        try:
            self.root: Any = fastavro.parse_schema(normalized, self.names)
        except fastavro.schema.UnknownType as error:
            where = _show_path(_find_name(normalized, error.name))
            raise DecodeError(f"{where}no type is named {error.name!r:.200} in the Avro definition") from error
        except Exception as error:
            raise DecodeError(f"not an Avro definition: {error!s:.500}") from error
        # By the names of records: the memory of one that is free, None if it takes bytes; and how many bytes of payload
        # one takes at least, with the memory of the record and of those inside of it.
        self._free: dict[str, int | None] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        for name in self.names:
            self._measure(name, ())
        # Whether values can be deeper than the limits, as those of recursive types.
        self.has_deep_values = self._has_deep_values()
        self.must_scan = self.has_deep_values or any(map(self._is_costly, self.nodes()))
        # None: no payload is scanned.
        self.scan_from: int | None = None
        if self.must_scan:
            self.scan_from = 0
        elif any(map(self._has_containers, self.nodes())):
            self.scan_from = MAX_BYTES // MAX_BYTES_PER_BYTE

    def resolve(self, node: Any) -> tuple[str, Any]:
        """Return a node's type ("union" for a list) and its definition; a name stands for what it names."""
        if isinstance(node, list):
            return "union", node
        if isinstance(node, str):
            if node in PRIMITIVES:
                return node, node
            node = self.names[node]
        return node["type"], node

    def nodes(self) -> Iterator[Any]:
        """Yield every part of the definition once."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(_children(node))

    def free_bytes(self, node: Any) -> int | None:
        """Return the memory of a value that takes no bytes of the payload; None: values of this type take some."""
        kind, definition = self.resolve(node)
        if kind == "record":
            return self._free[definition["name"]]
        return _REFERENCE_BYTES if kind == "null" or (kind == "fixed" and definition["size"] == 0) else None

    def _measure(self, node: Any, inside: tuple[str, ...]) -> None:
        """Measure a record. Raises DecodeError for one that contains itself."""
        kind, definition = self.resolve(node)
        if kind != "record" or definition["name"] in self._free:
            return
        name = definition["name"]
        if name in inside:
            raise DecodeError(f"record {name} of the Avro definition contains itself")
        if len(inside) == _MAX_DEPTH:
            raise DecodeError(f"the Avro definition is deeper than {_MAX_DEPTH} levels")
        kinds = [field["type"] for field in definition["fields"]]
        for kind in kinds:
            self._measure(kind, (*inside, name))
        parts = [self._size(kind) for kind in kinds]
        least = sum(size for size, _ in parts)
        memory = RECORD_BYTES + FIELD_BYTES * len(parts) + sum(memory for _, memory in parts)
        self._sizes[name] = least, memory
        self._free[name] = None if least else memory

    def _size(self, node: Any) -> tuple[int, int]:
        kind, definition = self.resolve(node)
        if kind == "record":
            return self._sizes[definition["name"]]
        if kind == "fixed":
            return definition["size"], 0
        return {"null": 0, "float": 4, "double": 8}.get(kind, 1), 0

    def _is_costly(self, node: Any) -> bool:
        """Return whether a few bytes may be much memory."""
        if isinstance(node, str):
            return False
        if isinstance(node, list):
            return max((self.free_bytes(branch) or 0 for branch in node), default=0) > MAX_BYTES_PER_BYTE
        if node["type"] == "array":
            return self.free_bytes(node["items"]) is not None
        if node["type"] == "map":
            return (self.free_bytes(node["values"]) or 0) > MAX_BYTES_PER_BYTE
        if node["type"] != "record":
            return False
        least, memory = self._sizes[node["name"]]
        return memory > MAX_BYTES_PER_BYTE * max(least, 1)

    def _has_containers(self, node: Any) -> bool:
        """Return whether it is a list or map of containers, which may be many."""
        items = None if not isinstance(node, dict) else node.get("items", node.get("values"))
        return items is not None and self.resolve(items)[0] in ("array", "map", "record", "union")

    def _has_deep_values(self) -> bool:
        """Return whether a named type refers to itself, or to others in a long chain.

        Types that refer to no other are removed until none is left; each is removed after those that it refers to.
        """
        depths: dict[str, int] = {}
        references = {name: self._named_inside(name) for name in self.names}
        waiting = [name for name, inside in references.items() if not inside]
        referring: dict[str, list[str]] = {name: [] for name in self.names}
        for name, inside in references.items():
            for other in inside:
                referring[other].append(name)
        while waiting:
            name = waiting.pop()
            depths[name] = self._depth(_children(self.names[name]), depths)
            for other in referring[name]:
                references[other].remove(name)
                if not references[other]:
                    waiting.append(other)
        return len(depths) < len(references) or max(depths.values(), default=0) > MAX_VALUE_DEPTH

    def _depth(self, nodes: list[Any], depths: dict[str, int]) -> int:
        """Return how deep values of a type are. `nodes`: what it consists of."""
        deepest = 0
        for node in nodes:
            named = node if isinstance(node, str) else node.get("name") if isinstance(node, dict) else None
            depth = depths[named] if named in depths else self._depth(_children(node), depths)
            deepest = max(deepest, depth)
        return deepest + 1

    def _named_inside(self, name: str) -> set[str]:
        found, waiting = set(), _children(self.names[name])
        while waiting:
            node = waiting.pop()
            named = node if isinstance(node, str) else node.get("name") if isinstance(node, dict) else None
            if named in self.names:
                found.add(named)
            else:
                waiting.extend(_children(node))
        return found


def parse_definition(definition: bytes) -> AvroDefinition:
    """Return the parsed definition, cached. Raises DecodeError."""
    if len(definition) > MAX_DEFINITION_BYTES:
        raise DecodeError(f"an Avro definition of {len(definition)} bytes: at most {MAX_DEFINITION_BYTES} are allowed")
    return _parse(definition) if len(definition) > MAX_CACHED_BYTES else _parse_cached(definition)


@lru_cache(maxsize=128)
def _parse_cached(definition: bytes) -> AvroDefinition:
    return _parse(definition)


def _parse(definition: bytes) -> AvroDefinition:
    try:
        plain = from_json(definition)
    except ValueError as error:
        raise DecodeError(f"an Avro definition is not JSON: {error}") from error
    return AvroDefinition(plain)


def logical_key(node: Any) -> str | None:
    """Return the key of a logical type in fastavro's tables of conversions."""
    if isinstance(node, dict) and isinstance(node.get("logicalType"), str):
        return f"{node['type']}-{node['logicalType']}"
    return None


def dump_definition(plain: Any) -> bytes:
    """Return a definition as Pulsar's Python client stores it, byte for byte. Raises DecodeError."""
    try:
        return json.dumps(plain, indent=True).encode()
    except RecursionError:
        raise DecodeError(f"the Avro definition is deeper than {_MAX_DEPTH} levels") from None
    except (TypeError, ValueError) as error:
        raise DecodeError(f"the Avro definition is not JSON: {error}") from error


def _children(node: Any) -> list[Any]:
    if isinstance(node, list):
        return list(node)
    if not isinstance(node, dict):
        return []
    kind = node["type"]
    if kind == "record":
        return [field["type"] for field in node["fields"]]
    return [node["items"]] if kind == "array" else [node["values"]] if kind == "map" else []


def _check_depth(plain: Any) -> None:
    """Raise DecodeError for a definition that is too deep for recursion."""
    level = [plain]
    for _ in range(_MAX_DEPTH + 1):
        if not level:
            return
        level = [child for node in level for child in _plain_children(node)]
    raise DecodeError(f"the Avro definition is deeper than {_MAX_DEPTH} levels")


def _plain_children(node: Any) -> Iterator[Any]:
    children = node.values() if isinstance(node, dict) else node if isinstance(node, (list, tuple)) else ()
    return (child for child in children if isinstance(child, (dict, list, tuple)))


def _normalize(node: Any, path: str = "") -> Any:
    """Return a copy of a definition in the form that fastavro understands, which does not check everything. Raises
    DecodeError, which names the field. `path`: the names of the fields that lead to the node."""
    if isinstance(node, str):
        return node
    if isinstance(node, (list, tuple)):
        if any(isinstance(branch, (list, tuple)) for branch in node):
            raise DecodeError(f"{_show_path(path)}an Avro definition has a union inside of a union")
        return [_normalize(branch, path) for branch in node]
    kind = _part(node, "type", (str, dict, list), path)
    if not isinstance(kind, str):
        return _normalize(kind, path)  # {"type": {"type": "string"}}
    copied = {key: value for key, value in node.items() if key not in _MARKS}
    if kind in ("record", "error"):
        _part(node, "name", str, path)
        copied["type"] = "record"
        fields = _part(node, "fields", (list, tuple), path)
        copied["fields"] = [_normalize_field(field, path) for field in fields]
    elif kind == "array":
        copied["items"] = _normalize(_part(node, "items", object, path), path)
    elif kind == "map":
        copied["values"] = _normalize(_part(node, "values", object, path), path)
    elif kind == "fixed" and not 0 <= _part(node, "size", int, path) <= _MAX_FIXED_BYTES:
        raise DecodeError(
            f"{_show_path(path)}a fixed type of {node['size']} bytes: at most {_MAX_FIXED_BYTES} are allowed"
        )
    elif kind == "enum":
        _check_symbols(_part(node, "symbols", (list, tuple), path), path)
    if not isinstance(copied.get("logicalType", ""), str) or copied.get("logicalType") == BOUNDED_DECIMAL:
        del copied["logicalType"]
    elif copied.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
        if is_valid_decimal(copied):
            copied["logicalType"] = BOUNDED_DECIMAL
        else:
            del copied["logicalType"]
    return copied


def _check_symbols(symbols: Sequence[Any], path: str) -> None:
    known = set()
    for symbol in symbols:
        if not isinstance(symbol, str) or not _SYMBOL.fullmatch(symbol):
            raise DecodeError(
                f"{_show_path(path)}{symbol!r:.100} is no symbol of an Avro enumeration: use letters, digits, _, "
                "and no digit at the beginning"
            )
        if symbol in known:
            raise DecodeError(f"{_show_path(path)}an Avro enumeration has the symbol {symbol!r:.100} twice")
        known.add(symbol)


def _normalize_field(field: Any, path: str) -> Any:
    """The default gets another name. Pulsar's brokers accept defaults that don't match their types, and a writer's are
    not used."""
    name = _part(field, "name", str, path)
    path = f"{path}.{name}" if path else name
    copied = {key: value for key, value in field.items() if key not in ("default", DEFAULT)}
    copied["type"] = _normalize(_part(field, "type", object, path), path)
    if "default" in field:
        copied[DEFAULT] = field["default"]
    return copied


def _part(node: Any, key: str, expected: Any, path: str) -> Any:
    if not isinstance(node, dict):
        raise DecodeError(f"{_show_path(path)}{node!r:.100} is neither a type nor a field of an Avro definition")
    if key not in node or not isinstance(node[key], expected):
        raise DecodeError(f"{_show_path(path)}a part of the Avro definition has no valid {key!r}: {node!r:.200}")
    return node[key]


def _find_name(node: Any, name: Any, path: str = "") -> str:
    """Return the path of the first field with a type of this name; empty: none has. `node`: a normalized one."""
    if isinstance(node, str):
        return path if node == name else ""
    if isinstance(node, dict) and node["type"] == "record":
        for field in node["fields"]:
            inside = f"{path}.{field['name']}" if path else field["name"]
            if found := _find_name(field["type"], name, inside):
                return found
        return ""
    if isinstance(node, dict) and node["type"] not in ("array", "map"):
        return _find_name(node["type"], name, path)
    return next((found for child in _children(node) if (found := _find_name(child, name, path))), "")


def _show_path(path: str) -> str:
    return f"field {path!r:.200}: " if path else ""
