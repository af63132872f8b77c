"""A process that ends with this one. Its output is read line by line, and its log is a file.

It runs in its own session, so that Ctrl-C doesn't reach it: this process stops it gracefully. If this one is killed,
the kernel sends SIGTERM to it (bound_process.py).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from magnetar_cli.bound_process import start_bound_process

__all__ = ["Child"]

_READ_BYTES: Final = 65_536


class Child:
    """`python -m <module> <arguments>`."""

    def __init__(self, log: Path, *command: str, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        # Timeout of a graceful shutdown.
        self.stop_timeout_s = 20.0
        # Output that was read after the last returned line.
        self._buffer = b""
        with log.open("ab") as file:
            self._process = start_bound_process(
                [sys.executable, "-m", *command],
                signal.SIGTERM,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.poll()

    def read_line(self, timeout_s: float) -> str | None:
        """Return the next line of its output, or None at the end of the output. Raise `TimeoutError`."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise TimeoutError(f"no output for {timeout_s:.0f} s")
            piece = os.read(self._process.stdout.fileno(), _READ_BYTES)
            if not piece:
                return None
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")

    def read_log_end(self, lines: int = 15) -> str:
        """Return the last lines of its log."""
        logged = self.log.read_text(errors="replace").strip().splitlines()
        return "\n".join(logged[-lines:]) or "(it logged nothing)"

    def wait(self) -> int:
        """Wait for its end, and return its exit status. Raise `subprocess.TimeoutExpired`."""
        return self._process.wait(self.stop_timeout_s)

    def close(self) -> None:
        """Stop it by SIGTERM, and kill it after the timeout."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait()
        finally:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
