"""The exit statuses of a process. The numbers are those of sysexits.h where it has one."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitStatus"]


class ExitStatus(IntEnum):
    """The reason for the end of a process."""

    # A requested shutdown. Everything that was accepted is stored and answered, or was never acknowledged.
    ENDED = 0
    # A bug in Magnetar.
    BROKEN = 70
    # The disk failed, or does not answer. After a restart the process continues with the data that is really stored.
    DISK_FAILED = 74
    # A requested shutdown in which something was blocked, such as the event loop. No acknowledged data is lost.
    DID_NOT_END = 75
    # The process refuses to start: an invalid configuration, another process' or a wiped disk, a folder or an address
    # in use.
    REFUSED = 78
