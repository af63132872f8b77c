"""Ctrl-C at any moment of a call, many times, as in a notebook whose user goes on with the same object."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

__all__ = ["INTERRUPTS", "Interrupted", "Interrupter"]

INTERRUPTS = 400
# Only code of these modules is interrupted.
_INTERRUPTED_MODULES = ("magnetar.", "magnetar_wire.interruptible_wait", "threading")


class Interrupted(BaseException):
    """Raised instead of KeyboardInterrupt."""


class Interrupter:
    """Interrupts the main thread once, at a random moment, whenever it is `armed`."""

    def __init__(self) -> None:
        self.armed = False
        self.hits = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._interrupt_repeatedly)
        self._before: Any = None

    def __enter__(self) -> Interrupter:
        self._before = signal.signal(signal.SIGUSR1, self._handle)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.armed = False
        self._over.set()
        self._thread.join()
        signal.signal(signal.SIGUSR1, self._before)

    def _interrupt_repeatedly(self) -> None:
        while not self._over.wait(0.0007):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # Not in a finalizer, because Python ignores exceptions there.
        if self.armed and frame is not None and frame.f_globals["__name__"].startswith(_INTERRUPTED_MODULES):
            self.armed = False
            self.hits += 1
            raise Interrupted
