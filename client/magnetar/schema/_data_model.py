"""Dataclasses and pydantic models as values. pydantic validates what was read, and again what is sent.

**Sending.** A pydantic model is validated when it is created, and may be changed afterwards; a dataclass is validated
by nobody. So a value is checked before it is encoded. Most models are flat: their fields are texts, numbers, bools and
bytes. Then the classes of the values decide: if objects with the same classes have passed the check before, only what
depends on the value itself is left, and the object's own dict is what fastavro writes, and pydantic the JSON.

**Receiving.** fastavro reads the payloads of an entry, and pydantic makes all instances in one call. JSON is read by
pydantic alone, one payload at a time: joined in one document, a broken payload could change the others' values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, Final, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from magnetar.exceptions import DecodeError
from magnetar.schema._mapped_types import RecordType, describe, find_plain_classes
from magnetar.schema._model_fields import changes_output, list_fields
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
        record, converts, forbids = map_model(value_class, form)
        adapter: TypeAdapter[T] = TypeAdapter(value_class)
        self._validate_json = adapter.validator.validate_json
        self._dump_json = adapter.serializer.to_json
        self._validate = adapter.validator.validate_python
        self._validate_all = TypeAdapter(list[value_class]).validator.validate_python  # type: ignore[valid-type]
        self._convert: Callable[[Any], Any] | None = record.from_plain if converts else None
        super().__init__(value_class, record.definition, self._make, record.to_plain)
        self._flat = _FlatRecord(record, form) if _is_flat(record, form) else None
        # JSON is what pydantic writes and reads.
        is_plain = form == "json" and not converts and not _has_bytes(record.definition)
        self._reads_json = is_plain and not forbids
        self._writes_json = is_plain and not changes_output(value_class, list_fields(value_class))

    def find_fields(self, value: T) -> dict[str, Any] | None:
        return None if self._flat is None else self._flat.find_fields(value)

    def note_valid(self, value: T) -> None:
        if self._flat is not None:
            self._flat.note_valid(value)

    def write_json(self, value: T) -> bytes | None:
        if not self._writes_json or self._flat is None or self._flat.find_fields(value) is None:
            return None
        return self._dump_json(value, by_alias=True)

    def make_all(self, plains: list[Any]) -> list[T | DecodeError]:
        converted = plains if self._convert is None else list(map(self._convert, plains))
        try:
            return cast("list[T | DecodeError]", self._validate_all(converted))
        except ValidationError:
            return [self._make_or_fail(plain) for plain in converted]

    @property
    def read_json(self) -> Callable[[bytes], T] | None:
        return self._read_json if self._reads_json else None

    def _read_json(self, payload: bytes) -> T:
        try:
            return cast(T, self._validate_json(payload))
        except ValidationError as error:
            raise self._fail(error) from None

    def _make(self, plain: Any) -> T:
        value = self._make_or_fail(plain if self._convert is None else self._convert(plain))
        if isinstance(value, DecodeError):
            raise value
        return value

    def _make_or_fail(self, plain: Any) -> T | DecodeError:
        try:
            return cast(T, self._validate(plain))
        except ValidationError as error:
            return self._fail(error)

    def _fail(self, error: ValidationError) -> DecodeError:
        return DecodeError(f"the payload is no valid {self.value_class.__name__}: {describe(error)}")


class _FlatRecord:
    """A record whose fields are texts, numbers, bools and bytes, or None."""

    def __init__(self, record: RecordType, form: Form) -> None:
        self._class = record.cls
        self._validate = record.validate
        self._classes = [find_plain_classes(mapped) for _, _, mapped in record.fields]
        self._names = [name for name, _, _ in record.fields]
        # Of JSON. fastavro writes any float, and refuses an int of more than 64 bits.
        self._int_names = self._find(record, int) if form == "json" else []
        self._float_names = self._find(record, float) if form == "json" else []
        # The classes of the fields of objects that have passed the check.
        self._valid: set[tuple[type, ...]] = set()

    def _find(self, record: RecordType, cls: type) -> list[str]:
        return [name for name, _, mapped in record.fields if cls in find_plain_classes(mapped)]

    def find_fields(self, value: Any) -> dict[str, Any] | None:
        """Return the fields of a valid object. None: it is not known to be valid."""
        if value.__class__ is not self._class:
            return None
        fields: dict[str, Any] = value.__dict__
        if tuple(map(type, fields.values())) not in self._valid:
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
        is_flat = list(fields) == self._names and all(map(frozenset.__contains__, self._classes, shape))
        if is_flat and value.__class__ is self._class and len(self._valid) < _MOST_SHAPES:
            self._valid.add(shape)


def _is_flat(record: RecordType, form: Form) -> bool:
    has_dict = issubclass(record.cls, BaseModel) or not hasattr(record.cls, "__slots__")
    # fastavro gets the dict, whose keys are the names in the class.
    has_names = form == "json" or all(name == wire_name for name, wire_name, _ in record.fields)
    is_plain = all(find_plain_classes(mapped) for _, _, mapped in record.fields)
    # An int of 32 bits depends on its value.
    narrow = any(_has_type(mapped.definition, ("int", "float")) for _, _, mapped in record.fields)
    return has_dict and has_names and is_plain and not narrow


def _has_bytes(definition: Any) -> bool:
    return _has_type(definition, ("bytes",))


def _has_type(node: Any, types: Sequence[str]) -> bool:
    """Return whether a part of the definition is of one of these types."""
    if isinstance(node, list):
        return any(_has_type(one, types) for one in node)
    if not isinstance(node, dict):
        return node in types
    parts = [node.get(name) for name in ("type", "items", "values")] + [one["type"] for one in node.get("fields", ())]
    return any(_has_type(part, types) for part in parts if part is not None)
