"""What a topic's producers need of whoever publishes by them: a channel of a `produce` stream."""

from __future__ import annotations

from typing import Protocol

from magnetar_broker.core.position import Position
from magnetar_broker.errors import BrokerError

__all__ = ["ProducerSink"]


class ProducerSink(Protocol):
    """Who is told what becomes of a producer and its entries, in the order in which it happens."""

    def stored(self, number: int, position: Position) -> None: ...

    def refused(self, number: int, error: BrokerError) -> None:
        """It was not and will not be stored; what follows is not held up."""

    def decided(self, memory_bytes: int) -> None:
        """Entries that were handed over are decided; they took this much memory, by `count_entry_memory`."""

    def report_waiting(self, waiting_for: str) -> None:
        """Why the topic stores nothing at present has changed; empty: it stores what comes. Also called while the
        producer is being opened."""

    def ended(self, error: BrokerError) -> None:
        """Nothing more is taken, or told, of this producer; but `decided` still is."""

    async def lives(self) -> bool:
        """Whoever publishes is still there, as far as can be told; where not, it has been let go of by now."""
