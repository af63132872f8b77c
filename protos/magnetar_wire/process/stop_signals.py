"""SIGTERM and SIGINT. The first one requests a graceful shutdown, a second one ends the process at once.

Signals within a moment after the first count as the same one: there are supervisors that signal a process, and then its
process group.

A thread waits for the signals, so that the process ends even if the event loop is blocked, for example by a write to a
disk that hangs: the process ends a limited time after the first signal in any case. The signals are blocked in all
other threads, and in those that are started later. A signal that is delivered to a thread from before that is
forwarded.
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
# The exit status that shells report for a process that a signal ended is this plus the signal's number.
_OF_SIGNALS: Final = 128
_TOGETHER_S: Final = 0.5


class StopSignals:
    """The thread that waits for signals. It must be created in the main thread, as early as possible."""

    def __init__(self) -> None:
        self._thread = threading.Thread(target=self._wait, name="signals", daemon=True)
        self._on_stop: Callable[[], object] = lambda: None
        self._timeout_s = 0.0
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        for one in _SIGNALS:
            signal.signal(one, self._pass_on)

    def start(self, on_stop: Callable[[], object], timeout_s: float) -> None:
        """Call `on_stop` in the thread after the first signal. End the process at most `timeout_s` seconds later."""
        self._on_stop = on_stop
        self._timeout_s = timeout_s
        self._thread.start()

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        if self._thread.ident is not None:
            signal.pthread_kill(self._thread.ident, number)
        else:
            os._exit(_OF_SIGNALS + number)

    def _wait(self) -> None:
        name = signal.Signals(signal.sigwait(_SIGNALS)).name
        _log.info("%s: shutting down gracefully; a second signal stops the process at once", name)
        self._on_stop()
        second = self._wait_second()
        if second is None:
            _log.critical(
                "the process did not shut down within %s s after %s: stopping it at once", self._timeout_s, name
            )
            os._exit(ExitStatus.DID_NOT_END)
        _log.critical("%s again: stopping at once", signal.Signals(second.si_signo).name)
        os._exit(_OF_SIGNALS + second.si_signo)

    def _wait_second(self) -> signal.struct_siginfo | None:
        """Wait for the second signal; None if there was none within the time."""
        began = time.monotonic()
        while (left_s := began + self._timeout_s - time.monotonic()) > 0:
            second = signal.sigtimedwait(_SIGNALS, left_s)
            if second is None or time.monotonic() - began >= _TOGETHER_S:
                return second
        return None
