"""The base of all schemas, and what brokers know of one."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic

from typing_extensions import TypeVar

from magnetar.exceptions import DecodeError
from magnetar_protos import schema_pb2

__all__ = ["Decoder", "Schema", "SchemaInfo", "SchemaType", "T", "check_class"]

# The type of the values. Without a schema they are bytes.
T = TypeVar("T", default=bytes)

# Decodes the payloads of one version, some at a time. If the schema `uses_key`, the second argument is the keys of the
# messages, and the payload of a message without a value is None; else the second argument is None. The result has an
# exception for each payload that can't be decoded.
Decoder = Callable[[Sequence[bytes], Sequence[bytes | None] | None], "list[T | DecodeError]"]


def check_class(value: object, *classes: type) -> None:
    """Raise TypeError for a value of another class. A bool is an int for Python, but not here."""
    if not isinstance(value, classes) or (isinstance(value, bool) and bool not in classes):
        expected = " or ".join(one.__name__ for one in classes)
        raise TypeError(f"the schema encodes values of {expected}, not of {type(value).__name__}: {value!r:.100}")


class SchemaType(enum.Enum):
    """The numbers are those of Pulsar's protocol."""

    BYTES = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    AUTO_CONSUME = 21


@dataclass(frozen=True)
class SchemaInfo:
    """A schema as brokers store it."""

    type: SchemaType
    name: str
    # JSON and AVRO: an Avro schema in JSON. Primitive types: empty.
    definition: bytes = b""
    properties: Mapping[str, str] = field(default_factory=dict)

    def to_message(self) -> schema_pb2.Schema:
        return schema_pb2.Schema(
            type=schema_pb2.SchemaType.Name(self.type.value),
            name=self.name,
            definition=self.definition,
            properties=dict(self.properties),
        )

    @classmethod
    def from_message(cls, message: schema_pb2.Schema) -> SchemaInfo:
        return cls(SchemaType(message.type), message.name, message.definition, dict(message.properties))


class Schema(Generic[T]):
    """Converts values to payloads, and payloads to values."""

    # Whether payloads can be decoded only with the schema by which they were encoded.
    needs_writer: ClassVar[bool] = False
    # Whether a part of the value is the message's key: see `encode_with_key`.
    uses_key: bool = False

    def schema_info(self) -> SchemaInfo:
        raise NotImplementedError

    def encode(self, obj: T) -> bytes:
        """Return the payload of a value. Raises EncodeError, or TypeError for a value of another type."""
        raise NotImplementedError

    def encode_with_key(self, obj: T) -> tuple[bytes | None, bytes | None]:
        """Return the message's key, None if the schema sets none, and its payload; None: a message without a value."""
        return None, self.encode(obj)

    def decode(self, data: bytes) -> T:
        """Return the value of a payload that was encoded with this schema. Raises DecodeError."""
        decoder: Decoder[T] | None = self.__dict__.get("_own_decoder")
        if decoder is None:
            decoder = self.__dict__["_own_decoder"] = self.make_decoder(None)
        (value,) = decoder([data], None)
        if isinstance(value, DecodeError):
            raise value
        return value

    def make_decoder(self, writer: SchemaInfo | None) -> Decoder[T]:
        """Return a function that decodes payloads which were encoded with `writer`; None: it is not known, or this
        schema. Raises DecodeError if no payload of that schema can be read with this one."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(type(self))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_own_decoder"}

    def _identity(self) -> tuple[Any, ...]:
        return (type(self), self.schema_info())
