"""Dataclasses and pydantic models as AVRO and JSON schemas (SCH-3)."""

from __future__ import annotations

import enum
import json
import pickle
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal, NewType, Optional
from uuid import UUID

import pytest
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    NaiveDatetime,
    RootModel,
    computed_field,
    field_serializer,
    field_validator,
)
from pydantic.dataclasses import dataclass as validated_dataclass

from magnetar.exceptions import DecodeError, EncodeError
from magnetar.schema import AvroSchema, Float32, Int32, JsonSchema, Schema, SchemaInfo

FORMS: list[Any] = [AvroSchema, JsonSchema]
# Digits of a Decimal.
DIGITS: Any = {"max_digits": 10, "decimal_places": 2}
Celsius = NewType("Celsius", float)


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


@dataclass
class Point:
    x: float
    y: float = 0.0


@dataclass(slots=True)
class Slotted:
    x: int


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    name: str


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Everything(BaseModel):
    """All that Avro has a type for."""

    text: str
    number: int
    ratio: float
    flag: bool
    raw: bytes
    maybe: Optional[str] = None  # noqa: UP045 (one of two notations)
    mostly: int | None = 5
    numbers: list[int] = [1]
    points: dict[str, Point] = Field(default_factory=dict)
    words: set[str] = set()
    pair: tuple[Color, ...] = (Color.RED,)
    color: Color = Color.BLUE
    unit: Literal["C", "F"] = "C"
    celsius: Celsius = Celsius(1.5)
    day: date = date(2020, 1, 2)
    at_time: time
    at: datetime
    local: NaiveDatetime
    price: Annotated[Decimal, Field(**DIGITS)]
    identity: UUID = UUID(int=1)
    small: Int32 = 3
    short: Float32 = 1.5
    pet: Cat | Dog
    tree: Tree
    mixed: int | str | Point | list[int] = "x"
    point: Point = Point(1.0)
    named: str = Field("z", alias="namedField", description="a field")
    slotted: Slotted = Field(default_factory=lambda: Slotted(1))


def make_everything(**fields: Any) -> Everything:
    given: dict[str, Any] = {
        "text": "ä",
        "number": -(2**62),
        "ratio": 2.5,
        "flag": True,
        "raw": b"xy",
        "at_time": time(1, 2, 3, 4),
        "at": datetime(2020, 1, 2, 3, 4, 5, 6, UTC),
        "local": datetime(2020, 1, 2),
        "price": Decimal("12.30"),
        "pet": Dog(name="d"),
        "tree": Tree(value=1, children=[Tree(value=2)]),
        "points": {"k": Point(3.0)},
        "words": {"a"},
    }
    return Everything(**given | fields)


@pytest.mark.parametrize("form", FORMS)
def test_every_type_survives(form: Any) -> None:
    schema = form(Everything)
    value = make_everything()
    assert schema.decode(schema.encode(value)) == value
    other = make_everything(maybe="m", mostly=None, mixed=Point(1.0, 2.0), color=Color.RED, pet=Cat(name="c"))
    assert schema.decode(schema.encode(other)) == other
    assert type(schema.decode(schema.encode(other)).mixed) is Point


def fields_of(schema: Schema[Any]) -> dict[str, Any]:
    return {one["name"]: one for one in json.loads(schema.schema_info().definition)["fields"]}


def test_definitions_have_types_defaults_and_docs() -> None:
    definition = json.loads(AvroSchema(Everything).schema_info().definition)
    assert (definition["name"], definition["doc"]) == ("Everything", "All that Avro has a type for.")
    fields = fields_of(AvroSchema(Everything))
    assert fields["number"] == {"name": "number", "type": "long"}
    assert fields["maybe"] == {"name": "maybe", "type": ["null", "string"], "default": None}
    assert fields["mostly"] == {"name": "mostly", "type": ["long", "null"], "default": 5}
    assert fields["points"]["type"]["values"]["name"] == "Point"
    assert fields["point"] == {"name": "point", "type": "Point", "default": {"x": 1.0, "y": 0.0}}
    assert fields["tree"]["type"]["fields"][1]["type"] == {"type": "array", "items": "Tree"}
    assert fields["day"] == {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 18263}
    assert fields["color"]["default"] == "BLUE"
    assert fields["mixed"]["type"][0] == "string"
    assert fields["small"]["type"], fields["short"]["type"] == ("int", "float")
    assert fields["namedField"] == {"name": "namedField", "type": "string", "default": "z", "doc": "a field"}
    in_json = fields_of(JsonSchema(Everything))
    assert [in_json[name]["type"] for name in ("day", "at", "price", "identity")] == ["string"] * 4


