"""Ctrl-C while the command is being imported ends the process at once, without a traceback.

Python would raise KeyboardInterrupt in the middle of an import. Until the command's own module is imported, SIGINT ends
the process instead, with the status that shells report for it. From then on it raises, and the command handles it.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Final

__all__ = ["exit_on_interrupt", "restore_interrupts"]

# ExitCode.INTERRUPTED. Modules that are imported here are imported before Ctrl-C is handled, so there are few.
_INTERRUPTED: Final = 130


def exit_on_interrupt() -> None:
    """Exit on SIGINT, unless it is ignored, as in a shell's background job, or has another handler."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _exit)


def restore_interrupts() -> None:
    """Raise KeyboardInterrupt on SIGINT again."""
    if signal.getsignal(signal.SIGINT) is _exit:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(number: int, frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)
