"""`magnetar standalone` as a process for tests, ready in about a second.

with StandaloneProcess(tmp_path / "data") as server:
    server.client(), server.service_url, server.pulsar_url, server.http_url
    server.kill()           # kill -9
    server.start()          # the same folder and the same ports
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
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from magnetar_cli.bound_process import start_bound_process
from magnetar_cli.child_environment import server_environment
from magnetar_testing.broker_endpoints import BrokerEndpoints

__all__ = ["StandaloneProcess"]

_READY_SECONDS: Final = 60.0
_END_SECONDS: Final = 60.0
# Timeout for the end of a process that has closed its output before it was ready.
_REPORT_SECONDS: Final = 5.0


class StandaloneProcess(BrokerEndpoints):
    """One data folder, on which the process is started any number of times. The first start chooses free ports; later
    ones use the same ports, so that clients reconnect. `settings` are those of `magnetar standalone --options`.

    On Linux the server ends when the test's process has ended, also if that was killed.
    """

    # Options of the interpreter, such as ("-W", "error").
    python_options: tuple[str, ...] = ()

    def __init__(
        self, folder: Path, environment: Mapping[str, str] | None = None, flags: tuple[str, ...] = (), **settings: Any
    ) -> None:
        self.folder = folder
        self.log = folder.with_name(f"{folder.name}.log")
        self.flags = flags
        self.settings = settings
        self.environment = dict(environment or {})
        self.process: subprocess.Popen[bytes] | None = None
        # The line of JSON that it printed when it was ready.
        self.ready_report: dict[str, Any] = {}

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def logged(self) -> str:
        return self.log.read_text()

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the process without waiting for it."""
        assert self.process is None or self.process.poll() is not None, "the process is running already"
        ports = {
            "--grpc-port": _port(self.service_url),
            "--pulsar-port": _port(self.pulsar_url),
            "--http-port": _port(self.http_url),
        }
        command = [sys.executable, *self.python_options, "-m", "magnetar_cli", "standalone", "--json"]
        command += [f"{name}={port}" for name, port in ports.items()]
        command += [] if "--ephemeral" in self.flags else [f"--data={self.folder}"]
        command += [*self.flags, *(f"--set={name}={value}" for name, value in self.settings.items())]
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = start_bound_process(
                command,
                cwd=self.folder.parent,
                env={**server_environment(), **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        return self.process

    def start(self) -> Self:
        """Start the process and return when it serves clients. Raise `RuntimeError` if it ends before, for example
        because of a wrong setting, or takes longer than a minute."""
        process = self.spawn()
        line = _first_line(process, time.monotonic() + _READY_SECONDS)
        if not line.endswith(b"\n"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_REPORT_SECONDS)
            process.kill()
            raise RuntimeError(f"the standalone did not start (exit status {self.wait()}):\n{self.logged}")
        self.ready_report = json.loads(line)
        self.service_url, self.pulsar_url = self.ready_report["grpc"], self.ready_report["pulsar"]
        self.http_url = self.ready_report["http"]
        return self

    def kill(self) -> None:
        """End the process at once (kill -9)."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """Stop the process gracefully and return its exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, timeout_s: float = _END_SECONDS) -> int:
        """Wait until the process has ended and return its exit status."""
        process = self.process
        assert process is not None
        try:
            return process.wait(timeout_s)
        finally:
            if process.poll() is not None and process.stdout is not None:
                process.stdout.close()

    def close(self) -> None:
        """Kill the process if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.wait()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _port(url: str) -> str:
    return url.rpartition(":")[2] or "0"


def _first_line(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """Read the first line of its standard output, or less if the process ends or the deadline passes before."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        readable, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(process.stdout.fileno(), 4096) if readable else b""
        if not piece:
            break
        line += piece
    return line
