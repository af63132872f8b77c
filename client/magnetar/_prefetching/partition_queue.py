"""The entries of one topic or partition in the receiver queue, and how messages are made of them.

All but `PartitionQueue.report` is guarded by the receiver queue's lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Any, Final

from magnetar._message import DeliveredEntry, Message

__all__ = ["PartitionQueue", "count_that_fits", "have_same_topic", "make_messages", "make_segment", "payload_bytes"]

# Without the type of its value, which the consumer knows.
_new_message: Final[Callable[[DeliveredEntry, int], Message[Any]]] = Message


class PartitionQueue:
    __slots__ = (
        "debt",
        "entries",
        "is_closed",
        "is_reported",
        "last",
        "last_handed_out",
        "report",
        "report_at",
        "segment_size",
        "size_bytes",
    )

    def __init__(self, report: Callable[[], object]) -> None:
        # Each entry has at least one message that is not handed out.
        self.entries: deque[DeliveredEntry] = deque()
        # The size of the entries.
        self.size_bytes = 0
        # Messages that were handed out since the loop last fetched their number.
        self.debt = 0
        # `report` is called when the debt reaches this.
        self.report_at = 1
        # `report` was called, and the loop has not fetched the debt since.
        self.is_reported = False
        self.report = report
        # The maximum number of messages that are made at a time.
        self.segment_size = 1
        # New entries are dropped, because they will be redelivered.
        self.is_closed = False
        # The last message that was made. All before it are handed out, or in `ready`.
        self.last: Message[Any] | None = None
        # The last message that is known to be handed out, with all before it.
        self.last_handed_out: Message[Any] | None = None


def make_messages(entry: DeliveredEntry, count: int) -> tuple[list[Message[Any]], Sequence[int]]:
    """Make the entry's next messages, `count` at most. Return them, and the rows that remain. Change nothing."""
    rows = entry.remaining
    if len(rows) <= count:
        return list(map(_new_message, repeat(entry), rows)), []
    return list(map(_new_message, repeat(entry), rows[:count])), rows[count:]


def make_segment(
    entries: Iterable[DeliveredEntry], count: int
) -> tuple[list[Message[Any]], list[DeliveredEntry], DeliveredEntry | None, Sequence[int]]:
    """Make the next messages of entries, `count` at most. Change nothing.

    Return the messages, the entries of which no row remains, and the entry that is split, if any, with its remaining
    rows.
    """
    messages: list[Message[Any]] = []
    consumed: list[DeliveredEntry] = []
    for entry in entries:
        rows = entry.remaining
        if len(rows) > count:
            messages.extend(map(_new_message, repeat(entry), rows[:count]))
            return messages, consumed, entry, rows[count:]
        messages.extend(map(_new_message, repeat(entry), rows))
        consumed.append(entry)
        count -= len(rows)
        if not count:
            break
    return messages, consumed, None, ()


def have_same_topic(one: Message[Any], other: Message[Any]) -> bool:
    return one._entry.epoch.origin is other._entry.epoch.origin


def payload_bytes(message: Message[Any]) -> int:
    return len(message._entry.columns.payloads[message._row] or b"")


def count_that_fits(entry: DeliveredEntry, max_messages: int, bytes_left: int, may_be_none: bool) -> int:
    """Return how many of the entry's next messages fit; at least one, unless `may_be_none`."""
    payloads = entry.columns.payloads
    count = 0
    for row in entry.remaining[:max_messages]:
        bytes_left -= len(payloads[row] or b"")
        if bytes_left < 0 and (count or may_be_none):
            break
        count += 1
    return count
