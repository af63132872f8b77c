"""Types of Avro, and the conversion of Python's values to theirs, and back.

Values to encode are converted to the form that `_value_checks.py` checks and fastavro writes. Values that were read are
converted to the form that pydantic validates.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, Final

from fastavro.write import LOGICAL_WRITERS
from pydantic import TypeAdapter, ValidationError

from magnetar.schema._model_fields import MISSING
from magnetar.schema._value_checks import Misfit

__all__ = [
    "ArrayType",
    "EnumType",
    "EnumValueType",
    "LogicalType",
    "MapType",
    "Mapped",
    "NullType",
    "PrimitiveType",
    "RecordType",
    "ReferenceType",
    "TextType",
    "UnionType",
    "branch_name",
    "describe",
    "find_plain_classes",
    "record_of",
]


class Mapped:
    """A type hint, as a type of Avro."""

    # The class whose values need no conversion, if there is one.
    plain_class: type | None = None

    def __init__(self, definition: Any) -> None:
        self.definition = definition

    def accepts(self, value: Any) -> bool:
        """Whether a value may be of this branch of a union."""
        return False

    def may_be(self, plain: Any) -> bool:
        """Whether `from_plain` of this branch of a union is meant for the value."""
        return False

    def to_plain(self, value: Any) -> Any:
        """Return the value in the form that `_value_checks.py` checks. Raises Misfit."""
        return value

    def from_plain(self, plain: Any) -> Any:
        """Return the value in the form that pydantic validates."""
        return plain

    def to_default(self, value: Any) -> Any:
        """Return a default of the definition, as JSON. Raises Misfit."""
        raise NotImplementedError


class PrimitiveType(Mapped):
    plain_class: type

    def __init__(self, definition: str, value_class: type) -> None:
        super().__init__(definition)
        self.plain_class = value_class

    def accepts(self, value: Any) -> bool:
        if isinstance(value, bool):
            return self.plain_class is bool
        return isinstance(value, (float, int) if self.plain_class is float else self.plain_class)

    def to_default(self, value: Any) -> Any:
        if not self.accepts(value) or (isinstance(value, float) and not math.isfinite(value)):
            raise Misfit(f"{value!r:.100} is no default of type {self.definition}")
        return value.decode("latin-1") if isinstance(value, bytes) else value


class NullType(Mapped):
    plain_class = type(None)

    def __init__(self) -> None:
        super().__init__("null")

    def accepts(self, value: Any) -> bool:
        return value is None

    def to_default(self, value: Any) -> Any:
        if value is not None:
            raise Misfit(f"{value!r:.100} is not None")


_ZONES: Final[dict[type, str]] = {
    datetime: "a datetime has one, a NaiveDatetime none",
    time: "it would be lost, so use replace(tzinfo=None)",
}


class LogicalType(Mapped):
    """A value that fastavro converts."""

    def __init__(self, definition: Any, value_class: type, has_zone: bool | None = None) -> None:
        super().__init__(definition)
        self._class = value_class
        # Whether a datetime or time has a time zone; None: it is optional.
        self._has_zone = has_zone

    def accepts(self, value: Any) -> bool:
        return isinstance(value, self._class) and (self._class is not date or not isinstance(value, datetime))

    def to_plain(self, value: Any) -> Any:
        if not self.accepts(value):
            raise Misfit(f"{value!r:.100} (a {type(value).__name__}) is not a {self._class.__name__}")
        if self._has_zone is not None and (value.utcoffset() is not None) is not self._has_zone:
            raise Misfit(f"{value!r} has {'no' if self._has_zone else 'a'} time zone: {_ZONES[self._class]}")
        return value

    def to_default(self, value: Any) -> Any:
        raw = LOGICAL_WRITERS[f"{self.definition['type']}-{self.definition['logicalType']}"](
            self.to_plain(value), self.definition
        )
        return raw.decode("latin-1") if isinstance(raw, bytes) else raw


class TextType(LogicalType):
    """A value that is a string in JSON, in pydantic's format."""

    def __init__(self, hint: Any, value_class: type, has_zone: bool | None = None) -> None:
        super().__init__("string", value_class, has_zone)
        self._serializer = TypeAdapter(hint).serializer

    def to_plain(self, value: Any) -> Any:
        return self._serializer.to_python(super().to_plain(value), mode="json")

    def to_default(self, value: Any) -> Any:
        return self.to_plain(value)


