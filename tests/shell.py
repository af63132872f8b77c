"""Command lines as documents show them, run by a shell: `magnetar` is this project's, and where the documents name the
usual address it is that of a test's standalone.

A line that is nothing but a call of a client's command is performed in this process: a process takes half a second.

Lines that start a standalone get free ports, are stopped when they are ready, and must end gracefully. Those that
install something are left out: what is tested is installed.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from typer.testing import CliRunner

from magnetar_cli.command import app
from magnetar_testing.standalone_process import StandaloneProcess
from tests.child_process import ChildProcess
from tests.guide import SHOWN_URL, Block, words_of

__all__ = ["Shell"]

_OF_CLIENTS: Final = ("produce", "consume", "tail", "topics", "subscriptions", "namespaces", "tenants", "perf")
# What a shell would act upon, outside of quotes or not.
_OF_SHELLS: Final = re.compile(r"[|&;<>$`*?\\]")
_LONGEST_S: Final = 100.0
_READY_S: Final = 60.0


class Shell:
    def __init__(self, folder: Path, server: StandaloneProcess | None = None) -> None:
        self.folder = folder
        self._server = server
        # The folder of `magnetar`.
        self.commands = folder / ".commands"
        self.commands.mkdir()
        magnetar = self.commands / "magnetar"
        magnetar.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -W error -m magnetar_cli "$@"\n')
        magnetar.chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{self.commands}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        if server is not None:
            self._environment["MAGNETAR_URL"] = server.service_url

    def run(self, line: str, block: Block) -> str:
        """Run the line, and return its output. Raises AssertionError where its exit status is another than 0."""
        if words_of(line, "pip") is not None or words_of(line, "make") is not None:
            return ""
        words = words_of(line, "magnetar")
        if words and words[0] == "standalone" and "--options" not in words:
            return self._start_and_end(words, block)
        if self._server is not None:
            line = line.replace(SHOWN_URL, self._server.service_url).replace(
                "http://127.0.0.1:8080", self._server.http_url
            )
        if words and words[0] in _OF_CLIENTS and not _OF_SHELLS.search(line) and self._server is not None:
            return self._perform(words, line, block)
        ended = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
        assert ended.returncode == 0, f"{block}: {line} ended with {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        assert "Traceback" not in ended.stderr, f"{block}: {line}\n{ended.stderr}"
        return ended.stdout

    def _perform(self, words: list[str], line: str, block: Block) -> str:
        with contextlib.chdir(self.folder):
            ended = CliRunner().invoke(app, words, env=self._environment, prog_name="magnetar")
        assert ended.exit_code == 0, (
            f"{block}: {line} ended with {ended.exit_code}\n{ended.output}\n{ended.exception!r}"
        )
        return ended.stdout

    def _start_and_end(self, words: list[str], block: Block) -> str:
        free = [f"--{name}-port=0" for name in ("grpc", "pulsar", "http") if f"--{name}-port" not in words]
        environment = {name: value for name, value in self._environment.items() if not name.startswith("MAGNETAR_")}
        with ChildProcess(
            ["magnetar", *words, *free],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            executable=self.commands / "magnetar",
        ) as process:
            try:
                assert process.stdout is not None
                deadline, output = time.monotonic() + _READY_S, b""
                while not output.endswith(b"\n"):
                    ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
                    piece = os.read(process.stdout.fileno(), 4096) if ready else b""
                    assert piece, f"{block}: magnetar {shlex.join(words)} is not ready"
                    output += piece
                process.send_signal(signal.SIGTERM)
                assert process.wait(_LONGEST_S) == 0, f"{block}: magnetar {shlex.join(words)} did not end gracefully"
                return output.decode()
            finally:
                process.kill()
