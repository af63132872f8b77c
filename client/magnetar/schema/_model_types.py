"""Maps the type hints of a dataclass or pydantic model to the types of an Avro record.

    str int float bool bytes None    string, long, double, boolean, bytes, null; `Int32` and `Float32`: int, float
    list set tuple[X, ...] dict      array, map
    X | Y, Optional[X]               a union
    dataclasses, models              a record; where it is used again, its name
    Enum                             an enum of its members' names
    Literal                          the type of its values
    date, time, datetime, UUID       logical types; a datetime has a time zone, a NaiveDatetime has none
    Decimal                          a logical type, with the digits that its Field has

In JSON, dates, times, Decimals and UUIDs are strings in pydantic's format.

A default becomes Avro's default, so that readers with a new field can read values that were written without it.
"""

from __future__ import annotations

import enum
import re
import types
import typing
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Union
from uuid import UUID

from pydantic import (
    AwareDatetime,
    BeforeValidator,
    EncodedBytes,
    EncodedStr,
    FutureDate,
    FutureDatetime,
    Json,
    NaiveDatetime,
    PastDate,
    PastDatetime,
    PlainValidator,
    TypeAdapter,
    WrapValidator,
)
from pydantic.fields import FieldInfo
from typing_extensions import TypeAliasType

from magnetar.schema._avro_hints import AvroType
from magnetar.schema._mapped_types import (
    ArrayType,
    EnumType,
    EnumValueType,
    LogicalType,
    Mapped,
    MapType,
    NullType,
    PrimitiveType,
    RecordType,
    ReferenceType,
    TextType,
    UnionType,
    record_of,
)
from magnetar.schema._model_fields import MISSING, ModelField, is_model, list_fields, read_config, read_doc, read_name
from magnetar.schema._value_checks import Misfit

__all__ = ["Form", "map_model"]

Form = Literal["avro", "json"]


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRIMITIVES: Final = {str: "string", int: "long", float: "double", bool: "boolean", bytes: "bytes"}
_LOGICAL: Final = {
    date: {"type": "int", "logicalType": "date"},
    time: {"type": "long", "logicalType": "time-micros"},
    datetime: {"type": "long", "logicalType": "timestamp-micros"},
    AwareDatetime: {"type": "long", "logicalType": "timestamp-micros"},
    NaiveDatetime: {"type": "long", "logicalType": "local-timestamp-micros"},
    UUID: {"type": "string", "logicalType": "uuid"},
}
# The classes of values, if they are not the hints.
_VALUE_CLASSES: Final[dict[Any, type]] = {AwareDatetime: datetime, NaiveDatetime: datetime}
# Types of pydantic with a constraint on another type.
_CONSTRAINED: Final[dict[Any, type]] = {
    PastDate: date,
    FutureDate: date,
    PastDatetime: datetime,
    FutureDatetime: datetime,
}
# Types whose input pydantic decodes: an instance has the decoded value.
_ENCODINGS: Final = (Json, EncodedBytes, EncodedStr)
_NARROW: Final = {int: ("int",), float: ("float",)}
_ARRAYS: Final = (list, set, frozenset, tuple, Sequence, AbstractSet)
_INPUT_VALIDATORS: Final = (BeforeValidator, PlainValidator, WrapValidator)


def map_model(cls: type, form: Form) -> tuple[RecordType, bool]:
    """Return the record of a class, and whether decoded values have to be converted before pydantic gets them.

    Raises TypeError for what Avro can't have, with the field and its type.
    """
    mapper = _Mapper(form)
    record = mapper.map_record(cls)
    mapper.check_unions()
    return record, mapper.converts