def test_a_definition_does_not_change_from_one_process_to_the_next() -> None:
    """A default that is another one each time is none for Avro: each start would register a version."""

    @dataclass
    class Stamped:
        number: int = 0
        at: datetime = field(default_factory=lambda: datetime.now(UTC))
        today: date = field(default_factory=date.today)
        words: list[str] = field(default_factory=list)

    fields = fields_of(AvroSchema(Stamped))
    assert "default" not in fields["at"]
    assert "default" not in fields["today"]
    assert fields["words"]["default"] == []


@pytest.mark.parametrize("form", FORMS)
def test_json_and_avro_of_the_stock_client_s_record_are_read(form: Any) -> None:
    stock: Any = pytest.importorskip("pulsar.schema")
    theirs = {"AvroSchema": stock.AvroSchema, "JsonSchema": stock.JsonSchema}[form.__name__]

    class Stock(stock.Record):  # type: ignore[misc]
        name = stock.String()
        count = stock.Long(required=True)
        color = stock.CustomEnum(Color)
        words = stock.Array(stock.String())

    class Ours(BaseModel):
        name: str | None
        count: int
        color: Color | None
        words: list[str] | None

    Stock.__name__ = "Ours"
    value, same = (
        Stock(name="ä", count=3, color=Color.RED, words=["a"]),
        Ours(name="ä", count=3, color=Color.RED, words=["a"]),
    )
    schema, other = form(Ours), theirs(Stock)
    assert schema.decode(other.encode(value)) == same
    back = other.decode(schema.encode(same))
    assert (back.name, back.count, back.color, back.words) == ("ä", 3, Color.RED, ["a"])


def test_a_record_s_name_is_the_class_s_or_its_own() -> None:
    """A class that was renamed, or stands for a class of Java's, has the name that the topic's schema has."""

    class Renamed(BaseModel):
        _avro_name: ClassVar[str] = "Reading"
        _avro_namespace: ClassVar[str] = "com.example"
        number: int
        others: list[Renamed] = []
        either: Renamed | Point | None = None

    Renamed.model_rebuild(_types_namespace={"Renamed": Renamed, "Point": Point})
    schema = AvroSchema(Renamed)
    definition = json.loads(schema.schema_info().definition)
    assert (definition["name"], definition["namespace"]) == ("Reading", "com.example")
    assert definition["fields"][1]["type"]["items"] == "com.example.Reading"
    value = Renamed(number=1, others=[Renamed(number=2)], either=Renamed(number=3))
    assert schema.decode(schema.encode(value)) == value


# Evolution.


class Old(BaseModel):
    city: str
    celsius: int
    dropped: str = ""


class New(BaseModel):
    town: str = Field(validation_alias=AliasChoices("town", "city"))
    celsius: float
    humidity: float = 0.5
    note: str | None = None
    tags: list[str] = []


@pytest.mark.parametrize("form", FORMS)
def test_readers_and_writers_of_two_versions_understand_one_another(form: Any) -> None:
    """(SCH-3) By Avro's rules: defaults, aliases, promotion of numbers, dropped fields."""
    old, new = form(Old), form(New)
    payloads = [old.encode(Old(city="Ulm", celsius=21, dropped="x")), old.encode(Old(city="hall", celsius=1))]
    assert new.make_decoder(old.schema_info())(payloads, None) == [
        New(town="Ulm", celsius=21.0),
        New(town="hall", celsius=1.0),
    ]

    class Newer(BaseModel):
        city: str
        celsius: int
        humidity: float = 0.5

    newer = form(Newer)
    payload = newer.encode(Newer(city="attic", celsius=3, humidity=0.25))
    assert old.make_decoder(newer.schema_info())([payload], None) == [Old(city="attic", celsius=3)]


@pytest.mark.parametrize("form", FORMS)
def test_a_class_that_forbids_other_fields_reads_newer_messages_all_the_same(form: Any) -> None:
    """By Avro's rules a reader ignores fields that it does not have."""

    class Strict(BaseModel):
        model_config = ConfigDict(extra="forbid")
        city: str

    payload = form(Old).encode(Old(city="Ulm", celsius=1))
    assert form(Strict).make_decoder(form(Old).schema_info())([payload], None) == [Strict(city="Ulm")]


@pytest.mark.parametrize("form", FORMS)
def test_payloads_have_the_fields_of_the_definition(form: Any) -> None:
    """And not what pydantic would write besides, or instead of them."""

    class Odd(BaseModel):
        model_config = ConfigDict(extra="allow")
        number: int
        secret: str = Field(default="none", exclude=True)

        @computed_field  # type: ignore[prop-decorator]
        @property
        def double(self) -> int:
            return 2 * self.number

        @field_serializer("number")
        def _write(self, number: int) -> str:
            return f"#{number}"

    schema = form(Odd)
    assert list(fields_of(schema)) == ["number"]
    payload = schema.encode(Odd(number=3, secret="s"))
    assert payload == (b"\x06" if form is AvroSchema else b'{"number":3}') == schema.encode(Odd(number=3))
    assert schema.encode(Odd(number=3, other=4)) == payload  # type: ignore[call-arg]
    assert schema.decode(payload) == Odd(number=3)

    class Excluded(BaseModel):
        number: int
        secret: str = Field(exclude=True)

    with pytest.raises(TypeError, match=r"Excluded\.secret is excluded"):
        form(Excluded)


