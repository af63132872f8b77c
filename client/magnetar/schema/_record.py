"""Declarations of records, as in Pulsar's Python client: a class with a `Field` per field.

    class Reading(Record):
        sensor = String(required=True)
        celsius = Double()

The metaclass collects the fields of the class body; fields of a base class do not count. `Record.schema()` makes the
Avro schema: a field that is not required is a union with null. A declaration in Pulsar's client and the same one here
have the same schema, byte for byte.

Values are checked when an attribute is set. Ranges, and what a list or dict holds later, are checked by the schema that
encodes the record.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, EnumMeta
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Self, cast, overload

from typing_extensions import TypeVar

__all__ = [
    "Array",
    "Boolean",
    "Bytes",
    "CustomEnum",
    "Double",
    "Field",
    "Float",
    "Integer",
    "Long",
    "Map",
    "Null",
    "Record",
    "String",
]

V = TypeVar("V", default=Any)
E = TypeVar("E", bound=Enum, default=Enum)


class Field(Generic[V]):
    """A field of a record: its type, its default, and whether None is a value.

    `required`: the value can't be None. `required_default`: the default is part of the schema.
    """

    _default: V | None
    _required: bool

    def __init__(self, default: Any = None, required: bool = False, required_default: bool = False) -> None:
        self._required_default = required_default
        self._required = False  # during the check of the default
        self._default = None if default is None else self.validate_type("default", default)
        self._required = required

    if TYPE_CHECKING:  # at run time, values are in the instance's dict

        @overload
        def __get__(self, record: None, owner: type[Any]) -> Self: ...
        @overload
        def __get__(self, record: Record, owner: type[Any]) -> V | Any: ...  # also None
        def __get__(self, record: Any, owner: Any) -> Any: ...
        def __set__(self, record: Record, value: Any) -> None: ...

    def type(self) -> str:
        raise NotImplementedError

    def python_type(self) -> Any:
        """Return the class of values, or a tuple of classes."""
        raise NotImplementedError

    def validate_type(self, name: str, val: Any) -> V | None:
        """Return the value to store. Raises TypeError for a value of another type."""
        if val is None and not self._required:
            return self.default()
        if not isinstance(val, self.python_type()):
            _refuse(val, f"field '{name}'", self.python_type())
        return cast("V", val)

    def schema(self) -> Any:
        """Return the Avro schema of the values."""
        return self.schema_info(set())

    def schema_info(self, defined_names: set[str]) -> Any:
        """Return the Avro schema; types whose names are in `defined_names` by their names."""
        return self.type()

    def default(self) -> V | None:
        return self._default

    def required_default(self) -> bool:
        return self._required_default

    def convert(self, value: Any) -> Any:
        """Return a decoded value as the record has it: dicts as records, symbols as members of the enumeration."""
        return value

    def _default_copy(self) -> V | None:
        return self.default()


class Null(Field[None]):
    """A field that is always None."""

    def type(self) -> str:
        return "null"

    def python_type(self) -> Any:
        return type(None)

    def validate_type(self, name: str, val: Any) -> None:
        if val is not None:
            raise TypeError(f"Field {name} is set to be None")


class Boolean(Field[bool]):
    """A bool; without a default False."""

    def type(self) -> str:
        return "boolean"

    def python_type(self) -> Any:
        return bool

    def default(self) -> bool:
        return bool(self._default)


class Integer(Field[int]):
    """An int of 32 bits."""

    def type(self) -> str:
        return "int"

    def python_type(self) -> Any:
        return int


class Long(Field[int]):
    """An int of 64 bits."""

    def type(self) -> str:
        return "long"

    def python_type(self) -> Any:
        return int


class Float(Field[float]):
    """A float that is stored with 32 bits, which rounds it."""

    def type(self) -> str:
        return "float"

    def python_type(self) -> Any:
        return float, int


class Double(Field[float]):
    """A float."""

    def type(self) -> str:
        return "double"

    def python_type(self) -> Any:
        return float, int


class Bytes(Field[bytes]):
    """Bytes; a str is stored as UTF-8."""

    def type(self) -> str:
        return "bytes"

    def python_type(self) -> Any:
        return bytes, str

    def validate_type(self, name: str, val: Any) -> Any:
        # Values of other types are refused only when they are encoded, as in Pulsar's client.
        return val.encode() if isinstance(val, str) else val

    def convert(self, value: Any) -> Any:
        return value.encode() if isinstance(value, str) else value


class String(Field[str]):
    """A str; bytes are decoded as UTF-8."""

    def type(self) -> str:
        return "string"

    def python_type(self) -> Any:
        return str, bytes

    def validate_type(self, name: str, val: Any) -> str | None:
        if val is None and not self._required:
            return self.default()
        if isinstance(val, bytes):
            return val.decode()
        if not isinstance(val, str):
            _refuse(val, f"field {name!r}", str)
        return val


class CustomEnum(Field[E]):
    """A member of an enumeration; its name, or its value if that is an int, is accepted, too."""

    def __init__(
        self, enum_type: type[E], default: Any = None, required: bool = False, required_default: bool = False
    ) -> None:
        if not (isinstance(enum_type, type) and issubclass(enum_type, Enum)):
            raise TypeError(f"{_name(enum_type)} is not a valid Enum type")
        self.enum_type = enum_type
        self.values = {member.value: member for member in enum_type if _is_hashable(member.value)}
        super().__init__(default, required, required_default)

    def type(self) -> str:
        return "enum"

    def python_type(self) -> Any:
        return self.enum_type

    def validate_type(self, name: str, val: Any) -> E | None:
        if val is None or isinstance(val, self.enum_type):
            return val
        if type(val) is str:
            choices: Mapping[Any, E] = self.enum_type.__members__
        elif type(val) is int:
            choices = self.values
        else:
            _refuse(val, f"field '{name}'", self.enum_type)
        if val not in choices:
            raise TypeError(f"field {name!r} is one of {list(choices)}, not {val!r:.100}")
        return choices[val]

    def schema_info(self, defined_names: set[str]) -> Any:
        name = self.enum_type.__name__
        if name in defined_names:
            return name
        defined_names.add(name)
        return {"type": "enum", "name": name, "symbols": [member.name for member in self.enum_type]}

    def convert(self, value: Any) -> Any:
        """Pulsar's Python client writes values of members into JSON, other libraries their names. Raises ValueError."""
        if value is None:
            return None
        if isinstance(value, str) and value in self.enum_type.__members__:
            return self.enum_type[value]
        return self.enum_type(value)


