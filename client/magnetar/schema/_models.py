"""Classes whose instances are values of AVRO and JSON schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal

from magnetar.exceptions import DecodeError
from magnetar.schema._record import Record
from magnetar.schema._schema import T

__all__ = ["Model", "make_model"]


class Model(Generic[T]):
    """How a class is a record: its Avro definition, and how decoded dicts become instances.

    For encoding, an instance's attributes are its fields, unless there is a `to_plain`. Dataclasses and pydantic models
    have a `DataModel`, records one of this class.
    """

    # How JSON has the floats that are not finite. None: they are refused.
    inf_nan_mode: Literal["constants", "strings"] | None = "constants"
    # Whether `from_plain` wants values of AVRO marked with the branch of their union (`_avro_reading.py`).
    marks_branches: bool = False

    def __init__(
        self,
        value_class: type[T],
        definition: Any,
        from_plain: Callable[[Any], T],
        to_plain: Callable[[T], Any] | None = None,
    ) -> None:
        self.value_class = value_class
        # JSON, as Python objects. Equal for equal classes, also in the order of keys.
        self.definition = definition
        # Gets a dict. After an Avro payload it has all fields; after a JSON payload fields may be absent.
        self.from_plain = from_plain
        self.to_plain = to_plain

    def find_fields(self, value: T) -> dict[str, Any] | None:
        """Return the fields of a value that needs no check. None: it needs one."""
        return None

    def note_valid(self, value: T) -> None:
        """Notice that a value has passed the check: `find_fields` may find others of its kind."""

    def make_all(self, plains: list[Any]) -> list[T | DecodeError]:
        """Make the values of an entry. Each that is not valid becomes its error."""
        return [make_or_fail(self.from_plain, plain) for plain in plains]


def make_or_fail(make: Callable[[Any], T], plain: Any) -> T | DecodeError:
    try:
        return make(plain)
    except DecodeError as error:
        return error
    except Exception as error:  # noqa: BLE001 (the payload caused it)
        failed = DecodeError(f"a payload is no valid value: {type(error).__name__}: {error!s:.500}")
        failed.__cause__ = error
        return failed


def make_model(value_class: type[T], form: Literal["avro", "json"]) -> Model[T]:
    """Raises TypeError for a class that can't be a record."""
    if isinstance(value_class, type) and issubclass(value_class, Record):
        return Model(value_class, value_class.schema(), value_class.convert)
    if not isinstance(value_class, type):
        raise TypeError(f"{value_class!r} is not a class: use a dataclass, a pydantic model or a Record")
    from magnetar.schema._data_model import DataModel  # pydantic is imported only for these

    return DataModel(value_class, form)
