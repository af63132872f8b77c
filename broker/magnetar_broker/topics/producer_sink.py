"""Interface through which a topic's producer reports results to its client, for example to a `produce` stream."""

from __future__ import annotations

from typing import Protocol

from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.position import Position

__all__ = ["ProducerSink"]


class ProducerSink(Protocol):
    """Receives the results of one producer and of its entries, in the order in which they occur."""

    def stored(self, number: int, position: Position) -> None: ...

    def refused(self, number: int, error: BrokerError) -> None:
        """Report that an entry was not stored and will not be. Later entries are not affected."""

    def decided(self, memory_bytes: int) -> None:
        """Report that published entries are stored or refused, so that `memory_bytes` of memory are free.

        `memory_bytes` is counted by `count_entry_memory`.
        """

    def report_waiting(self, waiting_for: str) -> None:
        """Report a new reason why the topic stores no entries at present. Empty: it stores entries.

        Also called while the producer is being opened.
        """

    def ended(self, error: BrokerError) -> None:
        """Report that the producer has ended. After this only `decided` is called."""

    async def check_alive(self) -> bool:
        """Return whether the client is alive, as far as can be determined. If it is not, its producer has left."""
