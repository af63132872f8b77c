"""The base of AVRO and JSON schemas: both have an Avro definition, which comes from a class or a dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from magnetar.exceptions import DecodeError, EncodeError, InvalidArgument
from magnetar.schema._avro_definition import dump_definition, parse_definition
from magnetar.schema._models import Model, make_model
from magnetar.schema._schema import Schema, SchemaInfo, SchemaType, T, check_class
from magnetar.schema._value_checks import MAX_ENCODED_DEPTH, Misfit, check_depth, make_value_check

__all__ = ["RecordSchema"]


def _find_nothing(value: Any) -> dict[str, Any] | None:
    return None


class RecordSchema(Schema[T]):
    """A schema with an Avro definition.

    A payload is written from a dict of the definition's fields. `_find_fields` returns it if the class of the value is
    flat and the value is known to be valid (`_data_model.py`). Otherwise it returns None, and `_checked` returns a
    checked copy, or raises an error that names the field.
    """

    schema_type: ClassVar[SchemaType]
    form: ClassVar[Literal["avro", "json"]]

    def __init__(self, record_cls: Any, schema_definition: Any = None) -> None:
        if record_cls is None and schema_definition is None:
            raise AssertionError("record_cls and schema_definition are both None: one of them is needed")
        self._model: Model[T] | None = None if record_cls is None else make_model(record_cls, self.form)
        self._arguments = (record_cls, schema_definition)
        definition = schema_definition if self._model is None else self._model.definition
        try:
            encoded = dump_definition(definition)
            self._definition = parse_definition(encoded)
        except DecodeError as error:
            raise InvalidArgument(str(error)) from error
        self._info = SchemaInfo(self.schema_type, self.schema_type.name, encoded)
        # Models decide which of JSON's forms non-finite floats have; dicts have the one of Pulsar's Python client.
        self._inf_nan_mode = "constants" if self._model is None else self._model.inf_nan_mode
        self._check = make_value_check(
            self._definition,
            self.form,
            allow_inf_nan=self._inf_nan_mode is not None,
            refuse_unknown=self._model is None,
        )
        self._find_fields = _find_nothing if self._model is None else self._model.find_fields
        self._is_record = self._definition.resolve(self._definition.root)[0] == "record"

    def schema_info(self) -> SchemaInfo:
        return self._info

    def _plain(self, obj: T) -> Any:
        """Return what the check accepts. Raises TypeError for a value of another class, and ValueError for one that is
        no dict, as Pulsar's client does."""
        model = self._model
        if model is None:
            if self._is_record and not isinstance(obj, Mapping):
                raise ValueError(f"without a record class, a value has to be a dict, not a {type(obj).__name__}")
            return obj
        check_class(obj, model.value_class)
        return obj

    def _checked(self, obj: T) -> Any:
        """Return what is written of a value. Raises EncodeError, which names the field, and what `_plain` raises."""
        model, plain = self._model, self._plain(obj)
        try:
            checked = self._check(plain if model is None or model.to_plain is None else model.to_plain(obj))
            if self._definition.has_deep_values:
                check_depth(checked)
        except Misfit as misfit:
            raise EncodeError(str(misfit)) from None
        except RecursionError as error:
            raise EncodeError(
                f"the value is too deep for the stack of this thread: at most {MAX_ENCODED_DEPTH} levels of records, "
                "lists and dicts are allowed"
            ) from error
        except Exception as error:
            raise EncodeError(f"{type(error).__name__}: {error!s:.500}") from error
        if model is not None:
            model.note_valid(obj)
        return checked

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments

    def _identity(self) -> tuple[Any, ...]:
        return (*super()._identity(), None if self._model is None else self._model.value_class)

    def __repr__(self) -> str:
        subject = self._info.definition.decode() if self._model is None else self._model.value_class.__name__
        return f"{type(self).__name__}({subject:.200})"
