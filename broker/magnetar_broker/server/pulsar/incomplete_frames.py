"""The memory of incomplete frames, limited for all connections together.

Above the limit, the connection whose frame began first is closed. A well-behaved client completes a frame within a
moment. A client that occupies the broker's memory on purpose, even byte by byte, must not affect other clients.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["FrameSender", "IncompleteFrames"]


class FrameSender(Protocol):
    """A connection."""

    def close_overloaded(self, reason: str) -> None:
        """Close the connection, because the broker has too much to hold."""


class IncompleteFrames:
    __slots__ = ("_max_bytes", "_sizes", "bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # By connection, in the order in which their frames began.
        self._sizes: dict[FrameSender, int] = {}
        self.bytes = 0

    def update(self, sender: FrameSender, size_bytes: int, *, is_new: bool) -> None:
        """Set the size of a connection's incomplete frame; 0: it has none. `is_new`: it is not the frame of before."""
        if is_new or not size_bytes:
            self.bytes -= self._sizes.pop(sender, 0)
        if size_bytes:
            self.bytes += size_bytes - self._sizes.get(sender, 0)
            self._sizes[sender] = size_bytes
            while self.bytes > self._max_bytes:
                self._close_oldest()

    def _close_oldest(self) -> None:
        oldest = next(iter(self._sizes))
        oldest.close_overloaded(
            f"the broker has {self.bytes} bytes of incomplete frames, more than max_unfinished_frames_bytes = "
            f"{self._max_bytes}, and this connection's is the oldest: connect again in a moment"
        )
        self.update(oldest, 0, is_new=True)
