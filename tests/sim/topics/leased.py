"""Check the leases of readers that read from bookies (SPK-5): as long as a lease lasts, none of the ledgers that were
on the list at the time of its answer is deleted, for any change of the topic and its owner.

A reader does not request again what it released by the same id, as protocol.md says: a lease goes forward only, and an
ended one is over. A broker that has lost the topic and does not know it would answer that it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from magnetar_protos import ledger_pb2
from tests.sim.invariants.history import History, Violation

__all__ = ["Grant", "Leased"]


@dataclass(frozen=True, slots=True)
class Grant:
    incarnation: str
    lease_id: bytes
    from_ledger_id: int
    lease_ms: int
    # How many entries of each ledger may be read.
    entries: Mapping[int, int]
    until: float


class Leased:
    def __init__(self, now: Callable[[], float], history: History) -> None:
        self._now = now
        self._history = history
        self._grants: dict[tuple[str, bytes], Grant] = {}
        # The ledger of a reader's last request, answered or not.
        self._requested_from: dict[tuple[str, bytes], int] = {}
        # How many leases of a reader have been ended.
        self._ended: dict[tuple[str, int], int] = {}

    def standing(self) -> list[Grant]:
        now = self._now()
        return [grant for grant in self._grants.values() if now < grant.until]

    def get(self, incarnation: str, lease_id: bytes) -> Grant | None:
        return self._grants.get((incarnation, lease_id))

    def lease_id(self, incarnation: str, reader: int) -> bytes:
        """Of the reader's present lease: another one after each that was ended."""
        return bytes((reader, self._ended.get((incarnation, reader), 0))) * 8

    def requested_from(self, incarnation: str, lease_id: bytes) -> int:
        return self._requested_from.get((incarnation, lease_id), 0)

    def asking(self, incarnation: str, lease_id: bytes, from_ledger_id: int) -> None:
        """The lease moves on, whether that is answered or not."""
        self._requested_from[incarnation, lease_id] = from_ledger_id
        self._grants.pop((incarnation, lease_id), None)

    def granted(
        self, incarnation: str, lease_id: bytes, from_ledger_id: int, lease_ms: int, entries: Mapping[int, int]
    ) -> None:
        """Just now: for half of its time at least."""
        until = self._now() + lease_ms / 2000
        self._grants[incarnation, lease_id] = Grant(incarnation, lease_id, from_ledger_id, lease_ms, entries, until)

    def ending(self, incarnation: str, reader: int) -> None:
        self._grants.pop((incarnation, self.lease_id(incarnation, reader)), None)
        self._ended[incarnation, reader] = self._ended.get((incarnation, reader), 0) + 1

    def holds(self, ledger_id: int) -> Grant | None:
        """What keeps the ledger from being deleted."""
        for grant in self.standing():
            if ledger_id in grant.entries:
                return grant
        return None

    def ledger_changed(self, ledger_id: int, metadata: ledger_pb2.LedgerMetadata | None) -> None:
        if metadata is not None and metadata.state != ledger_pb2.TOMBSTONE:
            return
        self._history.look("SPK-5")
        self.refused(ledger_id, "was deleted" if metadata is not None else "is missing")

    def refused(self, ledger_id: int, how: str) -> None:
        grant = self.holds(ledger_id)
        if grant is not None:
            raise Violation(
                "SPK-5",
                f"ledger {ledger_id} {how}, and is leased from {grant.from_ledger_id} on for "
                f"{grant.until - self._now():.3f} s more",
            )
