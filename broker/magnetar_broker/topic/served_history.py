"""Who was served last of a subscription with one active consumer, and how often that became another one.

What a consumer had before another's turn it may not acknowledge any more, and a client that was away meanwhile learns
so from the number. One of the same name is the same, connected again: nobody else was served. It is kept in memory,
also while there are no consumers; another broker begins at 0.
"""

from __future__ import annotations

__all__ = ["ServedHistory"]


class ServedHistory:
    __slots__ = ("_last", "take_overs")

    def __init__(self) -> None:
        self._last = ""
        self.take_overs = 0

    def served(self, name: str) -> None:
        if name != self._last:
            self.take_overs += 1 if self._last else 0
            self._last = name

    def __bool__(self) -> bool:
        """Somebody was."""
        return bool(self._last)