class EnumType(Mapped):
    def __init__(self, definition: Any, cls: type[enum.Enum], name: str) -> None:
        super().__init__(definition)
        self.name = name
        self._cls = cls
        self._members: Mapping[str, enum.Enum] = cls.__members__
        self._default = self._members.get(definition.get("default"))

    def accepts(self, value: Any) -> bool:
        return isinstance(value, self._cls)

    def may_be(self, plain: Any) -> bool:
        return isinstance(plain, str) and plain in self._members

    def to_plain(self, value: Any) -> Any:
        if not isinstance(value, self._cls):
            raise Misfit(f"{value!r:.100} is no member of {self._cls.__name__}")
        return value.name

    def from_plain(self, plain: Any) -> Any:
        if isinstance(plain, str) and plain in self._members:
            return self._members[plain]
        # Pulsar's Python client writes values into JSON.
        member = self.find_member(plain)
        if member is None and self._default is not None and isinstance(plain, (str, int)):
            return self._default
        return plain if member is None else member  # pydantic refuses it

    def find_member(self, value: Any) -> enum.Enum | None:
        """Return the member with this value, if there is one."""
        try:
            return self._cls(value)
        except Exception:  # noqa: BLE001 (the class may have a `_missing_`)
            return None

    def to_default(self, value: Any) -> Any:
        return self.to_plain(value)


class EnumValueType(Mapped):
    """An enum in a pydantic model with `use_enum_values`: fields have the values of its members."""

    def __init__(self, definition: Any, enum_type: EnumType) -> None:
        super().__init__(definition)
        self.enum_type = enum_type
        self.name = enum_type.name
        self.may_be = enum_type.may_be  # type: ignore[method-assign]
        self.from_plain = enum_type.from_plain  # type: ignore[method-assign]

    def accepts(self, value: Any) -> bool:
        return self.enum_type.accepts(value) or self.enum_type.find_member(value) is not None

    def to_plain(self, value: Any) -> Any:
        member = value if self.enum_type.accepts(value) else self.enum_type.find_member(value)
        return self.enum_type.to_plain(value if member is None else member)

    def to_default(self, value: Any) -> Any:
        return self.to_plain(value)


class ArrayType(Mapped):
    def __init__(self, items: Mapped) -> None:
        super().__init__({"type": "array", "items": items.definition})
        self._items = items

    def accepts(self, value: Any) -> bool:
        return isinstance(value, (list, tuple, set, frozenset))

    def may_be(self, plain: Any) -> bool:
        return isinstance(plain, list)

    def to_plain(self, value: Any) -> Any:
        if not self.accepts(value):
            raise Misfit(f"{value!r:.100} (a {type(value).__name__}) is not a list")
        return _convert_each(self._items.to_plain, list(value))

    def from_plain(self, plain: Any) -> Any:
        return list(map(self._items.from_plain, plain)) if isinstance(plain, list) else plain

    def to_default(self, value: Any) -> Any:
        if not self.accepts(value):
            raise Misfit(f"{value!r:.100} is not a list")
        return _convert_each(self._items.to_default, list(value))


class MapType(Mapped):
    def __init__(self, values: Mapped) -> None:
        super().__init__({"type": "map", "values": values.definition})
        self._values = values

    def accepts(self, value: Any) -> bool:
        return isinstance(value, Mapping)

    def may_be(self, plain: Any) -> bool:
        return isinstance(plain, dict)

    def to_plain(self, value: Any) -> Any:
        return self._convert(value, self._values.to_plain)

    def from_plain(self, plain: Any) -> Any:
        from_plain = self._values.from_plain
        return {key: from_plain(item) for key, item in plain.items()} if isinstance(plain, dict) else plain

    def to_default(self, value: Any) -> Any:
        return self._convert(value, self._values.to_default)

    def _convert(self, value: Any, convert: Callable[[Any], Any]) -> Any:
        if not isinstance(value, Mapping):
            raise Misfit(f"{value!r:.100} (a {type(value).__name__}) is not a dict")
        converted = {}
        for key, item in value.items():
            try:
                converted[key] = convert(item)
            except Misfit as misfit:
                misfit.path.insert(0, f"[{key!r:.100}]")
                raise
        return converted


