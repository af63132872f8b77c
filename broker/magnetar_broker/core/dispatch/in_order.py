"""How many messages were delivered behind a place that moves on, where all are delivered in order.

They are counted in stretches, each of which is passed as a whole: some hundreds are enough for any bound, and cost
nothing that is felt for an entry.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from magnetar_broker.core.position import Position

__all__ = ["InOrder"]

# Of the bound, one stretch has at most about that part.
_STRETCHES: Final = 500
_MANY: Final = 2**62


class InOrder:
    __slots__ = ("_most", "_stretches", "long", "messages")

    def __init__(self, most: int) -> None:
        """0: any number, and then they are not counted."""
        self._most = most
        # How many messages may be told of as one, or a few more.
        self.long = most // _STRETCHES
        # The last entry of each, and how many messages it has.
        self._stretches: deque[tuple[Position, int]] | None = None
        self.messages = 0

    @property
    def full(self) -> bool:
        return 0 < self._most <= self.messages

    @property
    def room(self) -> int:
        """How many more there may be, about."""
        return self._most - self.messages if self._most else _MANY

    def delivered(self, position: Position, messages: int) -> None:
        """Up to this entry, since the last one that was told of."""
        if not self._most:
            return
        self.messages += messages
        stretches = self._stretches
        if stretches is None:
            stretches = self._stretches = deque()
        if stretches and stretches[-1][1] < self.long:
            messages += stretches.pop()[1]
        stretches.append((position, messages))

    def passed(self, mark_delete: Position) -> None:
        stretches = self._stretches
        while stretches and stretches[0][0] <= mark_delete:
            self.messages -= stretches.popleft()[1]

    def clear(self) -> None:
        self._stretches = None
        self.messages = 0
