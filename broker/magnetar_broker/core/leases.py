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

A lease that was not renewed in time *lapses*: it holds nothing any more. It leaves the node with the next change of
that, for which housekeeping sees to where there is no other one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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

    def since(self, asked_at: float, now: float) -> Lease:
        """The same, written or found by a change that was begun at one time, and is known to be made at the other."""
        lease_s = self.lease_ms / _MS_PER_S
        return replace(self, sure_until=asked_at + lease_s, until=now + lease_s)


class Leases:
    """Those of one topic, as its owner's present life knows them."""

    __slots__ = ("_recorded", "_standing", "lapsed")

    def __init__(self) -> None:
        # All that have not ended, and some that have: they go with the next change of the node.
        self._standing: dict[bytes, Lease] = {}
        # The ledger from which on each holds by what the node says, whatever becomes of a change that is under way.
        self._recorded: dict[bytes, int] = {}
        # How many have lapsed in this life.
        self.lapsed = 0

    # ── what there is ──

    def standing(self, now: float) -> list[Lease]:
        return [lease for lease in self._standing.values() if now < lease.until]

    def get(self, lease_id: bytes, now: float) -> Lease | None:
        lease = self._standing.get(lease_id)
        return lease if lease is not None and now < lease.until else None

    def any_lapsed(self, now: float) -> bool:
        """One has lapsed, and is not removed yet."""
        return any(lease.until <= now for lease in self._standing.values())

    def any_stands(self, now: float) -> bool:
        return any(now < lease.until for lease in self._standing.values())

    def holds(self, ledger_id: int, now: float) -> bool:
        return any(lease.from_ledger_id <= ledger_id and now < lease.until for lease in self._standing.values())

    # ── what changes at once ──

    def renewed(self, lease_id: bytes, from_ledger_id: int | None, lease_ms: int, now: float) -> Lease | None:
        """The lease that stands, moved on to there, if it will do as the node has it: half of the time is left of it.

        One that is to move back has to be written: a trim that was decided on may be under way.
        """
        lease = self.get(lease_id, now)
        recorded_from = self._recorded.get(lease_id)
        if lease is None or recorded_from is None:
            return None
        if lease.lease_ms < lease_ms or (lease.sure_until - now) * _MS_PER_S * 2 < lease_ms:
            return None
        if from_ledger_id is not None and from_ledger_id != lease.from_ledger_id:
            if from_ledger_id < max(lease.from_ledger_id, recorded_from):
                return None
            lease = self._standing[lease_id] = replace(lease, from_ledger_id=from_ledger_id)
        return lease

    def end(self, lease_id: bytes) -> bool:
        """Returns whether the node may have it still."""
        self._standing.pop(lease_id, None)
        return lease_id in self._recorded

    # ── the node ──

    def found(self, records: Iterable[LedgerLease], asked_at: float, now: float) -> None:
        """In the node, of which this life has just become the owner."""
        for record in records:
            lease = Lease(
                record.lease_id, record.from_ledger_id, record.lease_ms, record.holder, record.written_ms
            ).since(asked_at, now)
            self._standing[lease.lease_id] = lease
            self._recorded[lease.lease_id] = lease.from_ledger_id

    def begin(self, new: Lease | None, now: float) -> list[Lease]:
        """What the node is to hold after a change that begins now: those that stand, and the new one among them."""
        standing = {lease.lease_id: lease for lease in self.standing(now)}
        self.lapsed += len(self._standing) - len(standing)
        self._standing = standing
        kept = dict(self._standing)
        if new is not None:
            kept[new.lease_id] = new
        self._recorded = {
            lease_id: max(from_ledger_id, kept[lease_id].from_ledger_id)
            for lease_id, from_ledger_id in self._recorded.items()
            if lease_id in kept
        }
        return list(kept.values())

    def made(self, kept: Sequence[Lease], new: Lease | None, asked_at: float, now: float) -> None:
        """The change was made, and the node holds these."""
        self._recorded = {lease.lease_id: lease.from_ledger_id for lease in kept}
        if new is not None:
            self._standing[new.lease_id] = new.since(asked_at, now)


def encoded(lease: Lease) -> LedgerLease:
    return LedgerLease(
        lease_id=lease.lease_id,
        from_ledger_id=lease.from_ledger_id,
        lease_ms=lease.lease_ms,
        holder=lease.holder,
        written_ms=lease.written_ms,
    )
