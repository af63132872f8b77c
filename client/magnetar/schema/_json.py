"""JSON schemas: payloads are JSON, and an Avro schema describes them.

Other clients' libraries write it differently, and all forms are read: enumerations by name, or by value (Pulsar's
Python client), numbers without a fraction for a float, NaN as a string (Java), absent fields. Members of enumerations
are written by name, which all of them read. Bytes are strings, as in Pulsar's Python client.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, overload

from pydantic_core import from_json, to_json

from magnetar.exceptions import DecodeError
from magnetar.schema._decoding import check_writer, decode_each
from magnetar.schema._record_schema import RecordSchema
from magnetar.schema._schema import Decoder, SchemaInfo, SchemaType, T
from magnetar.schema._value_checks import Misfit, make_json_check

__all__ = ["JsonSchema"]


class JsonSchema(RecordSchema[T]):
    """Records as JSON.

    Values are instances of `record_cls`. Without it, they are dicts with the fields of `schema_definition`, an Avro
    schema as a dict.
    """

    checks_writer: ClassVar[bool] = True
    schema_type: ClassVar[SchemaType] = SchemaType.JSON
    form = "json"

    @overload
    def __init__(self, record_cls: type[T], schema_definition: Any = None) -> None: ...
    @overload
    def __init__(self: JsonSchema[dict[str, Any]], record_cls: None, schema_definition: Any) -> None: ...
    def __init__(self, record_cls: Any, schema_definition: Any = None) -> None:
        super().__init__(record_cls, schema_definition)
        self._mode: Literal["constants", "strings"] = self._inf_nan_mode or "constants"

    def encode(self, obj: T) -> bytes:
        fields = self._find_fields(obj)
        if fields is not None:
            try:
                return to_json(fields, inf_nan_mode=self._mode)
            except ValueError:
                pass  # the check names the field
        return to_json(self._checked(obj), inf_nan_mode=self._mode)

    def make_decoder(self, writer: SchemaInfo | None) -> Decoder[T]:
        check_writer(writer, SchemaType.JSON)
        model, check = self._model, make_json_check(self._definition)

        def read(payload: bytes) -> Any:
            try:
                return check(from_json(payload))
            except Misfit as misfit:
                raise DecodeError(f"a payload does not match the definition: {misfit}") from None

        return decode_each(read, "JSON", None if model is None else model.make_all)
