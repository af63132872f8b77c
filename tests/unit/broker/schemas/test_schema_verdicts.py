"""Our verdicts on schemas are Pulsar's, as recorded in `tests/vectors/schema_verdicts.json`, but for differences that
`tests/schema_differences.py` explains."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final, cast

from magnetar_broker.errors import BrokerError
from magnetar_broker.schemas.compatibility import check_compatible, check_readable
from magnetar_broker.schemas.definitions import check_definition, fingerprint
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import SchemaCompatibility
from magnetar_protos.schema_pb2 import Schema
from tests.schema_differences import DIFFERENCES
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
    found = dict(_find_differences(record))
    unexplained = [f"{name}: {text}" for name, text in found.items() if not _is_explained(name)]
    assert not unexplained, "\n".join(unexplained)
    unneeded = [pattern for pattern in DIFFERENCES if not any(fnmatchcase(name, pattern) for name in found)]
    assert not unneeded, f"no verdict differs any more: remove these rows: {unneeded}"


def _is_explained(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in DIFFERENCES)


def _find_differences(record: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, definition in DEFINITIONS.items():
        ours, pulsars = _judge(lambda: check_definition(_make(definition))), record["definitions"][name]  # noqa: B023
        # An error of Pulsar's own is a refusal, too.
        if (ours == "ok") != (pulsars == "ok"):
            yield f"definitions: {name}", f"{ours}, on Pulsar {pulsars}"
    for name, pair in PAIRS.items():
        ours, pulsars = _judge_pair(*map(_make, pair)), record["pairs"][name]
        if (ours == "same") != (pulsars == "same"):
            yield f"pairs: {name}", f"{ours}, on Pulsar {pulsars}"
    for name, evolution in EVOLUTIONS.items():
        for client, use in (("producer", _register), ("consumer", _subscribe)):
            for strategy in STRATEGIES:
                ours = _judge(lambda: use(evolution, strategy))  # noqa: B023
                allowed = strategy in record["evolutions"][name][client]
                if (ours == "ok") != allowed:
                    yield (
                        f"evolutions: {name}: {client}: {strategy}",
                        f"{ours}, on Pulsar {'ok' if allowed else 'refused'}",
                    )


def _judge(use: Callable[[], None]) -> str:
    try:
        use()
    except BrokerError as error:
        return str(error) if error.code in _REFUSALS and error.about == "schema" else f"ok, but {error!r}"
    return "ok"


def _judge_pair(first: Schema, second: Schema) -> str:
    try:
        return "same" if fingerprint(first) == fingerprint(second) else "ok"
    except BrokerError:
        return "refused"


@cache
def _fingerprint(encoded: bytes) -> bytes:
    return fingerprint(Schema.FromString(encoded))


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
    check_definition(new)
    known = (_fingerprint(schema.SerializeToString(deterministic=True)) for _, schema in versions)
    if _fingerprint(new.SerializeToString(deterministic=True)) not in known:
        check_compatible(new, versions, _parse(strategy))


def _subscribe(evolution: Evolution, strategy: str) -> None:
    check_readable(_make(evolution.new), _versions(evolution), _parse(strategy))


def _parse(strategy: str) -> SchemaCompatibility:
    return cast(SchemaCompatibility, SchemaCompatibility.Value(strategy))
