"""Scans a payload before fastavro reads it, for definitions of which a short payload could exhaust stack or memory.

A scan visits the payload's values without keeping them. It refuses values that are too deep, and counts the memory that
containers will take. Free values (`_avro_definition.py`) are counted without a visit.

A scan also explains why fastavro could not read a payload (`PayloadProblems`): fastavro names neither field nor reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from magnetar.exceptions import DecodeError
from magnetar.schema._avro_definition import (
    FIELD_BYTES,
    MAX_BYTES,
    MAX_BYTES_PER_BYTE,
    MAX_VALUE_DEPTH,
    RECORD_BYTES,
    AvroDefinition,
)

__all__ = ["PayloadProblems", "make_scan"]

# The memory that any payload may take.
_LEAST_BYTES: Final = 64 * 1024
# An empty list, or a dict.
_CONTAINER_BYTES: Final = 64
_MAX_VARINT_BYTES: Final = 10


class _Unreadable(Exception):
    """A value that can't be read."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        # The names of the fields that lead to it.
        self.path: list[str] = []

    def __str__(self) -> str:
        problem = super().__str__()
        return f"field {'.'.join(self.path)!r:.200}: {problem}" if self.path else problem


class _Payload:
    """A payload that is being scanned."""

    __slots__ = ("data", "left", "limit")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.limit = min(_LEAST_BYTES + MAX_BYTES_PER_BYTE * len(data), MAX_BYTES)
        # The memory that its values may still take.
        self.left = self.limit

    def count(self, memory: int) -> None:
        self.left -= memory
        if self.left < 0:
            raise _Unreadable(f"its values would take more than {self.limit} bytes of memory")

    def read_number(self, at: int) -> tuple[int, int]:
        """Return a number and the position behind it."""
        number = shift = 0
        for byte in self.data[at : at + _MAX_VARINT_BYTES]:
            at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1), at
            shift += 7
        raise _Unreadable(
            "the payload ends inside of a number" if at == len(self.data) else "a number has more than 64 bits"
        )

    def skip_sized(self, at: int) -> int:
        size, at = self.read_number(at)
        return self.skip(at, size)

    def skip(self, at: int, size: int) -> int:
        if not 0 <= size <= len(self.data) - at:
            raise _Unreadable(f"a value of {size} bytes, and {len(self.data) - at} are left in the payload")
        return at + size


# Gets the position of a value, and its depth. Returns the position behind it.
_Skip = Callable[[_Payload, int, int], int]


def make_scan(definition: AvroDefinition) -> Callable[[bytes], None] | None:
    """Return a function that raises DecodeError for a payload which must not be read; None: every payload may be."""
    if definition.scan_from is None:
        return None
    scan_from = definition.scan_from
    skip = _Skips(definition).of(definition.root)

    def scan(payload: bytes) -> None:
        if len(payload) < scan_from:
            return
        try:
            skip(_Payload(payload), 0, 0)
        except _Unreadable as error:
            raise DecodeError(f"a payload of {len(payload)} bytes is no valid AVRO: {error}") from None
        except RecursionError as error:
            raise DecodeError("a value is too deep for the stack of this thread") from error

    return scan


class PayloadProblems:
    """Finds out why payloads of a definition can't be read."""

    def __init__(self, definition: AvroDefinition) -> None:
        self._definition = definition
        # Made for the first payload.
        self._skip: _Skip | None = None

    def find(self, payload: bytes) -> str:
        """Return the field and the reason; empty: none was found."""
        if self._skip is None:
            self._skip = _Skips(self._definition, reads_texts=True).of(self._definition.root)
        try:
            self._skip(_Payload(payload), 0, 0)
        except _Unreadable as error:
            return str(error)
        except RecursionError:
            pass
        return ""


