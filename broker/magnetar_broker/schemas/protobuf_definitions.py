"""PROTOBUF_NATIVE schemas: the descriptor of a message type and all that it needs, in JSON.

`fileDescriptorSet` is a serialized `FileDescriptorSet` in base64, which has the file `rootFileDescriptorName` and all
that it imports, and so the message type `rootMessageTypeName`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from magnetar_broker.schemas.bounded_json import InvalidDefinition, parse_json

__all__ = ["find_root_message"]


def find_root_message(definition: bytes) -> str:
    """Return the full name of the message type. Raises `InvalidDefinition`."""
    document = parse_json(definition)
    if not isinstance(document, dict):
        raise InvalidDefinition("the definition is not a JSON object")
    texts = []
    for name in ("fileDescriptorSet", "rootMessageTypeName", "rootFileDescriptorName"):
        text = document.get(name)
        if not isinstance(text, str) or not text:
            raise InvalidDefinition(f'the definition has no "{name}" that is a string')
        texts.append(text)
    encoded, message_name, file_name = texts
    root = _build_file(_parse_files(encoded), file_name)
    return _find_message(root, message_name).full_name


def _parse_files(encoded: str) -> dict[str, FileDescriptorProto]:
    try:
        files = FileDescriptorSet.FromString(base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError):
        raise InvalidDefinition('"fileDescriptorSet" is not base64') from None
    except DecodeError:
        raise InvalidDefinition('"fileDescriptorSet" is not a FileDescriptorSet') from None
    return {each.name: each for each in files.file}


def _build_file(files: dict[str, FileDescriptorProto], root: str) -> FileDescriptor:
    """Build the file and its imports, each after those that it imports."""
    pool = DescriptorPool()
    built: set[str] = set()
    # Files whose imports are being built, each with the imports that are left.
    begun: dict[str, Iterator[str]] = {root: _list_imports(files, root)}
    while begun:
        name, imports = next(reversed(begun.items()))
        missing = next((each for each in imports if each not in built), None)
        if missing is None:
            _add_file(pool, files[name])
            built.add(name)
            del begun[name]
        elif missing in begun:
            raise InvalidDefinition(f"file {missing!r:.200} imports itself")
        else:
            begun[missing] = _list_imports(files, missing)
    found: FileDescriptor = pool.FindFileByName(root)
    return found


def _list_imports(files: dict[str, FileDescriptorProto], name: str) -> Iterator[str]:
    if name not in files:
        raise InvalidDefinition(f"file {name!r:.200} is not in the definition")
    return iter(files[name].dependency)


def _add_file(pool: DescriptorPool, proto: FileDescriptorProto) -> None:
    try:
        pool.Add(proto)
        pool.FindFileByName(proto.name)
    except (TypeError, ValueError, KeyError) as error:
        raise InvalidDefinition(f"file {proto.name!r:.200} is not valid: {error!s:.500}") from None


def _find_message(root: FileDescriptor, name: str) -> Descriptor:
    """Find a message type by its full name, or by its name in the file's package, as Pulsar does."""
    path = name.removeprefix(f"{root.package}.") if root.package else name
    first, *nested = path.split(".")
    found: Descriptor | None = root.message_types_by_name.get(first)
    for each in nested:
        found = None if found is None else found.nested_types_by_name.get(each)
    if found is None:
        raise InvalidDefinition(f"message type {name!r:.200} is not in file {root.name!r:.200}")
    return found
