"""A process of the cluster: started, known again by later commands, and signalled without ever hitting another.

A pid says little: it is given out again when its process has ended, and after a reboot anybody may have it. So a
process is remembered as its pid, the moment at which the kernel started it (in ticks since boot) and the boot it was
in. A signal goes through a handle (pidfd) that is opened first and compared then: what it holds can't become another
process between the comparison and the signal.

Processes are started by `posix_spawn`: no Python code of ours runs between fork and exec, which matters in a test
process that holds gRPC's threads. Those that must die with whoever started them are started through a line of Python
that asks the kernel for that and then becomes the command. The kernel goes by the thread that started them; so one
thread, which lives as long as its process, starts them all.

A process that this one started becomes a zombie when it ends: whoever looks at it takes it away.
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

from magnetar_cli.bound_process import bound_command, run_on_starter

__all__ = ["ProcessId", "find_by_command", "is_paused", "is_running", "send", "start", "wait_ended"]

_DEFAULTS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
_LINUX: Final = sys.platform == "linux"


@dataclass(frozen=True, slots=True)
class ProcessId:
    pid: int
    # When it was started, and in which boot of the machine.
    started: str
    boot: str


def start(
    command: Sequence[str], log: Path, environment: Mapping[str, str], *, die_with_parent: bool = False
) -> ProcessId:
    """Starts it in a session of its own, its output appended to `log`. Raises `OSError`."""
    if die_with_parent and _LINUX:
        return run_on_starter(lambda: _spawn(bound_command(command), log, environment))
    return _spawn(command, log, environment)


def is_running(process: ProcessId) -> bool:
    """Whether this process, and not one that has got its number since, is there and no zombie."""
    if not _same(process):
        return False
    state = _state(process.pid)
    if state == "Z":
        _take_away(process.pid)
    return state not in (None, "Z", "X")


def is_paused(process: ProcessId) -> bool:
    return is_running(process) and _state(process.pid) in ("T", "t")


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Signals it. False: it does not run any more."""
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
    """Whether it ended in time."""
    deadline = time.monotonic() + timeout_s
    while is_running(process):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
    return True


def find_by_command(command: Sequence[str]) -> ProcessId | None:
    """A process with exactly this command: one whose start was not written down any more."""
    for found in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            # By its end: what starts it may stand in front.
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


# -- who it is ---------------------------------------------------------------------------------------------------------


def _identify(pid: int) -> ProcessId:
    """Of a process that is there, or that is a zombie of ours."""
    return ProcessId(pid, _started(pid) or "", _boot())


def _same(process: ProcessId) -> bool:
    return process.boot == _boot() and process.started == _started(process.pid)


def _started(pid: int) -> str | None:
    if _LINUX:
        fields = _stat(pid)
        return fields[19] if fields else None
    try:
        return str(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def _boot() -> str:
    """What tells this boot from all others; elsewhere than on Linux the start time alone has to."""
    if _LINUX:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _state(pid: int) -> str | None:
    if _LINUX:
        fields = _stat(pid)
        return fields[0] if fields else None
    try:
        status = psutil.Process(pid).status()
    except psutil.Error:
        return None
    return {psutil.STATUS_ZOMBIE: "Z", psutil.STATUS_STOPPED: "T"}.get(status, "R")


def _stat(pid: int) -> list[str] | None:
    """What the kernel tells, from the state on; the name before it may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _take_away(pid: int) -> None:
    # Not our child: init, or whoever started it, does that.
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
