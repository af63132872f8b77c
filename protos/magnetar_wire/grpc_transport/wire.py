"""How calls and streams look on the wire.

There are two gRPC methods, `/magnetar.Transport/Call` and `/magnetar.Transport/Stream`; which one of ours is meant says
the metadata `magnetar-method`, percent-encoded. (`known_methods.py` says why it is not in the path.) Messages are bytes
as they are, with one exception.

**The end of a client's messages is a message of its own**, the empty one. gRPC's server library says "no more" alike
when the client has finished and when its connection broke, some time before it tells of the break; taken for an end,
that would turn unknown into done. So a stream without the empty message has broken. A message of ours that is empty
travels as one byte 0xFF, and one of nothing but such bytes with one more. The server's end is its status, and its
messages travel as they are.

**What a client sends travels in pieces**, calls and streams alike: pieces of `PIECE_BYTES`, and a shorter one at the
end, which may be empty. gRPC takes memory for all that a message says it has, and tells nobody before it is there; so a
server takes no more than a piece unasked, and joins the pieces where it has room (`admission.py`). What is shorter
than a piece is one, as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final
from urllib.parse import quote, unquote

from magnetar_wire.transport import MAX_TRANSPORT_BYTES, Code, Refusal

__all__ = [
    "CALL",
    "END",
    "PIECE_BYTES",
    "SERVICE",
    "STREAM",
    "Metadata",
    "decoded",
    "encoded",
    "joined",
    "method_metadata",
    "method_named",
    "pieces",
]

Metadata = Iterable[tuple[str, str | bytes]]

SERVICE: Final = "magnetar.Transport"
CALL: Final = "Call"
STREAM: Final = "Stream"
END: Final = b""
PIECE_BYTES: Final = 262_144
_METHOD: Final = "magnetar-method"
_FILL: Final = b"\xff"


def method_metadata(name: str) -> tuple[tuple[str, str], ...]:
    return ((_METHOD, quote(name, safe="")),)


def method_named(metadata: Metadata) -> str | None:
    for key, value in metadata:
        if key == _METHOD and isinstance(value, str):
            return unquote(value)
    return None


def encoded(message: bytes) -> bytes:
    """The message as a client sends it. Only the first byte is looked at, nearly always."""
    return message + _FILL if message[:1] in (b"", _FILL) and not message.strip(_FILL) else message


def decoded(message: bytes) -> bytes:
    return message[:-1] if message[:1] == _FILL and not message.strip(_FILL) else message


def pieces(message: bytes) -> Iterator[bytes]:
    if len(message) < PIECE_BYTES:
        yield message
        return
    for begin in range(0, len(message) + 1, PIECE_BYTES):
        yield message[begin : begin + PIECE_BYTES]


async def joined(first: bytes, read: Callable[[], Awaitable[object]]) -> bytes | None:
    """The message that begins with `first`; None where it breaks off. Raises `Refusal` where it is too large."""
    parts, size = [first], len(first)
    try:
        while len(parts[-1]) == PIECE_BYTES:
            piece = await read()
            if not isinstance(piece, bytes):
                return None
            parts.append(piece)
            size += len(piece)
            if size > MAX_TRANSPORT_BYTES + 1:  # `encoded` may have added one
                raise Refusal(
                    Code.RESOURCE_EXHAUSTED, f"a message has more than {MAX_TRANSPORT_BYTES} bytes, the maximum"
                )
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        # An error's traceback knows this frame, and may live until garbage is collected.
        parts.clear()