class _Skips:
    """Makes one function per type. Recursive types find theirs by name when they are called."""

    def __init__(self, definition: AvroDefinition, *, reads_texts: bool = False) -> None:
        """`reads_texts`: strings that are not UTF-8 are refused."""
        self._definition = definition
        self._reads_texts = reads_texts
        self._named: dict[str, _Skip] = {}

    def of(self, node: Any) -> _Skip:
        kind, node = self._definition.resolve(node)
        free = self._definition.free_bytes(node)
        if free is not None:
            return _skip_free(free)
        if kind == "record":
            return self._of_record(node)
        if kind == "union":
            return _skip_union([self.of(branch) for branch in node])
        if kind == "array":
            free = self._definition.free_bytes(node["items"])
            return _skip_blocks(self.of(node["items"]), free=free, has_keys=False)
        if kind == "map":
            return _skip_blocks(self.of(node["values"]), free=None, has_keys=True)
        if kind == "enum":
            return _skip_enum(node["symbols"])
        if kind == "string" and self._reads_texts:
            return _skip_text
        if kind in ("bytes", "string"):
            return lambda payload, at, depth: payload.skip_sized(at)
        size = node["size"] if kind == "fixed" else {"boolean": 1, "float": 4, "double": 8}.get(kind)
        if size is None:  # int, long
            return lambda payload, at, depth: payload.read_number(at)[1]
        return lambda payload, at, depth: payload.skip(at, size)

    def _of_record(self, node: Any) -> _Skip:
        name = node["name"]
        if name in self._named:
            return lambda payload, at, depth: self._named[name](payload, at, depth)
        fields: list[tuple[str, _Skip]] = []
        free = [self._definition.free_bytes(field["type"]) for field in node["fields"]]
        memory = RECORD_BYTES + FIELD_BYTES * len(free) + sum(filter(None, free))

        def skip(payload: _Payload, at: int, depth: int) -> int:
            _check_depth(depth)
            payload.count(memory)
            for field_name, field in fields:
                try:
                    at = field(payload, at, depth + 1)
                except _Unreadable as error:
                    error.path.insert(0, field_name)
                    raise
            return at

        self._named[name] = skip
        fields.extend(
            (field["name"], self.of(field["type"]))
            for field, memory_of_free in zip(node["fields"], free, strict=True)
            if memory_of_free is None
        )
        return skip


def _skip_free(free: int) -> _Skip:
    def skip(payload: _Payload, at: int, depth: int) -> int:
        payload.count(free)
        return at

    return skip


def _skip_enum(symbols: list[str]) -> _Skip:
    def skip(payload: _Payload, at: int, depth: int) -> int:
        index, at = payload.read_number(at)
        if not 0 <= index < len(symbols):
            raise _Unreadable(f"symbol {index} of an enumeration with {len(symbols)} symbols")
        return at

    return skip


def _skip_text(payload: _Payload, at: int, depth: int) -> int:
    size, at = payload.read_number(at)
    end = payload.skip(at, size)
    try:
        str(payload.data[at:end], "utf-8")
    except UnicodeDecodeError:
        raise _Unreadable("a string is not valid UTF-8") from None
    return end


def _skip_union(branches: list[_Skip]) -> _Skip:
    def skip(payload: _Payload, at: int, depth: int) -> int:
        _check_depth(depth)
        index, at = payload.read_number(at)
        if not 0 <= index < len(branches):
            raise _Unreadable(f"branch {index} of a union with {len(branches)} branches")
        return branches[index](payload, at, depth + 1)

    return skip


def _skip_blocks(item: _Skip, *, free: int | None, has_keys: bool) -> _Skip:
    """`free`: the memory of an item that takes no bytes; None: it takes some."""

    def skip(payload: _Payload, at: int, depth: int) -> int:
        _check_depth(depth)
        payload.count(_CONTAINER_BYTES)
        while True:
            count, at = payload.read_number(at)
            if count == 0:
                return at
            if count < 0:
                count = -count
                _, at = payload.read_number(at)  # the size of the block
            if free is not None:
                payload.count(free * count)
                continue
            while count:
                count -= 1
                if has_keys:
                    at = payload.skip_sized(at)
                at = item(payload, at, depth + 1)

    return skip


def _check_depth(depth: int) -> None:
    if depth > MAX_VALUE_DEPTH:
        raise _Unreadable(f"a value is deeper than {MAX_VALUE_DEPTH} levels")
