"""Messages to publish, out of arguments, files and standard input.

Input is cut into messages as it comes (`cut`), so that what somebody types leaves at the end of its line. What is read
and not cut yet is bounded: a message that goes on beyond `MAX_MESSAGE_BYTES` is refused, and not gathered for ever.
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
    "BadInput",
    "Given",
    "InputFormat",
    "Parse",
    "all_of",
    "cut",
    "json_message",
    "keyed_line",
    "pieces_of",
]

# Brokers take 5 MiB unless they are told otherwise; above this nobody does.
MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
_PIECE: Final = 64 * 1024
_KNOWN: Final = ("value", "value_base64", "key", "key_base64", "properties", "event_time")
# What `consume --json` tells besides, which is the topic's to say anew.
_IGNORED: Final = frozenset(
    {"topic", "message_id", "publish_time", "producer_name", "sequence_id", "index", "redelivery_count"}
)


class BadInput(Exception):
    """A message that can't be made of what was read. It says which, and why."""


class InputFormat(enum.StrEnum):
    LINES = "lines"
    JSON = "json"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Given:
    """A message as it is to be published."""

    value: bytes | None
    key: str | bytes | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_ms: int = 0


# Makes a message of a piece of input.
Parse = Callable[[bytes], Given]


def pieces_of(descriptor: int, stopped: int) -> Iterator[bytes]:
    """What can be read of it, as it comes; ends where it does, or when `stopped` is readable."""
    while True:
        readable, _, _ = select.select([descriptor, stopped], [], [], SIGNAL_CHECK_S)
        if stopped in readable:
            return
        if not readable:
            continue
        piece = os.read(descriptor, _PIECE)
        if not piece:
            return
        yield piece


def cut(pieces: Iterable[bytes], separator: bytes) -> Iterator[list[bytes]]:
    """The pieces between separators, those that came together in one list. What ends with a separator has no empty
    message behind it."""
    # What stands behind the last separator, in the pieces in which it came.
    rest: list[bytes] = []
    size = 0
    overlap = len(separator) - 1
    for piece in pieces:
        if overlap and rest:  # one may lie across: so much of what stands before is looked at again
            last = rest.pop()
            rest.append(last[:-overlap])
            piece = last[-overlap:] + piece
            size -= min(overlap, len(last))
        first, *more = piece.split(separator)
        rest.append(first)
        size += len(first)
        if size > MAX_MESSAGE_BYTES:
            raise BadInput(f"a message has more than {MAX_MESSAGE_BYTES:,} bytes: is --separator right?")
        if more:
            found = [b"".join(rest), *more[:-1]]
            rest, size = [more[-1]], len(more[-1])
            yield found
    if size:
        yield [b"".join(rest)]


def all_of(pieces: Iterable[bytes]) -> bytes:
    found: list[bytes] = []
    size = 0
    for piece in pieces:
        found.append(piece)
        size += len(piece)
        if size > MAX_MESSAGE_BYTES:
            raise BadInput(f"it has more than {MAX_MESSAGE_BYTES:,} bytes, the maximum of a message")
    return b"".join(found)


def keyed_line(separator: bytes) -> Parse:
    """A key, the separator, a value."""

    def parse(line: bytes) -> Given:
        key, found, value = line.partition(separator)
        if not found:
            raise BadInput(f"{_shortly(line)} has no {separator.decode()!r} between key and value")
        return Given(value, _text_if_it_is(key))

    return parse


def json_message(line: bytes) -> Given:
    """As `consume --json` writes them."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{_shortly(line)} is not JSON: {error}") from None
    if not isinstance(told, dict):
        raise BadInput(f'{_shortly(line)} is not a JSON object: use {{"value": …}}')
    for name in told:
        if name not in _KNOWN and name not in _IGNORED:
            raise BadInput(f"{_shortly(line)} has the unknown field {name!r}: use {', '.join(_KNOWN)}")
    if "value" not in told and "value_base64" not in told:
        raise BadInput(f"{_shortly(line)} has neither value nor value_base64: use null for a message without a value")
    key = _bytes_told(told, "key", line)
    return Given(
        _bytes_told(told, "value", line),
        None if key is None else _text_if_it_is(key),
        _properties(told.get("properties"), line),
        _event_ms(told.get("event_time"), line),
    )


def _bytes_told(told: dict[str, Any], name: str, line: bytes) -> bytes | None:
    encoded = told.get(f"{name}_base64")
    plain = told.get(name)
    if encoded is not None and plain is not None:
        raise BadInput(f"{_shortly(line)} has both {name} and {name}_base64: leave one out")
    if encoded is not None:
        try:
            return b64decode(encoded, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise BadInput(f"{_shortly(line)}: {name}_base64 is not base64") from None
    if plain is None:
        return None
    if not isinstance(plain, str):  # an object may be a value, and is written as it stands
        plain = json.dumps(plain, ensure_ascii=False)
    try:
        return bytes(plain.encode())
    except UnicodeEncodeError:
        raise BadInput(f"{_shortly(line)}: {name} has an incomplete character: use {name}_base64") from None


def _properties(told: Any, line: bytes) -> Mapping[str, str]:
    if told is None:
        return {}
    if not isinstance(told, dict) or not all(isinstance(value, str) for value in told.values()):
        raise BadInput(f"{_shortly(line)}: properties is not an object of strings")
    return told


def _event_ms(told: Any, line: bytes) -> int:
    if told is None:
        return 0
    import typer

    from magnetar_cli.messages.places import time_ms

    try:
        return time_ms(str(told), "event_time")
    except typer.BadParameter:
        raise BadInput(f"{_shortly(line)}: event_time is not a time: use ISO 8601, or ms since 1970") from None


def _text_if_it_is(key: bytes) -> str | bytes:
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


def _shortly(line: bytes) -> str:
    text = line[:60].decode("utf-8", "backslashreplace")
    return repr(text if len(line) <= 60 else text + "…")
