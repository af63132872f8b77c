"""How many messages the broker may send ahead.

The broker counts permits, and this is the other end's count of the same: `outstanding` is what was granted less what
was delivered, below zero after a batch that was larger than what was left. Permits and messages *held* (delivered, and
not handed out) come to the window together; what is missing is granted as soon as it is half of the window.

**The window** is the receiver queue's size, and smaller where messages are large: no more than are expected to take
`max_bytes`, going by those seen of late. Before the first has been seen nobody knows, so a few are asked for.

**A window of nothing** (`queue_size=0`): one message at a time, and only while somebody waits for it.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Permits"]

# Asked for before the size of any is known: the largest there are come to 80 MiB.
_FIRST: Final = 16
# So much beyond the permits is taken for a difference in counting, of entries that can't be read say.
_TOLERATED: Final = 10_000
# How much of the average is made by what has come last.
_WEIGHT: Final = 0.2


class Permits:
    __slots__ = ("_average_bytes", "_largest", "held", "max_bytes", "outstanding", "queue_size")

    def __init__(self, queue_size: int, max_bytes: int) -> None:
        self.queue_size = queue_size
        self.max_bytes = max_bytes
        self._average_bytes: float | None = None
        # Of one entry.
        self._largest = 0
        self.outstanding = 0
        self.held = 0

    @property
    def window(self) -> int:
        if self._average_bytes is None:
            return min(self.queue_size, _FIRST)
        return min(self.queue_size, max(1, int(self.max_bytes / self._average_bytes)))

    def share(self, queue_size: int, max_bytes: int) -> None:
        """Others read beside this one, and share the bounds."""
        self.queue_size = queue_size
        self.max_bytes = max_bytes

    def began_anew(self, *, keeps: bool = False) -> None:
        """An epoch began: nothing is granted in it, and what was held is dropped, unless it is kept."""
        self.outstanding = 0
        if not keeps:
            self.held = 0

    def delivered(self, permits: int, held: int, size_bytes: int) -> None:
        """An entry came that takes so many permits, and of which so many messages are to be handed out."""
        self.outstanding -= permits
        self._largest = max(self._largest, permits)
        self.held += held
        if held:
            average = max(size_bytes / permits, 1.0)
            before = self._average_bytes
            self._average_bytes = average if before is None else before + _WEIGHT * (average - before)

    @property
    def overdrawn(self) -> bool:
        """More came than can be: the other end does not keep to the permits."""
        return self.outstanding < -(self._largest + _TOLERATED)

    def handed_out(self, count: int) -> None:
        self.held -= count

    def grant(self, *, waiting: bool = False, eager: bool = False) -> int:
        """How many to grant now. `waiting`: somebody waits for a message; `eager`: do not wait for half of the
        window."""
        window = self.window
        if self.queue_size == 0:
            window = 1 if waiting and not self.held else 0
            eager = True
        missing = window - self.held - self.outstanding
        if missing < (1 if eager else max(1, window // 2)):
            return 0
        self.outstanding += missing
        return missing
