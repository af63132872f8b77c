"""The maximum number of concurrent lookups of a broker, over both protocols.

A lookup may wait for the metadata store, or for a bundle that changes its owner, for as long as their time-outs allow.
Further lookups are refused, and clients retry them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["LookupLimit"]


class LookupLimit:
    """Counts lookups, requests for a topic's partitions, its last message or a namespace's topics."""

    __slots__ = ("_max_lookups", "in_flight")

    def __init__(self, max_lookups: int) -> None:
        self._max_lookups = max_lookups
        self.in_flight = 0

    @contextlib.contextmanager
    def count(self) -> Iterator[None]:
        """Count a lookup while it is in flight. Raises `BrokerError` at the limit."""
        if self.in_flight >= self._max_lookups:
            raise BrokerError(
                ErrorCode.TOO_MANY_REQUESTS,
                f"{self.in_flight} lookups are in flight at this broker, the maximum of "
                "max_concurrent_lookup_request: retry in a moment",
            )
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
