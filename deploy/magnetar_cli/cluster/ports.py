"""Choose ports for a cluster's processes, which stay the same over restarts.

They are outside the range of ephemeral ports, which the kernel assigns to outgoing connections. Otherwise, while a
process is down, its port could become the local port of a connection (even of one to this very port, which then
connects to itself), and the process could not listen there again.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from magnetar_cli.cluster.errors import ClusterError

__all__ = ["LOOPBACK", "free_port", "is_free"]

LOOPBACK: Final = "127.0.0.1"
_LOWEST: Final = 10_000
_DEFAULT_LOWEST_EPHEMERAL: Final = 32_768
_TRIES: Final = 200


def free_port(taken: Sequence[int] = ()) -> int:
    """Return a port that is free at the moment, and not in `taken`."""
    highest = max(_read_lowest_ephemeral(), _LOWEST + 1000)
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST, highest)
        if port not in taken and is_free(port):
            return port
    raise ClusterError(f"no free port between {_LOWEST} and {highest} was found in {_TRIES} tries")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Connections in TIME_WAIT do not prevent listening.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _read_lowest_ephemeral() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _DEFAULT_LOWEST_EPHEMERAL
