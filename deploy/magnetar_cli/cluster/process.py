"""Start a process of a local cluster, find it again in later commands, and signal it.

A process id alone is ambiguous: it is reused when its process has ended. So a process is identified by its id, the time
at which the kernel started it (in ticks since boot), and the id of the boot. A signal is sent through a handle (pidfd)
that is opened before these are compared, so that it can't reach another process.

Processes are started by `posix_spawn`: no Python code runs between fork and exec, which matters in a test process that
has gRPC's threads. bound_process.py starts those that must end with their parent.

A child of this process becomes a zombie when it ends. The next check reaps it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from magnetar_cli.bound_process import make_bound_command, run_on_starter

__all__ = ["ProcessId", "find_by_command", "is_paused", "is_running", "send", "start", "wait_ended"]

_DEFAULTS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
_LINUX: Final = sys.platform == "linux"


@dataclass(frozen=True, slots=True)
class ProcessId:
    pid: int
    # The start time, in ticks since the boot, and the id of the boot.
    started: str
    boot: str


def start(
    command: Sequence[str], log: Path, environment: Mapping[str, str], *, die_with_parent: bool = False
) -> ProcessId:
    """Start the command in a new session, with its output appended to `log`. Raise `OSError`."""
    if die_with_parent and _LINUX:
        return run_on_starter(lambda: _spawn(make_bound_command(command), log, environment))
    return _spawn(command, log, environment)


def is_running(process: ProcessId) -> bool:
    """Return whether it runs. A zombie does not, nor does another process that has got the same id."""
    if not _is_same_process(process):
        return False
    state = _read_process_state(process.pid)
    if state == "Z":
        _reap(process.pid)
    return state not in (None, "Z", "X")


def is_paused(process: ProcessId) -> bool:
    return is_running(process) and _read_process_state(process.pid) in ("T", "t")


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Send a signal. Return False if the process has ended."""
    if not _LINUX:
        return _send_by_psutil(process, number)
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_running(process):
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, number)
            return True
        return False
    finally:
        os.close(handle)


def wait_ended(process: ProcessId, timeout_s: float) -> bool:
    """Return whether it ended within the timeout."""
    deadline = time.monotonic() + timeout_s
    while is_running(process):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


def find_by_command(command: Sequence[str]) -> ProcessId | None:
    """Find a process by its command line, if its id was not stored because the command that started it was killed."""
    for found in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            # Compare the end: the program that starts it (bound_process.py) may precede it.
            if tuple(found.cmdline()[-len(command) :]) == tuple(command) and found.status() != psutil.STATUS_ZOMBIE:
                return _identify(found.pid)
    return None


def _spawn(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> ProcessId:
    log.parent.mkdir(parents=True, exist_ok=True)
    pid = os.posix_spawn(
        command[0],
        list(command),
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=_DEFAULTS,
    )
    return _identify(pid)


def _identify(pid: int) -> ProcessId:
    """Identify a process that runs, or is a zombie of this one."""
    return ProcessId(pid, _read_start_time(pid) or "", _read_boot_id())


def _is_same_process(process: ProcessId) -> bool:
    return process.boot == _read_boot_id() and process.started == _read_start_time(process.pid)


def _read_start_time(pid: int) -> str | None:
    if _LINUX:
        fields = _read_stat(pid)
        return fields[19] if fields else None
    try:
        return str(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def _read_boot_id() -> str:
    """Return the id of this boot; it is empty on systems other than Linux, where the start time is absolute."""
    if _LINUX:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _read_process_state(pid: int) -> str | None:
    if _LINUX:
        fields = _read_stat(pid)
        return fields[0] if fields else None
    try:
        status = psutil.Process(pid).status()
    except psutil.Error:
        return None
    return {psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_STOPPED: "T"}.get(status, "R")


def _read_stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on. The name before it may contain anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _reap(pid: int) -> None:
    # It is not a child of this process: its parent reaps it.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _send_by_psutil(process: ProcessId, number: signal.Signals) -> bool:
    try:
        found = psutil.Process(process.pid)
        if not is_running(process):
            return False
        found.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True
