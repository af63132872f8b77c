"""Read and parse messages to publish from arguments, files and standard input.

Input is split into messages as it arrives, so that a line that a user types is sent when it ends. The buffered input is
bounded: a message above `MAX_MESSAGE_BYTES` is refused.
"""

from __future__ import annotations

import binascii
import enum
import json
import os
import select
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from magnetar_wire.interruptible_wait import SIGNAL_CHECK_S

__all__ = [
    "MAX_MESSAGE_BYTES",
    "Encode",
    "InputFormat",
    "InputMessage",
    "InvalidInput",
    "InvalidValue",
    "Parser",
    "make_json_parser",
    "make_keyed_line_parser",
    "make_line_parser",
    "parse_json_message",
    "read_pieces",
    "read_whole_message",
    "split_messages",
]

# Above the limit of any broker, whose default is 5 MiB.
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
_READ_BYTES: Final = 64 * 1024
_FIELDS: Final = ("value", "value_base64", "key", "key_base64", "properties", "event_time")
# Further fields of `consume --json`, which a published message gets from the service.
_IGNORED_FIELDS: Final = frozenset(
    {
        "topic",
        "message_id",
        "publish_time",
        "producer_name",
        "sequence_id",
        "index",
        "redelivery_count",
        "schema_version",
        "decode_error",
    }
)


class InvalidInput(Exception):
    """The input is not a valid message. The error shows the beginning of the input, and the reason."""

    # How many messages before it were not sent either.
    unsent_before = 0


