"""What each recoverer relies on, held against what it was told (7, 8, 12, 13, 16).

A process reads towards a ledger's end when it has heard of enough fences (7), but for what comes with the answers to
them, from the bookies that the last fragment names while it is being recovered (16), and reads nothing that the LACs
which came with them, or the beginning of the last fragment, show to be confirmed (12). When it closes the ledger, so
many bookies of the write set of the entry behind the end must have said that they never got that entry (7, 13), and
each of them was fenced before (8).

One process may recover a ledger several times, at once too, and which answers belong together can't be seen from
outside. So it is held against the least that any of its attempts can have heard.
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

    # Bookie → the lowest LAC with which it said that it is fenced.
    fences: dict[str, int] = field(default_factory=dict)
    # Entry → bookies that never got it → whether they were fenced when they said so.
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
                said = heard.absent.setdefault(entry_id, {})
                said[bookie.name] = fenced_there or said.get(bookie.name, False)

    def read_arrived(self, asker: Process, bookie: Process, request: bytes) -> None:
        asked = ledger_pb2.ReadRequest.FromString(request)
        if not asked.fence:
            return
        ledger = self._history.ledger(asked.ledger_id)
        metadata = ledger.metadata
        if metadata is None or metadata.state != ledger_pb2.IN_RECOVERY:
            return
        last = metadata.fragments[-1]
        self._history.look("16")
        if bookie.name not in last.bookies:
            raise Violation(
                "16",
                f"{asker.name} recovers ledger {asked.ledger_id}, and reads from {bookie.name}: the last fragment is "
                f"{list(last.bookies)}",
            )
        self._history.look("12")
        if asked.first_entry_id < last.first_entry_id:
            raise Violation(
                "12",
                f"recovery of ledger {asked.ledger_id} reads entry {asked.first_entry_id}, and the last fragment "
                f"begins at {last.first_entry_id}",
            )
        enough = metadata.ensemble_size - metadata.ack_quorum + 1
        heard = self._of(asker, asked.ledger_id).fences
        told = sorted(heard[bookie] for bookie in last.bookies if bookie in heard)
        self._history.look("7")
        if len(told) < enough:
            raise Violation(
                "7",
                f"{asker.name} recovers ledger {asked.ledger_id}, and has heard of fences from {list(heard)} only: "
                f"{enough} of {list(last.bookies)} it takes",
            )
        if asked.first_entry_id <= told[enough - 1]:
            raise Violation(
                "12",
                f"{asker.name} reads entry {asked.first_entry_id} of ledger {asked.ledger_id}, and was told of the "
                f"LACs {heard}",
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
        said = self._of(by, ledger.ledger_id).absent.get(beyond, {})
        no = [bookie for bookie in write_set if bookie in said]
        enough = before.write_quorum - before.ack_quorum + 1
        what = f"{by.name} closes ledger {ledger.ledger_id} below entry {beyond}"
        if len(no) < enough:
            raise Violation("7, 13", f"{what}, and of {write_set} {no} said that they never got it: {enough} must")
        if len([bookie for bookie in no if said[bookie]]) < enough:
            raise Violation("8", f"{what}, and of {no}, which never got it, not all were fenced: {said}")

    def _of(self, process: Process, ledger_id: int) -> _Heard:
        key = (process, ledger_id)
        heard = self._heard.get(key)
        if heard is None:
            heard = self._heard[key] = _Heard()
        return heard
