"""Asking the kernel of another machine whether any process listens at an address.

A machine answers a TCP connect to a port where no process listens with a refusal (ECONNREFUSED). That alone shows that
the process which listened there is gone. A time-out shows nothing, since a process that hangs and a network that is cut
look alike; nor does an unreachable host, a connection that is reset, or a name that can't be resolved.
"""

from __future__ import annotations

import asyncio
import socket

from magnetar_wire.process.addresses import check_address

__all__ = ["refuses_connections"]


async def refuses_connections(address: str, timeout_s: float) -> bool:
    """Whether each of the addresses that `host:port` stands for refuses a connection, within the time."""
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
