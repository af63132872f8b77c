"""What all connections have sent of frames that have not come whole: bounded, for all of them together.

Where it is too much, the connection whose frame began longest ago is closed. Frames of clients that mean it come whole
in a moment; one that keeps the broker's memory on purpose, byte by byte if need be, must not have others pay for it.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["Sending", "UnfinishedFrames"]


class Sending(Protocol):
    def take_no_more(self, why: str) -> None:
        """Ends it, and with it what it keeps here."""


class UnfinishedFrames:
    __slots__ = ("_max_bytes", "_of", "bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # Of each, in the order in which their frames began.
        self._of: dict[Sending, int] = {}
        self.bytes = 0

    def keeps(self, who: Sending, size_bytes: int, *, another: bool) -> None:
        """`another`: it is not the frame that the connection had begun before."""
        if another or not size_bytes:
            self.bytes -= self._of.pop(who, 0)
        if size_bytes:
            self.bytes += size_bytes - self._of.get(who, 0)
            self._of[who] = size_bytes
            while self.bytes > self._max_bytes:
                self._close_oldest()

    def _close_oldest(self) -> None:
        oldest = next(iter(self._of))
        oldest.take_no_more(
            f"the broker has {self.bytes} bytes of frames that have not come whole, more than "
            f"max_unfinished_frames_bytes = {self._max_bytes}, and this connection's began first: connect again in a "
            "moment"
        )
        self.keeps(oldest, 0, another=True)
