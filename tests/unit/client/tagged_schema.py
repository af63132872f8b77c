"""A schema for tests of what the client does with any schema: its values show by which version they were decoded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from magnetar.exceptions import DecodeError, EncodeError
from magnetar.schema import Schema, SchemaInfo, SchemaType
from magnetar.schema._schema import Decoder

__all__ = ["TaggedSchema", "tag"]


class TaggedSchema(Schema[str]):
    """Values are texts. "bad" can't be encoded, nor b"bad" decoded."""

    needs_writer: ClassVar[bool] = True

    def __init__(self, name: str = "own", *, uses_key: bool = False) -> None:
        self.name = name
        self.uses_key = uses_key
        # The names of the writers for which a decoder was made, and how many payloads each call had.
        self.writers: list[str] = []
        self.calls: list[int] = []

    def schema_info(self) -> SchemaInfo:
        return SchemaInfo(SchemaType.AVRO, self.name, b'"string"')

    def encode(self, obj: str) -> bytes:
        if obj == "bad":
            raise EncodeError("value 'bad' is refused")
        return obj.encode()

    def encode_with_key(self, obj: str) -> tuple[bytes | None, bytes]:
        key, _, value = obj.partition("=")
        return key.encode() or None, self.encode(value)

    def make_decoder(self, writer: SchemaInfo | None) -> Decoder[str]:
        name = self.name if writer is None else writer.name
        self.writers.append(name)
        if name == "unreadable":
            raise DecodeError("the version can't be read")

        def decode(payloads: Sequence[bytes], keys: Sequence[bytes | None] | None) -> list[str | DecodeError]:
            self.calls.append(len(payloads))
            known = keys if keys is not None else [None] * len(payloads)
            return [
                DecodeError(f"payload {row} is bad") if payload == b"bad" else tag(name, payload, key)
                for row, (payload, key) in enumerate(zip(payloads, known, strict=True))
            ]

        return decode


def tag(name: str, payload: bytes, key: bytes | None = None) -> str:
    return f"{name}:{'' if key is None else key.decode() + '='}{payload.decode()}"
