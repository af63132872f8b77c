"""Dataclasses and pydantic models as values. pydantic validates values when they are sent and when they are received.

**Sending.** A pydantic model is validated when it is created, and may be changed afterwards; nothing validates a
dataclass. So a value is checked before it is encoded. A dict of the definition's fields is written. There are two ways
to get it, and the class decides between them when its schema is created:

- A class is flat (`_is_flat`) if its fields are strings, numbers, bools and bytes, under their own names. The dict is
  the object's own `__dict__`, as soon as an object whose fields had the same classes has passed the check. Only rules
  that depend on the value are checked again (`_FlatRecord`). Most models are flat.
- Objects of all other classes are converted (`RecordType.to_plain`) and checked (`_value_checks.py`) each time, and so
  are those of a flat class that are not known to be valid.

Both dicts are equal. pydantic's serializers, computed fields and additional fields are in neither.

**Receiving.** fastavro reads AVRO payloads. JSON is parsed one payload at a time (joined in one document, a broken
payload could change the others' values) and checked by the definition. So types are right, and pydantic makes all
instances of an entry in one call, in its lax mode for strict classes, too: Avro and JSON have no sets, tuples or UUIDs.
Members of enums are made of their names before (`RecordType.from_plain`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, Final, Literal, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from magnetar.exceptions import DecodeError
from magnetar.schema._mapped_types import RecordType, describe, find_plain_classes
from magnetar.schema._model_fields import read_config
from magnetar.schema._model_types import Form, map_model
from magnetar.schema._models import Model
from magnetar.schema._schema import T

__all__ = ["DataModel"]

_MOST_SHAPES: Final = 64
_MAX_LONG: Final = 2**63


class DataModel(Model[T]):
    """A `Model` of a dataclass or a pydantic model."""

    def __init__(self, value_class: type[T], form: Form) -> None:
        """Raises TypeError for a class that Avro can't have."""
        record, converts = map_model(value_class, form)
        self._validate = TypeAdapter(value_class).validator.validate_python
        self._validate_all = TypeAdapter(list[value_class]).validator.validate_python  # type: ignore[valid-type]
        self._convert: Callable[[Any], Any] | None = record.from_plain if converts else None
        super().__init__(value_class, record.definition, self._make, record.to_plain)
        self.marks_branches = converts and form == "avro"
        self.inf_nan_mode = _inf_nan_mode(value_class) if form == "json" else "constants"
        self._flat = _FlatRecord(record, form, self.inf_nan_mode) if _is_flat(record, form) else None

    def find_fields(self, value: T) -> dict[str, Any] | None:
        return None if self._flat is None else self._flat.find_fields(value)

    def note_valid(self, value: T) -> None:
        if self._flat is not None:
            self._flat.note_valid(value)

    def make_all(self, plains: list[Any]) -> list[T | DecodeError]:
        converted = plains
        try:
            if self._convert is not None:
                converted = list(map(self._convert, plains))
            return cast("list[T | DecodeError]", self._validate_all(converted, strict=False))
        except ValidationError:
            return [self._make_or_fail(plain) for plain in plains]

    def _make(self, plain: Any) -> T:
        value = self._make_or_fail(plain)
        if isinstance(value, DecodeError):
            raise value
        return value

    def _make_or_fail(self, plain: Any) -> T | DecodeError:
        try:
            converted = plain if self._convert is None else self._convert(plain)
            return cast(T, self._validate(converted, strict=False))
        except ValidationError as error:
            return DecodeError(f"the payload is no valid {self.value_class.__name__}: {describe(error)}")


class _FlatRecord:
    """A record whose fields are strings, numbers, bools and bytes, or None."""

    def __init__(self, record: RecordType, form: Form, inf_nan_mode: str | None) -> None:
        self._class = record.cls
        self._validate = record.validate
        self._classes = [find_plain_classes(mapped) for _, _, mapped in record.fields]
        self._names = tuple(name for name, _, _ in record.fields)
        # Fields whose values are checked each time for JSON. fastavro writes any float, and checks ints itself.
        self._int_names = self._find(record, int) if form == "json" else []
        self._float_names = self._find(record, float) if form == "json" and inf_nan_mode is None else []
        # The classes of the fields of objects that have passed the check.
        self._valid: set[tuple[type, ...]] = set()

    def _find(self, record: RecordType, cls: type) -> list[str]:
        return [name for name, _, mapped in record.fields if cls in find_plain_classes(mapped)]

    def find_fields(self, value: Any) -> dict[str, Any] | None:
        """Return the fields of a valid object. None: it is not known to be valid."""
        if value.__class__ is not self._class:
            return None
        fields: dict[str, Any] = value.__dict__
        if tuple(map(type, fields.values())) not in self._valid or tuple(fields) != self._names:
            return None
        for name in self._int_names:
            number = fields[name]
            if number is not None and not -_MAX_LONG <= number < _MAX_LONG:
                return None
        for name in self._float_names:
            number = fields[name]
            if number is not None and not isfinite(number):
                return None
        if self._validate is not None:
            try:
                self._validate(fields)
            except ValidationError:
                return None
        return fields

    def note_valid(self, value: Any) -> None:
        """An object has passed the check."""
        fields = value.__dict__
        shape = tuple(map(type, fields.values()))
        is_flat = tuple(fields) == self._names and all(map(frozenset.__contains__, self._classes, shape))
        if is_flat and value.__class__ is self._class and len(self._valid) < _MOST_SHAPES:
            self._valid.add(shape)


def _is_flat(record: RecordType, form: Form) -> bool:
    has_dict = issubclass(record.cls, BaseModel) or not hasattr(record.cls, "__slots__")
    has_names = all(name == wire_name for name, wire_name, _ in record.fields)
    # In JSON, bytes become strings.
    has_bytes = form == "json" and _has_type(record.definition, ("bytes",))
    is_plain = all(find_plain_classes(mapped) for _, _, mapped in record.fields)
    # An int of 32 bits depends on its value.
    narrow = any(_has_type(mapped.definition, ("int", "float")) for _, _, mapped in record.fields)
    return has_dict and has_names and is_plain and not narrow and not has_bytes


def _inf_nan_mode(cls: type) -> Literal["constants", "strings"] | None:
    """Return the form of non-finite floats in JSON that the author of the class has chosen."""
    mode = read_config(cls).get("ser_json_inf_nan")
    return mode if mode in ("constants", "strings") else None


def _has_type(node: Any, types: Sequence[str]) -> bool:
    """Return whether a part of the definition is of one of these types."""
    if isinstance(node, list):
        return any(_has_type(one, types) for one in node)
    if not isinstance(node, dict):
        return node in types
    parts = [node.get(name) for name in ("type", "items", "values")] + [one["type"] for one in node.get("fields", ())]
    return any(_has_type(part, types) for part in parts if part is not None)
