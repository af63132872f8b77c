"""Fingerprints are stored: a topic's schema that got another one would be registered again, as a new version."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from magnetar_broker.schemas.definitions import examine
from magnetar_protos.schema_pb2 import Schema
from tests.vectors.schema_cases import DEFINITIONS

_E: Final = {"type": "enum", "name": "E", "symbols": ["X", "Y"], "default": "X"}
_F: Final = {"type": "fixed", "name": "F", "size": 4, "namespace": "m", "logicalType": "decimal"}


def _record(*types: Any, **attributes: Any) -> bytes:
    fields = [{"name": f"f{number}", "type": each} for number, each in enumerate(types)]
    return json.dumps({"type": "record", "name": "R", "fields": fields, **attributes}).encode()


_DEFAULTS: Final = (
    b'{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":1,"order":"ignore","unit":"m"},'
    b'{"name":"b","type":"double","default":"NaN"},{"name":"c","type":["null","string"],"default":null},'
    b'{"name":"gr\xc3\xb6\xc3\x9fe","type":{"type":"map","values":"long"},"default":{"y":1,"x":2}}]}'
)


@pytest.mark.parametrize(
    ("schema", "fingerprint"),
    [
        (Schema(type="AVRO", definition=_record("int")), "1b0451358dbd0479"),
        (Schema(type="JSON", definition=_record("int")), "e772839a334e9bf4"),
        (Schema(type="PROTOBUF", definition=_record("int")), "b6ea974e60632d84"),
        (Schema(type="AVRO", definition=_record(_E, _F, "E", ["null", "m.F"], ["null", "R"])), "7d7961bc4eac1629"),
        (
            Schema(type="AVRO", definition=_record({"type": "array", "items": _E}, namespace="n", owner={"b": 1})),
            "646568ef83caf91a",
        ),
        (Schema(type="AVRO", definition=_DEFAULTS), "36f70e1d846b84a7"),
        (Schema(type="JSON", definition=b'"string"'), "eb7c23c862c97689"),
        (Schema(type="JSON", definition=DEFINITIONS["json schema"].definition), "96a49c77381f73b9"),
        (Schema(type="PROTOBUF_NATIVE", definition=DEFINITIONS["native"].definition), "7351fbcb79a2d3da"),
        (Schema(type="STRING"), "491b3497ae3f42a0"),
        (Schema(type="INT32", name="x", properties={"a": "b"}), "a45335d92732532b"),
        (Schema(type="KEY_VALUE", definition=b"\0\0\0\0\0\0\0\0"), "b54d99b2649265be"),
        (
            Schema(
                type="KEY_VALUE",
                definition=b"\0\0\0\0\0\0\0\x08" + b'"string"',
                properties={"value.schema.type": "JSON", "kv.encoding.type": "SEPARATED"},
            ),
            "e443870969ee50ff",
        ),
    ],
)
def test_fingerprints_stay_the_same(schema: Schema, fingerprint: str) -> None:
    """(SCH-1)"""
    assert examine(schema).hex()[:16] == fingerprint
