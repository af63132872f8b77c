"""What the rules know of one consumer.

A consumer's epoch ends with whatever makes its earlier deliveries void: permits are 0 again, and count only if they
were granted in the new one. Acknowledgements are refused if they are older than `acknowledged_from`: a seek or a
take-over raises it, a redelivery does not.
"""

from __future__ import annotations

from typing import Final, Protocol

from magnetar_broker.topics.dispatch.entry_counts import EntryCounts

__all__ = ["ConsumerState", "Outlet"]

# Nobody has use for more; a client that grants without end makes no number without end.
_MOST_PERMITS: Final = 2**31


class Outlet(Protocol):
    """The queue of entries for a consumer, which other consumers may share."""

    def capacity_bytes(self) -> int:
        """Return how many more bytes can be queued now. After 0 or less, `on_capacity` is called later."""

    def reserve(self, size_bytes: int) -> None:
        """Reserve capacity for entries that are being read. A negative size releases it."""


class ConsumerState:
    __slots__ = (
        "acknowledged_from",
        "epoch",
        "held",
        "in_turn",
        "name",
        "number",
        "outlet",
        "permits",
        "priority_level",
    )

    def __init__(self, name: str, priority_level: int, outlet: Outlet) -> None:
        self.name = name
        # 0 is served first.
        self.priority_level = priority_level
        self.outlet = outlet
        # How many had joined before.
        self.number = 0
        self.epoch = 0
        # 0 < acknowledged_from <= epoch, once it has joined.
        self.acknowledged_from = 0
        # How many more messages it takes; below 0 where the last entry had more than were left.
        self.permits = 0
        # Of Shared: entries that were delivered to it, and how many of their messages are not acknowledged.
        self.held = EntryCounts()
        # Of Shared: it stands in line with those that are served in turn.
        self.in_turn = False

    def grant(self, epoch: int, permits: int) -> None:
        if epoch == self.epoch:
            self.permits = min(self.permits + permits, _MOST_PERMITS)

    def begin_epoch(self, epoch: int, *, acknowledgements_end: bool) -> None:
        self.epoch = epoch
        self.permits = 0
        if acknowledgements_end:
            self.acknowledged_from = epoch
