"""PROTOBUF_NATIVE schemas: the descriptor of a message type and all that it needs, in JSON.

`fileDescriptorSet` is a serialized `FileDescriptorSet` in base64, which has the file `rootFileDescriptorName` and all
that it imports, and so the message type `rootMessageTypeName`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Final, Protocol, TypeVar

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from magnetar_broker.schemas.avro_definitions import MAX_NAME_LENGTH, MAX_NAMES_LENGTH
from magnetar_broker.schemas.bounded_json import InvalidDefinition, parse_json
from magnetar_broker.schemas.work_budget import BYTES_PER_STEP, WorkBudget

__all__ = ["find_root_message"]

_MAX_PARTS: Final = 50_000


class _Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=_Named)


def find_root_message(definition: bytes, budget: WorkBudget) -> str:
    """Return the full name of the message type. Raises `InvalidDefinition`."""
    budget.spend(len(definition) // BYTES_PER_STEP)
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
    files = _parse_files(encoded)
    names = _NameCheck(budget)
    for each in files.values():
        names.check_file(each)
    root = _build_file(files, file_name)
    return _find_message(root, message_name).full_name


def _parse_files(encoded: str) -> dict[str, FileDescriptorProto]:
    try:
        files = FileDescriptorSet.FromString(base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError):
        raise InvalidDefinition('"fileDescriptorSet" is not base64') from None
    except DecodeError:
        raise InvalidDefinition('"fileDescriptorSet" is not a FileDescriptorSet') from None
    return {each.name: each for each in files.file}


class _NameCheck:
    """Bounds the full names of a definition before the descriptors are built, which have them all."""

    def __init__(self, budget: WorkBudget) -> None:
        self._budget = budget
        self._parts = 0
        self._length = 0

    def check_file(self, file: FileDescriptorProto) -> None:
        self._count(1 + len(file.dependency))
        scope = len(file.package) + 1
        self._check_messages(file.message_type, scope)
        self._check_enums(file.enum_type, scope)
        self._check_names(file.extension, scope)
        for each in self._check_names(file.service, scope):
            self._check_names(each.method, scope + len(each.name) + 1)

    def _check_messages(self, messages: Sequence[DescriptorProto], scope: int) -> None:
        waiting = [(messages, scope)]
        while waiting:
            messages, scope = waiting.pop()
            for each in self._check_names(messages, scope):
                inner = scope + len(each.name) + 1
                for named in (each.field, each.extension, each.oneof_decl):
                    self._check_names(named, inner)
                self._count(len(each.extension_range) + len(each.reserved_range) + len(each.reserved_name))
                self._check_enums(each.enum_type, inner)
                waiting.append((each.nested_type, inner))

    def _check_enums(self, enums: Sequence[EnumDescriptorProto], scope: int) -> None:
        for each in self._check_names(enums, scope):
            self._check_names(each.value, scope)
            self._count(len(each.reserved_range) + len(each.reserved_name))

    def _check_names(self, named: Sequence[T], scope: int) -> Sequence[T]:
        self._count(len(named))
        for each in named:
            length = scope + len(each.name)
            if length > MAX_NAME_LENGTH:
                raise InvalidDefinition(
                    f"name {each.name!r:.100} has {length} characters with its package, and at most "
                    f"{MAX_NAME_LENGTH} are allowed"
                )
            self._length += length
        if self._length > MAX_NAMES_LENGTH:
            raise InvalidDefinition(f"all names have more than {MAX_NAMES_LENGTH} characters with their packages")
        return named

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > _MAX_PARTS:
            raise InvalidDefinition(f"the definition has more than {_MAX_PARTS} messages, fields and other parts")
        self._budget.spend(parts)


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
