"""The text of a refusal of an incompatible schema (SCH-2). The verdicts are in test_schema_verdicts.py."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas.compatibility import check_compatible, check_readable
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema

_VALUE: Final = {"name": "value", "type": "int"}
_UNIT: Final = {"name": "unit", "type": "string"}


def _avro(*fields: dict[str, Any]) -> Schema:
    definition = {"type": "record", "name": "reading", "fields": list(fields)}
    return Schema(type="AVRO", definition=json.dumps(definition).encode())


def test_refusal_names_strategy_version_field_and_rule() -> None:
    """(SCH-2)"""
    with pytest.raises(BrokerError) as raised:
        check_compatible(_avro(_VALUE, _UNIT), [(3, _avro(_VALUE))], SchemaCompatibility.BACKWARD)
    assert str(raised.value) == (
        'the schema is not compatible with version 3 (BACKWARD): field "reading.unit" was added without a default, so '
        "readers with the new schema can't read older messages"
    )
    assert (raised.value.code, raised.value.about) == (ErrorCode.INCOMPATIBLE_SCHEMA, "schema")


def test_refusal_names_the_last_version_that_does_not_fit() -> None:
    earlier = [(0, _avro(_VALUE)), (1, _avro(_VALUE)), (2, _avro(_VALUE, _UNIT))]
    with pytest.raises(BrokerError, match=r"version 1 \(BACKWARD_TRANSITIVE\)"):
        check_compatible(_avro(_VALUE, _UNIT), earlier, SchemaCompatibility.BACKWARD_TRANSITIVE)


def test_refusal_is_short_for_long_names() -> None:
    name = "a" * 900
    old, new = ({"name": name, "type": {"type": "enum", "name": prefix + name, "symbols": []}} for prefix in "bc")
    with pytest.raises(BrokerError, match="changed its type's name from baaa") as raised:
        check_compatible(_avro(new), [(0, _avro(old))], SchemaCompatibility.FULL)
    assert len(str(raised.value)) < 1000


def test_refusal_of_a_consumer_names_what_it_can_not_read() -> None:
    with pytest.raises(BrokerError, match="so consumers with this schema can't read messages of that version"):
        check_readable(_avro(_VALUE, _UNIT), [(3, _avro(_VALUE))], SchemaCompatibility.FORWARD)
