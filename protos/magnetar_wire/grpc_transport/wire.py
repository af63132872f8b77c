"""How calls and streams look on the wire.

A call is the gRPC method `/magnetar.Call/NAME`, a stream `/magnetar.Stream/NAME`, names percent-encoded. Messages are
bytes as they are, with one exception.

**The end of a client's messages is a message of its own**, the empty one. gRPC's server library says "no more" alike
when the client has finished and when its connection broke, some time before it tells of the break; taken for an end,
that would turn unknown into done. So a stream without the empty message has broken. A message of ours that is empty
travels as one byte 0xFF, and one of nothing but such bytes with one more. The server's end is its status, and its
messages travel as they are.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

__all__ = ["CALL", "END", "STREAM", "decoded", "encoded", "name_in", "path"]

CALL: Final = "/magnetar.Call/"
STREAM: Final = "/magnetar.Stream/"
END: Final = b""
_FILL: Final = b"\xff"


def path(prefix: str, name: str) -> str:
    return prefix + quote(name, safe="")


def name_in(prefix: str, path: str) -> str:
    return unquote(path.removeprefix(prefix))


def encoded(message: bytes) -> bytes:
    """The message as a client sends it. Only the first byte is looked at, nearly always."""
    return message + _FILL if message[:1] in (b"", _FILL) and not message.strip(_FILL) else message


def decoded(message: bytes) -> bytes:
    return message[:-1] if message[:1] == _FILL and not message.strip(_FILL) else message