class Array(Field["list[V]"]):
    """A list of values of one type."""

    def __init__(
        self,
        array_type: Field[V] | Record | type[Record],
        default: Any = None,
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        self.array_type = _element(array_type)
        super().__init__(default, required, required_default)

    def type(self) -> str:
        return "array"

    def python_type(self) -> Any:
        return list

    def validate_type(self, name: str, val: Any) -> list[V] | None:
        if val is None:
            return None
        super().validate_type(name, val)
        expected = self.array_type.python_type()
        if not all(isinstance(item, expected) for item in val):
            raise TypeError(f"the items of field {name!r} are of type {self.array_type.type()}, and one is not")
        return cast("list[V]", val)

    def schema_info(self, defined_names: set[str]) -> Any:
        return {"type": "array", "items": self.array_type.schema_info(defined_names)}

    def convert(self, value: Any) -> Any:
        convert = self.array_type.convert
        return [convert(item) for item in value] if isinstance(value, list) else value

    def _default_copy(self) -> list[V] | None:
        return copy.deepcopy(self._default)


class Map(Field["dict[str, V]"]):
    """A dict with keys of type str, and values of one type."""

    def __init__(
        self,
        value_type: Field[V] | Record | type[Record],
        default: Any = None,
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        self.value_type = _element(value_type)
        super().__init__(default, required, required_default)

    def type(self) -> str:
        return "map"

    def python_type(self) -> Any:
        return dict

    def validate_type(self, name: str, val: Any) -> dict[str, V] | None:
        if val is None:
            return None
        super().validate_type(name, val)
        expected = self.value_type.python_type()
        for key, value in val.items():
            if not isinstance(key, str):
                raise TypeError(f"the keys of field {name!r} are str, and one is not")
            if not isinstance(value, expected):
                raise TypeError(f"the values of field {name!r} are of type {_name(expected)}, and one is not")
        return cast("dict[str, V]", val)

    def schema_info(self, defined_names: set[str]) -> Any:
        return {"type": "map", "values": self.value_type.schema_info(defined_names)}

    def convert(self, value: Any) -> Any:
        convert = self.value_type.convert
        return {key: convert(item) for key, item in value.items()} if isinstance(value, dict) else value

    def _default_copy(self) -> dict[str, V] | None:
        return copy.deepcopy(self._default)


class RecordMeta(type):
    def __new__(mcs, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> RecordMeta:
        if bases:
            body["_fields"] = dict(_fields_of(body))
        return super().__new__(mcs, name, bases, body)


class Record(metaclass=RecordMeta):
    """The base of a record's declaration. Fields are attributes of the class; a record inside of another one is
    declared by its class, or by an instance with options:

        class Station(Record):
            address = Address(required=True)
    """

    # The namespace of the record in the Avro schema.
    _avro_namespace: ClassVar[str | None] = None
    # Whether the fields are sorted by name in the schema.
    _sorted_fields: ClassVar[bool] = False
    _fields: ClassVar[dict[str, Field[Any] | Record]] = {}
    _known_conversions: ClassVar[list[tuple[str, Callable[[Any], Any] | None, Any]]]

    # Set if the instance declares a field.
    _default: Any = None
    _required_default: bool = False
    _required: bool = False

    def __init__(
        self, default: Any = None, required_default: bool = False, required: bool = False, *args: Any, **kwargs: Any
    ) -> None:
        state = self.__dict__
        if default is not None:
            state["_default"] = default
        if required_default:
            state["_required_default"] = required_default
        if required:
            state["_required"] = required
        for name, field in self._fields.items():
            if name in kwargs:
                setattr(self, name, _from_plain(field, kwargs[name]))
            else:
                state[name] = field._default_copy()

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the record's Avro schema."""
        return cast("dict[str, Any]", cls.schema_info(set()))

    @classmethod
    def schema_info(cls, defined_names: set[str]) -> Any:
        """Return the Avro schema; types whose names are in `defined_names` by their names."""
        namespace = cls._avro_namespace
        full_name = cls.__name__ if namespace is None else f"{namespace}.{cls.__name__}"
        if full_name in defined_names:
            return full_name
        defined_names.add(full_name)
        schema: dict[str, Any] = {"type": "record", "name": cls.__name__}
        if namespace is not None:
            schema["namespace"] = namespace
        names = sorted(cls._fields) if cls._sorted_fields else cls._fields
        schema["fields"] = [_field_schema(name, cls._fields[name], defined_names) for name in names]
        return schema

    @classmethod
    def convert(cls, value: Any) -> Any:
        """Return the record of a decoded dict that has no other keys than fields. Those that it lacks get their
        defaults."""
        if not isinstance(value, dict):
            return value
        record = cls.__new__(cls)
        state = record.__dict__
        state.update(value)
        for name, convert, none in cls._conversions():
            if name in value:
                item = value[name]
                state[name] = none if item is None else item if convert is None else convert(item)
        if len(value) < len(cls._fields):
            for name, field in cls._fields.items():
                if name not in value:
                    state[name] = field._default_copy()
        return record

    @classmethod
    def _conversions(cls) -> list[tuple[str, Callable[[Any], Any] | None, Any]]:
        """Return fields whose decoded values may have to be converted: the conversion, and what stands for None."""
        conversions = cls.__dict__.get("_known_conversions")
        if conversions is None:
            conversions = []
            for name, field in cls._fields.items():
                convert = None if getattr(type(field), "convert", None) is Field.convert else field.convert
                none = None if isinstance(field, (Array, Bytes, CustomEnum, Map)) else field.default()
                if convert is not None or none is not None:
                    conversions.append((name, convert, none))
            cls._known_conversions = conversions
        return conversions

    def __setattr__(self, key: str, value: Any) -> None:
        if key not in ("_default", "_required_default", "_required"):
            if key not in self._fields:
                raise AttributeError(f"{type(self).__name__} declares no field {key!r}")
            value = self._fields[key].validate_type(key, value)
        super().__setattr__(key, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name, _ABSENT) for name in self._fields)

    __hash__ = None  # type: ignore[assignment]  # records can be changed

    def __str__(self) -> str:
        return str({name: getattr(self, name) for name in self._fields})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"

    def type(self) -> str:
        return type(self).__name__

    def python_type(self) -> Any:
        return type(self)

    def validate_type(self, name: str, val: Any) -> Any:
        if val is None and not self._required:
            return self.default()
        if not isinstance(val, type(self)):
            _refuse(val, f"sub-record field '{name}'", type(self))
        return val

    def default(self) -> Any:
        return self._default

    def required_default(self) -> bool:
        return self._required_default

    def _default_copy(self) -> Self:
        """Return the record that a new one has in this field: one with the defaults of all fields."""
        return copy.deepcopy(self)


_ABSENT: Any = object()


def _fields_of(body: Mapping[str, Any]) -> Iterator[tuple[str, Field[Any] | Record]]:
    for name, value in body.items():
        if isinstance(value, EnumMeta):
            yield name, CustomEnum(value)
        elif isinstance(value, RecordMeta):
            yield name, cast("type[Record]", value)()
        elif isinstance(value, (Field, Record)):
            yield name, value


def _field_schema(name: str, field: Field[Any] | Record, defined_names: set[str]) -> dict[str, Any]:
    schema = field.schema_info(defined_names)
    # A union of null and null, as in Pulsar's client, is none that a broker accepts.
    field_type = schema if field._required or schema == "null" else ["null", schema]
    if not field.required_default():
        return {"name": name, "type": field_type}
    default = field.default()
    return {"name": name, "default": default.name if isinstance(default, Enum) else default, "type": field_type}


def _element(declared: Any) -> Any:
    """Return the declaration of an array's items, or of a map's values."""
    if isinstance(declared, RecordMeta):
        return cast("type[Record]", declared)()
    if not isinstance(declared, (Field, Record)):
        raise TypeError(f"items and values are declared by a Record or a Field, not by {_name(declared)}")
    return declared


def _from_plain(field: Field[Any] | Record, value: Any) -> Any:
    """Return an argument of a record's constructor with dicts converted to records."""
    if isinstance(field, Record):
        return type(field)(**value) if isinstance(value, dict) else value
    if isinstance(field, Array) and isinstance(value, list):
        return _replace(value, [_from_plain(field.array_type, item) for item in value])
    if isinstance(field, Map) and isinstance(value, dict):
        return _replace(value, {key: _from_plain(field.value_type, item) for key, item in value.items()})
    return value


def _replace(value: Any, converted: Any) -> Any:
    """Keep the caller's list or dict if nothing in it was converted: it may go on to change it."""
    items: Callable[[Any], Any] = dict.values if isinstance(value, dict) else iter
    return value if all(a is b for a, b in zip(items(value), items(converted), strict=True)) else converted


def _refuse(value: Any, what: str, expected: Any) -> NoReturn:
    raise TypeError(f"{what} is of type {_name(expected)}, not {type(value).__name__}: {value!r:.100}")


def _name(thing: Any) -> str:
    return getattr(thing, "__name__", None) or str(thing)


def _is_hashable(value: Any) -> bool:
    return getattr(value, "__hash__", None) is not None and not isinstance(value, (tuple, list, dict))
