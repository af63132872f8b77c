"""A process that ends with this one, however this one ends: read line by line, and what it logs kept in a file.

It has a session of its own, so that Ctrl-C reaches it through this process alone, which ends it in order. If this one
is killed the kernel tells it to end (bound_process.py).
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

from magnetar_cli.bound_process import start_bound

__all__ = ["Child"]

_PIECE: Final = 65_536


class Child:
    """`python -m <module> <arguments>`."""

    def __init__(self, log: Path, *command: str, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        # How long it may take to end in peace.
        self.end_s = 20.0
        # Of its output: what was read behind the last whole line.
        self._said = b""
        with log.open("ab") as file:
            self._process = start_bound(
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

    def line(self, timeout_s: float) -> str | None:
        """The next line of its output; None when there are none left. Raises `TimeoutError`."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._said:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise TimeoutError(f"no output for {timeout_s:.0f} s")
            piece = os.read(self._process.stdout.fileno(), _PIECE)
            if not piece:
                return None
            self._said += piece
        line, _, self._said = self._said.partition(b"\n")
        return line.decode(errors="replace")

    def last_words(self, lines: int = 15) -> str:
        """What it logged last."""
        logged = self.log.read_text(errors="replace").strip().splitlines()
        return "\n".join(logged[-lines:]) or "(it logged nothing)"

    def wait(self) -> int:
        """Its exit status, when it has ended. Raises `subprocess.TimeoutExpired`."""
        return self._process.wait(self.end_s)

    def close(self) -> None:
        """Tells it to end, and kills it where it does not."""
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
