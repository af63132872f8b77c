"""A schema of bytes whose definition evolves. Brokers register its versions; the judges find the messages as sent."""

from __future__ import annotations

import json
from collections.abc import Sequence

from magnetar.exceptions import DecodeError
from magnetar.schema import Schema
from magnetar.schema._schema import Decoder, SchemaInfo, SchemaType

__all__ = ["OpaqueSchema"]


class OpaqueSchema(Schema[bytes]):
    """Version `number` of a record that gets an optional field with each version, so that all are compatible."""

    def __init__(self, number: int) -> None:
        fields = [{"name": f"f{one}", "type": ["null", "int"], "default": None} for one in range(number + 1)]
        definition = json.dumps({"type": "record", "name": "Opaque", "fields": fields}).encode()
        self._info = SchemaInfo(SchemaType.AVRO, "Opaque", definition)

    def schema_info(self) -> SchemaInfo:
        return self._info

    def encode(self, obj: bytes) -> bytes:
        return obj

    def make_decoder(self, writer: SchemaInfo | None) -> Decoder[bytes]:
        return _decode


def _decode(payloads: Sequence[bytes], keys: Sequence[bytes | None] | None) -> list[bytes | DecodeError]:
    return list(payloads)