class InvalidValue(Exception):
    """JSON that is no value of the schema. The error names the field."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self._problem = problem
        self._path: list[str] = []

    def add_field(self, name: str) -> None:
        """Name a field, `.name`, or an item, `[3]`, that contains the value."""
        self._path.insert(0, name)

    def __str__(self) -> str:
        path = "".join(self._path).removeprefix(".")
        return f"field {path!r}: {self._problem}" if path else self._problem


class InputFormat(enum.StrEnum):
    LINES = "lines"
    JSON = "json"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class InputMessage:
    """A message to publish."""

    value: bytes | None
    key: str | bytes | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_ms: int = 0


# Parses the bytes between two separators.
Parser = Callable[[bytes], InputMessage]
# Encodes a JSON value by a schema. Returns the key that the value has, if any, and the payload, if any.
# Raises InvalidValue.
Encode = Callable[[Any], tuple[bytes | None, bytes | None]]


def read_pieces(descriptor: int, stop: int) -> Iterator[bytes]:
    """Yield the input as it arrives. End with the input, or when the descriptor `stop` is readable."""
    while True:
        readable, _, _ = select.select([descriptor, stop], [], [], SIGNAL_CHECK_S)
        if stop in readable:
            return
        if not readable:
            continue
        piece = os.read(descriptor, _READ_BYTES)
        if not piece:
            return
        yield piece


def split_messages(pieces: Iterable[bytes], separator: bytes) -> Iterator[list[bytes]]:
    """Yield lists of messages, each with those that were completed by one piece. A separator at the end of the input is
    not followed by an empty message."""
    # The pieces after the last separator.
    rest: list[bytes] = []
    size = 0
    overlap = len(separator) - 1
    for piece in pieces:
        if overlap and rest:  # a separator may begin in the piece before
            last = rest.pop()
            rest.append(last[:-overlap])
            piece = last[-overlap:] + piece
            size -= min(overlap, len(last))
        first, *more = piece.split(separator)
        rest.append(first)
        size += len(first)
        if size > MAX_MESSAGE_BYTES:
            raise InvalidInput(f"a message has more than {MAX_MESSAGE_BYTES:,} bytes: is --separator right?")
        if more:
            found = [b"".join(rest), *more[:-1]]
            rest, size = [more[-1]], len(more[-1])
            yield found
    if size:
        yield [b"".join(rest)]


def read_whole_message(pieces: Iterable[bytes]) -> bytes:
    """Return the whole input as one message."""
    found: list[bytes] = []
    size = 0
    for piece in pieces:
        found.append(piece)
        size += len(piece)
        if size > MAX_MESSAGE_BYTES:
            raise InvalidInput(f"it has more than {MAX_MESSAGE_BYTES:,} bytes, the maximum of a message")
    return b"".join(found)


def make_line_parser(encode: Encode, *, takes_text: bool = False) -> Parser:
    """Return a parser of lines that are values in JSON. null: the message has no value.

    `takes_text`: values are strings, and a line that is neither a JSON string nor null is the string itself.
    """
    parse_value = _parse_text if takes_text else _parse_json

    def parse(line: bytes) -> InputMessage:
        key, payload = _encode(encode, parse_value(line), line)
        return InputMessage(payload, key)

    return parse


def make_keyed_line_parser(separator: bytes, encode: Encode | None = None, *, takes_text: bool = False) -> Parser:
    """Return a parser of lines with a key, the separator and a value, which is as for `make_line_parser` if there is a
    schema."""
    parse_value = _parse_text if takes_text else _parse_json

    def parse(line: bytes) -> InputMessage:
        key, found, value = line.partition(separator)
        if not found:
            raise InvalidInput(f"{_abbreviate(line)} has no {separator.decode()!r} between key and value")
        own_key, payload = (None, value) if encode is None else _encode(encode, parse_value(value), line)
        return InputMessage(payload, _decode_if_text(key) if own_key is None else own_key)

    return parse


def make_json_parser(encode: Encode) -> Parser:
    """Return a parser of objects as `consume --json` prints them, whose values a schema encodes."""

    def parse(line: bytes) -> InputMessage:
        fields = _parse_fields(line)
        if fields.get("value_base64") is not None:
            raise InvalidInput(f"{_abbreviate(line)}: value_base64 is a payload already: use value, or no --schema")
        key, payload = _encode(encode, fields.get("value"), line)
        return _make_message(fields, line, payload, key)

    return parse


def parse_json_message(line: bytes) -> InputMessage:
    """Parse a JSON object as `consume --json` prints it."""
    fields = _parse_fields(line)
    if fields.get("schema_version") is not None:
        raise InvalidInput(
            f"{_abbreviate(line)}: a schema has decoded this value: use --schema to encode it, or print messages with "
            "--no-decode"
        )
    return _make_message(fields, line, _get_bytes(fields, "value", line))


def _parse_fields(line: bytes) -> dict[str, Any]:
    fields = _parse_json(line)
    if not isinstance(fields, dict):
        raise InvalidInput(f'{_abbreviate(line)} is not a JSON object: use {{"value": …}}')
    for name in fields:
        if name not in _FIELDS and name not in _IGNORED_FIELDS:
            raise InvalidInput(f"{_abbreviate(line)} has the unknown field {name!r}: use {', '.join(_FIELDS)}")
    if "value" not in fields and "value_base64" not in fields:
        raise InvalidInput(
            f"{_abbreviate(line)} has neither value nor value_base64: use null for a message without a value"
        )
    return fields


def _parse_json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{_abbreviate(line)} is not JSON: {error}") from None


def _parse_text(line: bytes) -> str | None:
    try:
        value = json.loads(line)
        if value is None or isinstance(value, str):
            return value
    except (ValueError, RecursionError):
        pass
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise InvalidInput(f"{_abbreviate(line)} is not UTF-8") from None


def _encode(encode: Encode, value: Any, line: bytes) -> tuple[str | bytes | None, bytes | None]:
    if value is None:
        return None, None
    try:
        key, payload = encode(value)
    except InvalidValue as error:
        raise InvalidInput(f"{_abbreviate(line)}: {error}") from None
    return None if key is None else _decode_if_text(key), payload


def _make_message(
    fields: dict[str, Any], line: bytes, payload: bytes | None, own_key: str | bytes | None = None
) -> InputMessage:
    """`own_key`: the one that a schema has encoded."""
    encoded_key = _get_bytes(fields, "key", line)
    key = None if encoded_key is None else _decode_if_text(encoded_key)
    if own_key is not None:
        if key not in (None, own_key):
            raise InvalidInput(f"{_abbreviate(line)}: key is not that of the value: leave it out")
        key = own_key
    return InputMessage(
        payload, key, _check_properties(fields.get("properties"), line), _parse_event_ms(fields.get("event_time"), line)
    )


def _get_bytes(fields: dict[str, Any], name: str, line: bytes) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    plain = fields.get(name)
    if encoded is not None and plain is not None:
        raise InvalidInput(f"{_abbreviate(line)} has both {name} and {name}_base64: leave one out")
    if encoded is not None:
        try:
            return b64decode(encoded, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise InvalidInput(f"{_abbreviate(line)}: {name}_base64 is not base64") from None
    if plain is None:
        return None
    if not isinstance(plain, str):  # any JSON may be a value; it is published as text
        plain = json.dumps(plain, ensure_ascii=False)
    try:
        return bytes(plain.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"{_abbreviate(line)}: {name} has an incomplete character: use {name}_base64") from None


def _check_properties(value: Any, line: bytes) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise InvalidInput(f"{_abbreviate(line)}: properties is not an object of strings")
    return value


def _parse_event_ms(value: Any, line: bytes) -> int:
    if value is None:
        return 0
    import typer

    from magnetar_cli.messages.positions import parse_time_ms

    try:
        return parse_time_ms(str(value), "event_time")
    except typer.BadParameter:
        raise InvalidInput(f"{_abbreviate(line)}: event_time is not a time: use ISO 8601, or ms since 1970") from None


def _decode_if_text(key: bytes) -> str | bytes:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


def _abbreviate(line: bytes) -> str:
    text = line[:60].decode("utf-8", "backslashreplace")
    return repr(text if len(line) <= 60 else text + "…")