class _Mapper:
    def __init__(self, form: Form) -> None:
        self._form = form
        # Records and enums, by name, and their classes.
        self._named: dict[str, tuple[type, RecordType | EnumType]] = {}
        self.converts = False
        # The branches of unions, with the path and the hint. They are compared when all records are mapped.
        self._unions: list[tuple[str, str, list[Mapped]]] = []
        # The namespace that names without one have here.
        self._namespace = ""
        # These describe the record that is being mapped: whether its fields have constraints, or validators that run
        # before pydantic's, and whether they have the values of enums instead of the members.
        self._has_constraints = False
        self._has_input_validators = False
        self._uses_enum_values = False

    def map_record(self, cls: type) -> RecordType:
        if not is_model(cls):
            raise TypeError(f"{cls!r} is not a dataclass, a pydantic model or a Record")
        name, namespace = read_name(cls)
        outer_namespace, self._namespace = self._namespace, namespace or self._namespace
        full_name = self._full_name(name)
        record = RecordType(cls, full_name)
        record.definition["name"] = name
        if namespace:
            record.definition["namespace"] = namespace
        self._add_name(cls, full_name, record)
        outer = self._has_constraints, self._has_input_validators, self._uses_enum_values
        self._has_constraints = self._has_input_validators = False
        self._uses_enum_values = bool(read_config(cls).get("use_enum_values"))
        definition = record.definition
        if doc := read_doc(cls):
            definition["doc"] = doc
        definition["fields"] = [self._map_field(record, field) for field in list_fields(cls)]
        if not record.fields:
            raise TypeError(f"{cls.__name__} has no fields")
        if self._needs_validation(cls):
            record.validate = TypeAdapter(cls).validator.validate_python
        self._has_constraints, self._has_input_validators, self._uses_enum_values = outer
        self._namespace = outer_namespace
        return record

    def _full_name(self, name: str, namespace: str = "") -> str:
        """A type without a namespace has that of the record around it, as in Avro."""
        namespace = namespace or self._namespace
        return f"{namespace}.{name}" if namespace else name

    def _map_field(self, record: RecordType, field: ModelField) -> dict[str, Any]:
        path = f"{record.cls.__name__}.{field.name}"
        mapped = self._map(field.hint, path)
        if field.default is not MISSING and isinstance(mapped, UnionType):
            mapped.put_first(field.default)
        entry: dict[str, Any] = {"name": field.wire_name, "type": mapped.definition}
        if field.default is not MISSING:
            try:
                entry["default"] = mapped.to_default(field.default)
            except Misfit as error:
                raise TypeError(f"the default of {path} is not of its type: {error}") from error
        if field.aliases:
            entry["aliases"] = list(field.aliases)
        if field.doc:
            entry["doc"] = field.doc
        record.fields.append((field.name, field.wire_name, mapped))
        return entry

    def _map(self, hint: Any, path: str, metadata: tuple[Any, ...] = ()) -> Mapped:
        if isinstance(hint, TypeAliasType):
            return self._map(hint.__value__, path, metadata)
        if isinstance(hint, typing.NewType):
            return self._map(hint.__supertype__, path, metadata)
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is Final:
            return self._map(arguments[0], path, metadata)
        if isinstance(hint, type) and hint in _CONSTRAINED:
            self._has_constraints = True
            return self._map(_CONSTRAINED[hint], path, metadata)
        if isinstance(hint, type) and (hint in _LOGICAL or hint in (Decimal, timedelta)):
            return self._map_logical(hint, path, metadata)
        if origin is Annotated:
            given = _flatten(hint.__metadata__)
            if any(isinstance(one, _ENCODINGS) for one in given):
                raise TypeError(
                    f"{path} is of a type whose values pydantic makes of encoded text, and would decode again when "
                    f"they are received: use {_show(arguments[0])}, and decode the text before"
                )
            self._note(given)
            return self._map(arguments[0], path, (*metadata, *given))
        if hint is None or hint is type(None):
            return NullType()
        if origin in (Union, types.UnionType):
            return self._map_union(arguments, path, metadata)
        if origin is Literal:
            self._has_constraints = True
            return self._map_union(tuple(dict.fromkeys(type(value) for value in arguments)), path)
        if origin in (list, set, frozenset, Sequence, AbstractSet) or (
            origin is tuple and len(arguments) == 2 and arguments[1] is ...
        ):
            return ArrayType(self._map(arguments[0], f"{path}[]"))
        if origin in (dict, Mapping):
            if self._strip(arguments[0]) is not str:
                raise _unmapped(path, hint, "keys of a dict are str")
            return MapType(self._map(arguments[1], f"{path}[]"))
        return self._map_class(hint, path, metadata)

    def _map_class(self, hint: Any, path: str, metadata: tuple[Any, ...]) -> Mapped:
        if not isinstance(hint, type):
            raise _unmapped(path, hint, "use a type that Avro has")
        if hint in _PRIMITIVES:
            wanted = [one.name for one in metadata if isinstance(one, AvroType) and one.name in _NARROW.get(hint, ())]
            return PrimitiveType(wanted[-1] if wanted else _PRIMITIVES[hint], hint)
        if issubclass(hint, enum.Enum):
            return self._map_enum(hint, path)
        if is_model(hint):
            known = next((mapped for cls, mapped in self._named.values() if cls is hint), None)
            return self.map_record(hint) if known is None else self._refer(known, path)
        if hint in _ARRAYS or hint in (dict, Mapping):
            raise _unmapped(path, hint, f"name the type of what is in it: {hint.__name__}[…]")
        raise _unmapped(
            path,
            hint,
            "use a str or another type that Avro has, and convert it in the application, or a dataclass or a model",
        )

    def _map_enum(self, cls: type[enum.Enum], path: str) -> Mapped:
        known = next((mapped for other, mapped in self._named.values() if other is cls), None)
        if isinstance(known, EnumType):
            return EnumValueType(known.name, known) if self._uses_enum_values else self._refer(known, path)
        if any(name.startswith("_avro_") for name in cls.__members__):
            raise TypeError(
                f"{path}: enums have members, so write `_avro_default = enum.nonmember(…)` in {cls.__name__}"
            )
        wrong = [name for name in cls.__members__ if not _NAME.fullmatch(name)]
        if wrong or not len(cls):
            raise _unmapped(path, cls, f"the names of its members have to be a-z, A-Z, 0-9 and _, and not {wrong}")
        self.converts = True
        name, namespace = read_name(cls)
        definition: dict[str, Any] = {"type": "enum", "name": name}
        if namespace:
            definition["namespace"] = namespace
        definition["symbols"] = [member.name for member in cls]
        default = cls.__dict__.get("_avro_default")
        if default is not None:
            definition["default"] = getattr(default, "name", default)
            if definition["default"] not in definition["symbols"]:
                raise TypeError(
                    f"{path}: `_avro_default` of {cls.__name__} is {default!r}, which is none of its members"
                )
        full_name = self._full_name(name, namespace)
        mapped = EnumType(definition, cls, full_name)
        self._add_name(cls, full_name, mapped)
        return EnumValueType(definition, mapped) if self._uses_enum_values else mapped

    def _refer(self, known: RecordType | EnumType, path: str) -> ReferenceType:
        if self._namespace and "." not in known.name:
            raise TypeError(
                f"{path}: inside of the namespace {self._namespace!r}, Avro can't refer to {known.name!r}, which has "
                "none: give it an `_avro_namespace`"
            )
        return ReferenceType(known)

    def _map_logical(self, hint: Any, path: str, metadata: tuple[Any, ...]) -> Mapped:
        value_class = _VALUE_CLASSES.get(hint, hint)
        has_zone = {datetime: hint is not NaiveDatetime, time: False}.get(value_class)
        if self._form == "json":
            has_zone = has_zone if value_class is datetime else None
            return TextType(hint, value_class, None if hint is datetime else has_zone)
        if hint is timedelta:
            raise _unmapped(path, hint, "use a number, whose unit is in the name of the field")
        if hint is not Decimal:
            return LogicalType(_LOGICAL[hint], value_class, has_zone)
        digits, scale = (_last(metadata, name) for name in ("max_digits", "decimal_places"))
        if digits is None or scale is None:
            raise _unmapped(
                path,
                hint,
                "use Annotated[Decimal, Field(max_digits=…, decimal_places=…)], inside the brackets of a list or dict",
            )
        definition = {"type": "bytes", "logicalType": "decimal", "precision": digits, "scale": scale}
        return LogicalType(definition, Decimal)

    def _map_union(self, hints: Sequence[Any], path: str, metadata: tuple[Any, ...] = ()) -> Mapped:
        """`metadata` belongs to the whole union. The parts that describe a type apply to its branch."""
        flat: list[Any] = []
        for hint in hints:
            inner = self._strip(hint)
            is_union = typing.get_origin(inner) in (Union, types.UnionType)
            flat += typing.get_args(inner) if is_union else [hint]
        if len(flat) == 1:
            return self._map(flat[0], path, metadata)
        branches = [self._map(hint, path, metadata) for hint in flat]
        kinds = [_kind(branch.definition) for branch in branches]
        shown = " | ".join(map(_show, hints))
        for kind in kinds:
            if kinds.count(kind) > 1:
                raise _unmapped(path, shown, f"a union can't have two types that are {kind}")
        self._unions.append((path, shown, branches))
        if sum(not isinstance(branch, NullType) for branch in branches) > 1:
            self.converts = True
        # Pulsar's clients put null first.
        return UnionType(sorted(branches, key=lambda branch: not isinstance(branch, NullType)))

    def check_unions(self) -> None:
        """Raises TypeError for unions of which a reader can't know the branch of a value."""
        for path, shown, branches in self._unions:
            records = [record for branch in branches if (record := record_of(branch)) is not None]
            shapes = [frozenset(name for _, name, _ in record.fields) for record in records]
            is_clear = self._form == "avro" or any(_has_literal(record.cls) for record in records)
            if len(set(shapes)) < len(shapes) and not is_clear:
                raise _unmapped(path, shown, "two records have the same fields: give each one of type Literal")
            if self._form == "json" and (problem := _find_json_problem(branches, has_records=bool(records))):
                raise TypeError(f"{path} is of type {shown}: {problem}. Use AvroSchema, or other types")

    def _strip(self, hint: Any) -> Any:
        """Return a hint without its `Annotated` and aliases."""
        while True:
            if isinstance(hint, TypeAliasType):
                hint = hint.__value__
            elif isinstance(hint, typing.NewType):
                hint = hint.__supertype__
            elif typing.get_origin(hint) is Annotated:
                self._note(_flatten(hint.__metadata__))
                hint = typing.get_args(hint)[0]
            else:
                return hint

    def _note(self, metadata: Sequence[Any]) -> None:
        for one in metadata:
            if isinstance(one, _INPUT_VALIDATORS):
                self._has_input_validators = True
            elif not isinstance(one, AvroType):
                self._has_constraints = True

    def _needs_validation(self, cls: type) -> bool:
        """Return whether an instance may break a rule that is more than its fields' types, and pydantic can check it.

        A validator that gets a field's input can't be called again with the field's value.
        """
        config = read_config(cls)
        modes = _validator_modes(cls)
        if self._has_input_validators or any(mode != "after" for mode in modes):
            return False
        parameters = getattr(cls, "__dataclass_params__", None)
        is_validated = hasattr(cls, "__pydantic_validator__")  # when it is created
        is_frozen = bool(config.get("frozen") or (parameters is not None and parameters.frozen))
        if is_validated and (is_frozen or config.get("validate_assignment")):
            return False
        return bool(self._has_constraints or modes or any(name.startswith("str_") for name in config))

    def _add_name(self, cls: type, name: str, mapped: RecordType | EnumType) -> None:
        if not all(map(_NAME.fullmatch, name.split("."))):
            raise TypeError(f"{cls!r} can't be a name in Avro, which has a-z, A-Z, 0-9 and _, and no digit in front")
        if name in self._named:
            raise TypeError(
                f"{cls!r} and {self._named[name][0]!r} have the same name, and Avro has no modules: rename one, or "
                'give it another name there, with `_avro_name: ClassVar[str] = "…"`'
            )
        self._named[name] = cls, mapped


