"""The standalone that the tour happens on: `magnetar standalone --ephemeral`, at its usual ports if they are free."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar_cli.tour.child import Child

__all__ = ["USUAL_PORTS", "Server", "ServerFailed", "start_server"]

USUAL_PORTS: Final = {"grpc": 6652, "pulsar": 6650, "http": 8080}
_LOOPBACK: Final = "127.0.0.1"
_READY_S: Final = 60.0
_ATTEMPTS: Final = 3


class ServerFailed(Exception):
    """It did not start, or has ended; the message shows what it logged last."""


@dataclass(frozen=True, slots=True)
class Server:
    process: Child
    # magnetar://host:port, pulsar://host:port, http://host:port
    grpc: str
    pulsar: str
    http: str
    # Usual ports that somebody else has.
    taken: tuple[int, ...]


def start_server(log: Path) -> Server:
    """Returns when it is ready. Close its process, also when what follows fails."""
    for attempt in range(_ATTEMPTS):
        # Whoever was faster since they were looked at has them: then any free ones will do.
        ports = {name: port if attempt == 0 and _is_free(port) else 0 for name, port in USUAL_PORTS.items()}
        flags = [f"--{name}-port={port}" for name, port in ports.items()]
        process = Child(log, "magnetar_cli", "standalone", "--ephemeral", "--json", *flags)
        try:
            line = process.line(_READY_S)
            if line is not None:
                said = json.loads(line)
                taken = tuple(usual for name, usual in USUAL_PORTS.items() if not ports[name])
                return Server(process, said["grpc"], said["pulsar"], said["http"], taken)
            status = process.wait()
        except TimeoutError as error:
            process.close()
            why = f"the standalone is not ready: {error}. It logged last:\n{process.last_words()}"
            raise ServerFailed(why) from None
        except BaseException:
            process.close()
            raise
        process.close()
    raise ServerFailed(f"the standalone ended with the status {status}. It logged last:\n{process.last_words()}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return False
        return True
