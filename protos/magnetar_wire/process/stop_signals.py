"""SIGTERM and SIGINT: the first one asks the process to end in peace, a second one ends it at once. What comes within a
moment after the first is the same one: there are supervisors that signal a process, and then the group that it is in.

A thread waits for them, so that the end comes also where the event loop stands still, in a write to a disk that hangs:
the process has so many seconds after the first signal, whatever hangs. The signals are blocked in all other threads,
and in those that come later. One that is delivered to a thread from before that is passed on.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

from magnetar_wire.process.exit_status import ExitStatus

__all__ = ["StopSignals"]

_log = logging.getLogger(__name__)
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# What a shell reports of a process that a signal ended.
_OF_SIGNALS: Final = 128
_TOGETHER_S: Final = 0.5


class StopSignals:
    """Made in the main thread, as early as can be."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._wait, name="signals", daemon=True)
        self._asked: Callable[[], object] = lambda: None
        self._within_s = 0.0
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        for one in _SIGNALS:
            signal.signal(one, self._pass_on)

    def start(self, asked: Callable[[], object], within_s: float) -> None:
        """`asked` is called in the thread; the process ends at the latest so long after that."""
        self._asked = asked
        self._within_s = within_s
        self._thread.start()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if self._thread.ident is not None:
            signal.pthread_kill(self._thread.ident, number)
        else:
            os._exit(_OF_SIGNALS + number)

    def _wait(self) -> None:
        name = signal.Signals(signal.sigwait(_SIGNALS)).name
        _log.info("%s: shutting down gracefully; a second signal stops the process at once", name)
        self._asked()
        second = self._wait_second()
        if second is None:
            _log.critical(
                "the process did not shut down within %s s after %s: stopping it at once", self._within_s, name
            )
            os._exit(ExitStatus.DID_NOT_END)
        _log.critical("%s again: stopping at once", signal.Signals(second.si_signo).name)
        os._exit(_OF_SIGNALS + second.si_signo)

    def _wait_second(self) -> signal.struct_siginfo | None:
        """None: there was none within the time."""
        began = time.monotonic()
        while (left_s := began + self._within_s - time.monotonic()) > 0:
            second = signal.sigtimedwait(_SIGNALS, left_s)
            if second is None or time.monotonic() - began >= _TOGETHER_S:
                return second
        return None
