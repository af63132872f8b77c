"""A lease's id and time, and the requests that take leases.

**Batches of a driver share a lease.** A driver that polls a topic with batches would leave a lease for each of them,
until the topic has the maximum number. So batches that are planned by one process share one lease of each log, and each
batch is a *read* of it (the broker's managed_ledger/lease_rules.py), which retains what that batch needs for as long as
that batch needs it. Spark starts and ends the worker processes that plan batches as it likes, so the lease belongs to
their parent: a daemon, or the driver itself. A driver can have several such parents, and so several leases. If two
drivers have the same id by mistake they share a lease, which does no harm.

**Cancellation.** A cancelled request may still reach its broker, and take the lease after the reader has released its
leases. That lease would last for its whole time. So a request continues when its caller is cancelled, and a reader that
ends waits for requests in flight before it releases leases.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import socket
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from magnetar_spark.leases.lease_renewals import RENEWALS_PER_LEASE

__all__ = ["Lease", "LeaseRequests", "create_lease", "create_shared_lease"]

T = TypeVar("T")

_ID_BYTES: Final = 16
# How long a reader that ends waits for requests in flight.
_SETTLE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Lease:
    lease_id: bytes
    lease_ms: int
    # The id of this batch's read of a shared lease; empty: the lease is not shared.
    read_id: bytes = b""

    @property
    def renew_every_s(self) -> float:
        return self.lease_ms / 1000 / RENEWALS_PER_LEASE


def create_lease(lease_ms: int) -> Lease:
    return Lease(secrets.token_bytes(_ID_BYTES), lease_ms)


def create_shared_lease(lease_ms: int) -> Lease:
    """Create a read of the lease that all batches of this driver share."""
    driver = f"magnetar batches of {socket.gethostname()}, process {os.getppid()}"
    lease_id = hashlib.sha256(driver.encode()).digest()[:_ID_BYTES]
    return Lease(lease_id, lease_ms, secrets.token_bytes(_ID_BYTES))


class LeaseRequests:
    """Requests that take leases. They continue when their callers are cancelled."""

    def __init__(self) -> None:
        self._in_flight: set[asyncio.Task[Any]] = set()

    async def send(self, request: Coroutine[Any, Any, T]) -> T:
        """Return the result of the request. It continues if the caller is cancelled."""
        task = asyncio.get_running_loop().create_task(request)
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return await asyncio.shield(task)

    async def wait_settled(self) -> None:
        """Wait for requests in flight, and cancel those that take too long: the leases that these take expire."""
        if self._in_flight:
            _, late = await asyncio.wait(self._in_flight, timeout=_SETTLE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
