"""A socket that listens. It is opened before its server exists, so that early clients wait instead of being refused."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

__all__ = ["format_address", "open_listening_socket"]

_BACKLOG: Final = 128
# The prefix of IPv4 addresses in sockets that accept both kinds.
_OLD_AS_NEW: Final = "::ffff:"


async def open_listening_socket(address: str) -> socket.socket:
    """Listen at "host:port"; port 0 chooses a free one. Raises `OSError`."""
    host, _, port = address.rpartition(":")
    found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    family, kind, protocol, _, address_info = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address_info)
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def format_address(name: Any) -> str:
    """Return a socket's address as host:port; empty if there is none."""
    if not name:
        return ""
    host, port = str(name[0]).removeprefix(_OLD_AS_NEW), name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
