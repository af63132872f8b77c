"""What entries for all `consume` streams of a broker may take together, while they wait to be sent.

Each stream has a bound of its own, and thousands of slow ones would still take gigabytes. Once all of them together
have what they may, each has room for a little only: enough to go on, so that no stream waits for another.
"""

from __future__ import annotations

from typing import Final

__all__ = ["OutboxBudget"]

# What a stream may always have: a few entries of the usual size.
_ALWAYS_BYTES: Final = 262_144


class OutboxBudget:
    __slots__ = ("_max_bytes", "queued_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # Of all streams.
        self.queued_bytes = 0

    def room_bytes(self, max_bytes: int, queued_bytes: int) -> int:
        """Of a stream that may have so many bytes, and has so many."""
        if self.queued_bytes >= self._max_bytes:
            max_bytes = min(max_bytes, _ALWAYS_BYTES)
        return max_bytes - queued_bytes
