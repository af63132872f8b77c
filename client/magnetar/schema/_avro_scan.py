"""Scans a payload before fastavro reads it, for definitions of which a short payload could exhaust stack or memory.

A scan visits the payload's values without keeping them. It refuses deep values of recursive definitions, and long
arrays of values that take no bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from magnetar.exceptions import DecodeError
from magnetar.schema._avro_definition import AvroDefinition

__all__ = ["make_scan"]

# fastavro's stack grows by about a kilobyte for each level.
_MAX_DEPTH: Final = 400
# Items of all blocks of an array that take no bytes.
_MAX_FREE_ITEMS: Final = 1000
_MAX_VARINT_BYTES: Final = 10

# Gets the payload, a position, and the depth. Returns the position behind the value.
_Skip = Callable[[bytes, int, int], int]


def make_scan(definition: AvroDefinition) -> Callable[[bytes], None]:
    """Return a function that raises DecodeError for a payload which must not be read."""
    skip = _Skips(definition).of(definition.root)

    def scan(payload: bytes) -> None:
        try:
            skip(payload, 0, 0)
        except RecursionError as error:
            raise DecodeError("a value is too deep for the stack of this thread") from error

    return scan


class _Skips:
    """Makes one function per type. Recursive types find theirs by name when they are called."""

    def __init__(self, definition: AvroDefinition) -> None:
        self._definition = definition
        self._named: dict[str, _Skip] = {}

    def of(self, node: Any) -> _Skip:
        kind, node = self._definition.resolve(node)
        if kind == "record":
            return self._of_record(node)
        if kind == "union":
            return _skip_union([self.of(branch) for branch in node])
        if kind in ("array", "map"):
            item = self.of(node["items" if kind == "array" else "values"])
            return _skip_blocks(item, has_keys=kind == "map")
        if kind in ("bytes", "string"):
            return lambda data, at, depth: _skip_sized(data, at)
        size = {"null": 0, "boolean": 1, "float": 4, "double": 8}.get(kind)
        if kind == "fixed":
            size = node["size"]
        if size is None:  # int, long, enum
            return lambda data, at, depth: _read_varint(data, at)[1]
        fixed = size
        return lambda data, at, depth: at + fixed

    def _of_record(self, node: Any) -> _Skip:
        name = node["name"]
        if name in self._named:
            return lambda data, at, depth: self._named[name](data, at, depth)
        fields: list[_Skip] = []

        def skip(data: bytes, at: int, depth: int) -> int:
            _check_depth(depth)
            for field in fields:
                at = field(data, at, depth + 1)
            return at

        self._named[name] = skip
        fields.extend(self.of(field["type"]) for field in node["fields"])
        return skip


def _skip_union(branches: list[_Skip]) -> _Skip:
    def skip(data: bytes, at: int, depth: int) -> int:
        _check_depth(depth)
        index, at = _read_varint(data, at)
        if not 0 <= index < len(branches):
            raise DecodeError(f"branch {index} of a union with {len(branches)} branches")
        return branches[index](data, at, depth + 1)

    return skip


def _skip_blocks(item: _Skip, *, has_keys: bool) -> _Skip:
    def skip(data: bytes, at: int, depth: int) -> int:
        _check_depth(depth)
        free = 0
        while True:
            count, at = _read_varint(data, at)
            if count == 0:
                return at
            if count < 0:
                count = -count
                _, at = _read_varint(data, at)  # the size of the block
            while count:
                count -= 1
                before = at
                if has_keys:
                    at = _skip_sized(data, at)
                at = item(data, at, depth + 1)
                if at == before:
                    free += 1
                    if free > _MAX_FREE_ITEMS:
                        raise DecodeError(f"an array with more than {_MAX_FREE_ITEMS} items that take no bytes")
                elif at > len(data):
                    raise DecodeError("a payload that ends inside of an array or map")

    return skip


def _skip_sized(data: bytes, at: int) -> int:
    size, at = _read_varint(data, at)
    if not 0 <= size <= len(data) - at:
        raise DecodeError(f"a value of {size} bytes with {len(data) - at} left")
    return at + size


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position behind it."""
    number = shift = 0
    for byte in data[at : at + _MAX_VARINT_BYTES]:
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise DecodeError("a payload that ends inside of a number, or a number of more than 64 bits")


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise DecodeError(f"a value that is deeper than {_MAX_DEPTH} levels")
