"""Ctrl-C at any moment of a call, again and again, as in a notebook whose user goes on with the same object."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

__all__ = ["STRIKES", "Striker", "Struck"]

STRIKES = 400
# The modules whose code is struck.
_STRUCK = ("magnetar.", "magnetar_wire.interruptible_wait", "threading")


class Struck(BaseException):
    """In place of KeyboardInterrupt."""


class Striker:
    """Signals the main thread while `armed`: one strike, then it is to be armed again."""

    def __init__(self) -> None:
        self.armed = False
        self.hits = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._strike)
        self._before: Any = None

    def __enter__(self) -> Striker:
        self._before = signal.signal(signal.SIGUSR1, self._handle)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.armed = False
        self._over.set()
        self._thread.join()
        signal.signal(signal.SIGUSR1, self._before)

    def _strike(self) -> None:
        while not self._over.wait(0.0007):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        # Not in a finalizer, whose errors nobody meets.
        if self.armed and frame is not None and frame.f_globals["__name__"].startswith(_STRUCK):
            self.armed = False
            self.hits += 1
            raise Struck
