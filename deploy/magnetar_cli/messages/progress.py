"""A line that says how far it is, on a terminal, and nowhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Final, Self

__all__ = ["Progress"]

_EVERY_S: Final = 0.2
# What is over before is not worth a line.
_QUIET_S: Final = 0.5


class Progress:
    """Standard error's last line, as long as the block runs. `typed`: somebody is typing there."""

    def __init__(self, *, typed: bool) -> None:
        self._wanted = sys.stderr is not None and sys.stderr.isatty() and not typed
        self._status: Any = None
        self._next = time.monotonic() + _QUIET_S

    def __enter__(self) -> Self:
        return self

    def show(self, text: str) -> None:
        now = time.monotonic()
        if not self._wanted or now < self._next:
            return
        self._next = now + _EVERY_S
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status(text)
            self._status.start()
        self._status.update(text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
