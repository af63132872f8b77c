"""The torture's messages: each is unique, and shows its producer, its number, and whether it is whole.

A payload is `producer number body crc`: the last eight bytes are the checksum of those before them, in hex. An empty or
null one has the same in its properties. The rest of a message (key, properties, event time) is compared with what was
sent by the `digest`, which is computed from the received message.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from tests.faults.checker.recorder import digest

__all__ = ["Outgoing", "Received", "Unreadable", "make_message", "read", "read_message"]

_CRC_BYTES: Final = 8
# Above that, a payload is repeated: else nothing would be left to compress, and making it would take its time.
_PATTERN_BYTES: Final = 4096


class Unreadable(ValueError):
    """It is no message of anybody's."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    number: int
    payload: bytes | None
    key: str | None
    properties: Mapping[str, str] | None
    event_ms: int

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
    """As the SDK hands it out."""

    def data(self) -> bytes: ...
    def has_null_value(self) -> bool: ...
    def has_key(self) -> bool: ...
    def partition_key(self) -> str: ...
    def properties(self) -> dict[str, str]: ...
    def event_timestamp(self) -> int: ...


def make_message(producer: str, number: int, chance: random.Random, size: int | None, key: str | None) -> Outgoing:
    """With a body of `size` bytes; 0 is an empty payload, and None a null one."""
    properties: dict[str, str] = {}
    if chance.random() < 0.25:
        properties |= {"kind": chance.choice(["", "plain", "süß"]), f"p{chance.randrange(5)}": str(chance.random())}
    payload = b"" if size == 0 else None
    if size:
        whole = f"{producer} {number} ".encode() + _body(chance, size)
        payload = whole + _crc(whole)
    else:
        who = f"{producer} {number}"
        properties["who"] = f"{who} {_crc(who.encode()).decode()}"
    event_ms = 1_700_000_000_000 + chance.randrange(10**9) if chance.random() < 0.25 else 0
    return Outgoing(number, payload, key, properties or None, event_ms)


def read(payload: bytes | None, key: str | None, properties: Mapping[str, str], event_ms: int) -> Received:
    """Whose it is. Raises Unreadable."""
    if payload:
        whole, crc = payload[:-_CRC_BYTES], payload[-_CRC_BYTES:]
    else:
        whole, _, crc = properties.get("who", "").encode().rpartition(b" ")
    if _crc(whole) != crc:
        raise Unreadable(f"{len(payload or b'')} bytes, whose checksum is {_crc(whole)!r}, and not {crc!r}")
    try:
        producer, number = whole.decode("latin-1").split(" ", 2)[:2]
        return Received(producer, int(number), digest(payload, key, properties, event_ms), key)
    except ValueError as error:
        raise Unreadable(f"{len(payload or b'')} bytes without a producer and number: {error}") from error


def read_message(message: Message) -> Received:
    """The like of one that the SDK has handed out."""
    payload = None if message.has_null_value() else message.data()
    key = message.partition_key() if message.has_key() else None
    return read(payload, key, message.properties(), message.event_timestamp())


def _body(chance: random.Random, size: int) -> bytes:
    pattern = chance.randbytes(min(size, _PATTERN_BYTES))
    return (pattern * (size // len(pattern) + 1))[:size]


def _crc(whole: bytes) -> bytes:
    return f"{zlib.crc32(whole):08x}".encode()
