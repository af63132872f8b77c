"""Random Avro schemas, changes of them, and values."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any, Final

__all__ = ["AvroSchemas", "mutate"]

_PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_DEFAULTS: Final[dict[str, Any]] = {
    "null": None,
    "boolean": False,
    "int": 0,
    "long": 1,
    "float": 0.5,
    "double": 1,
    "string": "",
}


class AvroSchemas:
    """Names of types are unique in a schema, and records may refer to those that contain them."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._names = 0
        self._enclosing: list[str] = []
        self._types: dict[str, Any] = {}

    def make_record(self, depth: int = 3) -> dict[str, Any]:
        record: dict[str, Any] = {"type": "record", "name": self._next("R"), "fields": []}
        self._types[record["name"]] = record
        self._enclosing.append(record["name"])
        for _ in range(self._random.randint(0, 4)):
            record["fields"].append({"name": self._next("f"), "type": self.make_type(depth - 1)})
        self._enclosing.pop()
        return record

    def make_type(self, depth: int) -> Any:
        choices = ["primitive"] * 3 + ["enum", "fixed", "link"]
        if depth > 0:
            choices += ["record", "array", "map", "union"]
        match self._random.choice(choices):
            case "primitive":
                return self._random.choice(_PRIMITIVES)
            case "enum":
                symbols = ["A", "B", "C"][: self._random.randint(1, 3)]
                return {"type": "enum", "name": self._next("E"), "symbols": symbols}
            case "fixed":
                return {"type": "fixed", "name": self._next("F"), "size": self._random.randint(0, 3)}
            case "link":
                return ["null", self._random.choice(self._enclosing)] if self._enclosing else "null"
            case "record":
                return self.make_record(depth)
            case "array":
                return {"type": "array", "items": self.make_type(depth - 1)}
            case "map":
                return {"type": "map", "values": self.make_type(depth - 1)}
            case _:
                return self._make_union(depth)

    def _make_union(self, depth: int) -> list[Any]:
        branches: dict[str, Any] = {}
        for _ in range(self._random.randint(1, 4)):
            branch = self.make_type(depth - 1)
            if not isinstance(branch, list):
                branches[_label(branch)] = branch
        return list(branches.values()) or ["null"]

    def _next(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def make_value(self, schema: Any, depth: int = 0) -> Any:
        """Return a value of a schema whose types this made."""
        if isinstance(schema, list):
            # Lists of records end at some time.
            branch = schema[0] if depth > 6 else self._random.choice(schema)
            return self.make_value(branch, depth + 1)
        if isinstance(schema, str):
            return (
                self._make_primitive(schema) if schema in _PRIMITIVES else self.make_value(self._types[schema], depth)
            )
        match schema["type"]:
            case "record":
                return {each["name"]: self.make_value(each["type"], depth + 1) for each in schema["fields"]}
            case "enum":
                return self._random.choice(schema["symbols"])
            case "fixed":
                return b"x" * schema["size"]
            case "array":
                return [self.make_value(schema["items"], depth + 1) for _ in range(self._random.randint(0, 2))]
            case "map":
                return {str(n): self.make_value(schema["values"], depth + 1) for n in range(self._random.randint(0, 2))}
            case kind:
                return self.make_value(kind, depth)

    def _make_primitive(self, kind: str) -> Any:
        values: dict[str, list[Any]] = {
            "null": [None],
            "boolean": [True, False],
            "int": [0, -(2**31), 2**31 - 1],
            "long": [0, -(2**63), 2**63 - 1],
            "float": [0.0, -1.5],
            "double": [0.0, 1e300],
            "bytes": [b"", b"bytes"],
            "string": ["", "text"],
        }
        return self._random.choice(values[kind])


def _label(schema: Any) -> str:
    return str(schema if isinstance(schema, str) else schema.get("name", schema["type"]))


def mutate(random: Random, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a copy with a few changes, of which some are compatible. It can be invalid."""
    mutated: dict[str, Any] = copy.deepcopy(schema)
    for _ in range(random.randint(1, 3)):
        records = list(_records(mutated))
        record = random.choice(records)
        _CHANGES[random.randrange(len(_CHANGES))](random, record)
    return mutated


def _records(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, list):
        for branch in schema:
            yield from _records(branch)
    elif isinstance(schema, dict):
        if schema["type"] == "record":
            yield schema
            for each in schema["fields"]:
                yield from _records(each["type"])
        yield from _records(schema.get("items"))
        yield from _records(schema.get("values"))


def _add_field(random: Random, record: dict[str, Any]) -> None:
    # fastavro returns the default of bytes as text.
    kind = random.choice([each for each in _PRIMITIVES if each != "bytes"])
    added = {"name": f"added{len(record['fields'])}", "type": kind, "default": _DEFAULTS[kind]}
    if random.random() < 0.2:
        del added["default"]
    record["fields"].insert(random.randint(0, len(record["fields"])), added)


def _remove_field(random: Random, record: dict[str, Any]) -> None:
    if record["fields"]:
        record["fields"].pop(random.randrange(len(record["fields"])))


def _reorder_fields(random: Random, record: dict[str, Any]) -> None:
    random.shuffle(record["fields"])


def _rename_field(random: Random, record: dict[str, Any]) -> None:
    if record["fields"]:
        renamed = random.choice(record["fields"])
        if random.random() < 0.8:
            renamed["aliases"] = [renamed["name"]]
        renamed["name"] += "x"


def _change_type(random: Random, record: dict[str, Any]) -> None:
    if not record["fields"]:
        return
    changed = random.choice(record["fields"])
    changed["type"] = _changed(random, changed["type"])
    changed.pop("default", None)


def _changed(random: Random, schema: Any) -> Any:
    if isinstance(schema, list):
        kind = random.choice(_PRIMITIVES)
        return random.choice([schema[1:], [kind, *(each for each in schema if each != kind)], schema[::-1]])
    if isinstance(schema, str):
        return random.choice([[schema, "null"] if schema != "null" else ["null"], *_PRIMITIVES])
    match schema["type"]:
        case "enum":
            return {**schema, "symbols": ["A", "D"], "default": "D"} if random.random() < 0.5 else schema["symbols"][0]
        case "fixed":
            return {**schema, "size": schema["size"] + random.randint(0, 1)}
        case "array":
            return {**schema, "items": _changed(random, schema["items"])}
        case "map":
            return {**schema, "values": _changed(random, schema["values"])}
        case _:
            return random.choice([["null", schema], schema])


_CHANGES: Final = (_add_field, _remove_field, _reorder_fields, _rename_field, _change_type, _change_type, _change_type)