def _find_json_problem(branches: Sequence[Mapped], *, has_records: bool) -> str:
    """Return what of a union is the same in JSON; empty: nothing."""
    if has_records and any(isinstance(branch, MapType) for branch in branches):
        return "a record and a dict are objects in JSON"
    texts = [branch for branch in branches if branch.definition in ("string", "bytes")]
    symbols = [set(symbols) for branch in branches if (symbols := _symbols_of(branch))]
    if len(texts) + bool(symbols) > 1:
        return "two of its types are strings in JSON"
    if sum(map(len, symbols)) > len(set().union(*symbols)):
        return "two enums have a member of the same name"
    return ""


def _symbols_of(branch: Mapped) -> Sequence[str]:
    named = branch.named if isinstance(branch, ReferenceType) else branch
    enum_type = named.enum_type if isinstance(named, EnumValueType) else named
    return enum_type.definition["symbols"] if isinstance(enum_type, EnumType) else ()


def _flatten(metadata: Sequence[Any]) -> tuple[Any, ...]:
    """Return the metadata of a hint, with those of a `Field` in it."""
    return tuple(one for given in metadata for one in (given.metadata if isinstance(given, FieldInfo) else (given,)))


def _last(metadata: Sequence[Any], name: str) -> Any:
    found = [value for one in metadata if (value := getattr(one, name, None)) is not None]
    return found[-1] if found else None


def _kind(definition: Any) -> str:
    """Return the name of a type, or the type if it has no name: a union may have each of them once."""
    if isinstance(definition, str):
        return definition
    return str(definition.get("name") or definition["type"])


def _validator_modes(cls: type) -> list[str]:
    decorators = getattr(cls, "__pydantic_decorators__", None)
    if decorators is None:
        return []
    groups = (decorators.field_validators, decorators.model_validators)
    return [one.info.mode for group in groups for one in group.values()]


def _has_literal(cls: type) -> bool:
    return any(typing.get_origin(field.hint) is Literal for field in list_fields(cls))


def _unmapped(path: str, hint: Any, text: str) -> TypeError:
    return TypeError(f"{path} is of type {_show(hint)}, which has no counterpart in Avro: {text}")


def _show(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
