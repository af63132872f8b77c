"""Start processes that the kernel ends when this one has ended, also after kill -9 (Linux).

A line of Python requests this from the kernel (PR_SET_PDEATHSIG), and then executes the command. So no code of this
process runs between fork and exec. With `preexec_fn`, the libraries' fork handlers would run, too: if another thread
uses gRPC, the child sometimes ends before exec.

The kernel sends the signal when the **thread** that started the process ends. So one thread that never ends, the
starter, starts all of them.
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

__all__ = ["make_bound_command", "run_on_starter", "start_bound_process"]

T = TypeVar("T")

_PR_SET_PDEATHSIG: Final = 1
_REQUEST_AND_EXEC: Final = (
    "import ctypes, os, sys\n"
    f"ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, int(sys.argv[2]))\n"
    "os._exit(1) if os.getppid() != int(sys.argv[1]) else os.execv(sys.argv[3], sys.argv[3:])"
)

_work: SimpleQueue[Callable[[], None]] = SimpleQueue()
_lock: Final = threading.Lock()
_starter: threading.Thread | None = None


def start_bound_process(
    command: Sequence[str], by: signal.Signals = signal.SIGKILL, **options: Any
) -> subprocess.Popen[bytes]:
    """Start the command, whose first word is a path. `by` is the signal that the kernel sends when this process has
    ended, and `options` are those of `subprocess.Popen`."""
    return run_on_starter(lambda: subprocess.Popen(make_bound_command(command, by), **options))


def make_bound_command(command: Sequence[str], by: signal.Signals = signal.SIGKILL) -> list[str]:
    """Return the command that `run_on_starter` must start. On systems other than Linux it is unchanged."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _REQUEST_AND_EXEC, str(os.getpid()), str(int(by)), *command]


def run_on_starter(work: Callable[[], T]) -> T:
    """Run the function on the starter thread, and return its result."""
    global _starter
    with _lock:
        if _starter is None or not _starter.is_alive():  # the thread does not exist after a fork
            _starter = threading.Thread(target=_run_all, name="starter of processes", daemon=True)
            _starter.start()
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except Exception as error:  # noqa: BLE001 (the caller gets it)
            done.set_exception(error)

    _work.put(run)
    return done.result()


def _run_all() -> None:
    while True:
        _work.get()()
