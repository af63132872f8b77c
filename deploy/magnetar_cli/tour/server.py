"""The standalone of the tour: `magnetar standalone --ephemeral`, at the default ports if they are free."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from magnetar_cli.cluster.ports import is_free
from magnetar_cli.tour.child import Child

__all__ = ["DEFAULT_PORTS", "Server", "ServerFailed", "start_server"]

DEFAULT_PORTS: Final = {"grpc": 6652, "pulsar": 6650, "http": 8080}
_READY_S: Final = 60.0
_ATTEMPTS: Final = 3


class ServerFailed(Exception):
    """The standalone did not start, or has ended. The message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Server:
    process: Child
    # magnetar://host:port, pulsar://host:port, http://host:port
    grpc: str
    pulsar: str
    http: str
    # Default ports that other processes use.
    taken: tuple[int, ...]


def start_server(log: Path) -> Server:
    """Start the standalone, and return when it is ready. The caller closes its process."""
    for attempt in range(_ATTEMPTS):
        # If another process takes a port before the standalone does, the next attempt uses any free ports.
        ports = {name: port if attempt == 0 and is_free(port) else 0 for name, port in DEFAULT_PORTS.items()}
        flags = [f"--{name}-port={port}" for name, port in ports.items()]
        process = Child(log, "magnetar_cli", "standalone", "--ephemeral", "--json", *flags)
        try:
            line = process.read_line(_READY_S)
            if line is not None:
                report = json.loads(line)
                taken = tuple(default for name, default in DEFAULT_PORTS.items() if not ports[name])
                return Server(process, report["grpc"], report["pulsar"], report["http"], taken)
            status = process.wait()
        except TimeoutError as error:
            process.close()
            problem = f"the standalone is not ready: {error}. It logged last:\n{process.read_log_end()}"
            raise ServerFailed(problem) from None
        except BaseException:
            process.close()
            raise
        process.close()
    raise ServerFailed(f"the standalone ended with the status {status}. It logged last:\n{process.read_log_end()}")
