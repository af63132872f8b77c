"""Exit statuses of client commands. Server processes have their own: see
magnetar_wire/process/exit_status.py."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode", "exit_codes_shown"]


class ExitCode(IntEnum):
    DONE = 0
    # It was refused, or went wrong, or something that was asked for is not there.
    FAILED = 1
    # The command line is wrong: nothing was done.
    USAGE = 2
    # An answer was lost: it may have been done, or not.
    UNKNOWN = 3
    # No broker answers.
    UNREACHABLE = 4
    # Less came than was asked for, in the time there was.
    TOO_FEW = 5
    # As shells have it of what a signal ends: SIGINT, SIGPIPE, SIGTERM.
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    TERMINATED = 143


_SHOWN = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "refused or failed",
    ExitCode.USAGE: "wrong usage",
    ExitCode.UNKNOWN: "outcome unknown",
    ExitCode.UNREACHABLE: "no broker answers",
    ExitCode.TOO_FEW: "fewer messages than requested",
    ExitCode.INTERRUPTED: "Ctrl-C",
    ExitCode.PIPE_CLOSED: "output closed",
    ExitCode.TERMINATED: "SIGTERM",
}


def exit_codes_shown() -> str:
    """For the help."""
    return "Exit status: " + ", ".join(f"{int(code)} {meaning}" for code, meaning in _SHOWN.items()) + "."
