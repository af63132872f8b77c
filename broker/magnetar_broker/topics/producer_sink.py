"""A producer's client: what it sends to open its producer, and the interface through which results reach it.

Both listeners implement `ProducerSink`: `server/grpc/stream_producer.py` and `server/pulsar/producer.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from magnetar_broker.errors import BrokerError
from magnetar_broker.position import Position
from magnetar_protos.broker_pb2 import ErrorCode, ProducerAccessMode

__all__ = ["ProducerIdentity", "ProducerSink", "too_many_waiting"]


class ProducerSink(Protocol):
    """Receives the results of one producer and of its entries, in the order in which they occur."""

    def stored(self, number: int, position: Position) -> None:
        """Report that an entry is stored, or that it was stored before: then the position is (-1,-1)."""

    def partly_stored(self, number: int, position: Position, duplicates: int) -> None:
        """Report that a batch is stored without its first messages, which were stored before."""

    def refused(self, number: int, error: BrokerError) -> None:
        """Report that an entry was not stored and will not be. Later entries are not affected, unless the producer ends
        next."""

    def decided(self, memory_bytes: int) -> None:
        """Report that published entries are stored or refused, so that `memory_bytes` of memory are free.

        `memory_bytes` is counted by `count_entry_memory`.
        """

    def report_waiting(self, waiting_for: str) -> None:
        """Report a new reason why the topic stores no entries at present. Empty: it stores entries.

        Also called while the producer is being opened.
        """

    def topic_grew(self, partitions: int) -> None:
        """Report that the partitioned topic has this many partitions now."""

    def queued(self, producer_name: str) -> None:
        """Report that the producer that is being opened waits until it may have the topic to itself.

        Raises `BrokerError` if too many of the client's producers wait: then it is not opened.
        """

    def ended(self, error: BrokerError) -> None:
        """Report that the producer has ended. After this only `decided` is called."""

    async def check_alive(self) -> bool:
        """Return whether the client is alive, as far as can be determined. If it is not, its producer has left."""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """What a client has sent to open its producer."""

    # Its number on the client's stream or connection.
    producer_id: int
    name: str
    # Proves that a producer that reconnects is the one that had the name before.
    instance: bytes
    epoch: int
    properties: Mapping[str, str]
    # The client's address, and the name and version of its library, for statistics.
    address: str
    client_version: str = ""
    # Its library can open a producer on some of the partitions of a topic only.
    partial: bool = False
    # The version of its schema, encoded; empty: it has none.
    schema_version: bytes = b""
    access_mode: ProducerAccessMode = ProducerAccessMode.ACCESS_SHARED


def too_many_waiting(what: str, limit: int) -> BrokerError:
    """Return the error of a producer that would wait, while the "stream" or "connection" has the maximum of those."""
    return BrokerError(
        ErrorCode.TOO_MANY_REQUESTS,
        f"{limit} producers of this {what} wait until they have their topics to themselves, the maximum of "
        f"max_waiting_producers_per_stream: use another {what}",
    )
