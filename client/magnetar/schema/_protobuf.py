"""PROTOBUF_NATIVE: messages of Protocol Buffers. The definition has the descriptors of their files."""

from __future__ import annotations

import base64
import json
from typing import Any, Final, cast

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import Message
from typing_extensions import TypeVar

from magnetar.exceptions import EncodeError
from magnetar.schema._decoding import check_writer, decode_each
from magnetar.schema._schema import Decoder, Schema, SchemaInfo, SchemaType

__all__ = ["ProtobufNativeSchema"]

M = TypeVar("M", bound=Message, default=Message)


class ProtobufNativeSchema(Schema[M]):
    """Messages of a class that protoc generated."""

    def __init__(self, message_class: type[M]) -> None:
        if not (isinstance(message_class, type) and issubclass(message_class, Message)):
            raise TypeError(f"record_cls must be a protobuf Message subclass, got {message_class!r}")
        self._class: Final = message_class
        self._info: Final = SchemaInfo(
            SchemaType.PROTOBUF_NATIVE, "PROTOBUF_NATIVE", _definition(cast("Descriptor", message_class.DESCRIPTOR))
        )

    def schema_info(self) -> SchemaInfo:
        return self._info

    def encode(self, obj: M) -> bytes:
        if not isinstance(obj, self._class):
            raise TypeError(f"Invalid record obj of type {type(obj)} - expected type is {self._class}")
        try:
            return obj.SerializeToString()
        except Exception as error:  # a required field is missing, or the message is too large
            raise EncodeError(f"{type(error).__name__}: {error!s:.500}") from error

    def make_decoder(self, writer: SchemaInfo | None) -> Decoder[M]:
        check_writer(writer, SchemaType.PROTOBUF_NATIVE)
        parse: Any = self._class.FromString
        return decode_each(parse, self._class.DESCRIPTOR.full_name)

    def __repr__(self) -> str:
        return f"ProtobufNativeSchema({self._class.__name__})"


def _definition(descriptor: Descriptor) -> bytes:
    files = FileDescriptorSet()
    _add_file(descriptor.file, set(), files)
    parts = {
        "fileDescriptorSet": base64.b64encode(files.SerializeToString()).decode(),
        "rootMessageTypeName": descriptor.full_name,
        "rootFileDescriptorName": descriptor.file.name,
    }
    return json.dumps(parts, indent=True).encode()  # as Pulsar's Python client writes it


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
