"""The leases of a topic's log: what readers past the broker were promised not to be deleted, and until when.

A lease holds every ledger from one on, for so long. It stands in the topic's node; for how long it still holds is known
by its owner alone, on the owner's own clock, since no two machines' clocks are alike. Who takes the topic over finds
how long it was given, and gives all of that anew. So what a reader was told is kept whoever has the topic, if only what
it was told was never more than what the node says, counted from when the node was last seen to be this owner's: that is
`sure_until`. It begins before the change that wrote the lease, and `until`, up to which the lease is kept here, after
it; time may pass in between.

    node written, lease of 600 s          sure_until          until
    ──┼────────────────────────────────────────┼─────────────────┼──►
      └ a successor, from here on, gives 600 s of its own

A lease that is renewed with more than half of its time left is as good as it is. A lease that moves on lets go of what
is before it at once, and the node says so with its next change; until then a successor keeps more than it must. One
that moves back is written, and so has its turn behind the trims that were decided before (log_leases.py).

A lease may be shared by several reads (lease_reads.py). It holds from the first ledger of any of them on, so a plan for
another read moves it to an earlier ledger at most. The node is written when it has to be as for any lease: at half of
the time, or where it says less than a read needs.

A lease that was not renewed in time *lapses*: it holds nothing any more. It leaves the node with the next change of
that, for which housekeeping sees to where there is no other one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from magnetar_broker.managed_ledger.lease_reads import LeaseReads
from magnetar_protos.managed_ledger_pb2 import LedgerLease

__all__ = ["Lease", "Leases", "encoded"]

_MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class Lease:
    lease_id: bytes
    from_ledger_id: int
    lease_ms: int
    holder: str
    written_ms: int
    # Both in seconds, on the owner's monotonic clock.
    sure_until: float = 0.0
    until: float = 0.0
    # Several reads have it.
    shared: bool = False
    # The one of them that it is written for; not in the node.
    read_id: bytes = b""

    def since(self, asked_at: float, now: float) -> Lease:
        """The same, written or found by a change that was begun at one time, and is known to be made at the other."""
        lease_s = self.lease_ms / _MS_PER_S
        return replace(self, sure_until=asked_at + lease_s, until=now + lease_s)


class Leases:
    """Those of one topic, as its owner's present life knows them."""

    __slots__ = ("_reads", "_recorded", "_standing", "lapsed")

    def __init__(self) -> None:
        # All that have not ended, and some that have: they go with the next change of the node.
        self._standing: dict[bytes, Lease] = {}
        # The ledger from which on each holds by what the node says, whatever becomes of a change that is under way.
        self._recorded: dict[bytes, int] = {}
        # Of those in `_standing` that are shared.
        self._reads: dict[bytes, LeaseReads] = {}
        # How many have lapsed in this life.
        self.lapsed = 0

    # ── what there is ──

    def standing(self, now: float) -> list[Lease]:
        return [self._moved_on(lease, now) for lease in self._standing.values() if now < lease.until]

    def get(self, lease_id: bytes, now: float) -> Lease | None:
        lease = self._standing.get(lease_id)
        return self._moved_on(lease, now) if lease is not None and now < lease.until else None

    def from_ledger_id(self, lease_id: bytes, read_id: bytes, now: float) -> int | None:
        """The ledger from which on the lease holds for this read; None: it has ended."""
        lease = self.get(lease_id, now)
        if lease is None or not lease.shared:
            return lease.from_ledger_id if lease is not None else None
        return self._reads[lease_id].from_ledger_id(read_id, now)

    def any_lapsed(self, now: float) -> bool:
        """One has lapsed, and is not removed yet."""
        return any(lease.until <= now for lease in self._standing.values())

    def any_stands(self, now: float) -> bool:
        return any(now < lease.until for lease in self._standing.values())

    def holds(self, ledger_id: int, now: float) -> bool:
        return any(
            now < lease.until and self._moved_on(lease, now).from_ledger_id <= ledger_id
            for lease in self._standing.values()
        )

    def _moved_on(self, lease: Lease, now: float) -> Lease:
        """The lease as the reads that have not ended have it."""
        if not lease.shared:
            return lease
        first = self._reads[lease.lease_id].first_ledger_id(now)
        return lease if first is None or first == lease.from_ledger_id else replace(lease, from_ledger_id=first)

    # ── what changes at once ──

    def renewed(
        self, lease_id: bytes, from_ledger_id: int | None, lease_ms: int, now: float, read_id: bytes = b""
    ) -> Lease | None:
        """The lease that stands, moved on to there, if it will do as the node has it: half of the time is left of it.
        With `read_id`, and where it is shared, it is this read that is renewed or added.

        One that is to move back has to be written: a trim that was decided on may be under way.
        """
        lease = self.get(lease_id, now)
        recorded_from = self._recorded.get(lease_id)
        if lease is None or recorded_from is None:
            return None
        if lease.lease_ms < lease_ms or (lease.sure_until - now) * _MS_PER_S * 2 < lease_ms:
            return None
        if lease.shared:
            if from_ledger_id is None:
                from_ledger_id = self._reads[lease_id].from_ledger_id(read_id, now)
            if from_ledger_id is None or from_ledger_id < max(lease.from_ledger_id, recorded_from):
                return None
            self._reads[lease_id].add(read_id, from_ledger_id, lease_ms, now)
            return self._follow_reads(lease_id, now)
        if read_id:
            return None
        if from_ledger_id is not None and from_ledger_id != lease.from_ledger_id:
            if from_ledger_id < max(lease.from_ledger_id, recorded_from):
                return None
            lease = self._standing[lease_id] = replace(lease, from_ledger_id=from_ledger_id)
        return lease

    def end(self, lease_id: bytes, read_id: bytes = b"", now: float = 0.0) -> bool:
        """Ends the lease; with `read_id` that read of it, and the lease if it was the last one. Returns whether the
        node may have it still, and no longer should."""
        if read_id:
            reads = self._reads.get(lease_id)
            if reads is None:
                return False
            reads.end(read_id)
            if reads.first_ledger_id(now) is not None:
                self._follow_reads(lease_id, now)
                return False
        self._standing.pop(lease_id, None)
        self._reads.pop(lease_id, None)
        return lease_id in self._recorded

    def finish_part(self, lease_id: bytes, read_id: bytes, part: int, parts: int, now: float) -> None:
        """One of the parts of a read is finished; what is not known has ended."""
        if lease_id in self._reads:
            self._reads[lease_id].finish_part(read_id, part, parts, now)
            self._follow_reads(lease_id, now)

    def _follow_reads(self, lease_id: bytes, now: float) -> Lease:
        lease = self._moved_on(self._standing[lease_id], now)
        lease = self._standing[lease_id] = replace(lease, until=self._reads[lease_id].until)
        return lease

    # ── the node ──

    def found(self, records: Iterable[LedgerLease], asked_at: float, now: float) -> None:
        """In the node, of which this life has just become the owner."""
        for record in records:
            lease = Lease(
                record.lease_id,
                record.from_ledger_id,
                record.lease_ms,
                record.holder,
                record.written_ms,
                shared=record.shared,
            ).since(asked_at, now)
            if lease.shared:
                reads = self._reads[lease.lease_id] = LeaseReads()
                reads.add_unknown(lease.from_ledger_id, lease.lease_ms, lease.until)
            self._standing[lease.lease_id] = lease
            self._recorded[lease.lease_id] = lease.from_ledger_id

    def begin(self, new: Lease | None, now: float) -> list[Lease]:
        """What the node is to hold after a change that begins now: those that stand, and the new one among them."""
        standing = {lease.lease_id: lease for lease in self.standing(now)}
        gone = [lease_id for lease_id in self._standing if lease_id not in standing]
        self.lapsed += sum(lease_id not in self._reads or not self._reads[lease_id].all_finished for lease_id in gone)
        self._standing = standing
        self._reads = {lease_id: reads for lease_id, reads in self._reads.items() if lease_id in standing}
        kept = dict(self._standing)
        if new is not None:
            kept[new.lease_id] = self._with_other_reads(new, now)
        self._recorded = {
            lease_id: max(from_ledger_id, kept[lease_id].from_ledger_id)
            for lease_id, from_ledger_id in self._recorded.items()
            if lease_id in kept
        }
        return list(kept.values())

    def made(self, kept: Sequence[Lease], new: Lease | None, asked_at: float, now: float) -> None:
        """The change was made, and the node holds these."""
        self._recorded = {lease.lease_id: lease.from_ledger_id for lease in kept}
        if new is None:
            return
        before = self._standing.get(new.lease_id)
        written = next(lease for lease in kept if lease.lease_id == new.lease_id).since(asked_at, now)
        self._standing[new.lease_id] = replace(written, read_id=b"")
        if written.shared:
            reads = self._reads.setdefault(new.lease_id, LeaseReads())
            if before is not None and not before.shared:
                reads.add_unknown(before.from_ledger_id, before.lease_ms, before.until)
            reads.add(new.read_id, new.from_ledger_id, new.lease_ms, now)
            self._follow_reads(new.lease_id, now)

    def _with_other_reads(self, new: Lease, now: float) -> Lease:
        """As it is to be written: it holds what the lease's other reads need, too."""
        before = self._standing.get(new.lease_id)
        if before is None or not (new.read_id or before.shared):
            return replace(new, shared=bool(new.read_id))
        others_ms = self._reads[new.lease_id].lease_ms(now) if before.shared else before.lease_ms
        return replace(
            new,
            shared=True,
            from_ledger_id=min(new.from_ledger_id, before.from_ledger_id),
            lease_ms=max(new.lease_ms, others_ms),
        )


def encoded(lease: Lease) -> LedgerLease:
    return LedgerLease(
        lease_id=lease.lease_id,
        from_ledger_id=lease.from_ledger_id,
        lease_ms=lease.lease_ms,
        holder=lease.holder,
        written_ms=lease.written_ms,
        shared=lease.shared,
    )
