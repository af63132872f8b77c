"""Classes whose instances are values of AVRO and JSON schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

from magnetar.schema._record import Record
from magnetar.schema._schema import T

__all__ = ["Model", "make_model"]


class Model(Generic[T]):
    """How a class is a record: its Avro definition, and how decoded dicts become instances.

    For encoding, an instance's attributes are its fields, unless there is a `to_plain`.
    """

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


def make_model(value_class: type[T]) -> Model[T]:
    """Raises TypeError for a class that can't be a record."""
    if isinstance(value_class, type) and issubclass(value_class, Record):
        return Model(value_class, value_class.schema(), value_class.convert)
    raise TypeError(f"{value_class!r} is not a subclass of magnetar.schema.Record")
