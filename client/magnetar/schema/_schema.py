"""The base of all schemas, and what brokers know of one."""

from __future__ import annotations

import enum
import json
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

    def schema(self) -> str:
        """Return the definition, under the name of Pulsar's Python client."""
        return self.definition.decode()

    def schema_type(self) -> SchemaType:
        """Return the type, under the name of Pulsar's Python client."""
        return self.type

    @classmethod
    def from_message(cls, message: schema_pb2.Schema) -> SchemaInfo:
        return cls(SchemaType(message.type), message.name, message.definition, dict(message.properties))


class Schema(Generic[T]):
    """Converts values to payloads, and payloads to values.

    An own schema of an application overrides `encode` and `decode`, and calls this `__init__`, as with Pulsar's Python
    client.
    """

    # Whether payloads can be decoded only with the schema by which they were encoded.
    needs_writer: ClassVar[bool] = False
    # Whether messages of another type are refused, if the type is known. Otherwise payloads are decoded unchecked.
    checks_writer: ClassVar[bool] = False
    # Whether a subclass may override `decode` alone: a payload's bytes say enough. Else it overrides `make_decoder`.
    decodes_alone: ClassVar[bool] = True
    # Whether a part of the value is the message's key: see `encode_with_key`.
    uses_key: bool = False
    # Whether the message's key always is that part of the value, also if that is None.
    sets_key: bool = False
    # Set by `__init__`.
    _record_cls: Any = None
    _schema_info: SchemaInfo | None = None

    def __init__(
        self,
        record_cls: Any = None,
        schema_type: SchemaType | None = None,
        schema_definition: Any = None,
        schema_name: str = "",
    ) -> None:
        """`record_cls`: the class of the values. `schema_type`: None: the class overrides `schema_info`.
        `schema_definition`: JSON, as Python objects; None: there is none."""
        if schema_type is None:
            return
        definition = b"" if schema_definition is None else json.dumps(schema_definition, indent=True).encode()
        self._record_cls = record_cls
        self._schema_info = SchemaInfo(SchemaType(schema_type), schema_name, definition)

    def schema_info(self) -> SchemaInfo:
        if self._schema_info is None:
            raise NotImplementedError(f"{type(self).__name__} has no type: call super().__init__(…), or override this")
        return self._schema_info

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
        schema. Raises DecodeError if no payload of that schema can be read with this one.

        Not called for a subclass that overrides `decode` alone."""
        raise NotImplementedError(f"{type(self).__name__} can't decode: override decode")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(type(self))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_own_decoder"}

    def _identity(self) -> tuple[Any, ...]:
        # Attributes of an application's own schema may change its payloads.
        state = self.__getstate__() if type(self).__reduce__ is object.__reduce__ else None
        return (type(self), self.schema_info(), state)

    def _validate_object_type(self, obj: Any) -> None:
        """Raise TypeError for a value of another class. Own schemas call it by this name of Pulsar's Python client."""
        check_class(obj, self._record_cls)
