"""Ctrl-C and SIGTERM where they may strike, and remembered where they must not.

A command that ends by them has something left to do: to wait for receipts, to tell what became of what it sent. A
signal raises within `raised` alone, and once: one that comes in between, or on the way out, is kept for the next such
block, and raises as that begins.

    with Interrupts() as interrupts:
        try:
            with interrupts.raised():
                ...                         # the first Ctrl-C ends this
        except KeyboardInterrupt:
            ...                             # nothing strikes here
        try:
            with interrupts.raised():
                ...                         # the second one this
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Final, Self

from magnetar_cli.exit_codes import ExitCode

__all__ = ["Interrupts"]

_CODES: Final = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED}


class Interrupts:
    """To be used on the main thread; elsewhere nothing strikes."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._raises = False
        self._kept = False
        # What the exit status says of the last one.
        self.code = ExitCode.INTERRUPTED

    def __enter__(self) -> Self:
        with contextlib.suppress(ValueError):  # not the main thread
            for number in _CODES:
                self._before[number] = signal.signal(number, self._struck)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        self._raises = True
        try:
            if self._kept:
                self._kept = False
                raise KeyboardInterrupt
            yield
        finally:
            self._raises = False

    def _struck(self, number: int, frame: FrameType | None) -> None:
        self.code = _CODES[signal.Signals(number)]
        if self._raises:
            self._raises = False
            raise KeyboardInterrupt
        self._kept = True
