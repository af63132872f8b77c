"""AVRO schemas: payloads in Avro's binary encoding, read with the writer's schema and resolved to the reader's."""

from __future__ import annotations

import enum
import io
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, overload

from fastavro import schemaless_reader, schemaless_writer

from magnetar.exceptions import DecodeError, EncodeError
from magnetar.schema._avro_definition import AvroDefinition, parse_definition
from magnetar.schema._avro_reading import make_readable
from magnetar.schema._avro_resolution import make_conversion
from magnetar.schema._avro_scan import PayloadProblems, make_scan
from magnetar.schema._decoding import check_writer, decode_each
from magnetar.schema._record import Record
from magnetar.schema._record_schema import RecordSchema
from magnetar.schema._schema import Decoder, SchemaInfo, SchemaType, T

__all__ = ["AvroSchema", "make_avro_reader"]


class AvroSchema(RecordSchema[T]):
    """Records in Avro's binary encoding.

    Values are instances of `record_cls`. Without it, they are dicts with the fields of `schema_definition`, an Avro
    schema as a dict.
    """

    needs_writer: ClassVar[bool] = True
    decodes_alone: ClassVar[bool] = False
    schema_type: ClassVar[SchemaType] = SchemaType.AVRO
    form = "avro"

    @overload
    def __init__(self, record_cls: type[T], schema_definition: Any = None) -> None: ...
    @overload
    def __init__(self: AvroSchema[dict[str, Any]], record_cls: None, schema_definition: Any) -> None: ...
    def __init__(self, record_cls: Any, schema_definition: Any = None) -> None:
        super().__init__(record_cls, schema_definition)
        # Refuses what no consumer could read.
        self._scan = make_scan(self._definition)

    def encode(self, obj: T) -> bytes:
        fields = self._find_fields(obj)
        if fields is None:
            fields = self._checked(obj)
        buffer = io.BytesIO()
        try:
            schemaless_writer(buffer, self._definition.root, fields)
        except Exception as error:
            self._checked(obj)  # its error names the field
            raise EncodeError(f"{type(error).__name__}: {error!s:.500}") from error
        payload = buffer.getvalue()
        if self._scan is not None:
            try:
                self._scan(payload)
            except DecodeError as error:
                raise EncodeError(f"a consumer would refuse it: {error}") from error
        return payload

    def encode_dict(self, d: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy with records as dicts and members of enumerations as names, as Pulsar's Python client does."""
        return {name: self._to_plain(value) for name, value in d.items()}

    def _to_plain(self, value: Any) -> Any:
        if isinstance(value, enum.Enum):
            return value.name
        if isinstance(value, Record):
            return self.encode_dict(vars(value))
        if isinstance(value, list):
            return [self._to_plain(item) for item in value]
        return self.encode_dict(value) if isinstance(value, dict) else value

    def make_decoder(self, writer: SchemaInfo | None) -> Decoder[T]:
        check_writer(writer, SchemaType.AVRO)
        written = self._definition if writer is None else parse_definition(writer.definition)
        model = self._model
        marks_branches = model is not None and model.marks_branches
        read = make_avro_reader(written, self._definition, None, marks_branches=marks_branches)
        return decode_each(read, "AVRO", None if model is None else model.make_all)


def make_avro_reader(
    writer: AvroDefinition,
    reader: AvroDefinition,
    finish: Callable[[Any], T] | None,
    *,
    marks_branches: bool = False,
) -> Callable[[bytes], T]:
    """Return a function that reads payloads. It raises DecodeError, or any exception of the libraries' for a payload
    that is not valid. `finish` gets each value. `marks_branches`: values of some unions are marked
    (`_avro_reading.py`)."""
    try:
        convert = make_conversion(writer, reader, marks_branches=marks_branches)
        readable = make_readable(writer, marks_branches=marks_branches or convert is not None)
        scan = make_scan(writer)
    except RecursionError as error:
        raise DecodeError("types of the writer's Avro definition refer to one another in a chain too long") from error
    problems = PayloadProblems(writer)

    def read(payload: bytes) -> Any:
        if scan is not None:
            scan(payload)
        buffer = io.BytesIO(payload)
        try:
            value: Any = schemaless_reader(buffer, readable, None)
        except Exception as error:
            problem = problems.find(payload)
            if not problem:
                raise
            raise DecodeError(f"a payload of {len(payload)} bytes is no valid AVRO: {problem}") from error
        rest = buffer.read()
        if rest:
            raise DecodeError(f"{len(rest)} bytes behind the end of an AVRO payload")
        if convert is not None:
            value = convert(value)
        return value if finish is None else finish(value)

    return read
