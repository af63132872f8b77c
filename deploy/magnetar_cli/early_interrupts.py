"""Ctrl-C before a command has begun: nothing was done yet, so there is nothing to tell, and no traceback to show.

Python would raise KeyboardInterrupt in the middle of some import. Until the command's own module is there, SIGINT ends
the process instead, with the status that shells have for it; from then on it raises, and the command sees to it.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Final

__all__ = ["end_at_once", "raise_as_usual"]

# ExitCode.INTERRUPTED: what is imported here is imported before Ctrl-C is seen to.
_INTERRUPTED: Final = 130


def end_at_once() -> None:
    """Unless SIGINT is ignored, as in a shell's background, or is seen to already."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_as_usual() -> None:
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)
