"""Describes Avro schemas for comparison: schemas that Pulsar treats as equal have the same description.

Fingerprints of descriptions are stored with the versions of schemas. A change of a description would let topics store
an unchanged schema again, as a new version.
"""

from __future__ import annotations

import json

from magnetar_broker.schemas.avro_definitions import (
    ArrayType,
    AvroType,
    EnumType,
    FixedType,
    MapType,
    NamedType,
    PrimitiveType,
    RecordType,
    UnionType,
)
from magnetar_broker.schemas.work_budget import WorkBudget

__all__ = ["describe_equality"]


def describe_equality(avro_type: AvroType, budget: WorkBudget) -> str:
    """Return a text that is equal for types that Avro's Java library, and so Pulsar, treats as equal. It leaves out
    documentation, aliases, defaults of enums, and whether a record is an error."""
    description = _Description(budget)
    description.add(avro_type)
    return "".join(description.parts)


class _Description:
    def __init__(self, budget: WorkBudget) -> None:
        self.parts: list[str] = []
        self._budget = budget
        # Numbers of named types by id, in the order of their descriptions. A type is described once and then referred
        # to by its number, since its name may be long.
        self._numbers: dict[int, int] = {}

    def add(self, avro_type: AvroType) -> None:
        self._budget.spend()
        if isinstance(avro_type, UnionType):
            self._add_all(avro_type.branches)
            return
        number = self._numbers.get(id(avro_type))
        if number is not None:
            self.parts.append(f"#{number}")
            return
        self.parts.append("{" + _dump(avro_type.properties))
        if isinstance(avro_type, PrimitiveType):
            self.parts.append(avro_type.kind)
        elif isinstance(avro_type, ArrayType):
            self.parts.append("array")
            self.add(avro_type.items)
        elif isinstance(avro_type, MapType):
            self.parts.append("map")
            self.add(avro_type.values)
        elif isinstance(avro_type, NamedType):
            self._numbers[id(avro_type)] = len(self._numbers)
            self._add_named(avro_type)
        self.parts.append("}")

    def _add_named(self, named: NamedType) -> None:
        self.parts.append(_dump(named.name))
        if isinstance(named, EnumType):
            self.parts.append("enum" + _dump(list(named.symbols)))
        elif isinstance(named, FixedType):
            self.parts.append(f"fixed{named.size}")
        elif isinstance(named, RecordType):
            for each in named.fields.values():
                default = _dump(each.default) if each.has_default else ""
                self.parts.append(f"{each.name}={default},{each.order}{_dump(each.properties)}")
                self.add(each.type)

    def _add_all(self, types: list[AvroType]) -> None:
        self.parts.append("[")
        for each in types:
            self.add(each)
            self.parts.append(",")
        self.parts.append("]")


def _dump(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
