"""JSON values from the network: decoded, checked, and shown in errors."""

from __future__ import annotations

import base64
import json
import math
import re
from typing import Any, Final

__all__ = [
    "InvalidJson",
    "InvalidValue",
    "OutOfRange",
    "UnprocessableValue",
    "UnsupportedValue",
    "check_not_null",
    "check_text",
    "check_type",
    "decode_base64",
    "format_value",
    "join_path",
    "parse_json",
    "shorten",
]

_SURROGATE: Final = re.compile(rb"\\u[dD]")
# A string, also one without an end. It always matches at the first try, or the time would grow with the square.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_SHOWN_CHARACTERS: Final = 100


class InvalidJson(ValueError):
    """A JSON value that does not fit its declaration. The text names the value and the right type."""

    # The HTTP status of the answer.
    status = 400


class InvalidValue(InvalidJson):
    """A value of the right type that is not allowed."""

    status = 412


class UnprocessableValue(InvalidJson):
    """A value of the right type whose content can't be used, as Pulsar answers it for schemas."""

    status = 422


class OutOfRange(InvalidJson):
    """A whole number that is not in the range of its field. Pulsar often has another status for it."""


class UnsupportedValue(InvalidJson):
    """A value that asks for something that is not supported yet. The text names what is missing."""

    status = 405


def parse_json(body: bytes, max_values: int = 0) -> Any:
    """Return the value; None if there is none. Raises InvalidJson, also if it consists of more than `max_values` values
    (0: any number): each takes fifty bytes or more, and `[[],[],…` has a hundred thousand of them in 300 kB."""
    if not body.strip():
        return None
    if max_values and len(body) > max_values and _has_more_values(body, max_values):
        raise InvalidJson(f"the body has more than {max_values:,} values")
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
        if _SURROGATE.search(body):
            # Escapes can make halves of surrogate pairs, which no message can have.
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except RecursionError:
        raise InvalidJson("the body is nested too deeply") from None
    except UnicodeEncodeError:
        raise InvalidJson("the body: a text has half of a surrogate pair") from None
    except (json.JSONDecodeError, UnicodeDecodeError, _NoNumber) as error:
        raise InvalidJson(f"the body is not JSON in UTF-8: {shorten(str(error))}") from None
    except ValueError:  # Python converts no number that is as long
        raise InvalidJson("the body has a number with too many digits") from None


def _has_more_values(body: bytes, maximum: int) -> bool:
    """Return whether the JSON text has more values, about: strings, names, objects, arrays and what ends with a comma.

    Counting ends at the maximum. So it takes no longer than parsing what is allowed."""
    others, strings = _STRING.subn(b"", body, maximum)
    return strings == maximum or others.count(b",") + others.count(b"[") + others.count(b"{") > maximum


class _NoNumber(ValueError):
    pass


def _refuse_constant(text: str) -> Any:
    raise _NoNumber(f"{text} is no JSON number")


def check_type(value: Any, kind: type, expected: str, where: str) -> Any:
    if not isinstance(value, kind):
        raise InvalidJson(f"{where}: {format_value(value)} is not {expected}")
    return value


def check_not_null(value: Any, where: str) -> Any:
    if value is None:
        raise InvalidJson(f"{where} is null")
    return value


def check_text(value: Any, where: str) -> str:
    """Return a text that a message can have. Raises InvalidJson."""
    text: str = check_type(value, str, "a text", where)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidJson(f"{where}: the text has half of a surrogate pair") from None
    return text


def join_path(where: str, name: str) -> str:
    """Return the position of a member whose name is the client's, and checked here."""
    check_text(name, where)
    return f"{where}.{shorten(name)}"


def decode_base64(text: str, where: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise InvalidJson(f"{where}: {format_value(text)} is not base64: {error}") from None


def format_value(value: Any) -> str:
    """Return the value as errors show it: as JSON, shortened."""
    if isinstance(value, float) and not math.isfinite(value):
        return "a number that is too large"
    if isinstance(value, str):
        value = value[: _SHOWN_CHARACTERS + 1]
    text = ""
    try:
        # Not all of a large value.
        for part in json.JSONEncoder(ensure_ascii=False).iterencode(value):
            text += part[: _SHOWN_CHARACTERS + 1]
            if len(text) > _SHOWN_CHARACTERS:
                break
    except RecursionError:  # JSON that could just be parsed
        return "a value that is nested too deeply"
    return shorten(text.encode("utf-8", "backslashreplace").decode())


def shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