def test_what_can_not_be_resolved_is_a_decode_error() -> None:
    class Without(BaseModel):
        city: str
        required: int

    with pytest.raises(DecodeError, match="required"):
        AvroSchema(Without).make_decoder(AvroSchema(Old).schema_info())
    with pytest.raises(DecodeError, match="JSON"):
        AvroSchema(Old).make_decoder(JsonSchema(Old).schema_info())


# Validation.


class Reading(BaseModel):
    city: str
    celsius: float = Field(ge=-273.15)
    count: int = 0


@dataclass
class Plain:
    city: str
    celsius: Annotated[float, Field(ge=-273.15)] = 0.0
    count: int = 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cls", [Reading, Plain])
def test_an_invalid_value_is_refused_when_it_is_sent(form: Any, cls: Any) -> None:
    """(SCH-3) Models can be changed after their creation, and dataclasses are validated by nobody."""
    schema = form(cls)
    value = cls(city="Ulm", celsius=21.0)
    assert schema.decode(schema.encode(value)) == value
    for name, wrong in (("celsius", -300.0), ("celsius", "hot"), ("count", 1.5), ("count", 2**63), ("city", None)):
        changed = cls(city="Ulm", celsius=21.0)
        setattr(changed, name, wrong)
        with pytest.raises(EncodeError, match=name):
            schema.encode(changed)
    value.city = "\ud800"
    with pytest.raises(EncodeError, match="city"):
        schema.encode(value)
    with pytest.raises(TypeError, match="the schema encodes values of"):
        schema.encode({"city": "Ulm"})
    missing = cls(city="Ulm", celsius=21.0)
    del missing.__dict__["count"]
    if cls is Reading:
        with pytest.raises(EncodeError, match="count"):
            schema.encode(missing)


@pytest.mark.parametrize("form", FORMS)
def test_errors_of_parts_name_their_path(form: Any) -> None:
    schema = form(Everything)
    value = make_everything()
    value.tree.children[0].value = "no"  # type: ignore[assignment]
    with pytest.raises(EncodeError, match=r"tree\.children\[0\]\.value"):
        schema.encode(value)
    value = make_everything()
    value.points["k"].x = "no"  # type: ignore[assignment]
    with pytest.raises(EncodeError, match=r"points\['k'\]\.x"):
        schema.encode(value)
    value = make_everything()
    value.mixed = 1.5  # type: ignore[assignment]
    with pytest.raises(EncodeError, match="mixed"):
        schema.encode(value)
    value = make_everything()
    value.small = 2**31
    with pytest.raises(EncodeError, match=r"small.*32 bits"):
        schema.encode(value)


def test_a_datetime_has_a_time_zone_in_avro() -> None:
    value = make_everything()
    value.at = datetime(2020, 1, 1)
    with pytest.raises(EncodeError, match=r"at': .*time zone"):
        AvroSchema(Everything).encode(value)


@pytest.mark.parametrize("form", FORMS)
def test_an_invalid_payload_is_the_error_of_its_message_alone(form: Any) -> None:
    schema = form(Reading)
    loose: Any = type("Reading", (BaseModel,), {"__annotations__": {"city": str, "celsius": float, "count": int}})
    cold = form(loose).encode(loose(city="x", celsius=-300.0, count=1))
    good = schema.encode(Reading(city="Ulm", celsius=1.0))
    values = schema.make_decoder(schema.schema_info())([good, cold, b"\xff", good[:-1], b"", good + b"x"], None)
    assert [type(one) for one in values] == [Reading, *[DecodeError] * 5]
    assert "celsius: Input should be greater than or equal to -273.15" in str(values[1])


def test_validators_of_input_are_not_called_with_a_value() -> None:
    class Split(BaseModel):
        words: list[str]

        @field_validator("words", mode="before")
        @classmethod
        def _split(cls, given: Any) -> Any:
            assert isinstance(given, str), "only of text"
            return given.split()

    assert AvroSchema(Split).encode(Split(words="a b")) == b"\x04\x02a\x02b\x00"  # type: ignore[arg-type]


