"""Schemas of single values, in the encodings of Pulsar's Java client: numbers are big-endian.

Values of time. Those of DATE, TIMESTAMP and INSTANT are moments: datetimes with a time zone; one without is refused,
and decoded ones are in UTC. DATE and TIMESTAMP have milliseconds, INSTANT nanoseconds. TIME (milliseconds), LOCAL_TIME
and LOCAL_DATE_TIME (nanoseconds) have no time zone. Nothing is rounded: a value that is more precise than its type is
refused. A stored value may have nanoseconds, and Python's types have microseconds: if something would be lost, decoding
raises DecodeError, unless the schema was created with `nanoseconds=True`; its values are ints.
"""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, ClassVar, Final, Literal, cast, overload

from typing_extensions import TypeVar

from magnetar.exceptions import DecodeError, EncodeError
from magnetar.schema._decoding import check_writer, decode_each
from magnetar.schema._schema import Decoder, Schema, SchemaInfo, SchemaType, T, check_class

__all__ = [
    "BooleanSchema",
    "BytesSchema",
    "DateSchema",
    "DoubleSchema",
    "FloatSchema",
    "InstantSchema",
    "Int8Schema",
    "Int16Schema",
    "Int32Schema",
    "Int64Schema",
    "LocalDateSchema",
    "LocalDateTimeSchema",
    "LocalTimeSchema",
    "StringSchema",
    "TimeSchema",
    "TimestampSchema",
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_NS_PER_SECOND: Final = 1_000_000_000
_MS_PER_DAY: Final = 24 * 3600 * 1000
_NS_PER_DAY: Final = 24 * 3600 * _NS_PER_SECOND
_LONG: Final = struct.Struct(">q")
_INSTANT: Final = struct.Struct(">qi")
_LOCAL_DATE_TIME: Final = struct.Struct(">qq")

# A moment or a local time: without nanoseconds the class, with them an int.
N = TypeVar("N", default=datetime)
L = TypeVar("L", default=time)


class _PrimitiveSchema(Schema[T]):
    """A schema without a definition: the type describes the values."""

    checks_writer: ClassVar[bool] = True
    schema_type: ClassVar[SchemaType]
    # As Java's library names it.
    schema_name: ClassVar[str]

    def schema_info(self) -> SchemaInfo:
        return SchemaInfo(self.schema_type, self.schema_name)

    def make_decoder(self, writer: SchemaInfo | None) -> Decoder[T]:
        check_writer(writer, self.schema_type)
        return decode_each(self._decode, self.schema_type.name)

    def _decode(self, payload: bytes) -> T:
        """Raises any exception for an invalid payload."""
        raise NotImplementedError

    # Whether values of time are ints.
    _nanoseconds: bool = False

    def _identity(self) -> tuple[Any, ...]:
        return (*super()._identity(), self._nanoseconds)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'nanoseconds=True' if self._nanoseconds else ''})"


class BytesSchema(_PrimitiveSchema[bytes]):
    """Bytes without conversion: what producers and consumers without a schema use. It reads messages of every type."""

    checks_writer: ClassVar[bool] = False
    schema_type = SchemaType.BYTES
    schema_name = "BYTES"

    def encode(self, obj: bytes) -> bytes:
        check_class(obj, bytes)
        return obj

    def decode(self, data: bytes) -> bytes:
        return data

    def make_decoder(self, writer: SchemaInfo | None) -> Decoder[bytes]:
        return lambda payloads, keys: list(payloads)


class StringSchema(_PrimitiveSchema[str]):
    """A str in UTF-8."""

    schema_type = SchemaType.STRING
    schema_name = "String"

    def encode(self, obj: str) -> bytes:
        check_class(obj, str)
        try:
            return obj.encode()
        except UnicodeEncodeError as error:
            raise EncodeError(f"a string that is not valid Unicode: {error}") from error

    def _decode(self, payload: bytes) -> str:
        return str(payload, "utf-8")


class BooleanSchema(_PrimitiveSchema[bool]):
    """A bool in one byte."""

    schema_type = SchemaType.BOOLEAN
    schema_name = "Boolean"

    def encode(self, obj: bool) -> bytes:
        check_class(obj, bool)
        return b"\x01" if obj else b"\x00"

    def _decode(self, payload: bytes) -> bool:
        _check_size(payload, 1)
        return payload[0] != 0


class _IntegerSchema(_PrimitiveSchema[int]):
    size: ClassVar[int]

    def encode(self, obj: int) -> bytes:
        check_class(obj, int)
        try:
            return int(obj).to_bytes(self.size, "big", signed=True)
        except OverflowError:
            raise EncodeError(f"{obj} does not fit into {8 * self.size} bits") from None

    def _decode(self, payload: bytes) -> int:
        _check_size(payload, self.size)
        return int.from_bytes(payload, "big", signed=True)


