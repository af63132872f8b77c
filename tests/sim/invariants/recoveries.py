"""Check each recovery against the answers that it got (7, 8, 12, 13, 16).

A process reads towards a ledger's end when it has got enough answers to fences (7), except for the read within the
fence; it reads from the bookies that the last fragment names while it is being recovered (16), and no entry that is
confirmed by the LACs in those answers, or by the beginning of the last fragment (12). When it closes the ledger, enough
bookies of the write set of the entry behind the end have reported that entry as absent (7, 13), and each of them was
fenced before (8).

One process may recover a ledger several times, also at once, and it is not visible which answers belong together. So
the check takes the least that any of its attempts can have got.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar_protos import ledger_pb2
from tests.sim.invariants.history import LEDGERS, History, Ledger, Violation, stored_payload
from tests.sim.process import Process

__all__ = ["Recoveries"]


@dataclass(slots=True)
class _Heard:
    """By one process, of one ledger."""

    # Bookie → the lowest LAC in its answers to fences.
    fences: dict[str, int] = field(default_factory=dict)
    # Entry → bookies that reported it as absent → whether they were fenced by then.
    absent: dict[int, dict[str, bool]] = field(default_factory=dict)


class Recoveries:
    def __init__(self, history: History) -> None:
        self._history = history
        self._heard: dict[tuple[Process, int], _Heard] = {}

    def answer_arrived(self, bookie: Process, asker: Process, method: str, request: bytes, message: bytes) -> None:
        if method == "fence":
            fenced = ledger_pb2.FenceAnswer.FromString(message)
            if fenced.status == ledger_pb2.OK:
                heard = self._of(asker, ledger_pb2.FenceRequest.FromString(request).ledger_id)
                lowest = heard.fences.get(bookie.name, fenced.last_add_confirmed)
                heard.fences[bookie.name] = min(lowest, fenced.last_add_confirmed)
                self._hear_absent(bookie, asker, ledger_pb2.FenceRequest.FromString(request).ledger_id, fenced.read)
        elif method == "read":
            answer = ledger_pb2.ReadAnswer.FromString(message)
            self._hear_absent(bookie, asker, ledger_pb2.ReadRequest.FromString(request).ledger_id, answer)

    def _hear_absent(self, bookie: Process, asker: Process, ledger_id: int, answer: ledger_pb2.ReadAnswer) -> None:
        if answer.status == ledger_pb2.OK and answer.absent:
            fenced_there = ledger_id in self._history.disks[bookie.name].fenced
            heard = self._of(asker, ledger_id)
            for entry_id in answer.absent:
                absent = heard.absent.setdefault(entry_id, {})
                absent[bookie.name] = fenced_there or absent.get(bookie.name, False)

    def read_arrived(self, asker: Process, bookie: Process, request: bytes) -> None:
        read = ledger_pb2.ReadRequest.FromString(request)
        if not read.fence:
            return
        ledger = self._history.ledger(read.ledger_id)
        metadata = ledger.metadata
        if metadata is None or metadata.state != ledger_pb2.IN_RECOVERY:
            return
        last = metadata.fragments[-1]
        self._history.look("16")
        if bookie.name not in last.bookies:
            raise Violation(
                "16",
                f"{asker.name} recovers ledger {read.ledger_id}, and reads from {bookie.name}: the last fragment is "
                f"{list(last.bookies)}",
            )
        self._history.look("12")
        if read.first_entry_id < last.first_entry_id:
            raise Violation(
                "12",
                f"recovery of ledger {read.ledger_id} reads entry {read.first_entry_id}, and the last fragment "
                f"begins at {last.first_entry_id}",
            )
        enough = metadata.ensemble_size - metadata.ack_quorum + 1
        heard = self._of(asker, read.ledger_id).fences
        lacs = sorted(heard[bookie] for bookie in last.bookies if bookie in heard)
        self._history.look("7")
        if len(lacs) < enough:
            raise Violation(
                "7",
                f"{asker.name} recovers ledger {read.ledger_id}, and has heard of fences from {list(heard)} only: "
                f"{enough} of {list(last.bookies)} it takes",
            )
        if read.first_entry_id <= lacs[enough - 1]:
            raise Violation(
                "12",
                f"{asker.name} reads entry {read.first_entry_id} of ledger {read.ledger_id}, and got the LACs {heard}",
            )

    def metadata_changes(self, path: str, value: bytes | None, by: Process) -> None:
        """Before it is noted."""
        if value is None or not path.startswith(LEDGERS):
            return
        ledger = self._history.ledger(int(path.removeprefix(LEDGERS).replace("/", ""), 16))
        before = ledger.metadata
        if before is None or before.state != ledger_pb2.IN_RECOVERY:
            return
        closed = ledger_pb2.LedgerMetadata.FromString(stored_payload(value))
        if closed.state == ledger_pb2.CLOSED:
            self._closes(ledger, before, closed.last_entry_id + 1, by)

    def _closes(self, ledger: Ledger, before: ledger_pb2.LedgerMetadata, beyond: int, by: Process) -> None:
        self._history.look("8")
        self._history.look("7, 13")
        write_set = ledger.where(beyond)
        absent = self._of(by, ledger.ledger_id).absent.get(beyond, {})
        no = [bookie for bookie in write_set if bookie in absent]
        enough = before.write_quorum - before.ack_quorum + 1
        what = f"{by.name} closes ledger {ledger.ledger_id} below entry {beyond}"
        if len(no) < enough:
            raise Violation("7, 13", f"{what}, and of {write_set} {no} reported it as absent: {enough} must")
        if len([bookie for bookie in no if absent[bookie]]) < enough:
            raise Violation("8", f"{what}, and of {no}, which reported it as absent, not all were fenced: {absent}")

    def _of(self, process: Process, ledger_id: int) -> _Heard:
        key = (process, ledger_id)
        heard = self._heard.get(key)
        if heard is None:
            heard = self._heard[key] = _Heard()
        return heard
