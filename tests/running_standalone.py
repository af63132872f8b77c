"""`magnetar standalone` as a real process for tests, started in about a second.

    with standalone(tmp_path / "data") as server:
        server.grpc, server.pulsar, server.http     "magnetar://127.0.0.1:40001", "pulsar://127.0.0.1:40002", "http://…
        server.kill()                   kill -9
        server.start()                  again, on the same folder and the same ports

It dies with the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["StandaloneProcess", "standalone"]

_REPOSITORY: Final = Path(__file__).resolve().parents[1]
_ROOTS: Final = ("protos", "metadata", "bookie", "broker", "client", "spark_connector", "deploy")
_READY_S: Final = 60.0
_END_S: Final = 60.0


class StandaloneProcess:
    """One folder, on which the process is started again and again. Ports are free ones, and kept from the first start
    on, so that clients find it again."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str] | None = None, flags: tuple[str, ...] = (), **settings: Any
    ) -> None:
        self.folder = folder
        self.log = folder.with_name(f"{folder.name}.log")
        self.flags = flags
        self.settings = settings
        self.environment = dict(environment or {})
        # What the process does first of all, before it is the server.
        self.before: Callable[[], None] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        # Of the first start.
        self.grpc = ""
        self.pulsar = ""
        self.http = ""
        # What it said when it was ready.
        self.said: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def logged(self) -> str:
        return self.log.read_text()

    def spawn(self) -> subprocess.Popen[bytes]:
        """Starts the process and does not wait."""
        assert self.process is None or self.process.poll() is not None, "it runs"
        ports = {"--grpc-port": _port(self.grpc), "--pulsar-port": _port(self.pulsar), "--http-port": _port(self.http)}
        command = [sys.executable, "-W", "error", "-m", "magnetar_cli", "standalone", "--json"]
        command += [f"{name}={port}" for name, port in ports.items()]
        command += [] if "--ephemeral" in self.flags else [f"--data={self.folder}"]
        command += [*self.flags, *(f"--set={name}={value}" for name, value in self.settings.items())]
        paths = [str(_REPOSITORY / root) for root in _ROOTS]
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.folder.parent,
                env={**_surroundings(), "PYTHONPATH": os.pathsep.join(paths), **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                preexec_fn=self.before,
            )
        return self.process

    def start(self) -> StandaloneProcess:
        """Returns when it is ready."""
        process = self.spawn()
        line = _first_line(process, time.monotonic() + _READY_S)
        assert line, f"it did not become ready (exit status {process.poll()}):\n{self.logged}"
        self.said = json.loads(line)
        self.grpc, self.pulsar, self.http = self.said["grpc"], self.said["pulsar"], self.said["http"]
        return self

    def kill(self) -> None:
        """kill -9, at once."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """In peace; the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, timeout_s: float = _END_S) -> int:
        """Its exit status, when it has ended."""
        process = self.process
        assert process is not None
        try:
            return process.wait(timeout_s)
        finally:
            if process.poll() is not None and process.stdout is not None:
                process.stdout.close()

    def close(self) -> None:
        """Whatever the test left."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.wait()


@contextlib.contextmanager
def standalone(
    folder: Path, environment: Mapping[str, str] | None = None, flags: tuple[str, ...] = (), **settings: Any
) -> Iterator[StandaloneProcess]:
    """One that is ready; `settings` are given with --set."""
    server = StandaloneProcess(folder, environment, flags, **settings)
    try:
        yield server.start()
    finally:
        server.close()


def _surroundings() -> dict[str, str]:
    """This process' environment, without what would be settings of the server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MAGNETAR_")}


def _port(url: str) -> str:
    return url.rpartition(":")[2] or "0"


def _first_line(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """Of its standard output; what there is by the deadline, or by its end."""
    assert process.stdout is not None
    said = b""
    while not said.endswith(b"\n"):
        readable, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(process.stdout.fileno(), 4096) if readable else b""
        if not piece:
            break
        said += piece
    return said