def test_a_model_that_is_always_valid_is_not_validated_again() -> None:
    calls = []

    class Frozen(BaseModel):
        model_config = ConfigDict(frozen=True)
        number: int

        @field_validator("number")
        @classmethod
        def _count(cls, given: int) -> int:
            calls.append(given)
            return given

    schema = AvroSchema(Frozen)
    value = Frozen(number=1)
    assert schema.encode(value) == schema.encode(value) == b"\x02"
    assert calls == [1]


@pytest.mark.parametrize("form", FORMS)
def test_other_kinds_of_classes(form: Any) -> None:
    @validated_dataclass
    class Validated:
        number: int = Field(default=3, ge=0, alias="theNumber")

    schema = form(Validated)
    assert list(fields_of(schema)) == ["theNumber"]
    assert schema.decode(schema.encode(Validated(theNumber=4))) == Validated(theNumber=4)
    slotted = form(Slotted)
    assert slotted.decode(slotted.encode(Slotted(7))) == Slotted(7)
    extra = form(Reading)

    class More(Reading):
        more: str = "x"

    assert extra.decode(extra.encode(More(city="r", celsius=1.0))) == Reading(city="r", celsius=1.0)


def test_schemas_of_a_class_are_equal_and_can_be_pickled() -> None:
    schema = AvroSchema(Reading)
    assert pickle.loads(pickle.dumps(schema)) == schema == AvroSchema(Reading)
    assert schema != JsonSchema(Reading)
    assert schema != AvroSchema(Plain)


def test_json_payloads_are_not_joined() -> None:
    """A payload that looks like the end of another one changes nothing."""
    schema = JsonSchema(Reading)
    good = schema.encode(Reading(city="Ulm", celsius=1.0))
    values = schema.make_decoder(None)([b'{"city": "a", "celsius": 1}, {"city": "b", "celsius": 2}', good], None)
    assert [type(one) for one in values] == [DecodeError, Reading]


# What Avro can't have.


def refused(**hints: Any) -> Any:
    return type("Refused", (BaseModel,), {"__annotations__": hints, "model_config": {"arbitrary_types_allowed": True}})


Odd = enum.Enum("Odd", {"a-b": 1})


@dataclass
class Other:
    x: float
    y: float = 0.0


@dataclass
class Empty:
    pass


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: refused(a=object), r"Refused\.a is of type object"),
        (lambda: refused(a=Any), r"Refused\.a is of type .*Any"),
        (lambda: refused(a=complex), r"Refused\.a is of type complex"),
        (lambda: refused(a=list), r"Refused\.a is of type list.*name the type"),
        (lambda: refused(a=dict[int, str]), r"Refused\.a .*keys of a dict are str"),
        (lambda: refused(a=tuple[int, str]), r"Refused\.a "),
        (lambda: refused(a=list[timedelta]), r"Refused\.a\[\] is of type timedelta.*use a number"),
        (lambda: refused(a=Decimal), r"Refused\.a is of type Decimal.*max_digits"),
        (lambda: refused(a=str | UUID), r"Refused\.a .*two types that are string"),
        (lambda: refused(a=list[int] | list[str]), r"Refused\.a .*two types that are array"),
        (lambda: refused(a=Odd), r"Refused\.a is of type Odd.*a-b"),
        (lambda: refused(größe=int), r"Refused\.größe is called 'größe' in payloads"),
        (lambda: RootModel[list[int]], "RootModel"),
        (lambda: Empty, "Empty has no fields"),
        (lambda: int, "is not a dataclass, a pydantic model or a Record"),
    ],
)
def test_what_avro_can_not_have_is_a_type_error_with_field_and_type(make: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        AvroSchema(make())


def test_names_and_defaults_that_do_not_fit_are_type_errors() -> None:
    class Wrong(BaseModel):
        number: int = None  # type: ignore[assignment]

    with pytest.raises(TypeError, match=r"the default of Wrong\.number is not of its type"):
        AvroSchema(Wrong)

    class Apart(BaseModel):
        number: int = Field(serialization_alias="a")

    with pytest.raises(TypeError, match=r"Apart\.number is written as 'a' and read as \['number'\]"):
        AvroSchema(Apart)

    def make_point() -> Any:
        @dataclass
        class Point:
            z: int

        return Point

    with pytest.raises(TypeError, match="the same name"):
        AvroSchema(refused(a=Point, b=make_point()))

    @dataclass
    class Unknown:
        a: Missing  # type: ignore[name-defined]  # noqa: F821 (missing on purpose)

    with pytest.raises(TypeError, match="Unknown refer to something that can't be found"):
        AvroSchema(Unknown)


def test_a_definition_that_is_none() -> None:
    info = AvroSchema(Reading).schema_info()
    lying = SchemaInfo(info.type, info.name, b'{"type": "record", "name": "R", "fields": "none"}')
    with pytest.raises(DecodeError):
        AvroSchema(Reading).make_decoder(lying)
