"""Check the leases of readers that read from bookies (SPK-5).

As long as a lease holds, by the reader's own clock and counted from its request, no ledger that its plan names is
deleted, for any change of the topic and its owner. After that the lease retains nothing: see `ending.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from magnetar_protos import ledger_pb2
from tests.sim.invariants.history import Violation

__all__ = ["PlanGrant", "PlanLeases"]


@dataclass(slots=True, eq=False)
class PlanGrant:
    """A plan that a reader has, and until when its lease holds. Only the half of its time that was promised counts."""

    topic: str
    ledger_ids: tuple[int, ...]
    until: float


class PlanLeases:
    def __init__(self, now: Callable[[], float], look: Callable[[str], None]) -> None:
        self._now = now
        self._look = look
        self._grants: list[PlanGrant] = []

    def granted(self, topic: str, ledger_ids: Iterable[int], requested_at: float, lease_ms: int) -> PlanGrant:
        now = self._now()
        grant = PlanGrant(topic, tuple(ledger_ids), requested_at + lease_ms / 2000)
        self._grants = [one for one in self._grants if now < one.until] + [grant]
        return grant

    def release(self, grant: PlanGrant) -> None:
        """The reader ends the lease, or is about to move it on."""
        grant.until = self._now()

    def holds(self, grant: PlanGrant) -> bool:
        return self._now() < grant.until

    def ledger_changed(self, ledger_id: int, metadata: ledger_pb2.LedgerMetadata | None) -> None:
        if metadata is not None and metadata.state != ledger_pb2.TOMBSTONE:
            return
        self._look("SPK-5")
        for grant in self._grants:
            if ledger_id in grant.ledger_ids and self.holds(grant):
                raise Violation(
                    "SPK-5",
                    f"ledger {ledger_id} was deleted, and a plan of {grant.topic} names it, whose lease holds for "
                    f"{grant.until - self._now():.3f} s more",
                )
