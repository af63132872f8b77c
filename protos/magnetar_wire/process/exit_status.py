"""What a process' end says to whoever started it. The numbers are those of sysexits.h where that has one."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["ExitStatus"]


class ExitStatus(IntEnum):
    # It was asked to end, and all that it took is on the disk and answered, or was never acknowledged.
    ENDED = 0
    # A bug of ours.
    BROKEN = 70
    # The disk failed, or does not answer. Starting anew goes on with what is really there.
    DISK_FAILED = 74
    # It was asked to end, and something stood still, such as the event loop. Nothing acknowledged is lost.
    DID_NOT_END = 75
    # It will not start like this: a bad configuration, another's or a wiped disk, a folder or an address in use.
    REFUSED = 78
