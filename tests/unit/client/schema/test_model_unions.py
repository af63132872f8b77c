"""Unions in dataclasses and pydantic models: a value comes back as the type that it was (SCH-3)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date
from typing import Any, ClassVar, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, create_model

from magnetar.exceptions import DecodeError
from magnetar.schema import AvroSchema, JsonSchema, SchemaInfo, SchemaType


class Color(enum.Enum):
    RED = 1
    ORANGE = 2


class Fruit(enum.Enum):
    APPLE = 1
    ORANGE = 2


class Taste(enum.Enum):
    SOUR = "s"


@dataclass
class Small:
    x: int


@dataclass
class Large:
    x: int
    y: int = 1


class SmallModel(BaseModel):
    x: int


class LargeModel(BaseModel):
    x: int
    y: int = 1


class SameModel(BaseModel):
    x: int


class Add(BaseModel):
    left: Add | Mul | int
    right: Add | Mul | int


class Mul(BaseModel):
    left: Add | Mul | int
    right: Add | Mul | int


class Plus(BaseModel):
    kind: Literal["plus"] = "plus"
    left: Plus | Minus | int


class Minus(BaseModel):
    kind: Literal["minus"] = "minus"
    left: Plus | Minus | int
    more: int = 0


class Either(BaseModel):
    value: int | Small | str | None = None


def model(hint: Any) -> Any:
    return create_model("Holder", value=(hint, ...))


_DAY = date(2026, 1, 2)
_BOTH = (AvroSchema, JsonSchema)
_AVRO = (AvroSchema,)
_SUM = Add(left=Mul(left=1, right=2), right=Add(left=3, right=Mul(left=4, right=5)))


@pytest.mark.parametrize(
    ("hint", "values", "schemas"),
    [
        (float | int, [1, 2.0, 2**62 + 1, 0.5], _BOTH),
        (int | float | None, [1, None, 2.0, 2**62 + 1], _BOTH),
        (bool | int, [True, 1, 0, False], _BOTH),
        (Color | Fruit, [Fruit.ORANGE, Color.ORANGE, Fruit.APPLE, Color.RED], _AVRO),
        (Color | Taste, [Taste.SOUR, Color.RED], _BOTH),
        (Color | str, ["RED", Color.RED, "blue"], _AVRO),
        (str | Color | None, ["RED", Color.RED, None], _AVRO),
        (date | int, [5, _DAY], _BOTH),
        (int | date, [5, _DAY], _BOTH),
        (UUID | int, [5, UUID(int=5)], _BOTH),
        (Large | Small, [Small(1), Large(1), Large(1, 2)], _BOTH),
        (LargeModel | SmallModel | None, [SmallModel(x=1), LargeModel(x=1), None], _BOTH),
        (SmallModel | SameModel, [SameModel(x=1), SmallModel(x=1)], _AVRO),
        (SmallModel | dict[str, int], [SmallModel(x=1), {"x": 1}, {"z": 1}, {}], _AVRO),
        (dict[str, int] | Small, [Small(1), {"x": 1}, {"z": 1}, {}], _AVRO),
        (list[Large | Small], [[Small(1), Large(1)], []], _BOTH),
        (dict[str, str | Color], [{"a": "RED", "b": Color.RED}], _AVRO),
        (str | bytes, ["a", b"a", b"\xff"], _AVRO),
        (Either | Small, [Small(1), Either(value=Small(2)), Either(value=5), Either()], _BOTH),
        (Add | Mul, [_SUM, _SUM.left], _AVRO),
        (Plus | Minus, [Plus(left=Minus(left=1)), Minus(left=Plus(left=Plus(left=2)))], _BOTH),
    ],
)
def test_values_of_unions_come_back_as_what_they_were(hint: Any, values: list[Any], schemas: Any) -> None:
    holder = model(hint)
    for schema_class in schemas:
        schema = schema_class(holder)
        for value in values * 3:
            found = schema.decode(schema.encode(holder(value=value))).value
            assert found == value
            assert repr(found) == repr(value)


@pytest.mark.parametrize(
    ("hint", "problem"),
    [
        (Color | Fruit, "two enums have a member of the same name"),
        (Color | str, "strings in JSON"),
        (str | bytes, "strings in JSON"),
        (SmallModel | dict[str, int], "objects in JSON"),
        (SmallModel | SameModel, "same fields"),
    ],
)
def test_what_is_the_same_in_json_is_refused(hint: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=rf"Holder\.value .*{problem}"):
        JsonSchema(model(hint))


def test_branches_are_known_after_the_class_has_changed() -> None:
    old, new = model(Small | dict[str, int]), model(dict[str, int] | Large | Color | str)
    writer = AvroSchema(old)
    payloads = [writer.encode(old(value=value)) for value in (Small(1), {"x": 1}, {"z": 1})]
    info = SchemaInfo(SchemaType.AVRO, "", writer.schema_info().definition.replace(b'"Small"', b'"Large"'))
    found: list[Any] = AvroSchema(new).make_decoder(info)(payloads, None)
    assert [one.value for one in found] == [Large(1, 1), {"x": 1}, {"z": 1}]


def test_a_default_of_a_union_is_of_its_branch() -> None:
    class Old(BaseModel):
        a: int

    class New(BaseModel):
        a: int
        color: str | Color = Color.RED
        text: Color | str = "RED"

    writer = AvroSchema(Old)
    (found,) = AvroSchema(New).make_decoder(writer.schema_info())([writer.encode(Old(a=1))], None)
    assert repr(found) == repr(New(a=1))


def test_an_invalid_record_of_a_union_is_its_message_s_error_alone() -> None:
    @dataclass
    class Strict:
        kind: Literal["a"]

    holder = model(Strict | Small)
    schema = AvroSchema(holder)
    good = schema.encode(holder(value=Strict("a")))
    bad = good.replace(b"a", b"b")
    found = schema.make_decoder(None)([good, bad, good], None)
    assert [type(one) for one in found] == [holder, DecodeError, holder]


@dataclass
class Spaced:
    _avro_namespace: ClassVar[str] = "here"
    value: Small | Large
    other: Small


@dataclass
class Outside:
    spaced: Spaced
    small: Small
    more: Small | Large | None = None


@dataclass
class First:
    small: Small
    spaced: Spaced


def test_names_have_the_namespace_of_the_record_around_them() -> None:
    for value in (Spaced(Large(1), Small(2)), Outside(Spaced(Small(1), Small(2)), Small(3), Large(4))):
        for schema_class in _BOTH:
            schema: Any = schema_class(type(value))
            for _ in range(3):
                assert schema.decode(schema.encode(value)) == value
    with pytest.raises(TypeError, match="Avro can't refer to 'Small'"):
        AvroSchema(First)
