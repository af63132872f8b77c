"""Formats of schemas that brokers and clients share: version numbers, and the definition of KEY_VALUE."""

from __future__ import annotations

import struct
from typing import Final

from magnetar_wire.errors import WireError

__all__ = [
    "MAX_DEFINITION_BYTES",
    "InvalidSchema",
    "decode_schema_version",
    "encode_schema_version",
    "join_key_value",
    "split_key_value",
]

# A version's definition is one entry of a ledger. Real definitions have a few kilobytes.
MAX_DEFINITION_BYTES: Final = 1024 * 1024
_VERSION: Final = struct.Struct(">q")
_SIZE: Final = struct.Struct(">i")


class InvalidSchema(WireError):
    """Bytes that are not a schema's definition, or not a version."""


def encode_schema_version(version: int) -> bytes:
    return _VERSION.pack(version)


def decode_schema_version(encoded: bytes) -> int:
    """Raises `InvalidSchema`."""
    if len(encoded) != _VERSION.size:
        raise InvalidSchema(f"a schema version has {_VERSION.size} bytes, not {len(encoded)}")
    version: int = _VERSION.unpack(encoded)[0]
    if version < 0:
        raise InvalidSchema(f"schema version {version} is negative")
    return version


def join_key_value(key: bytes, value: bytes) -> bytes:
    """Return the definition of a KEY_VALUE schema: those of key and value, each behind its size. Keys and values of
    an inline KEY_VALUE payload are joined in the same way."""
    return _SIZE.pack(len(key)) + key + _SIZE.pack(len(value)) + value


def split_key_value(joined: bytes) -> tuple[bytes | None, bytes | None]:
    """Return key and value. None: there is none; its size is -1. Raises `InvalidSchema`."""
    key, rest = _take_part("key", joined)
    value, rest = _take_part("value", rest)
    if rest:
        raise InvalidSchema(f"{len(rest)} bytes behind the value of a KEY_VALUE schema or payload")
    return key, value


def _take_part(what: str, encoded: bytes) -> tuple[bytes | None, bytes]:
    if len(encoded) < _SIZE.size:
        raise InvalidSchema(f"a KEY_VALUE schema or payload ends before the size of its {what}")
    size: int = _SIZE.unpack_from(encoded)[0]
    if size < 0:
        return None, encoded[_SIZE.size :]
    end = _SIZE.size + size
    if end > len(encoded):
        raise InvalidSchema(
            f"the {what} of a KEY_VALUE schema or payload has {size} bytes, and {len(encoded)} are left"
        )
    return encoded[_SIZE.size : end], encoded[end:]
