"""Ctrl-C and SIGTERM, raised in some blocks of a command and deferred in all others.

An interrupted command still has work to do: it waits for messages in flight, and prints how many are persisted. A
signal raises KeyboardInterrupt only inside an `interruptible` block, and once. A signal outside of one is deferred: it
raises at the beginning of the next block.

    with Interrupts() as interrupts:
        try:
            with interrupts.interruptible():
                ...                         # the first Ctrl-C ends this
        except KeyboardInterrupt:
            ...                             # a signal is deferred here
        try:
            with interrupts.interruptible():
                ...                         # the second Ctrl-C ends this
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
    """Handles both signals while its block runs on the main thread. On other threads it does nothing."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._is_interruptible = False
        self._is_deferred = False
        # The exit status for the last signal.
        self.code = ExitCode.INTERRUPTED

    def __enter__(self) -> Self:
        with contextlib.suppress(ValueError):  # this is not the main thread
            for number in _CODES:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Raise KeyboardInterrupt in this block when a signal arrives, or at its beginning if one was deferred."""
        self._is_interruptible = True
        try:
            if self._is_deferred:
                self._is_deferred = False
                raise KeyboardInterrupt
            yield
        finally:
            self._is_interruptible = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.code = _CODES[signal.Signals(number)]
        if self._is_interruptible:
            self._is_interruptible = False
            raise KeyboardInterrupt
        self._is_deferred = True
