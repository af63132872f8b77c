"""Parses the JSON of a definition within bounds.

A definition comes from any client. `json.loads` alone would overflow the stack for `[[[[…`, take the last of two equal
keys, accept NaN, and return strings that can't be encoded again. Each of these is an error here, and the nesting is
counted before anything is parsed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Final

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.schemas import MAX_DEFINITION_BYTES

__all__ = ["InvalidDefinition", "JsonValue", "check_size", "parse_json"]

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]

# Code that walks a definition recurses once or twice per level.
MAX_NESTING: Final = 100
# As Pulsar's parser.
_MAX_DIGITS: Final = 1000
# A string, closed or not, or a bracket. Each byte is looked at once: a string that is not closed reaches to the end.
_STRING_OR_BRACKET: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


class InvalidDefinition(BrokerError):
    """A definition that is not one of its type."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.INVALID_ARGUMENT, text, "schema")

    def again(self) -> InvalidDefinition:
        return InvalidDefinition(str(self))


def parse_json(document: bytes) -> JsonValue:
    """Raises `InvalidDefinition`."""
    check_size(document)
    _check_nesting(document)
    try:
        value: JsonValue = json.loads(
            document.decode(),
            object_pairs_hook=_make_object,
            parse_constant=_refuse_constant,
            parse_int=_parse_int,
            parse_float=_parse_float,
        )
    except UnicodeDecodeError as error:
        raise InvalidDefinition(f"the definition is not UTF-8: byte {error.start} is invalid") from None
    except ValueError as error:
        raise InvalidDefinition(f"the definition is not JSON: {error}") from None
    if _SURROGATE.search(document):
        _check_surrogates(value)
    return value


def check_size(document: bytes) -> None:
    if len(document) > MAX_DEFINITION_BYTES:
        raise InvalidDefinition(f"the definition has {len(document)} bytes, and {MAX_DEFINITION_BYTES} are allowed")


def _check_nesting(document: bytes) -> None:
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(document):
        token = match[0]
        if token in b"[{":
            depth += 1
            if depth > MAX_NESTING:
                raise InvalidDefinition(f"the definition is nested deeper than {MAX_NESTING} levels")
        elif token in b"]}":
            depth -= 1


def _make_object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise InvalidDefinition(f"an object of the definition has the key {twice!r:.100} twice")
    return made


def _refuse_constant(name: str) -> JsonValue:
    raise InvalidDefinition(f"the definition is not JSON: {name} is not a value")


def _parse_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise InvalidDefinition(f"a number of the definition has {len(digits)} digits, and {_MAX_DIGITS} are allowed")
    return int(digits)


def _parse_float(digits: str) -> float:
    if len(digits) > _MAX_DIGITS:
        raise InvalidDefinition(f"a number of the definition has {len(digits)} digits, and {_MAX_DIGITS} are allowed")
    value = float(digits)
    if abs(value) == float("inf"):
        raise InvalidDefinition(f"number {digits:.100} of the definition is out of range")
    return value


def _check_surrogates(value: JsonValue) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidDefinition("a string of the definition has half of a surrogate pair") from None