class Int8Schema(_IntegerSchema):
    """An int from -128 to 127."""

    schema_type = SchemaType.INT8
    schema_name = "INT8"
    size = 1


class Int16Schema(_IntegerSchema):
    """An int of 16 bits."""

    schema_type = SchemaType.INT16
    schema_name = "INT16"
    size = 2


class Int32Schema(_IntegerSchema):
    """An int of 32 bits."""

    schema_type = SchemaType.INT32
    schema_name = "INT32"
    size = 4


class Int64Schema(_IntegerSchema):
    """An int of 64 bits."""

    schema_type = SchemaType.INT64
    schema_name = "INT64"
    size = 8


class _FloatingSchema(_PrimitiveSchema[float]):
    layout: ClassVar[struct.Struct]

    def encode(self, obj: float) -> bytes:
        check_class(obj, float, int)
        try:
            return self.layout.pack(obj)
        except (OverflowError, struct.error):
            raise EncodeError(f"{obj!r:.50} does not fit into {8 * self.layout.size} bits") from None

    def _decode(self, payload: bytes) -> float:
        _check_size(payload, self.layout.size)
        return float(self.layout.unpack(payload)[0])


class FloatSchema(_FloatingSchema):
    """A float that is stored with 32 bits, which rounds it."""

    schema_type = SchemaType.FLOAT
    schema_name = "Float"
    layout = struct.Struct(">f")


class DoubleSchema(_FloatingSchema):
    """A float."""

    schema_type = SchemaType.DOUBLE
    schema_name = "Double"
    layout = struct.Struct(">d")


class _MillisecondSchema(_PrimitiveSchema[datetime]):
    def encode(self, obj: datetime) -> bytes:
        if isinstance(obj, date) and not isinstance(obj, datetime):
            raise TypeError(f"a datetime is expected, not the date {obj!r}: use LocalDateSchema for calendar dates")
        check_class(obj, datetime)
        return _LONG.pack(_milliseconds(_microseconds(obj), "InstantSchema"))

    def _decode(self, payload: bytes) -> datetime:
        _check_size(payload, _LONG.size)
        return _EPOCH + timedelta(milliseconds=_LONG.unpack(payload)[0])


class DateSchema(_MillisecondSchema):
    """A moment with milliseconds: Java's `java.util.Date`, not a calendar date (that is `LocalDateSchema`)."""

    schema_type = SchemaType.DATE
    schema_name = "Date"


class TimestampSchema(_MillisecondSchema):
    """A moment with milliseconds."""

    schema_type = SchemaType.TIMESTAMP
    schema_name = "Timestamp"


