"""A socket that listens: made before whatever serves on it is there, so that who connects meanwhile waits."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

__all__ = ["format_address", "open_listening_socket"]

_BACKLOG: Final = 128
# How a socket for both kinds of addresses names one of the old kind.
_OLD_AS_NEW: Final = "::ffff:"


async def open_listening_socket(address: str) -> socket.socket:
    """At "host:port"; port 0 is any free one. Raises `OSError` where it can't listen there."""
    host, _, port = address.rpartition(":")
    found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    family, kind, protocol, _, place = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def format_address(name: Any) -> str:
    """What a socket says of where it is, as host:port; empty where it says nothing."""
    if not name:
        return ""
    host, port = str(name[0]).removeprefix(_OLD_AS_NEW), name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
