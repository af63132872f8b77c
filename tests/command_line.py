"""The `magnetar` command in tests: in this process, which is fast, or as a process, which can be signalled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from typer.testing import CliRunner

from magnetar_cli.command import app
from tests.child_process import ChildProcess
from tests.running import GENEROUS_S

__all__ = ["CommandLine", "Ended"]

_REPOSITORY: Final = Path(__file__).resolve().parents[1]
_ROOTS: Final = ("protos", "metadata", "bookie", "broker", "client", "spark_connector", "deploy")


@dataclass(frozen=True)
class Ended:
    exit_code: int
    stdout: str
    stderr: str


class CommandLine:
    """The command with the URL of one service."""

    def __init__(self, url: str, environment: Mapping[str, str] | None = None) -> None:
        self.environment = {"MAGNETAR_URL": url, **(environment or {})}

    def run(self, *arguments: str, given: bytes | None = None) -> Ended:
        """Run the command. If there is input, `given`, it is run as a process."""
        if given is None:
            ended = CliRunner().invoke(app, list(arguments), env=self.environment, prog_name="magnetar")
            assert ended.exception is None or isinstance(ended.exception, SystemExit), (arguments, ended.exception)
            return Ended(ended.exit_code, ended.stdout, ended.stderr)
        with self.process(*arguments) as process:
            stdout, stderr = process.communicate(given, timeout=GENEROUS_S)
        return Ended(process.returncode, stdout.decode(), stderr.decode())

    def output_of(self, *arguments: str, given: bytes | None = None) -> str:
        """Run the command, which must succeed, and return its output."""
        ended = self.run(*arguments, given=given)
        assert (ended.exit_code, ended.stderr) == (0, ""), (arguments, ended)
        return ended.stdout

    def json_of(self, *arguments: str, given: bytes | None = None) -> list[dict[str, Any]]:
        """Run the command with --json, and return the objects of its output."""
        return [json.loads(line) for line in self.output_of(*arguments, "--json", given=given).splitlines()]

    def process(self, *arguments: str, shell_around: str = 'exec "$@"') -> ChildProcess[bytes]:
        """Start the command with pipes. `shell_around` is a shell script whose arguments are the command."""
        paths = os.pathsep.join(str(_REPOSITORY / root) for root in _ROOTS)
        return ChildProcess(
            ["sh", "-c", shell_around, "sh", sys.executable, "-W", "error", "-m", "magnetar_cli", *arguments],
            env={**os.environ, **self.environment, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
