"""The lease of a batch, as its tasks keep it.

Nothing of a batch lives on in the driver, and there may be far more tasks than run at a time. So whichever runs renews
the lease on *all* logs of the query: those of a log whose tasks wait in line are nobody else's. And a task may be over
in a moment, thousands of them one after the other, so what is due is not counted from a task's beginning. Every worker
has a time for each log, at random within a renewal's interval of the planning, remembers it from task to task, and
renews what is due as soon as any task of the query runs in it.

The time of the planning is the driver's wall clock. Where a worker's is behind it, that one begins an interval late at
most.

The names of the logs travel with each slice, as one compressed text: those of a thousand partitions have some 3 KB. A
lease's id is drawn at random, so the incarnation need not be named with it: another one has no such lease.
"""

from __future__ import annotations

import random
import secrets
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from magnetar_spark.renewals import RENEWALS

__all__ = ["Lease", "TaskLease", "due_here", "new_lease"]

# Queries whose times are remembered.
_REMEMBERED: Final = 16


@dataclass(frozen=True, slots=True)
class Lease:
    """Keeps what was planned from being deleted."""

    lease_id: bytes
    lease_ms: int

    @property
    def renew_every_s(self) -> float:
        return self.lease_ms / 1000 / RENEWALS


def new_lease(lease_ms: int) -> Lease:
    return Lease(secrets.token_bytes(16), lease_ms)


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


# By the leases' ids: when each log's is to be renewed by this process, on the monotonic clock.
_due: dict[bytes, dict[str, float]] = {}


def due_here(held: TaskLease) -> dict[str, float]:
    """What this process has to renew, and when; the same one for all of the query's tasks."""
    lease_id, every_s = held.lease.lease_id, held.lease.renew_every_s
    due = _due.get(lease_id)
    if due is None:
        waited = max(0.0, time.time() - held.planned_at)
        now = time.monotonic()
        # Negative where it is overdue: by how much differs, and so does the order in which workers catch up.
        due = _due[lease_id] = {log: now + random.uniform(0, every_s) - waited for log in held.logs}
        if len(_due) > _REMEMBERED:
            del _due[next(iter(_due))]
    return due
