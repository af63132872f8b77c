"""How calls and streams look on the wire.

There are two gRPC methods, `/magnetar.Transport/Call` and `/magnetar.Transport/Stream`; which one of ours is meant says
the metadata `magnetar-method`, percent-encoded. (`known_methods.py` says why it is not in the path.) Messages are bytes
as they are, with one exception.

**The end of a client's messages is a message of its own**, the empty one. gRPC's server library says "no more" alike
when the client has finished and when its connection broke, some time before it tells of the break; taken for an end,
that would turn unknown into done. So a stream without the empty message has broken. A message of ours that is empty
travels as one byte 0xFF, and one of nothing but such bytes with one more. The server's end is its status, and its
messages travel as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote

__all__ = ["CALL", "END", "SERVICE", "STREAM", "Metadata", "decoded", "encoded", "method_metadata", "method_named"]

Metadata = Iterable[tuple[str, str | bytes]]

SERVICE: Final = "magnetar.Transport"
CALL: Final = "Call"
STREAM: Final = "Stream"
END: Final = b""
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
