"""The format of calls and streams on the wire.

There are two gRPC methods, `/magnetar.Transport/Call` and `/magnetar.Transport/Stream`. The metadata `magnetar-method`
has the name of our method, percent-encoded. (`known_methods.py` explains why it is not in the path.) Messages are plain
bytes, with one exception.

**The end of a client's messages is a message of its own**, the empty one. gRPC's server library reports the same end if
the client has finished and if its connection broke, and reports the break only later. Taken for an end, that would turn
"unknown" into "done". So a stream that ends without the empty message has broken. An empty message of ours is sent as
one byte 0xFF, and a message of such bytes only is sent with one more. The server's end is its status, and its messages
are sent unchanged.

**A client's messages are sent in pieces**, in calls and streams alike: pieces of `PIECE_BYTES`, and a shorter one at
the end, which may be empty. gRPC allocates memory for the declared size of a message before it has arrived. So a server
accepts at most a piece without admission, and joins the pieces when it has capacity (`admission.py`). A message shorter
than a piece is one piece.
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
    "decode_message",
    "encode_message",
    "join_pieces",
    "method_metadata",
    "read_method",
    "split_pieces",
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
    """Return the metadata with the name of our method."""
    return ((_METHOD, quote(name, safe="")),)


def read_method(metadata: Metadata) -> str | None:
    """Return the name of our method, or None if the metadata has none."""
    for key, value in metadata:
        if key == _METHOD and isinstance(value, str):
            return unquote(value)
    return None


def encode_message(message: bytes) -> bytes:
    """Encode a message of a client. Nearly always only the first byte is read."""
    return message + _FILL if message[:1] in (b"", _FILL) and not message.strip(_FILL) else message


def decode_message(message: bytes) -> bytes:
    """Decode a message of a client."""
    return message[:-1] if message[:1] == _FILL and not message.strip(_FILL) else message


def split_pieces(message: bytes) -> Iterator[bytes]:
    """Split an encoded message into pieces."""
    if len(message) < PIECE_BYTES:
        yield message
        return
    for begin in range(0, len(message) + 1, PIECE_BYTES):
        yield message[begin : begin + PIECE_BYTES]


async def join_pieces(first: bytes, read: Callable[[], Awaitable[object]]) -> bytes | None:
    """Return the message that begins with `first`; None if it is incomplete. Raises `Refusal` if it is too large."""
    parts, size = [first], len(first)
    try:
        while len(parts[-1]) == PIECE_BYTES:
            piece = await read()
            if not isinstance(piece, bytes):
                return None
            parts.append(piece)
            size += len(piece)
            if size > MAX_TRANSPORT_BYTES + 1:  # `encode_message` may have added one byte
                raise Refusal(
                    Code.RESOURCE_EXHAUSTED, f"a message has more than {MAX_TRANSPORT_BYTES} bytes, the maximum"
                )
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        # An error's traceback refers to this frame, and may live until the next garbage collection.
        parts.clear()
