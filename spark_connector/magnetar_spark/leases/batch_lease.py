"""The lease of a batch, as its tasks keep it.

Nothing of a batch lives on in the driver, and there may be far more tasks than run at a time. So whichever runs renews
the lease on *all* logs of the query: those of a log whose tasks wait in line are nobody else's. And a task may be over
in a moment, thousands of them one after the other, so what is due is not counted from a task's beginning. Every worker
has a time for each log, at random within a renewal's interval of the planning, remembers it from task to task, and
renews what is due as soon as any task of the query runs in it.

The time of the planning is the driver's wall clock. Where a worker's is behind it, that one begins an interval late at
most.

The names of the logs travel with each slice, as one compressed text: those of a thousand partitions have some 3 KB. A
read's id is drawn at random, so the incarnation need not be named with it: another one has no such read.

**Batches of a driver share a lease.** A driver that polls a topic with batches would leave a lease with each of
them, until the topic has as many as it may. So batches that one process plans share one lease of each log
(`new_shared_lease`), and each is a read of it (the broker's core/lease_reads.py), which holds what that batch needs for
as long as that batch needs it, and no longer. Batches are planned in worker processes that Spark starts and ends as it
likes, so the lease is that of their parent: a daemon, or the driver itself. A driver may have a few such parents, and
then has as many leases. If two drivers are ever taken for one, they share a lease, which does no harm.

**When a batch has ended.** Spark keeps the partitions of a DataFrame, and may read them again, so a lease can't end
with the tasks. A task that has read all of its slice reports that (task/broker_client.py); when all slices of a log are
finished what the batch holds of it is held for a quarter of `batchLeaseSeconds` more. A renewal after that, by a second
action or by a task that reads another log of the batch, holds it for half of `batchLeaseSeconds`: the broker can't tell
the two apart, and half is what renewals rely on (leases/lease_renewals.py). In a query that scans one DataFrame twice,
such as a self-join, the second scan is like a second action.
"""

from __future__ import annotations

import hashlib
import os
import random
import secrets
import socket
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from magnetar_spark.leases.lease_renewals import RENEWALS

__all__ = ["Lease", "TaskLease", "due_here", "new_lease", "new_shared_lease"]

_ID_BYTES: Final = 16
# Queries whose times are remembered.
_REMEMBERED: Final = 16


@dataclass(frozen=True, slots=True)
class Lease:
    """Keeps what was planned from being deleted."""

    lease_id: bytes
    lease_ms: int
    # Of those that share the lease; empty: it is not shared.
    read_id: bytes = b""

    @property
    def renew_every_s(self) -> float:
        return self.lease_ms / 1000 / RENEWALS


def new_lease(lease_ms: int) -> Lease:
    return Lease(secrets.token_bytes(_ID_BYTES), lease_ms)


def new_shared_lease(lease_ms: int) -> Lease:
    """A read that shares the lease of this driver."""
    driver = f"magnetar batches of {socket.gethostname()}, process {os.getppid()}"
    lease_id = hashlib.sha256(driver.encode()).digest()[:_ID_BYTES]
    return Lease(lease_id, lease_ms, secrets.token_bytes(_ID_BYTES))


@dataclass(frozen=True, slots=True)
class TaskLease:
    lease: Lease
    # By the driver's wall clock, in seconds.
    planned_at: float
    names: bytes

    @classmethod
    def of(cls, lease: Lease, planned_at: float, logs: Iterable[str]) -> TaskLease:
        """`planned_at`: right before the first of the plans was asked for."""
        return cls(lease, planned_at, zlib.compress("\n".join(logs).encode()))

    @property
    def logs(self) -> list[str]:
        return zlib.decompress(self.names).decode().split("\n")


# By the reads' ids: when each log's is to be renewed by this process, on the monotonic clock.
_due: dict[bytes, dict[str, float]] = {}


def due_here(held: TaskLease) -> dict[str, float]:
    """What this process has to renew, and when; the same one for all of the query's tasks."""
    read_id, every_s = held.lease.read_id, held.lease.renew_every_s
    due = _due.get(read_id)
    if due is None:
        waited = max(0.0, time.time() - held.planned_at)
        now = time.monotonic()
        # Negative where it is overdue: by how much differs, and so does the order in which workers catch up.
        due = _due[read_id] = {log: now + random.uniform(0, every_s) - waited for log in held.logs}
        if len(_due) > _REMEMBERED:
            del _due[next(iter(_due))]
    return due
