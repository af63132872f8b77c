"""A batch's leases, which its tasks renew, since no part of a batch runs on the driver after it is planned.

There may be far more tasks than run at a time. So each running task renews the leases on *all* logs of the batch, also
of those whose tasks are still queued. A task may take only a moment, and thousands of them may run one after the other,
so the time until a renewal is not counted from a task's beginning: each worker process has a time for each log, at
random within one interval after the planning, and retains these times from task to task. The time of the planning is by
the driver's wall clock. If a worker's clock is behind it, that worker begins an interval later at most.

The names of the logs are one compressed text in each slice: those of a thousand partitions have about 3 KB. A read's id
is random, so no incarnation is named with it: another incarnation has no such read.

**The end of a batch.** Spark caches the partitions of a DataFrame and may read them again, so a lease can't end with
the tasks. A task that has read all of its slice reports that (task/broker_client.py). When all slices of a log are
read, the broker retains it for another quarter of `batchLeaseSeconds`. A later renewal, by a second action or by a task
that reads another log of the batch, extends that to half of `batchLeaseSeconds`: the broker can't distinguish these
two, and renewals rely on half (lease_renewals.py). A second scan in one query, such as a self-join, is like a second
action.
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from magnetar_spark.leases.lease import Lease

__all__ = ["BatchLease", "get_renewal_times"]

# Number of batches whose renewal times are cached.
_CACHED_BATCHES: Final = 16


@dataclass(frozen=True, slots=True)
class BatchLease:
    lease: Lease
    # By the driver's wall clock, in seconds.
    planned_at: float
    compressed_logs: bytes

    @classmethod
    def create(cls, lease: Lease, planned_at: float, logs: Iterable[str]) -> BatchLease:
        """`planned_at`: right before the first plan was requested."""
        return cls(lease, planned_at, zlib.compress("\n".join(logs).encode()))

    @property
    def logs(self) -> list[str]:
        return zlib.decompress(self.compressed_logs).decode().split("\n")


# By the ids of reads: when this process renews the lease on each log, on the monotonic clock.
_renewal_times: dict[bytes, dict[str, float]] = {}


def get_renewal_times(batch: BatchLease) -> dict[str, float]:
    """Return when this process renews the lease on each log: one object for all tasks of the batch."""
    read_id, every_s = batch.lease.read_id, batch.lease.renew_every_s
    times = _renewal_times.get(read_id)
    if times is None:
        waited = max(0.0, time.time() - batch.planned_at)
        now = time.monotonic()
        # Overdue times differ, and so does the order in which workers catch up.
        times = _renewal_times[read_id] = {log: now + random.uniform(0, every_s) - waited for log in batch.logs}
        if len(_renewal_times) > _CACHED_BATCHES:
            del _renewal_times[next(iter(_renewal_times))]
    return times
