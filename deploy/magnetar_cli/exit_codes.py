"""Exit statuses of client commands. Server processes have their own: see
magnetar_wire/process/exit_status.py."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitCode", "format_exit_codes"]


class ExitCode(IntEnum):
    DONE = 0
    # The request was refused or failed, or a requested object does not exist.
    FAILED = 1
    # The command line is wrong: nothing was done.
    USAGE = 2
    # An answer was lost: the outcome is unknown.
    UNKNOWN = 3
    # No broker answers.
    UNREACHABLE = 4
    # Fewer messages arrived in time than requested.
    TOO_FEW = 5
    # Of `explain`: something holds back what was expected.
    HELD_BACK = 6
    # What shells report for SIGINT, SIGPIPE and SIGTERM.
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    TERMINATED = 143


_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "refused or failed",
    ExitCode.USAGE: "wrong usage",
    ExitCode.UNKNOWN: "outcome unknown",
    ExitCode.UNREACHABLE: "no broker answers",
    ExitCode.TOO_FEW: "fewer messages than requested",
    ExitCode.HELD_BACK: "something is held back",
    ExitCode.INTERRUPTED: "Ctrl-C",
    ExitCode.PIPE_CLOSED: "output closed",
    ExitCode.TERMINATED: "SIGTERM",
}


def format_exit_codes() -> str:
    """Return the line of the help that lists all exit statuses."""
    return "Exit status: " + ", ".join(f"{int(code)} {meaning}" for code, meaning in _MEANINGS.items()) + "."