class UnionType(Mapped):
    def __init__(self, branches: Sequence[Mapped]) -> None:
        super().__init__([branch.definition for branch in branches])
        self._branches = branches
        self._is_optional = len(branches) == 2 and any(isinstance(branch, NullType) for branch in branches)

    @property
    def branches(self) -> Sequence[Mapped]:
        return self._branches

    def accepts(self, value: Any) -> bool:
        return any(branch.accepts(value) for branch in self._branches)

    def may_be(self, plain: Any) -> bool:
        return any(branch.may_be(plain) for branch in self._branches)

    def to_plain(self, value: Any) -> Any:
        branch = self._find(value)
        if branch is None:
            raise Misfit(f"{value!r:.100} (a {type(value).__name__}) is of no type of the union")
        plain = branch.to_plain(value)
        # A pair is chosen by its name. Without it, the value would be of the first branch that it fits.
        return plain if self._is_optional or plain is None else (branch_name(branch), plain)

    def from_plain(self, plain: Any) -> Any:
        index = _marked_branch(plain)
        if index is not None:
            return _instance_of(self._branches[index], plain[index])
        found = [branch for branch in self._branches if branch.may_be(plain)]
        if len(found) < 2:
            return found[0].from_plain(plain) if found else plain
        others = [_count_other_fields(branch, plain) for branch in found]  # they are records
        best = found[others.index(min(others))]
        return best.from_plain(plain) if others.count(min(others)) > 1 else _instance_of(best, plain)

    def to_default(self, value: Any) -> Any:
        branch = self._find(value)
        if branch is None:
            raise Misfit(f"{value!r:.100} is of no type of the union")
        return branch.to_default(value)

    def put_first(self, value: Any) -> None:
        """Put the branch of a default in front, as Avro requires."""
        first = self._find(value)
        self._branches = sorted(self._branches, key=lambda branch: branch is not first)
        self.definition = [branch.definition for branch in self._branches]

    def _find(self, value: Any) -> Mapped | None:
        found = [branch for branch in self._branches if branch.accepts(value)]
        exact = [branch for branch in found if branch.plain_class is type(value)]
        return next(iter(exact or found), None)


class RecordType(Mapped):
    """A dataclass or pydantic model, as a record."""

    def __init__(self, cls: type, name: str) -> None:
        # Completed when its fields are known: they may contain itself.
        super().__init__({"type": "record", "name": name})
        self.name = name
        self.cls = cls
        # Its name in the class, its name in payloads, and its type.
        self.fields: list[tuple[str, str, Mapped]] = []
        # Validates an instance again before it is sent; None: it can't have become invalid in a way that only pydantic
        # notices, or pydantic can't validate what it has made itself.
        self.validate: Callable[[Any], Any] | None = None
        self._make: Callable[..., Any] | None = None

    def accepts(self, value: Any) -> bool:
        return isinstance(value, self.cls)

    def may_be(self, plain: Any) -> bool:
        return isinstance(plain, dict)

    def to_plain(self, value: Any) -> Any:
        if not isinstance(value, self.cls):
            raise Misfit(f"{value!r:.100} (a {type(value).__name__}) is not a {self.cls.__name__}")
        given = {wire_name: getattr(value, name, MISSING) for name, wire_name, _ in self.fields}
        plain = {}
        for _, wire_name, mapped in self.fields:
            try:
                if given[wire_name] is MISSING:
                    raise Misfit("it is missing")
                plain[wire_name] = mapped.to_plain(given[wire_name])
            except Misfit as misfit:
                misfit.path.insert(0, f".{wire_name}")
                raise
        if self.validate is not None:
            try:
                self.validate(given)
            except ValidationError as error:
                raise Misfit(describe(error)) from error
        return plain

    def from_plain(self, plain: Any) -> Any:
        if not isinstance(plain, dict):
            return plain
        made = dict(plain)
        for _, wire_name, mapped in self.fields:
            if wire_name in plain:
                made[wire_name] = mapped.from_plain(plain[wire_name])
        return made

    def make(self, plain: Any) -> Any:
        """Return an instance of a value that was read. Raises ValidationError."""
        if self._make is None:
            self._make = TypeAdapter(self.cls).validator.validate_python
        return self._make(self.from_plain(plain), strict=False)

    def to_default(self, value: Any) -> Any:
        if not isinstance(value, self.cls):
            raise Misfit(f"{value!r:.100} is not a {self.cls.__name__}")
        return {wire_name: mapped.to_default(getattr(value, name)) for name, wire_name, mapped in self.fields}


