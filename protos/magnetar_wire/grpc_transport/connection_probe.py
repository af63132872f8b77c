"""A probe that shows whether any process listens at an address of another machine.

If no process listens at a port, the machine refuses a TCP connection to it (ECONNREFUSED). Only that shows that the
process which listened there has ended. A timeout shows nothing, since a hanging process and a cut network look alike.
The same is true for an unreachable host, a connection reset, and a name that can't be resolved.
"""

from __future__ import annotations

import asyncio
import socket

from magnetar_wire.process.addresses import check_address

__all__ = ["refuses_connections"]


async def refuses_connections(address: str, timeout_s: float) -> bool:
    """Return whether each of the addresses of `host:port` refuses a connection, within the time."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        check_address(address)
        async with asyncio.timeout(timeout_s):
            found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
            for family, kind, protocol, _, there in found:
                if not await _refuses(loop, socket.socket(family, kind, protocol), there):
                    return False
    except (OSError, ValueError):  # TimeoutError is an OSError
        return False
    return bool(found)


async def _refuses(loop: asyncio.AbstractEventLoop, connecting: socket.socket, there: object) -> bool:
    with connecting:
        connecting.setblocking(False)
        try:
            await loop.sock_connect(connecting, there)  # type: ignore[arg-type]
        except ConnectionRefusedError:
            return True
        return False
