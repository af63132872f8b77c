"""Declarations of records for the stock client's module and ours: each function gets the module and declares there."""

# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

__all__ = ["DECLARATIONS", "Color", "Level", "declare_everything"]


class Color(Enum):
    RED = 1
    GREEN = 2


class Level(Enum):
    LOW = "low"
    HIGH = "high"


def declare_primitives(m: Any) -> Any:
    class Primitives(m.Record):
        nothing = m.Null(required=True)
        flag = m.Boolean()
        small = m.Integer()
        large = m.Long()
        short = m.Float()
        real = m.Double()
        raw = m.Bytes()
        text = m.String()

    return Primitives


def declare_required(m: Any) -> Any:
    class Required(m.Record):
        flag = m.Boolean(required=True)
        number = m.Integer(required=True, default=7)
        text = m.String(required=True, default="x", required_default=True)
        level = m.CustomEnum(Level, required=True)

    return Required


def declare_defaults(m: Any) -> Any:
    class Defaults(m.Record):
        flag = m.Boolean(required_default=True)
        on = m.Boolean(default=True, required_default=True)
        number = m.Integer(default=3)
        large = m.Long(default=4, required_default=True)
        real = m.Double(required_default=True)
        text = m.String(default="é", required_default=True)
        color = m.CustomEnum(Color, default=Color.GREEN, required_default=True)
        named = m.CustomEnum(Level, default="LOW", required_default=True)
        numbers = m.Array(m.Integer(), default=[1, 2], required_default=True)
        words = m.Map(m.String(), default={"a": "b"}, required_default=True)

    return Defaults


def declare_sorted(m: Any) -> Any:
    class Inner(m.Record):
        _sorted_fields = True
        z = m.String()
        a = m.Integer()

    class Sorted(m.Record):
        _avro_namespace = "org.example"
        _sorted_fields = True
        later = m.String()
        early = Inner()
        again = Inner

    return Sorted


def declare_everything(m: Any) -> Any:
    class Address(m.Record):
        _avro_namespace = "org.example"
        city = m.String()
        number = m.Integer(default=5, required_default=True)

    class Everything(m.Record):
        _avro_namespace = "org.example"
        small = m.Integer(required=True)
        large = m.Long()
        short = m.Float()
        real = m.Double(default=1.5, required_default=True)
        text = m.String()
        raw = m.Bytes()
        flag = m.Boolean()
        color = Color
        level = m.CustomEnum(Level)
        words = m.Array(m.String())
        numbers = m.Map(m.Long())
        address = Address
        other = Address(required=True)
        addresses = m.Array(Address())
        by_name = m.Map(Address())
        nothing = m.Null(required=True)

    return Everything


def declare_nested_collections(m: Any) -> Any:
    class Deep(m.Record):
        lists = m.Array(m.Array(m.Integer()))
        maps = m.Map(m.Map(m.Double()), default={}, required_default=True)
        mixed = m.Array(m.Map(m.String()), required=True)

    return Deep


def declare_inherited(m: Any) -> Any:
    class Base(m.Record):
        inherited = m.String()

    class Derived(Base):
        own = m.String()

    return Derived


def declare_empty(m: Any) -> Any:
    class Empty(m.Record):
        pass

    return Empty


DECLARATIONS: Final[tuple[Callable[[Any], Any], ...]] = (
    declare_primitives,
    declare_required,
    declare_defaults,
    declare_sorted,
    declare_everything,
    declare_nested_collections,
    declare_inherited,
    declare_empty,
)