class ReferenceType(Mapped):
    """A record or enum that is defined before this, or around it."""

    def __init__(self, named: RecordType | EnumType) -> None:
        super().__init__(named.name)
        self.named = named
        self.accepts = named.accepts  # type: ignore[method-assign]
        self.may_be = named.may_be  # type: ignore[method-assign]
        self.to_plain = named.to_plain  # type: ignore[method-assign]
        self.from_plain = named.from_plain  # type: ignore[method-assign]
        self.to_default = named.to_default  # type: ignore[method-assign]


def find_plain_classes(mapped: Mapped) -> frozenset[type]:
    """Return the classes of a field's values, if they need no conversion and no check of their parts; else nothing."""
    branches = mapped.branches if isinstance(mapped, UnionType) else [mapped]
    if not all(isinstance(branch, (PrimitiveType, NullType)) for branch in branches):
        return frozenset()
    if sum(isinstance(branch, PrimitiveType) for branch in branches) > 1:  # the branch has to be chosen
        return frozenset()
    return frozenset(branch.plain_class for branch in branches if branch.plain_class is not None)


def describe(error: ValidationError) -> str:
    """Return the problems of a value, in one line."""
    problems = error.errors(include_url=False, include_context=False)
    texts = (f"{'.'.join(map(str, one['loc'])) or 'the value'}: {_message(one)}" for one in problems[:5])
    return "; ".join(texts) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")


def _message(problem: Any) -> str:
    if problem["type"] == "enum":
        return (
            f"{problem['input']!r:.100} is no member of the enum; with a `_avro_default`, a consumer gets that member "
            "instead"
        )
    return str(problem["msg"])


def record_of(mapped: Mapped) -> RecordType | None:
    named = mapped.named if isinstance(mapped, ReferenceType) else mapped
    return named if isinstance(named, RecordType) else None


def branch_name(branch: Mapped) -> str:
    """Return the name by which a union's branch is chosen (`_value_checks.py`)."""
    named = branch.named if isinstance(branch, ReferenceType) else branch
    if isinstance(named, (RecordType, EnumType, EnumValueType)):
        return named.name
    return str(named.definition["type"] if isinstance(named.definition, dict) else named.definition)


def _marked_branch(plain: Any) -> int | None:
    """Return the index of a marked branch (`_avro_reading.py`). Keys of other dicts are strings."""
    if type(plain) is not dict or len(plain) != 1:
        return None
    (index,) = plain
    return index if type(index) is int else None


def _instance_of(branch: Mapped, plain: Any) -> Any:
    """pydantic would choose among records again."""
    record = record_of(branch)
    return branch.from_plain(plain) if record is None else record.make(plain)


def _count_other_fields(branch: Mapped, plain: Any) -> int:
    record = record_of(branch)
    if record is None or not isinstance(plain, dict):
        return 0
    return len({wire_name for _, wire_name, _ in record.fields}.symmetric_difference(plain))


def _convert_each(convert: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    converted: list[Any] = []
    for index, item in enumerate(items):
        try:
            converted.append(convert(item))
        except Misfit as misfit:
            misfit.path.insert(0, f"[{index}]")
            raise
    return converted
