"""Rules of dataclasses and pydantic models as schemas: what is written does not depend on earlier values, and can be
read again (SCH-3)."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Optional
from uuid import UUID

import pytest
from pydantic import (
    AliasChoices,
    Base64Bytes,
    BaseModel,
    ConfigDict,
    Field,
    FutureDatetime,
    HttpUrl,
    Json,
    PastDate,
    PlainSerializer,
    PrivateAttr,
    computed_field,
    field_serializer,
    model_serializer,
)
from pydantic.dataclasses import dataclass as validated_dataclass

from magnetar.exceptions import DecodeError, EncodeError
from magnetar.schema import AvroSchema, Int32, JsonSchema
from tests.unit.client.schema.test_data_models import DIGITS

FORMS: list[Any] = [AvroSchema, JsonSchema]


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


def encode_often(schema: Any, value: Any) -> bytes:
    """A class may have a faster way once a value has been found valid."""
    payload, *others = [schema.encode(value) for _ in range(4)]
    assert others == [payload] * 3
    assert isinstance(payload, bytes)
    return payload


# What is written.


class FieldSerialized(BaseModel):
    number: int

    @field_serializer("number")
    def _write(self, number: int) -> str:
        return f"#{number}"


class ModelSerialized(BaseModel):
    number: int

    @model_serializer
    def _write(self) -> dict[str, Any]:
        return {"other": self.number}


class Computed(BaseModel):
    number: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.number


class PlainSerialized(BaseModel):
    number: Annotated[int, PlainSerializer(lambda number: number + 1)]


class Extra(BaseModel):
    model_config = ConfigDict(extra="allow")
    number: int


class Excluded(BaseModel):
    number: int
    secret: str = Field(default="", exclude=True)


@validated_dataclass
class ExcludedInDataclass:
    number: int
    secret: str = Field(default="", exclude=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "value",
    [
        FieldSerialized(number=3),
        ModelSerialized(number=3),
        Computed(number=3),
        PlainSerialized(number=3),
        Extra(number=3, other=4),  # type: ignore[call-arg]
        Excluded(number=3, secret="s"),
        ExcludedInDataclass(number=3, secret="s"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_payload_has_the_fields_of_the_definition(form: Any, value: Any) -> None:
    schema = form(type(value))
    assert [one["name"] for one in json.loads(schema.schema_info().definition)["fields"]] == ["number"]
    payload = encode_often(schema, value)
    assert payload == (b"\x06" if form is AvroSchema else b'{"number":3}')
    assert schema.decode(payload) == type(value)(number=3)


@pytest.mark.parametrize("form", FORMS)
def test_fields_that_the_class_sets_itself_are_not_written(form: Any) -> None:
    @dataclass
    class Doubled:
        number: int
        double: int = field(init=False)
        factor: InitVar[int] = 2

        def __post_init__(self, factor: int) -> None:
            self.double = self.number * factor

    schema = form(Doubled)
    assert schema.decode(encode_often(schema, Doubled(3))) == Doubled(3)

    @dataclass
    class Needing:
        number: int
        factor: InitVar[int]

    with pytest.raises(TypeError, match=r"Needing\.factor is an InitVar"):
        form(Needing)

    @validated_dataclass
    class Secret:
        secret: str = Field(exclude=True)

    with pytest.raises(TypeError, match=r"Secret\.secret is excluded"):
        form(Secret)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("by_name", [False, True])
def test_constraints_of_a_field_with_an_alias_hold(form: Any, by_name: bool) -> None:
    class Limited(BaseModel):
        model_config = ConfigDict(populate_by_name=by_name)
        number: int = Field(default=1, gt=0, alias="N")

    schema = form(Limited)
    value = Limited(N=2)
    assert schema.decode(encode_often(schema, value)) == value
    value.number = -5
    with pytest.raises(EncodeError, match="greater than 0"):
        schema.encode(value)


def test_an_attribute_instead_of_a_field_is_an_error() -> None:
    class Pair(BaseModel):
        a: str
        b: str

    for form in FORMS:
        schema = form(Pair)
        encode_often(schema, Pair(a="a", b="b"))
        broken = Pair(a="a", b="b")
        del broken.__dict__["b"]
        broken.__dict__["c"] = "c"
        with pytest.raises(EncodeError, match="'b'"):
            schema.encode(broken)


# What is read.


@dataclass
class Nested:
    number: int


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    numbers: tuple[int, ...] = (1, 2)
    words: set[str] = {"a"}
    frozen: frozenset[int] = frozenset({1})
    nested: Nested = Nested(1)
    many: list[Nested] = [Nested(2)]
    at: datetime = datetime(2020, 1, 2, tzinfo=UTC)
    day: date = date(2020, 1, 2)
    identity: UUID = UUID(int=1)
    price: Annotated[Decimal, Field(**DIGITS)] = Decimal("1.50")


class StrictWithEnum(Strict):
    color: Color = Color.RED


class StrictField(BaseModel):
    words: Annotated[set[str], Field(strict=True)] = {"a"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cls", [Strict, StrictWithEnum, StrictField])
def test_strict_classes_read_what_they_wrote(form: Any, cls: Any) -> None:
    schema = form(cls)
    assert schema.decode(encode_often(schema, cls())) == cls()


@dataclass
class Loose:
    a: int = 0
    b: bool = False
    c: str = ""
    d: float = 0.0


@dataclass
class LooseWithEnum(Loose):
    e: Color = Color.RED


@pytest.mark.parametrize("cls", [Loose, LooseWithEnum])
@pytest.mark.parametrize(
    "payload",
    ['{"a":"5"}', '{"a":5.0}', '{"a":true}', '{"a":99999999999999999999}', '{"b":1}', '{"c":5}', '{"d":true}'],
)
def test_json_is_read_by_the_definition(cls: Any, payload: str) -> None:
    with pytest.raises(DecodeError, match=f"does not match the definition: field '{payload[2]}'"):
        JsonSchema(cls).decode(payload.encode())


def test_json_of_older_and_newer_classes_is_read() -> None:
    """Also by a class with an enum, and one that forbids other fields."""

    class Town(BaseModel):
        model_config = ConfigDict(extra="forbid")
        town: str = Field(validation_alias=AliasChoices("town", "city"))
        color: Color = Color.RED
        height: float = 0.5

    schema = JsonSchema(Town)
    assert schema.decode(b'{"city": "Ulm", "height": 3, "new": 1}') == Town(town="Ulm", height=3.0)
    assert schema.decode(b'{"city": "Ulm", "town": "Hall"}') == Town(town="Hall")


# Values.


class Chosen(BaseModel):
    model_config = ConfigDict(use_enum_values=True)
    color: Color
    others: list[Color] = []
    other: Color | None = None


class Both(BaseModel):
    chosen: Chosen
    color: Color


@pytest.mark.parametrize("form", FORMS)
def test_a_model_may_have_the_values_of_an_enum(form: Any) -> None:
    schema = form(Both)
    value = Both(chosen=Chosen(color=Color.BLUE, others=[Color.RED], other=Color.RED), color=Color.BLUE)
    decoded = schema.decode(encode_often(schema, value))
    assert decoded == value
    assert [decoded.chosen.color, value.chosen.color, decoded.color] == ["b", "b", Color.BLUE]
    value.chosen.color = "x"  # type: ignore[assignment]
    with pytest.raises(EncodeError, match=r"chosen\.color"):
        schema.encode(value)


class Node(BaseModel):
    next: Node | None = None


class Branch(BaseModel):
    branches: list[Branch] = []


class Keyed(BaseModel):
    keyed: dict[str, Keyed] = {}


def nest(cls: Any, make: Callable[[Any], Any], levels: int) -> Any:
    value = cls()
    for _ in range(levels - 1):
        value = make(value)
    return value


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("cls", "make", "levels"),
    [
        (Node, lambda value: Node(next=value), 200),
        (Branch, lambda value: Branch(branches=[value]), 100),
        (Keyed, lambda value: Keyed(keyed={"k": value}), 100),
    ],
)
def test_what_is_too_deep_to_be_read_is_not_written(form: Any, cls: Any, make: Any, levels: int) -> None:
    schema = form(cls)
    value = nest(cls, make, levels)
    assert schema.encode(schema.decode(schema.encode(value))) == schema.encode(value)
    with pytest.raises(EncodeError, match=r"field '(next|branches|keyed)': the value is deeper than 200 levels"):
        schema.encode(make(value))
    with pytest.raises(EncodeError, match="at most 200 levels"):
        schema.encode(nest(cls, make, 2000))


def test_floats_that_json_does_not_have_are_refused() -> None:
    class Ratio(BaseModel):
        ratio: float
        maybe: Optional[float] = None  # noqa: UP045 (one of two notations)

    schema = JsonSchema(Ratio)
    encode_often(schema, Ratio(ratio=1.0))
    for wrong in (Ratio(ratio=float("nan")), Ratio(ratio=1.0, maybe=float("-inf"))):
        with pytest.raises(EncodeError, match=r"field '(ratio|maybe)': JSON has no (nan|-inf)"):
            schema.encode(wrong)

    for mode, text in (("strings", b'{"ratio":"-Infinity"}'), ("constants", b'{"ratio":-Infinity}')):

        class Written(BaseModel):
            model_config = ConfigDict(ser_json_inf_nan=mode)  # type: ignore[typeddict-item]
            ratio: float

        written = JsonSchema(Written)
        assert encode_often(written, Written(ratio=float("-inf"))) == text
        assert written.decode(text) == Written(ratio=float("-inf"))


def test_a_time_zone_that_avro_would_lose_is_refused() -> None:
    class Timed(BaseModel):
        at: time

    with pytest.raises(EncodeError, match=r"field 'at'.*time zone"):
        AvroSchema(Timed).encode(Timed(at=time(1, tzinfo=UTC)))
    schema = JsonSchema(Timed)
    assert schema.decode(schema.encode(Timed(at=time(1, tzinfo=UTC)))) == Timed(at=time(1, tzinfo=UTC))
    plain = {
        "type": "record",
        "name": "T",
        "fields": [{"name": "at", "type": {"type": "long", "logicalType": "time-micros"}}],
    }
    with pytest.raises(EncodeError, match=r"field 'at'.*time zone"):
        AvroSchema(None, plain).encode({"at": time(1, tzinfo=UTC)})

    class Default(BaseModel):
        at: time = time(1, tzinfo=UTC)

    with pytest.raises(TypeError, match=r"the default of Default\.at"):
        AvroSchema(Default)


# Enums evolve.


class Unit(enum.Enum):
    _avro_name = enum.nonmember("TheUnit")
    _avro_namespace = enum.nonmember("com.example")
    _avro_default = enum.nonmember("OTHER")
    OTHER = 0
    CELSIUS = 1


class LaterUnit(enum.Enum):
    _avro_name = enum.nonmember("TheUnit")
    _avro_namespace = enum.nonmember("com.example")
    OTHER = 0
    CELSIUS = 1
    KELVIN = 2


class Measured(BaseModel):
    unit: Unit
    units: list[Unit] = []


class LaterMeasured(BaseModel):
    unit: LaterUnit
    units: list[LaterUnit] = []


@pytest.mark.parametrize("form", FORMS)
def test_members_that_a_reader_does_not_know_become_its_default(form: Any) -> None:
    reader, writer = form(Measured), form(LaterMeasured)
    defined = json.loads(reader.schema_info().definition)["fields"][0]["type"]
    assert defined == {
        "type": "enum",
        "name": "TheUnit",
        "namespace": "com.example",
        "symbols": ["OTHER", "CELSIUS"],
        "default": "OTHER",
    }
    payload = writer.encode(LaterMeasured(unit=LaterUnit.KELVIN, units=[LaterUnit.CELSIUS, LaterUnit.KELVIN]))
    decode = reader.make_decoder(writer.schema_info())
    assert decode([payload], None) == [Measured(unit=Unit.OTHER, units=[Unit.CELSIUS, Unit.OTHER])]
    value = Measured(unit=Unit.CELSIUS, units=[Unit.OTHER])
    assert reader.decode(encode_often(reader, value)) == value


def test_members_without_a_default_are_an_error_that_names_them() -> None:
    class Painted(BaseModel):
        color: Color

    with pytest.raises(DecodeError, match=r"color: 'GREEN' is no member of the enum.*_avro_default"):
        JsonSchema(Painted).decode(b'{"color": "GREEN"}')


def test_a_default_of_an_enum_that_is_none_is_a_type_error() -> None:
    class Wrong(enum.Enum):
        _avro_default = enum.nonmember("X")
        A = 1

    class Forgotten(enum.Enum):
        _avro_default = "A"
        A = 1

    def make(cls: Any) -> Any:
        return type("Model", (BaseModel,), {"__annotations__": {"field": cls}})

    with pytest.raises(TypeError, match=r"Model\.field: `_avro_default` of Wrong is 'X'"):
        AvroSchema(make(Wrong))
    with pytest.raises(TypeError, match=r"Model\.field.*enum\.nonmember"):
        AvroSchema(make(Forgotten))


def test_names_of_records_can_be_private_attributes() -> None:
    class Named(BaseModel):
        _avro_name = "Reading"
        _avro_namespace: str = PrivateAttr("com.example")
        number: int

    class Derived(Named):
        other: int

    class Hinted(BaseModel):
        _avro_name: ClassVar[str] = "Other"
        number: int

    def names(cls: Any) -> tuple[str, str | None]:
        definition = json.loads(AvroSchema(cls).schema_info().definition)
        return definition["name"], definition.get("namespace")

    assert [names(cls) for cls in (Named, Derived, Hinted)] == [
        ("Reading", "com.example"),
        ("Derived", None),
        ("Other", None),
    ]


# Types.


NO_PRICE: Any = Field(default=None, **DIGITS)


class Hinted(BaseModel):
    price: Optional[Decimal] = NO_PRICE  # noqa: UP045 (one of two notations)
    small: Annotated[int | str | None, Int32.__metadata__[0]] = None
    born: PastDate = date(2020, 1, 2)
    due: FutureDatetime | None = None


@dataclass
class Constant:
    number: Final[int] = 3


@pytest.mark.parametrize("form", FORMS)
def test_hints_with_a_base_are_mapped_to_it(form: Any) -> None:
    schema = form(Hinted)
    value = Hinted(price=Decimal("1.50"), small=5, due=datetime(9999, 1, 1, tzinfo=UTC))
    assert schema.decode(encode_often(schema, value)) == value
    assert form(Constant).decode(encode_often(form(Constant), Constant())) == Constant()


def test_hints_of_a_union_belong_to_its_types() -> None:
    fields = {one["name"]: one["type"] for one in json.loads(AvroSchema(Hinted).schema_info().definition)["fields"]}
    assert fields["price"] == ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}]
    assert fields["small"] == ["null", "int", "string"]


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (Path, r"Model\.field is of type Path.*use a str"),
        (HttpUrl, r"Model\.field is of type HttpUrl.*use a str"),
        (Json[list[int]], r"Model\.field .*use list\[int\]"),
        (list[Base64Bytes], r"Model\.field\[\] .*use bytes"),
        (list[Decimal], r"Model\.field\[\] is of type Decimal.*inside the brackets"),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_types_whose_values_would_change_are_refused(form: Any, hint: Any, text: str) -> None:
    if form is JsonSchema and hint == list[Decimal]:
        return  # a string
    with pytest.raises(TypeError, match=text):
        form(type("Model", (BaseModel,), {"__annotations__": {"field": hint}}))


def test_errors_of_names_say_what_to_do() -> None:
    @dataclass
    class Inner:
        number: int

    @dataclass
    class Outer:
        inner: Inner

    with pytest.raises(TypeError, match="at module level"):
        AvroSchema(Outer)

    class Nested(BaseModel):  # the name of another class
        number: str

    with pytest.raises(TypeError, match="_avro_name"):
        AvroSchema(type("Model", (BaseModel,), {"__annotations__": {"a": Nested, "b": globals()["Nested"]}}))