class TimeSchema(_PrimitiveSchema[time]):
    """A time of the day with milliseconds. It is stored as in UTC; what Java stores with a date is read without it."""

    schema_type = SchemaType.TIME
    schema_name = "Time"

    def encode(self, obj: time) -> bytes:
        check_class(obj, time)
        return _LONG.pack(_milliseconds(_ns_of_day(obj) // 1000, "LocalTimeSchema"))

    def _decode(self, payload: bytes) -> time:
        _check_size(payload, _LONG.size)
        return _time_of_day(_LONG.unpack(payload)[0] % _MS_PER_DAY * 1_000_000)


class InstantSchema(_PrimitiveSchema[N]):
    """A moment. `nanoseconds`: values are ints, the nanoseconds since 1970."""

    schema_type = SchemaType.INSTANT
    schema_name = "Instant"

    @overload
    def __init__(self: InstantSchema[datetime], nanoseconds: Literal[False] = False) -> None: ...
    @overload
    def __init__(self: InstantSchema[int], nanoseconds: Literal[True]) -> None: ...
    def __init__(self, nanoseconds: bool = False) -> None:
        self._nanoseconds = nanoseconds

    def encode(self, obj: N) -> bytes:
        if self._nanoseconds:
            ns = _as_ns(obj)
        else:
            check_class(obj, datetime)
            ns = _microseconds(cast("datetime", obj)) * 1000
        return _pack(_INSTANT, *divmod(ns, _NS_PER_SECOND))

    def _decode(self, payload: bytes) -> Any:
        _check_size(payload, _INSTANT.size)
        seconds, ns = _INSTANT.unpack(payload)
        _check_part(ns, _NS_PER_SECOND)
        total = seconds * _NS_PER_SECOND + ns
        return total if self._nanoseconds else _EPOCH + _delta(total, "InstantSchema")


class LocalDateSchema(_PrimitiveSchema[date]):
    """A calendar date."""

    schema_type = SchemaType.LOCAL_DATE
    schema_name = "LocalDate"

    def encode(self, obj: date) -> bytes:
        check_class(obj, date)
        if isinstance(obj, datetime):
            raise TypeError(f"a date is expected, not the datetime {obj!r}: use its date()")
        return _LONG.pack(obj.toordinal() - _EPOCH_DAY)

    def _decode(self, payload: bytes) -> date:
        _check_size(payload, _LONG.size)
        return date.fromordinal(_LONG.unpack(payload)[0] + _EPOCH_DAY)


class LocalTimeSchema(_PrimitiveSchema[L]):
    """A time of the day. `nanoseconds`: values are ints, the nanoseconds since midnight."""

    schema_type = SchemaType.LOCAL_TIME
    schema_name = "LocalTime"

    @overload
    def __init__(self: LocalTimeSchema[time], nanoseconds: Literal[False] = False) -> None: ...
    @overload
    def __init__(self: LocalTimeSchema[int], nanoseconds: Literal[True]) -> None: ...
    def __init__(self, nanoseconds: bool = False) -> None:
        self._nanoseconds = nanoseconds

    def encode(self, obj: L) -> bytes:
        if not self._nanoseconds:
            check_class(obj, time)
            return _LONG.pack(_ns_of_day(cast("time", obj)))
        ns = _as_ns(obj)
        if not 0 <= ns < _NS_PER_DAY:
            raise EncodeError(f"{ns} is no time of the day in nanoseconds")
        return _LONG.pack(ns)

    def _decode(self, payload: bytes) -> Any:
        _check_size(payload, _LONG.size)
        (ns,) = _LONG.unpack(payload)
        _check_part(ns, _NS_PER_DAY)
        return ns if self._nanoseconds else _time_of_day(ns)


class LocalDateTimeSchema(_PrimitiveSchema[N]):
    """A datetime without a time zone. `nanoseconds`: values are ints, the nanoseconds since 1970-01-01T00:00."""

    schema_type = SchemaType.LOCAL_DATE_TIME
    schema_name = "LocalDateTime"

    @overload
    def __init__(self: LocalDateTimeSchema[datetime], nanoseconds: Literal[False] = False) -> None: ...
    @overload
    def __init__(self: LocalDateTimeSchema[int], nanoseconds: Literal[True]) -> None: ...
    def __init__(self, nanoseconds: bool = False) -> None:
        self._nanoseconds = nanoseconds

    def encode(self, obj: N) -> bytes:
        if self._nanoseconds:
            ns = _as_ns(obj)
        else:
            check_class(obj, datetime)
            ns = _local_microseconds(cast("datetime", obj)) * 1000
        return _pack(_LOCAL_DATE_TIME, *divmod(ns, _NS_PER_DAY))

    def _decode(self, payload: bytes) -> Any:
        _check_size(payload, _LOCAL_DATE_TIME.size)
        days, ns = _LOCAL_DATE_TIME.unpack(payload)
        _check_part(ns, _NS_PER_DAY)
        total = days * _NS_PER_DAY + ns
        return total if self._nanoseconds else _LOCAL_EPOCH + _delta(total, "LocalDateTimeSchema")


def _check_size(payload: bytes, size: int) -> None:
    if len(payload) != size:
        raise DecodeError(f"a payload of {len(payload)} bytes: values of this type have {size}")


def _check_part(part: int, limit: int) -> None:
    if not 0 <= part < limit:
        raise DecodeError(f"{part} nanoseconds: they have to be from 0 to {limit - 1}")


def _microseconds(moment: datetime) -> int:
    """Return the microseconds since 1970. Raises EncodeError for a datetime without a time zone."""
    if moment.utcoffset() is None:
        raise EncodeError(f"{moment!r} has no time zone: add one, e.g. .replace(tzinfo=UTC) or .astimezone()")
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _local_microseconds(moment: datetime) -> int:
    if moment.tzinfo is not None:
        raise EncodeError(f"{moment!r} has a time zone, which would be lost: use InstantSchema, or remove it")
    return (moment - _LOCAL_EPOCH) // timedelta(microseconds=1)


def _milliseconds(microseconds: int, instead: str) -> int:
    milliseconds, rest = divmod(microseconds, 1000)
    if rest:
        raise EncodeError(f"{rest} microseconds would be lost: round the value to milliseconds, or use {instead}")
    return milliseconds


def _ns_of_day(value: time) -> int:
    if value.tzinfo is not None:
        raise EncodeError(f"{value!r} has a time zone, which would be lost: remove it")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    return seconds * _NS_PER_SECOND + value.microsecond * 1000


def _time_of_day(ns: int) -> time:
    return (_LOCAL_EPOCH + _delta(ns, "LocalTimeSchema")).time()


def _delta(ns: int, schema: str) -> timedelta:
    microseconds, rest = divmod(ns, 1000)
    if rest:
        raise DecodeError(f"{rest} nanoseconds would be lost: use {schema}(nanoseconds=True)")
    return timedelta(microseconds=microseconds)


def _as_ns(value: Any) -> int:
    check_class(value, int)
    return int(value)


def _pack(layout: struct.Struct, *numbers: int) -> bytes:
    try:
        return layout.pack(*numbers)
    except struct.error:
        raise EncodeError(f"{numbers[0]} does not fit into 64 bits") from None
