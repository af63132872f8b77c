"""What differs from Pulsar in verdicts on schemas, and why: patterns of names, as `compare_verdicts` makes them.

A row that no difference needs any more fails the test.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

__all__ = ["DIFFERENCES", "explain_differences"]

_DEFAULT: Final = (
    "a default of a wrong type is refused: Pulsar accepts it from the first producer, and then fails for each one "
    "after it, even with the same schema"
)
_BRANCH: Final = (
    "a default may be of any branch of a union, as in Avro 1.12, and as Python's client sends it: Pulsar accepts it "
    "from the first producer, and then fails"
)
_JSON: Final = "it is not JSON that all clients can parse"
_JSON_SCHEMA: Final = (
    "Pulsar fails for each schema after a JSON schema: it parses both as Avro schemas, before it compares them by "
    "its rule"
)
_KEY_VALUE: Final = (
    "a KEY_VALUE schema with other types is another one: Pulsar compares the definitions alone, which are equal, so a "
    "consumer would decode messages with the wrong types"
)
_ENCODING: Final = (
    "another encoding is another version, so that consumers know where the key is: Pulsar compares the definitions"
)

DIFFERENCES: Final[dict[str, str]] = {
    "definitions: *default of wrong type": _DEFAULT,
    "definitions: default 1.0 of int": _DEFAULT,
    "definitions: default null of int": _DEFAULT,
    "definitions: default of no branch": _DEFAULT,
    "definitions: default out of range": _DEFAULT,
    "definitions: default true of int": _DEFAULT,
    "definitions: incomplete default of record": _DEFAULT,
    "definitions: wrong default of *": _DEFAULT,
    "definitions: comment": _JSON,
    "definitions: 200 levels": "its nesting is bounded, so that no client's parser fails",
    "definitions: NUL behind": _JSON,
    "definitions: name of 2000 letters": "full names are bounded: a namespace is part of each name",
    "definitions: number out of range": "clients read it as another number, or not at all",
    "definitions: invalid UTF-8": _JSON,
    "definitions: key twice": "parsers don't agree on which of two values counts",
    "definitions: key value: long": "bytes behind the definition have no meaning",
    "definitions: key value: unknown encoding": "no client can decode it",
    "definitions: surrogate": _JSON,
    "evolutions: *: nullable field added with default of second branch: *": _BRANCH,
    "evolutions: history: json schema: *": _JSON_SCHEMA,
    "evolutions: history: key value of another type before: producer: FORWARD": _KEY_VALUE,
    "evolutions: key value: avro to json: *": _KEY_VALUE,
    "evolutions: key value: encoding: producer: ALWAYS_INCOMPATIBLE": _ENCODING,
    "evolutions: key value: primitive types: *": _KEY_VALUE,
    "evolutions: key value: type of key: *": _KEY_VALUE,
    "evolutions: types: *json schema*: producer: *": _JSON_SCHEMA,
    "pairs: avro: *default of second branch": _BRANCH,
    "pairs: key value: encoding": _ENCODING,
    "pairs: key value: primitive types": _KEY_VALUE,
}


def explain_differences(pulsars: dict[str, Any], ours: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return differences without a row, and rows without a difference. Both records are as in `capture_schemas.py`."""
    found = dict(_compare(pulsars, ours))
    unexplained = [
        f"{name}: {text}" for name, text in found.items() if not any(fnmatchcase(name, each) for each in DIFFERENCES)
    ]
    return unexplained, [each for each in DIFFERENCES if not any(fnmatchcase(name, each) for name in found)]


def _compare(pulsars: dict[str, Any], ours: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for part in ("definitions", "pairs"):
        for name, verdict in pulsars[part].items():
            # If Pulsar fails with an error of its own, a refusal is right.
            if ours[part][name] != ("refused" if verdict == "failed" else verdict):
                yield f"{part}: {name}", f"{ours[part][name]}, on Pulsar {verdict}"
    for name, clients in pulsars["evolutions"].items():
        for client, strategies in clients.items():
            for strategy in sorted(set(strategies) ^ set(ours["evolutions"][name][client])):
                text = "refused, on Pulsar ok" if strategy in strategies else "ok, on Pulsar refused"
                yield f"evolutions: {name}: {client}: {strategy}", text
