"""Rules of a topic's leases: which ledgers are not deleted, since Spark reads them from the bookies, and until when.

Theory of operation
-------------------
A lease protects every ledger from one on, for a time. It is stored in the topic's node. How long it still lasts only
the topic's owner knows, on its own monotonic clock, since the clocks of two machines differ. A broker that takes over
the topic finds the duration of the lease, and grants all of it again. So a promise to a reader holds whichever broker
owns the topic, if the reader is never promised more than the node says, counted from a time at which the node was
certainly this owner's. That is `sure_until`: it counts from before the change that wrote the lease. `until`, up to
which this owner retains the ledgers, counts from after it.

    node written, lease of 600 s          sure_until          until
    ──┼────────────────────────────────────────┼─────────────────┼──►
      └ another owner, from here on, grants 600 s of its own

- **Renewed** with more than half of its time left, a lease is not written again.
- **Moved forward**, it releases the earlier ledgers at once. The node follows with its next change; until then another
  owner would retain more than it must.
- **Moved back**, it is written, and so takes its turn behind the trims that were decided before (log_leases.py).
- **Not renewed in time**, it lapses and protects nothing. It leaves the node with the next change of that, which
  housekeeping makes if there is no other.

Shared leases
-------------
A process that reads a topic again and again, for example a driver that polls with batches, has one lease for all of its
reads, so the number of leases is the number of such processes. Each read has its own first ledger and its own end, on
the owner's clock. The lease protects from the first of these ledgers on, until the last of these times, so another read
moves it to an earlier ledger at most.

    read A   from ledger 4 ├───────────────────┤
    read B   from ledger 7         ├───────────────────┤
    lease    from ledger   4 4 4 4 4 4 4 4 4 4 4 7 7 7 7 (ends)

The node has the lease, and not its reads. A broker that takes over the topic knows only that they need the ledgers from
the lease's on: one read without an id represents them, for the lease's full time. A read that is renewed in that time
has its id again, from the same ledger on. The node is written as for any lease: at half of the time, or if it says less
than a read needs.

**Finished reads.** A read is made in parts, by tasks that know nothing of each other. Each reports that its part is
finished; after the last report the read lasts for a quarter of its time (`FINISHED_SHARE`). It does not end at once,
since the reader may read the same range again. A read whose parts are not all reported, because a task failed or the
owner changed, lasts for its full time.

A renewal gives a finished read half of its time (`RENEWED_SHARE`). The owner cannot tell why it is renewed. The reader
may read the range again, and then needs what every renewal promises, which is half of the time. Or the reader still
reads other topics and renews all that it has, and then the full time would undo the end of this read.

**Memory.** If there are more than `MAX_READS`, the two that end nearest to each other become one without an id, which
protects what both protected. Of pairs that are equally near the newest is chosen. Otherwise, with reads at equal
intervals, the oldest would absorb the next one each time and would never end.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from magnetar_protos.managed_ledger_pb2 import LedgerLease

__all__ = [
    "FINISHED_SHARE",
    "MAX_PARTS",
    "MAX_READS",
    "RENEWED_SHARE",
    "Lease",
    "LeaseReads",
    "Leases",
    "encode_lease",
]

_MS_PER_S: Final = 1000
FINISHED_SHARE: Final = 0.25
RENEWED_SHARE: Final = 0.5
MAX_READS: Final = 20
MAX_PARTS: Final = 4096


@dataclass(frozen=True, slots=True)
class _Read:
    from_ledger_id: int
    lease_ms: int
    # On the owner's monotonic clock.
    until: float
    # One bit for each finished part.
    parts: int = 0
    # All of its parts were finished once, perhaps before a renewal.
    is_finished: bool = False


class LeaseReads:
    """The reads of one shared lease."""

    __slots__ = ("_numbers", "_reads")

    def __init__(self) -> None:
        # By id. A read that represents others has a number instead of an id.
        self._reads: dict[bytes | int, _Read] = {}
        self._numbers = itertools.count()

    def first_ledger_id(self, now: float) -> int | None:
        """Return the first ledger that a read needs; None: all reads have ended."""
        return min((read.from_ledger_id for read in self._list_active(now)), default=None)

    def lease_ms(self, now: float) -> int:
        return max((read.lease_ms for read in self._list_active(now)), default=0)

    @property
    def until(self) -> float:
        return max((read.until for read in self._reads.values()), default=0.0)

    @property
    def all_finished(self) -> bool:
        return all(read.is_finished for read in self._reads.values())

    def find_first_ledger(self, read_id: bytes, now: float) -> int | None:
        """Return the first ledger that this read needs; None: it has ended."""
        read = self._reads.get(read_id)
        if read is not None:
            return read.from_ledger_id if now < read.until else None
        others = [one for key, one in self._reads.items() if isinstance(key, int) and now < one.until]
        return min((one.from_ledger_id for one in others), default=None)

    def add_read(self, read_id: bytes, from_ledger_id: int, lease_ms: int, now: float) -> None:
        """Add a read that lasts for `lease_ms` from now on, or renew it: it needs what it needed before, too."""
        read = _Read(from_ledger_id, lease_ms, now + lease_ms / _MS_PER_S)
        known = self._reads.get(read_id)
        if known is not None and now < known.until:
            share = RENEWED_SHARE if known.is_finished else 1
            read = replace(
                known,
                from_ledger_id=min(from_ledger_id, known.from_ledger_id),
                lease_ms=max(lease_ms, known.lease_ms),
                until=max(known.until, now + share * lease_ms / _MS_PER_S),
            )
        self._reads[read_id] = read
        self._bound(now)

    def add_unknown(self, from_ledger_id: int, lease_ms: int, until: float) -> None:
        """Add a read that represents all reads of a lease that another owner has granted."""
        self._reads[next(self._numbers)] = _Read(from_ledger_id, lease_ms, until)

    def finish_part(self, read_id: bytes, part: int, parts: int, now: float) -> None:
        read = self._reads.get(read_id)
        if read is None or now >= read.until:
            return
        read = replace(read, parts=read.parts | 1 << part)
        if read.parts.bit_count() >= parts:
            until = min(read.until, now + FINISHED_SHARE * read.lease_ms / _MS_PER_S)
            read = replace(read, parts=0, is_finished=True, until=until)
        self._reads[read_id] = read

    def end_read(self, read_id: bytes) -> None:
        self._reads.pop(read_id, None)

    def _list_active(self, now: float) -> Iterator[_Read]:
        return (read for read in self._reads.values() if now < read.until)

    def _bound(self, now: float) -> None:
        if len(self._reads) <= MAX_READS:
            return
        self._reads = {key: read for key, read in self._reads.items() if now < read.until}
        while len(self._reads) > MAX_READS:
            by_end = sorted(self._reads, key=lambda key: self._reads[key].until)
            # `min` returns the first of several that are equal.
            pairs = reversed(list(itertools.pairwise(by_end)))
            nearest = min(pairs, key=lambda pair: self._reads[pair[1]].until - self._reads[pair[0]].until)
            one, other = (self._reads.pop(key) for key in nearest)
            self._reads[next(self._numbers)] = _Read(
                min(one.from_ledger_id, other.from_ledger_id),
                max(one.lease_ms, other.lease_ms),
                other.until,
                is_finished=one.is_finished and other.is_finished,
            )


@dataclass(frozen=True, slots=True)
class Lease:
    lease_id: bytes
    from_ledger_id: int
    lease_ms: int
    holder: str
    written_ms: int
    # Up to when it was promised, and up to when it protects ledgers, in seconds, on the owner's monotonic clock.
    sure_until: float = 0.0
    until: float = 0.0
    shared: bool = False
    # The read that it is written for; not in the node.
    read_id: bytes = b""

    def count_from(self, begun_at: float, now: float) -> Lease:
        """Return the lease with its times, after a change or read of the node that began and ended at these times."""
        lease_s = self.lease_ms / _MS_PER_S
        return replace(self, sure_until=begun_at + lease_s, until=now + lease_s)


class Leases:
    """The leases of one topic, as its owner knows them."""

    __slots__ = ("_leases", "_reads", "_stored_from", "lapsed")

    def __init__(self) -> None:
        # By id: all that have not ended, and some that have, which leave with the next change of the node.
        self._leases: dict[bytes, Lease] = {}
        # The first ledger of each lease in the node, also if a change that is in flight fails.
        self._stored_from: dict[bytes, int] = {}
        # Of the shared ones.
        self._reads: dict[bytes, LeaseReads] = {}
        # The number of leases that lapsed since the topic was opened.
        self.lapsed = 0

    # ── state ──

    def list_active(self, now: float) -> list[Lease]:
        return [self._moved_on(lease, now) for lease in self._leases.values() if now < lease.until]

    def find(self, lease_id: bytes, now: float) -> Lease | None:
        lease = self._leases.get(lease_id)
        return self._moved_on(lease, now) if lease is not None and now < lease.until else None

    def find_first_ledger(self, lease_id: bytes, read_id: bytes, now: float) -> int | None:
        """Return the first ledger that the lease protects for this read; None: it has ended."""
        lease = self.find(lease_id, now)
        if lease is None or not lease.shared:
            return lease.from_ledger_id if lease is not None else None
        return self._reads[lease_id].find_first_ledger(read_id, now)

    def has_lapsed(self, now: float) -> bool:
        """Whether a lease has lapsed and is not removed yet."""
        return any(lease.until <= now for lease in self._leases.values())

    def any_active(self, now: float) -> bool:
        return any(now < lease.until for lease in self._leases.values())

    def protects(self, ledger_id: int, now: float) -> bool:
        """Whether an active lease protects the ledger."""
        return any(
            now < lease.until and self._moved_on(lease, now).from_ledger_id <= ledger_id
            for lease in self._leases.values()
        )

    def _moved_on(self, lease: Lease, now: float) -> Lease:
        """Return the lease with the first ledger that its active reads need."""
        if not lease.shared:
            return lease
        first = self._reads[lease.lease_id].first_ledger_id(now)
        return lease if first is None or first == lease.from_ledger_id else replace(lease, from_ledger_id=first)

    # ── changes without the node ──

    def renew(
        self, lease_id: bytes, from_ledger_id: int | None, lease_ms: int, now: float, read_id: bytes = b""
    ) -> Lease | None:
        """Move the lease forward to the ledger, if any, and return it. None: it must be written, since less than half
        of its time is left, or it is to be moved back. With `read_id` this read of a shared lease is added or renewed.

        A lease that is moved back must be written: a trim that was decided before may be in flight.
        """
        lease = self.find(lease_id, now)
        stored_from = self._stored_from.get(lease_id)
        if lease is None or stored_from is None:
            return None
        if lease.lease_ms < lease_ms or (lease.sure_until - now) * _MS_PER_S * 2 < lease_ms:
            return None
        if lease.shared:
            if from_ledger_id is None:
                from_ledger_id = self._reads[lease_id].find_first_ledger(read_id, now)
            if from_ledger_id is None or from_ledger_id < max(lease.from_ledger_id, stored_from):
                return None
            self._reads[lease_id].add_read(read_id, from_ledger_id, lease_ms, now)
            return self._follow_reads(lease_id, now)
        if read_id:
            return None
        if from_ledger_id is not None and from_ledger_id != lease.from_ledger_id:
            if from_ledger_id < max(lease.from_ledger_id, stored_from):
                return None
            lease = self._leases[lease_id] = replace(lease, from_ledger_id=from_ledger_id)
        return lease

    def end_lease(self, lease_id: bytes, read_id: bytes = b"", now: float = 0.0) -> bool:
        """End the lease; with `read_id` that read of it, and the lease if it was the last one. Return whether the lease
        must be removed from the node."""
        if read_id:
            reads = self._reads.get(lease_id)
            if reads is None:
                return False
            reads.end_read(read_id)
            if reads.first_ledger_id(now) is not None:
                self._follow_reads(lease_id, now)
                return False
        self._leases.pop(lease_id, None)
        self._reads.pop(lease_id, None)
        return lease_id in self._stored_from

    def finish_part(self, lease_id: bytes, read_id: bytes, part: int, parts: int, now: float) -> None:
        """Note that a part of a read is finished. A lease or read that is not known has ended."""
        if lease_id in self._reads:
            self._reads[lease_id].finish_part(read_id, part, parts, now)
            self._follow_reads(lease_id, now)

    def _follow_reads(self, lease_id: bytes, now: float) -> Lease:
        lease = self._moved_on(self._leases[lease_id], now)
        lease = self._leases[lease_id] = replace(lease, until=self._reads[lease_id].until)
        return lease

    # ── the node ──

    def load(self, records: Iterable[LedgerLease], begun_at: float, now: float) -> None:
        """Load the leases of the node, which this broker has claimed between these two times."""
        for record in records:
            lease = Lease(
                record.lease_id,
                record.from_ledger_id,
                record.lease_ms,
                record.holder,
                record.written_ms,
                shared=record.shared,
            ).count_from(begun_at, now)
            if lease.shared:
                reads = self._reads[lease.lease_id] = LeaseReads()
                reads.add_unknown(lease.from_ledger_id, lease.lease_ms, lease.until)
            self._leases[lease.lease_id] = lease
            self._stored_from[lease.lease_id] = lease.from_ledger_id

    def count_from(self, at: float) -> None:
        """Count the leases from an earlier time on, at which this broker had loaded them. None was renewed since."""
        for lease_id, lease in self._leases.items():
            self._leases[lease_id] = counted = lease.count_from(at, at)
            if lease.shared:
                reads = self._reads[lease_id] = LeaseReads()
                reads.add_unknown(lease.from_ledger_id, lease.lease_ms, counted.until)

    def begin_change(self, new: Lease | None, now: float) -> list[Lease]:
        """Return the leases that the node is to have after a change that begins now: the active and the new one."""
        active = {lease.lease_id: lease for lease in self.list_active(now)}
        lapsed = [lease_id for lease_id in self._leases if lease_id not in active]
        self.lapsed += sum(lease_id not in self._reads or not self._reads[lease_id].all_finished for lease_id in lapsed)
        self._leases = active
        self._reads = {lease_id: reads for lease_id, reads in self._reads.items() if lease_id in active}
        leases = dict(self._leases)
        if new is not None:
            leases[new.lease_id] = self._with_other_reads(new, now)
        self._stored_from = {
            lease_id: max(from_ledger_id, leases[lease_id].from_ledger_id)
            for lease_id, from_ledger_id in self._stored_from.items()
            if lease_id in leases
        }
        return list(leases.values())

    def commit_change(self, leases: Sequence[Lease], new: Lease | None, begun_at: float, now: float) -> None:
        """Note that the change is made, and the node has these leases."""
        self._stored_from = {lease.lease_id: lease.from_ledger_id for lease in leases}
        if new is None:
            return
        before = self._leases.get(new.lease_id)
        written = next(lease for lease in leases if lease.lease_id == new.lease_id).count_from(begun_at, now)
        self._leases[new.lease_id] = replace(written, read_id=b"")
        if written.shared:
            reads = self._reads.setdefault(new.lease_id, LeaseReads())
            if before is not None and not before.shared:
                reads.add_unknown(before.from_ledger_id, before.lease_ms, before.until)
            reads.add_read(new.read_id, new.from_ledger_id, new.lease_ms, now)
            self._follow_reads(new.lease_id, now)

    def _with_other_reads(self, new: Lease, now: float) -> Lease:
        """Return the lease as it is written: it protects what its other reads need, too."""
        before = self._leases.get(new.lease_id)
        if before is None or not (new.read_id or before.shared):
            return replace(new, shared=bool(new.read_id))
        others_ms = self._reads[new.lease_id].lease_ms(now) if before.shared else before.lease_ms
        return replace(
            new,
            shared=True,
            from_ledger_id=min(new.from_ledger_id, before.from_ledger_id),
            lease_ms=max(new.lease_ms, others_ms),
        )


def encode_lease(lease: Lease) -> LedgerLease:
    return LedgerLease(
        lease_id=lease.lease_id,
        from_ledger_id=lease.from_ledger_id,
        lease_ms=lease.lease_ms,
        holder=lease.holder,
        written_ms=lease.written_ms,
        shared=lease.shared,
    )
