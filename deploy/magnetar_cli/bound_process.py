"""Starts processes that the kernel ends when this one has ended, however it ended (Linux).

A line of Python asks the kernel for it (PR_SET_PDEATHSIG) and then becomes the command. So no code of this process runs
between fork and exec. With `preexec_fn` it would, and the handlers that libraries have for a fork too: where another
thread uses gRPC, the child now and then ended before it became the command.

The kernel sends the signal when the **thread** that started the process ends. So a thread that lives as long as this
process, the starter, starts all of them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar

__all__ = ["bound_command", "run_on_starter", "start_bound"]

T = TypeVar("T")

_PR_SET_PDEATHSIG: Final = 1
_BOUND: Final = (
    "import ctypes, os, sys\n"
    f"ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, int(sys.argv[2]))\n"
    "os._exit(1) if os.getppid() != int(sys.argv[1]) else os.execv(sys.argv[3], sys.argv[3:])"
)

_work: SimpleQueue[Callable[[], None]] = SimpleQueue()
_lock: Final = threading.Lock()
_starter: threading.Thread | None = None


def start_bound(command: Sequence[str], by: signal.Signals = signal.SIGKILL, **options: Any) -> subprocess.Popen[bytes]:
    """Start the command, whose first word is a path. `by` is the signal that ends it when this process has ended, and
    `options` are those of `subprocess.Popen`."""
    return run_on_starter(lambda: subprocess.Popen(bound_command(command, by), **options))


def bound_command(command: Sequence[str], by: signal.Signals = signal.SIGKILL) -> list[str]:
    """Return the command to start on the starter; on systems other than Linux, the same command."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _BOUND, str(os.getpid()), str(int(by)), *command]


def run_on_starter(work: Callable[[], T]) -> T:
    """Run it on the thread that lives as long as this process."""
    global _starter
    with _lock:
        if _starter is None or not _starter.is_alive():  # after a fork it is not
            _starter = threading.Thread(target=_run_all, name="starter of processes", daemon=True)
            _starter.start()
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 (it is raised in the caller)
            done.set_exception(error)

    _work.put(run)
    return done.result()


def _run_all() -> None:
    while True:
        _work.get()()
