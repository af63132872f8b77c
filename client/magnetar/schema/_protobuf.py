"""Messages of Protocol Buffers.

PROTOBUF_NATIVE is defined by the descriptors of the message's files. PROTOBUF is Java's older form: an Avro schema that
resembles the message, and its fields as a property. Payloads of both are serialized messages.
"""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from typing import Any, ClassVar, Final, cast

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from pydantic_core import from_json
from typing_extensions import TypeVar

from magnetar.exceptions import DecodeError, EncodeError
from magnetar.schema._avro_definition import MAX_CACHED_BYTES
from magnetar.schema._decoding import check_writer, decode_each
from magnetar.schema._protobuf_avro import make_avro_definition, make_parsing_info
from magnetar.schema._schema import Decoder, Schema, SchemaInfo, SchemaType, check_class
from magnetar_wire.schemas import MAX_DEFINITION_BYTES

__all__ = ["ProtobufNativeSchema", "ProtobufSchema", "find_message_class"]

M = TypeVar("M", bound=Message, default=Message)


class _MessageSchema(Schema[M]):
    checks_writer: ClassVar[bool] = True
    schema_type: ClassVar[SchemaType]

    def __init__(self, message_class: type[M]) -> None:
        if not (isinstance(message_class, type) and issubclass(message_class, Message)):
            raise TypeError(f"record_cls must be a protobuf Message subclass, got {message_class!r}")
        self._class: Final = message_class
        self._info: Final = self._describe(cast("Descriptor", message_class.DESCRIPTOR))

    def _describe(self, descriptor: Descriptor) -> SchemaInfo:
        raise NotImplementedError

    def schema_info(self) -> SchemaInfo:
        return self._info

    def encode(self, obj: M) -> bytes:
        check_class(obj, self._class)
        try:
            return obj.SerializeToString()
        except Exception as error:  # a required field is missing, or the message is too large
            raise EncodeError(f"{type(error).__name__}: {error!s:.500}") from error

    def make_decoder(self, writer: SchemaInfo | None) -> Decoder[M]:
        check_writer(writer, self.schema_type)
        parse: Any = self._class.FromString
        return decode_each(parse, self._class.DESCRIPTOR.full_name)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._class,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._class.__name__})"


class ProtobufNativeSchema(_MessageSchema[M]):
    """Messages of a class that protoc generated."""

    schema_type = SchemaType.PROTOBUF_NATIVE

    def _describe(self, descriptor: Descriptor) -> SchemaInfo:
        files = FileDescriptorSet()
        _add_file(descriptor.file, set(), files)
        parts = {
            "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
            "rootMessageTypeName": descriptor.full_name,
            "rootFileDescriptorName": descriptor.file.name,
        }
        definition = json.dumps(parts, indent=True).encode()  # as Pulsar's Python client writes it
        return SchemaInfo(self.schema_type, "PROTOBUF_NATIVE", definition)


class ProtobufSchema(_MessageSchema[M]):
    """Messages of a class that protoc generated, in the older form of Java's client: its `Schema.PROTOBUF`."""

    schema_type = SchemaType.PROTOBUF

    def _describe(self, descriptor: Descriptor) -> SchemaInfo:
        return SchemaInfo(
            self.schema_type,
            "",  # as Java's client
            json.dumps(make_avro_definition(descriptor), separators=(",", ":")).encode(),
            {
                "__alwaysAllowNull": "true",
                "__jsr310ConversionEnabled": "false",
                "__PARSING_INFO__": json.dumps(make_parsing_info(descriptor), separators=(",", ":")),
            },
        )


def find_message_class(definition: bytes) -> type[Message]:
    """Return a class for the message of a PROTOBUF_NATIVE definition. Raises DecodeError."""
    if len(definition) > MAX_DEFINITION_BYTES:
        raise DecodeError(f"descriptors of {len(definition)} bytes: at most {MAX_DEFINITION_BYTES} are allowed")
    return _make_message_class(definition) if len(definition) > MAX_CACHED_BYTES else _find_cached(definition)


@lru_cache(maxsize=128)
def _find_cached(definition: bytes) -> type[Message]:
    return _make_message_class(definition)


def _make_message_class(definition: bytes) -> type[Message]:
    """Descriptors are in a pool of their own: another version may have the same names."""
    try:
        parts = from_json(definition)
        files = FileDescriptorSet.FromString(base64.b64decode(parts["fileDescriptorSet"]))
        pool = DescriptorPool()
        for file in files.file:
            pool.AddSerializedFile(file.SerializeToString())
        return GetMessageClass(pool.FindMessageTypeByName(parts["rootMessageTypeName"]))
    except Exception as error:
        raise DecodeError(f"not a PROTOBUF_NATIVE definition: {type(error).__name__}: {error!s:.500}") from error


def _add_file(file: FileDescriptor, added: set[str], files: FileDescriptorSet) -> None:
    """Add a file behind those that it imports."""
    if file.name in added:
        return
    for imported in file.dependencies:
        _add_file(imported, added, files)
    added.add(file.name)
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    files.file.append(proto)
