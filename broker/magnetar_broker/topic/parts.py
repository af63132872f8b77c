"""What a topic needs of its parts, and of whoever publishes.

ManagedLedger   is a TopicLog
CursorTable     is a TopicCursors
Subscriptions   is a TopicSubscriptions
a channel of a `produce` stream is a ProducerSink
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from magnetar_broker.core.position import Position
from magnetar_broker.errors import BrokerError, TopicGivenUp
from magnetar_broker.managed_ledger.interface import CursorTable, Log

__all__ = ["ProducerSink", "TopicCursors", "TopicLog", "TopicSubscriptions"]


class TopicLog(Log, Protocol):
    # Called after entries became readable, at most once per turn of the loop.
    on_appended: Callable[[], object] | None
    # Called once, when the log has found that it is somebody else's.
    on_lost: Callable[[TopicGivenUp], object] | None

    @property
    def waiting_for(self) -> str:
        """Why publishing waits; empty: it does not."""

    def tick(self, now: float) -> None:
        """Called every second or so, with the monotonic clock."""

    @property
    def closed_ledgers(self) -> int:
        """How many there are in the list that are not open; it may grow when one rolls."""

    async def trim(self, up_to: Position | None) -> bool:
        """Deletes ledgers that end at or before it; None: all that are closed. Whether there were any."""

    async def close(self) -> None: ...

    def abandon(self) -> None: ...


class TopicCursors(CursorTable, Protocol):
    on_lost: Callable[[TopicGivenUp], object]

    async def close(self) -> None: ...

    def abandon(self) -> None: ...


class TopicSubscriptions(Protocol):
    @property
    def consumers(self) -> int:
        """How many are connected."""

    def appended(self) -> None: ...

    async def close(self, problem: BrokerError) -> None: ...


class ProducerSink(Protocol):
    """Who is told what becomes of a producer and its entries, in the order in which it happens."""

    def stored(self, number: int, position: Position) -> None: ...

    def refused(self, number: int, error: BrokerError) -> None:
        """It was not and will not be stored; what follows is not held up."""

    def decided(self, size_bytes: int) -> None:
        """So much of what was taken is pending no more."""

    def ended(self, error: BrokerError) -> None:
        """Nothing more is taken, or told, of this producer; but `decided` still is."""
