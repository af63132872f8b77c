"""The definition of PROTOBUF schemas: an Avro schema that Java's libraries make of a message's descriptor, and a list
of its fields. Nothing reads payloads with it; brokers compare definitions by it. It has to be the same as Java's, whose
classes give the namespaces.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

__all__ = ["make_avro_definition", "make_parsing_info"]

_INTS: Final = ("INT32", "UINT32", "SINT32", "FIXED32", "SFIXED32")
_LONGS: Final = ("INT64", "UINT64", "SINT64", "FIXED64", "SFIXED64")
_TYPES: Final[dict[str, Any]] = {
    "BOOL": "boolean",
    "FLOAT": "float",
    "DOUBLE": "double",
    "STRING": {"type": "string", "avro.java.string": "String"},
    "BYTES": "bytes",
    **dict.fromkeys(_INTS, "int"),
    **dict.fromkeys(_LONGS, "long"),
}


def make_avro_definition(descriptor: Descriptor) -> dict[str, Any]:
    definition: dict[str, Any] = _Definitions().of_message(descriptor, "")
    return definition


def make_parsing_info(descriptor: Descriptor) -> list[dict[str, Any]]:
    return [
        {
            "number": field.number,
            "name": field.name,
            "type": _type_name(field),
            "label": f"LABEL_{_label(field)}",
            "definition": None,
        }
        for field in descriptor.fields
    ]


class _Definitions:
    def __init__(self) -> None:
        self._defined: set[str] = set()

    def of_message(self, descriptor: Descriptor, outer_namespace: str) -> Any:
        namespace = _namespace(descriptor.file, descriptor.containing_type)
        known = self._define(descriptor.name, namespace, outer_namespace)
        if known is not None:
            return known
        fields = [self._field(field, namespace) for field in descriptor.fields]
        return {"type": "record", **_named(descriptor.name, namespace, outer_namespace), "fields": fields}

    def _define(self, name: str, namespace: str, outer_namespace: str) -> str | None:
        """Return the reference to a type that is defined already."""
        full_name = f"{namespace}.{name}" if namespace else name
        if full_name in self._defined:
            return name if namespace == outer_namespace else full_name
        self._defined.add(full_name)
        return None

    def _field(self, field: FieldDescriptor, namespace: str) -> dict[str, Any]:
        label, declared = _label(field), self._type(field, namespace)
        if label == "REPEATED":
            return {"name": field.name, "type": {"type": "array", "items": declared}, "default": []}
        if label == "REQUIRED":
            return {"name": field.name, "type": declared}
        return {"name": field.name, "type": declared, "default": _default(field)}

    def _type(self, field: FieldDescriptor, namespace: str) -> Any:
        if field.message_type is not None:
            message = self.of_message(field.message_type, namespace)
            return ["null", message] if _label(field) == "OPTIONAL" else message
        if field.enum_type is not None:
            return self._of_enum(field.enum_type, namespace)
        return _TYPES[_type_name(field)]

    def _of_enum(self, descriptor: EnumDescriptor, outer_namespace: str) -> Any:
        namespace = _namespace(descriptor.file, descriptor.containing_type)
        known = self._define(descriptor.name, namespace, outer_namespace)
        if known is not None:
            return known
        symbols = [value.name for value in descriptor.values]
        return {"type": "enum", **_named(descriptor.name, namespace, outer_namespace), "symbols": symbols}


def _named(name: str, namespace: str, outer_namespace: str) -> dict[str, str]:
    return {"name": name} if namespace == outer_namespace else {"name": name, "namespace": namespace}


def _namespace(file: FileDescriptor, containing: Descriptor | None) -> str:
    """Return the name of the Java class, or package, that has a generated class."""
    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    options = proto.options
    classes = []
    if not options.java_multiple_files:
        parts = PurePosixPath(file.name).stem.split("_")
        classes.append(options.java_outer_classname or "".join(part[:1].upper() + part[1:].lower() for part in parts))
    messages: list[str] = []
    while containing is not None:
        messages.insert(0, containing.name)
        containing = containing.containing_type
    package = options.java_package if options.HasField("java_package") else file.package
    inside = "$".join(classes + messages)
    return f"{package}.{inside}" if inside else package


def _default(field: FieldDescriptor) -> Any:
    if field.message_type is not None:
        return None
    if field.enum_type is not None:
        return field.enum_type.values_by_number[field.default_value].name
    value = field.default_value
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _type_name(field: FieldDescriptor) -> str:
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_")  # type: ignore[arg-type]


def _label(field: FieldDescriptor) -> str:
    if field.is_repeated:
        return "REPEATED"
    return "REQUIRED" if field.is_required else "OPTIONAL"
