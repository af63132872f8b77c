"""The memory of the entries that wait to be sent to consumers, over all streams and connections of a broker.

Each stream has a limit of its own, but thousands of slow ones would still take gigabytes. When all of them together
reach the limit here, each keeps a small capacity: enough to go on, so that no stream waits for another.
"""

from __future__ import annotations

from typing import Final

__all__ = ["OutboxBudget"]

# The capacity that a stream always has: a few entries of the usual size.
_ALWAYS_BYTES: Final = 262_144


class OutboxBudget:
    __slots__ = ("_max_bytes", "queued_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # Of all streams and connections.
        self.queued_bytes = 0

    def free_bytes(self, max_bytes: int, queued_bytes: int) -> int:
        """Return how much more a stream may queue that has queued `queued_bytes` of its own limit `max_bytes`."""
        if self.queued_bytes >= self._max_bytes:
            max_bytes = min(max_bytes, _ALWAYS_BYTES)
        return max_bytes - queued_bytes
