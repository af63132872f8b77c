"""Where a run reports to. The first violation ends the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from magnetar_bookie.storage.interface import Changes
from tests.sim.disk import SimulatedDisk
from tests.sim.invariants.acknowledged import check_acked, check_acked_unlisted
from tests.sim.invariants.answers import Answers
from tests.sim.invariants.disks import disk_writes
from tests.sim.invariants.ending import check_chain_entries
from tests.sim.invariants.history import Disk, History, Violation
from tests.sim.invariants.metadata import metadata_changed
from tests.sim.invariants.recoveries import Recoveries
from tests.sim.invariants.saturation import check_unanswered
from tests.sim.process import Process

__all__ = ["Checker"]

_REPORTS: Final = (
    "acked",
    "acked_unlisted",
    "added_by_call",
    "answer_arrived",
    "answer_sent",
    "appended",
    "chain_was_read",
    "disk_writes",
    "message_arrived",
    "message_sent",
    "metadata_changed",
    "request_arrived",
    "sent_to_lagging",
    "tail_waits",
    "unanswered",
    "was_read",
)
# A tail that long polls learns of what is confirmed at once.
_TAIL_S: Final = 10.0


class Checker:
    """The history, and everything that is reported to it. It is a `Tap` of the network, too."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.history = History(now)
        self._answers = Answers(self.history)
        self._recoveries = Recoveries(self.history)
        # Reported at once: a violation raised within production code may be caught there, and be taken for a fault.
        self.on_violation: Callable[[Violation], object] = lambda violation: None
        for name in _REPORTS:
            setattr(self, name, self._reporting(getattr(self, name)))

    def _reporting(self, report: Callable[..., None]) -> Callable[..., None]:
        def checked(*arguments: Any, **named: Any) -> None:
            try:
                report(*arguments, **named)
            except Violation as violation:
                self.on_violation(violation)
                raise

        return checked

    # ── the disks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def watch_disk(self, bookie_id: str, disk: SimulatedDisk) -> Disk:
        known = self.history.disks[bookie_id] = Disk(bookie_id, disk)
        disk.on_write = lambda changes: self.disk_writes(known, changes)
        return known

    def disk_writes(self, disk: Disk, changes: Changes) -> None:
        disk_writes(self.history, disk, changes)

    def disk_loses(self, bookie_id: str, fault: Callable[[], object]) -> None:
        """Has `fault` damage the disk, and remembers what is not there any more or not the same."""
        known = self.history.disks[bookie_id]
        disk = known.disk
        before = {
            ledger_id: {entry_id: disk.durable_record(ledger_id, entry_id) for entry_id in ledger.ids}
            for ledger_id, ledger in disk.ledgers.items()
        }
        forgotten = self.history.forgotten
        owed = {one: None for one in self.history.naming(bookie_id) if one not in forgotten}
        remembered = {ledger_id: disk.durable_ledger(ledger_id) for ledger_id in disk.ledgers}
        fault()
        # The bookie will enter limbo. A damaged record is no cause for that.
        if disk.may_lack_groups:
            known.owes = owed
        for ledger_id, records in before.items():
            for entry_id, record in records.items():
                if record is not None and disk.durable_record(ledger_id, entry_id) is not record:
                    known.lost.setdefault(ledger_id, {})[entry_id] = False
        # A fault may remove a LAC that the bookie has reported. Records carry it; an explicit one is stored by itself.
        for ledger_id, reported in known.reported_lac.items():
            known.reported_lac[ledger_id] = min(reported, known.durable_lac(self.history.ledger(ledger_id)))
        for ledger_id, before_it in remembered.items():
            after = disk.durable_ledger(ledger_id)
            if before_it is not None and before_it.deleted and (after is None or not after.deleted):
                known.revived.add(ledger_id)

    def entry_destroyed(self, ledger_id: int, entry_id: int) -> bool:
        """Damages all durable replicas of an entry; whether there was one."""
        found = False
        for bookie_id, known in self.history.disks.items():
            if isinstance(known.disk.durable_record(ledger_id, entry_id), bytes):
                self.disk_loses(bookie_id, partial(known.disk.damage, ledger_id, entry_id))
                found = True
        if found:
            self.history.destroyed.add((ledger_id, entry_id))
        return found

    # ── the writers and readers ──────────────────────────────────────────────────────────────────────────────────────

    def appended(self, ledger_id: int, entry_id: int, payload: bytes) -> None:
        ledger = self.history.ledger(ledger_id)
        if entry_id != len(ledger.payloads):
            raise Violation("4", f"ledger {ledger_id}: entry {entry_id} follows {len(ledger.payloads) - 1}")
        ledger.payloads.append(payload)
        self.history.longest_payload = max(self.history.longest_payload, len(payload))

    def acked(self, ledger_id: int, entry_id: int) -> None:
        check_acked(self.history, self.history.ledger(ledger_id), entry_id)

    def acked_unlisted(self, ledger_id: int, entry_id: int) -> None:
        """Of a ledger that is written before it is listed."""
        check_acked_unlisted(self.history, self.history.ledger(ledger_id), entry_id)

    def added_by_call(self, bookie_id: str, ledger_id: int, first_entry_id: int, *, overtakes: bool) -> None:
        """A client handed entries to a bookie of its own process by a call, instead of sending a frame."""
        self.history.look("4")
        if overtakes:
            raise Violation(
                "4",
                f"{bookie_id} is given entry {first_entry_id} of ledger {ledger_id} by a call, before it has decided "
                "on frames that were sent earlier",
            )

    def unanswered(self, bookie_id: str, size: int, bound: int, open_ledgers: int, max_pending: int) -> None:
        """What a process' ledgers have sent to this bookie, and have no answer to."""
        check_unanswered(self.history, bookie_id, size, bound, open_ledgers, max_pending)

    def sent_to_lagging(self, bookie_id: str, ledger_id: int, entry_id: int) -> None:
        """A process sends an entry to a bookie, and its ledgers know that the bookie is over its lag bound."""
        self.history.look("66")
        if entry_id >= len(self.history.ledger(ledger_id).payloads):  # what is resent was appended before
            raise Violation("66", f"{bookie_id} lags, and is sent new entry {entry_id} of ledger {ledger_id}")

    def was_read(self, ledger_id: int, entry_id: int, payload: bytes) -> None:
        """By a reader without recovery, or of a closed ledger."""
        history, ledger = self.history, self.history.ledger(ledger_id)
        history.look("6")
        closed_at = ledger.metadata.last_entry_id if ledger.metadata is not None and ledger.metadata.closed_ms else -1
        if entry_id > max(ledger.acked, closed_at) and not ledger.may_go:
            raise Violation(
                "6", f"entry {entry_id} of ledger {ledger_id} was read, and {ledger.acked} were acknowledged"
            )
        if entry_id >= len(ledger.payloads) or ledger.payloads[entry_id] != payload:
            raise Violation("4", f"entry {entry_id} of ledger {ledger_id} was read with another payload")

    def tail_waits(self, ledger_id: int, read: int, confirmed: int, waited_s: float) -> None:
        """A reader tails the ledger, and all that hindered it has healed."""
        self.history.look("6")
        if read < confirmed and waited_s > _TAIL_S:
            raise Violation(
                "6",
                f"ledger {ledger_id} is confirmed up to {confirmed}, and {waited_s:.0f} s later a tail has read up to "
                f"{read}",
            )

    def chain_was_read(self, chain: str, payloads: Sequence[bytes]) -> None:
        """From its first ledger to its last."""
        check_chain_entries(self.history, chain, payloads)

    # ── the metadata ─────────────────────────────────────────────────────────────────────────────────────────────────

    def metadata_forget(self, ledger_id: int) -> None:
        """The node is missing, and will be restored as it was: nobody deleted it. Bookies retain their entries.

        A bookie that leaves limbo in the meantime finds nothing to repair in this ledger, and stays in limbo for it.
        """
        self.history.forgotten.add(ledger_id)
        for disk in self.history.disks.values():
            disk.owes.pop(ledger_id, None)

    def metadata_changed(self, path: str, value: bytes | None, by: Process) -> None:
        self._recoveries.metadata_changes(path, value, by)
        metadata_changed(self.history, path, value, by)

    # ── the network ──────────────────────────────────────────────────────────────────────────────────────────────────

    def request_sent(self, source: Process, target: Process, method: str, request: bytes) -> None:
        pass

    def request_arrived(self, source: Process, target: Process, method: str, request: bytes) -> None:
        disk = self.history.disks.get(target.name)
        if disk is not None:
            self._answers.request_arrived(disk, method, request)
        if method == "read":
            self._recoveries.read_arrived(source, target, request)

    def answer_sent(self, source: Process, target: Process, method: str, request: bytes, answer: bytes) -> None:
        disk = self.history.disks.get(source.name)
        if disk is not None:
            self._answers.answered(disk, method, request, answer)

    def answer_arrived(self, source: Process, target: Process, method: str, request: bytes, answer: bytes) -> None:
        self._recoveries.answer_arrived(source, target, method, request, answer)

    def message_sent(self, source: Process, target: Process, method: str, message: bytes, *, served: bool) -> None:
        if served:
            disk = self.history.disks.get(source.name)
            if disk is not None and method == "add":
                self._answers.adds_answered(disk, message)

    def message_arrived(self, source: Process, target: Process, method: str, message: bytes, *, served: bool) -> None:
        if not served:
            disk = self.history.disks.get(target.name)
            if disk is not None and method == "add":
                self._answers.adds_arrived(disk, message)
