"""ZooKeeper servers for tests: one, or an ensemble on loopback.

    with LocalZooKeeper(folder, servers=3) as zookeeper:
        zookeeper.wait_ready()
        zookeeper.hosts                      # "127.0.0.1:40001,127.0.0.1:40002,127.0.0.1:40003"
        zookeeper.leader().kill()

Each server has a folder with its configuration, its data and `server.log`. Data survives `kill` and `restart`. Ports
are chosen among those that are free. Another process may take one before the server does. So if a server ends while the
ensemble starts, all servers are restarted with other ports.

The servers are ended by `close`, and by the kernel when the process that started them ends (bound_process.py).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from magnetar_cli.bound_process import start_bound_process
from magnetar_cli.zookeeper_server import configure_server, read_server_mode, server_command

__all__ = ["LocalZooKeeper", "LocalZooKeeperError", "Server"]

_LOOPBACK: Final = "127.0.0.1"
_STARTS: Final = 5
_LOG_LINES: Final = 15


class LocalZooKeeperError(Exception):
    """The servers do not start. The message has the end of a server's log."""


class Server:
    """One server of the ensemble."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.number = number
        self.client_port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{_LOOPBACK}:{self.client_port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it on its data, without waiting until it serves."""
        assert not self.running, f"ZooKeeper server {self.number} is running already"
        with (self.folder / "server.log").open("ab") as log:
            self._process = start_bound_process(
                server_command(self.folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def kill(self) -> None:
        """End it by SIGKILL, and wait for its end."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def pause(self) -> None:
        """Stop it by SIGSTOP, as if its machine hung: connections stay open, and nothing is answered."""
        self._signal(signal.SIGSTOP)
        if self._process is not None and self._process.returncode is None:
            # A signal is sent before it takes effect: a thread that runs on another core may still answer.
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        self.kill()
        self.start()

    def mode(self) -> str | None:
        """Return "standalone", "leader" or "follower", or None if it does not serve."""
        return read_server_mode(self.client_port)

    def read_log_end(self) -> str:
        log = self.folder / "server.log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:]) if log.exists() else "(no log)"

    def _signal(self, number: int) -> None:
        if self.running and self._process is not None:
            self._process.send_signal(number)


class LocalZooKeeper:
    """An ensemble of one or more servers."""

    def __init__(self, folder: Path, servers: int = 1, tick_ms: int = 500) -> None:
        self._tick_ms = tick_ms
        self.servers = [Server(folder / f"server-{number}", number) for number in range(1, servers + 1)]

    @property
    def hosts(self) -> str:
        """The addresses for clients: "host:port,host:port"."""
        return ",".join(server.address for server in self.servers)

    def start(self, timeout_s: float = 60.0) -> Self:
        """Start all servers, and return when they serve."""
        for attempt in range(1, _STARTS + 1):
            self._configure()
            for server in self.servers:
                server.start()
            try:
                self.wait_ready(timeout_s, all_of_them=True)
                return self
            except LocalZooKeeperError:
                ended = any(not server.running for server in self.servers)
                self.close()
                # A server that ended has probably found its port in use. Another start doesn't help otherwise.
                if not ended or attempt == _STARTS:
                    raise
            except BaseException:
                self.close()
                raise
        raise AssertionError("the last attempt returns or raises")

    def wait_ready(self, timeout_s: float = 60.0, *, all_of_them: bool = False) -> None:
        """Return when every running server serves and one of them leads. With `all_of_them`, all must be running."""
        deadline = time.monotonic() + timeout_s
        while True:
            running = [server for server in self.servers if server.running]
            modes = [server.mode() for server in running]
            if running and None not in modes and ("leader" in modes or "standalone" in modes):
                return
            too_few = not running or (all_of_them and len(running) < len(self.servers))
            if too_few or time.monotonic() >= deadline:
                ended = next((server for server in self.servers if not server.running), self.servers[0])
                raise LocalZooKeeperError(f"ZooKeeper is not ready; it logged last:\n{ended.read_log_end()}")
            time.sleep(0.05)

    def leader(self) -> Server | None:
        """Return the leader, or the only server. Return None if there is no leader at the moment."""
        return next((server for server in self.servers if server.mode() in ("leader", "standalone")), None)

    def close(self) -> None:
        """Kill all servers."""
        for server in self.servers:
            server.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _configure(self) -> None:
        ports = _choose_free_ports(3 * len(self.servers))
        ensemble = []
        for server in self.servers:
            server.client_port, peer_port, election_port = ports.pop(), ports.pop(), ports.pop()
            ensemble.append(f"server.{server.number}={_LOOPBACK}:{peer_port}:{election_port}\n")
        for server in self.servers:
            others = "".join(ensemble) if len(self.servers) > 1 else ""
            configure_server(server.folder, server.client_port, self._tick_ms, number=server.number, ensemble=others)


def _choose_free_ports(count: int) -> list[int]:
    """Return different ports that are free at the moment."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind((_LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
