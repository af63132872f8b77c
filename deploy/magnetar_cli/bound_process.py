"""A command for a process that the kernel ends when this one has ended, however this one ended (Linux).

A line of Python asks the kernel for it (PR_SET_PDEATHSIG) and then becomes the command. So no code of this process runs
between fork and exec, as it would with `preexec_fn`: with it, the handlers of all libraries for a fork run in the child
too, and where another thread uses gRPC the child may end before it becomes the command.

The signal comes when the **thread** that started the process ends: start it from one that lives on.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

__all__ = ["bound_to_this_process"]

_PR_SET_PDEATHSIG: Final = 1
_BOUND: Final = (
    "import ctypes, os, sys\n"
    f"ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, int(sys.argv[2]))\n"
    "os._exit(1) if os.getppid() != int(sys.argv[1]) else os.execv(sys.argv[3], sys.argv[3:])"
)


def bound_to_this_process(command: Sequence[str], by: signal.Signals = signal.SIGKILL) -> list[str]:
    """Return the command to start instead. `by` is the signal that ends the process. The command's first word is a
    path. On systems other than Linux the command is returned as it is."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid()), str(int(by)), *command]
