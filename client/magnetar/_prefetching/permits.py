"""Flow control of a consumer of one topic or partition: how many more messages the broker may send.

The client and the broker both count permits. `outstanding` is the number of permits granted minus the number of
messages delivered. It falls below zero if a batch has more messages than there are permits left. `queued` is the number
of messages that were delivered and that the application has not received yet. The sum of both stays near the size of
the window: if it falls to half of the window or below, the client grants permits for the difference.

**The window** is `receiver_queue_size`. It is smaller if messages are large: the messages of a window should take
`max_bytes` at most, by the average size of recent ones. Before the first message is seen, a few are requested; of
a non-persistent topic as many as the queue takes, as the broker drops what it has no permits for.

**Without a queue** (`queue_size=0`) one message is requested at a time, and only while the application waits for one.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Permits"]

# The largest messages take 80 MiB together.
_FIRST_WINDOW: Final = 16
# Deliveries beyond the permits are tolerated up to here. Both sides may count differently, for example entries that
# can't be read.
_TOLERATED: Final = 10_000
# The weight of the latest entry in the average size.
_WEIGHT: Final = 0.2


class Permits:
    __slots__ = ("_average_bytes", "_first_window", "_largest", "max_bytes", "outstanding", "queue_size", "queued")

    def __init__(self, queue_size: int, max_bytes: int, *, first_window: int = _FIRST_WINDOW) -> None:
        """`first_window`: before the size of any message is known."""
        self.queue_size = queue_size
        self._first_window = first_window
        self.max_bytes = max_bytes
        self._average_bytes: float | None = None
        # The most permits that one entry has taken.
        self._largest = 0
        self.outstanding = 0
        self.queued = 0

    @property
    def window(self) -> int:
        if self._average_bytes is None:
            return min(self.queue_size, self._first_window)
        return min(self.queue_size, max(1, int(self.max_bytes / self._average_bytes)))

    def set_limits(self, queue_size: int, max_bytes: int) -> None:
        """Change this partition's share of the consumer's limits."""
        self.queue_size = queue_size
        self.max_bytes = max_bytes

    def start_epoch(self, *, keep_queued: bool = False) -> None:
        """Forget the permits of the last epoch. The messages in the queue were dropped, or are kept."""
        self.outstanding = 0
        if not keep_queued:
            self.queued = 0

    def count_delivered(self, permits: int, messages: int, size_bytes: int) -> None:
        """Count an entry that takes `permits`, and of which `messages` are to be handed out."""
        self.outstanding -= permits
        self._largest = max(self._largest, permits)
        self.queued += messages
        if messages:
            average = max(size_bytes / permits, 1.0)
            before = self._average_bytes
            self._average_bytes = average if before is None else before + _WEIGHT * (average - before)

    @property
    def is_overdrawn(self) -> bool:
        """Whether the broker delivered so much more than it had permits for that it must be in error."""
        return self.outstanding < -(self._largest + _TOLERATED)

    def count_handed_out(self, count: int) -> None:
        """Count messages that were handed out, or dropped."""
        self.queued -= count

    def count_queued(self, count: int) -> None:
        """Count messages as queued again that were counted as handed out."""
        self.queued += count

    def grant(self, *, waiting: bool = False, eager: bool = False) -> int:
        """Return how many permits to grant now, and count them.

        `waiting`: the application waits for a message. `eager`: grant what is missing, even if it is less than half of
        the window.
        """
        window = self.window
        if self.queue_size == 0:
            window = 1 if waiting and not self.queued else 0
            eager = True
        missing = window - self.queued - self.outstanding
        if missing < (1 if eager else max(1, window // 2)):
            return 0
        self.outstanding += missing
        return missing
