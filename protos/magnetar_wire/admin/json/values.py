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


def parse_json(body: bytes) -> Any:
    """Return the value; None if there is none. Raises InvalidJson."""
    if not body.strip():
        return None
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
    try:
        return shorten(json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode())
    except RecursionError:  # JSON that could just be parsed
        return "a value that is nested too deeply"


def shorten(text: str) -> str:
    return text if len(text) <= 100 else text[:100] + "…"
