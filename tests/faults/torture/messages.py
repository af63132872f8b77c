"""The torture's messages: each is unique, and shows its producer, its number, and whether it is whole.

A payload is `producer number body crc`: the last eight bytes are the checksum of those before them, in hex. An empty or
null one, and a typed one, have the same in their properties. The rest of a message (key, properties, event time) is
compared with what was sent by the `digest`, which is computed from the received message.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tests.faults.checker.recorder import digest

__all__ = ["Outgoing", "Received", "Unreadable", "make_message", "make_typed_message", "read", "read_message"]

_CRC_BYTES: Final = 8
# The property of messages whose payload does not show their producer and number.
_WHO: Final = "who"
# Above that, a payload is repeated: else nothing would be left to compress, and making it would take its time.
_PATTERN_BYTES: Final = 4096


class Unreadable(ValueError):
    """It is no message of the torture."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    number: int
    payload: bytes | None
    key: str | None
    properties: Mapping[str, str] | None
    event_ms: int
    # The value of a typed message, whose encoding is the payload.
    value: Any = None

    @property
    def content(self) -> Any:
        """What is passed to a producer."""
        return self.payload if self.value is None else self.value

    @property
    def digest(self) -> str:
        return digest(self.payload, self.key, self.properties, self.event_ms)


@dataclass(frozen=True, slots=True)
class Received:
    producer: str
    number: int
    digest: str
    key: str | None


class Message(Protocol):
    """The interface of the SDK's messages."""

    def data(self) -> bytes: ...
    def has_null_value(self) -> bool: ...
    def has_key(self) -> bool: ...
    def partition_key(self) -> str: ...
    def properties(self) -> dict[str, str]: ...
    def event_timestamp(self) -> int: ...


def make_message(producer: str, number: int, chance: random.Random, size: int | None, key: str | None) -> Outgoing:
    """Make a message with a body of `size` bytes; 0 is an empty payload, and None a null one."""
    properties: dict[str, str] = {}
    if chance.random() < 0.25:
        properties |= {"kind": chance.choice(["", "plain", "süß"]), f"p{chance.randrange(5)}": str(chance.random())}
    payload = b"" if size == 0 else None
    if size:
        whole = f"{producer} {number} ".encode() + _body(chance, size)
        payload = whole + _crc(whole)
    else:
        properties[_WHO] = _who(producer, number)
    event_ms = 1_700_000_000_000 + chance.randrange(10**9) if chance.random() < 0.25 else 0
    return Outgoing(number, payload, key, properties or None, event_ms)


def make_typed_message(producer: str, number: int, value: Any, payload: bytes, key: str | None) -> Outgoing:
    return Outgoing(number, payload, key, {_WHO: _who(producer, number)}, 0, value)


def read(payload: bytes | None, key: str | None, properties: Mapping[str, str], event_ms: int) -> Received:
    """Return its producer and number. Raises Unreadable."""
    if payload and _WHO not in properties:
        whole, crc = payload[:-_CRC_BYTES], payload[-_CRC_BYTES:]
    else:
        whole, _, crc = properties.get(_WHO, "").encode().rpartition(b" ")
    if _crc(whole) != crc:
        raise Unreadable(f"{len(payload or b'')} bytes, whose checksum is {_crc(whole)!r}, and not {crc!r}")
    try:
        producer, number = whole.decode("latin-1").split(" ", 2)[:2]
        return Received(producer, int(number), digest(payload, key, properties, event_ms), key)
    except ValueError as error:
        raise Unreadable(f"{len(payload or b'')} bytes without a producer and number: {error}") from error


def read_message(message: Message) -> Received:
    """Return the producer, number, digest and key of one of the SDK's messages."""
    payload = None if message.has_null_value() else message.data()
    key = message.partition_key() if message.has_key() else None
    return read(payload, key, message.properties(), message.event_timestamp())


def _who(producer: str, number: int) -> str:
    who = f"{producer} {number}"
    return f"{who} {_crc(who.encode()).decode()}"


def _body(chance: random.Random, size: int) -> bytes:
    pattern = chance.randbytes(min(size, _PATTERN_BYTES))
    return (pattern * (size // len(pattern) + 1))[:size]


def _crc(whole: bytes) -> bytes:
    return f"{zlib.crc32(whole):08x}".encode()
