"""Ports for the cluster's processes: chosen once, and kept over restarts.

They lie outside the range from which the kernel gives ports to outgoing connections. Inside it a port whose owner is
down for a moment may become somebody's own end of a connection, even of one that tries to reach that very port and so
meets itself; and its owner could not listen there again.
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
_USUAL_EPHEMERAL: Final = 32_768
_TRIES: Final = 200


def free_port(taken: Sequence[int] = ()) -> int:
    """A port that nobody has at the moment, and that is none of `taken`."""
    highest = max(_lowest_ephemeral(), _LOWEST + 1000)
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST, highest)
        if port not in taken and is_free(port):
            return port
    raise ClusterError(f"no free port between {_LOWEST} and {highest} was found in {_TRIES} tries")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Connections of a former owner, which the kernel remembers for a while, keep nobody from listening.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _lowest_ephemeral() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_EPHEMERAL
