"""Our verdicts on schemas are Pulsar's, as recorded in `tests/vectors/schema_verdicts.json`, but for differences that
`tests/schema_differences.py` explains."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, Final, cast

from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas.compatibility import check_compatible, check_readable
from magnetar_broker.schemas.definitions import examine
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema
from tests.schema_differences import explain_differences
from tests.vectors.capture_schemas import RECORD
from tests.vectors.schema_cases import DEFINITIONS, EVOLUTIONS, PAIRS, STRATEGIES, CaseSchema, Evolution

_REFUSALS: Final = (ErrorCode.INVALID_ARGUMENT, ErrorCode.INCOMPATIBLE_SCHEMA)


def test_verdicts_are_pulsars() -> None:
    """(SCH-2)"""
    record: dict[str, Any] = json.loads(RECORD.read_text())
    assert {part: list(cases) for part, cases in record.items()} == {
        "evolutions": list(EVOLUTIONS),
        "definitions": list(DEFINITIONS),
        "pairs": list(PAIRS),
    }, "record again: python -m tests.vectors.capture_schemas"
    unexplained, unneeded = explain_differences(record, _judge_all())
    assert not unexplained, "\n".join(unexplained)
    assert not unneeded, f"no verdict differs any more: remove these rows: {unneeded}"


def _judge_all() -> dict[str, Any]:
    """Return our verdicts, in the form of the record."""
    evolutions = {}
    for name, evolution in EVOLUTIONS.items():
        verdicts = {
            client: [each for each in STRATEGIES if _judge(use, evolution, each) == "ok"]
            for client, use in (("producer", _register), ("consumer", _subscribe))
        }
        evolutions[name] = verdicts
    return {
        "evolutions": evolutions,
        "definitions": {name: _judge(examine, _make(each)) for name, each in DEFINITIONS.items()},
        "pairs": {name: _judge_pair(*pair) for name, pair in PAIRS.items()},
    }


def _judge(use: Callable[..., object], *arguments: Any) -> str:
    try:
        use(*arguments)
    except BrokerError as error:
        return "refused" if error.code in _REFUSALS and error.about == "schema" else repr(error)
    return "ok"


def _judge_pair(first: CaseSchema, second: CaseSchema) -> str:
    for each in (first, second):
        if (verdict := _judge(examine, _make(each))) != "ok":
            return verdict
    if examine(_make(first)) == examine(_make(second)):
        return "same"
    return _judge(_register, Evolution((first,), second), "ALWAYS_COMPATIBLE")


@cache
def _fingerprint(encoded: bytes) -> bytes:
    return examine(Schema.FromString(encoded))


def _make(case: CaseSchema) -> Schema:
    return Schema(type=case.type, definition=case.definition, properties=case.properties)


def _versions(evolution: Evolution) -> list[tuple[int, Schema]]:
    """Return the versions of the topic: a schema that it has already is none."""
    found: dict[bytes, Schema] = {}
    for schema in map(_make, evolution.earlier):
        found.setdefault(_fingerprint(schema.SerializeToString(deterministic=True)), schema)
    return list(enumerate(found.values()))


def _register(evolution: Evolution, strategy: str) -> None:
    """Do what the registry does for a producer's schema."""
    new, versions = _make(evolution.new), _versions(evolution)
    examine(new)
    known = (_fingerprint(schema.SerializeToString(deterministic=True)) for _, schema in versions)
    if _fingerprint(new.SerializeToString(deterministic=True)) not in known:
        check_compatible(new, versions, _parse(strategy))


def _subscribe(evolution: Evolution, strategy: str) -> None:
    check_readable(_make(evolution.new), _versions(evolution), _parse(strategy))


def _parse(strategy: str) -> SchemaCompatibility:
    return cast(SchemaCompatibility, SchemaCompatibility.Value(strategy))
