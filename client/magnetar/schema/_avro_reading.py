"""The form in which fastavro gets a writer's definition to read payloads with it.

fastavro takes a union's branch and an enumeration's symbol from Python lists, by an index from the payload: -1 is the
last one. So here they are dicts by index, where such an index is missing. A union that is a list would also be searched
for a logical type after each value.

**Marked branches.** The values of some unions don't show from which branch they are: int and long, a record and a map.
If that matters, each branch is the only field of a record, whose encoding is that of the field. Its name is the
branch's index, so the value is read as a dict from index to value.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any, Final

from fastavro.read import LOGICAL_READERS

from magnetar.schema._avro_decimal import BOUNDED_DECIMAL
from magnetar.schema._avro_definition import NAMED, PRIMITIVES, AvroDefinition, logical_key

__all__ = ["find_value_classes", "make_readable"]

# The classes of values that fastavro reads.
_CLASSES: Final[dict[str, type]] = {
    "null": type(None),
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "array": list,
    "map": dict,
    "record": dict,
    "enum": str,
    "fixed": bytes,
}
_LOGICAL_CLASSES: Final[dict[str, type]] = {
    "int-date": datetime.date,
    "int-time-millis": datetime.time,
    "long-time-micros": datetime.time,
    "long-timestamp-millis": datetime.datetime,
    "long-timestamp-micros": datetime.datetime,
    "long-local-timestamp-millis": datetime.datetime,
    "long-local-timestamp-micros": datetime.datetime,
    f"bytes-{BOUNDED_DECIMAL}": decimal.Decimal,
    f"fixed-{BOUNDED_DECIMAL}": decimal.Decimal,
    "string-uuid": uuid.UUID,
}


def make_readable(definition: AvroDefinition, *, marks_branches: bool) -> Any:
    """Return what fastavro reads payloads with. `marks_branches`: of unions that have no value classes."""
    return _Readable(definition, marks_branches=marks_branches).make()


def find_value_classes(definition: AvroDefinition, union: list[Any]) -> list[type] | None:
    """Return the class of each branch's values; None: they don't show from which branch they are."""
    if len(union) == 1:
        return [object]
    classes = [_value_class(*definition.resolve(branch)) for branch in union]
    known = [each for each in classes if each is not None]
    return known if len(set(known)) == len(union) else None


def _value_class(kind: str, node: Any) -> type | None:
    """None: an application has added the logical type to fastavro's."""
    key = logical_key(node)
    if key in LOGICAL_READERS:
        return _LOGICAL_CLASSES.get(key)
    return _CLASSES[kind]


class _Readable:
    def __init__(self, definition: AvroDefinition, *, marks_branches: bool) -> None:
        self._definition = definition
        self._marks_branches = marks_branches
        self._named: dict[str, Any] = {}
        # Those that others refer to by name. fastavro copies them for each payload.
        self._referenced: set[str] = set()

    def make(self) -> Any:
        root = self._of(self._definition.root)
        if isinstance(root, str):
            root = {"type": root}
        named = {name: self._named[name] for name in self._referenced}
        return {**root, "__fastavro_parsed": True, "__named_schemas": named}

    def _of(self, node: Any) -> Any:
        if isinstance(node, str):
            if node not in PRIMITIVES:
                self._referenced.add(node)
            return node
        if isinstance(node, list):
            return self._of_union(node)
        kind = node["type"]
        if kind in NAMED:
            made = self._named[node["name"]] = self._of_named(kind, node)
            return made
        if kind == "array":
            return {"type": "array", "items": self._of(node["items"])}
        if kind == "map":
            return {"type": "map", "values": self._of(node["values"])}
        return node if logical_key(node) in LOGICAL_READERS else kind

    def _of_named(self, kind: str, node: Any) -> Any:
        if kind == "record":
            fields = [{"name": field["name"], "type": self._of(field["type"])} for field in node["fields"]]
            return {"type": "record", "name": node["name"], "fields": fields}
        if kind == "enum":
            return {"type": "enum", "name": node["name"], "symbols": dict(enumerate(node["symbols"]))}
        return node

    def _of_union(self, union: list[Any]) -> Any:
        branches = [self._of(branch) for branch in union]
        if self._marks_branches and find_value_classes(self._definition, union) is None:
            branches = [
                {"type": "record", "name": "branch", "fields": [{"name": index, "type": branch}]}
                for index, branch in enumerate(branches)
            ]
        return {"type": "union", **dict(enumerate(branches))}
