"""Checks of the bookies' answers: adds and fences are durable (10, 21), a LAC is true, durable and never falls (6), no
entry that the bookie answered OK is "absent" (15, 22), each kind of fence fences (8, 9, 10), and a wiped bookie answers
nothing (23).

Theory of operation of the LAC's check
--------------------------------------
A bookie reports only a LAC that its disk proves: the explicit one, or that of a durable record. A record that is
written and not yet durable proves nothing, since the bookie would report less after a crash. So a LAC that was reported
never falls, except when the disk loses or damages the record that carries it. The bookie may then report that LAC from
memory until it evicts the ledger, and a lower one after that, though none below what is left on its disk. All are true
lower bounds. `Disk.reported_lac` therefore rises only to a LAC that the disk proves when it is reported, and
`Checker.disk_loses` lowers it to what the disk proves after the fault.
"""

from __future__ import annotations

from typing import Final

from magnetar_protos import ledger_pb2
from tests.sim.invariants.history import Disk, History, Violation

__all__ = ["Answers"]

_OK: Final = ledger_pb2.OK
# The number of unanswered requests that are remembered.
_MOST_REQUESTS: Final = 4096


class Answers:
    """Watches the network, in the words of tests.sim.network.Tap."""

    def __init__(self, history: History) -> None:
        self._history = history
        # id of the request's bytes → (the bytes, when it came first, the LAC reported before, whether the ledger was
        # unknown to the bookie); the bytes are retained, so that the id stays theirs.
        self._arrived: dict[int, tuple[bytes, float, int, bool]] = {}

    def adds_arrived(self, disk: Disk, message: bytes) -> None:
        request = ledger_pb2.AddRequest.FromString(message)
        for frame_run, run in zip(request.frame.runs, request.runs, strict=True):
            entries = range(frame_run.first, frame_run.first + frame_run.count)
            if lost := disk.lost.get(frame_run.channel):
                lost.update((entry_id, True) for entry_id in entries if entry_id in lost)
            if run.recovery:
                disk.recovered.setdefault(frame_run.channel, set()).update(entries)

    def adds_answered(self, disk: Disk, message: bytes) -> None:
        history, now = self._history, self._history.now()
        self._alive(disk)
        for answer in ledger_pb2.AddAnswers.FromString(message).answers:
            if answer.status != _OK:
                continue
            history.look("21")
            ledger_id = answer.ledger_id
            promised = disk.promised.setdefault(ledger_id, {})
            lost = disk.lost.get(ledger_id)
            for entry_id in range(answer.first_entry_id, answer.first_entry_id + answer.count):
                held = disk.disk.durable_record(ledger_id, entry_id) is not None
                if lost is not None and entry_id in lost:
                    if not lost[entry_id]:
                        held = True  # it was, when this was decided
                    else:
                        # Sent again, and so written again: it counts like any other from now on.
                        record = history.ledger(ledger_id).records.get(entry_id)
                        held = disk.disk.durable_record(ledger_id, entry_id) == record
                        del lost[entry_id]
                if not held and not history.ledger(ledger_id).may_go:
                    raise Violation(
                        "21",
                        f"{disk.bookie_id} answers OK for entry {entry_id} of ledger {ledger_id}, which is not durable",
                    )
                promised.setdefault(entry_id, now)

    def request_arrived(self, disk: Disk, method: str, request: bytes) -> None:
        if method not in ("read", "fence", "last_add_confirmed"):
            return
        ledger_id = self._request(method, request).ledger_id
        key = id(request)
        if key not in self._arrived:
            if len(self._arrived) > _MOST_REQUESTS:
                del self._arrived[next(iter(self._arrived))]
            unknown = disk.disk.durable_ledger(ledger_id) is None
            self._arrived[key] = (request, self._history.now(), disk.reported_lac.get(ledger_id, -1), unknown)

    def answered(self, disk: Disk, method: str, request: bytes, message: bytes) -> None:
        self._alive(disk)
        if method == "confirm":
            self._confirmed(disk, request, message)
        if method not in ("read", "fence", "last_add_confirmed"):
            return
        _, since, reported, unknown = self._arrived.get(id(request), (request, -1.0, -1, False))
        answer: ledger_pb2.ReadAnswer | ledger_pb2.FenceAnswer | ledger_pb2.LastAddConfirmedAnswer
        fences = method == "fence"
        decoded = self._request(method, request)
        if method == "read":
            assert isinstance(decoded, ledger_pb2.ReadRequest)
            answer = ledger_pb2.ReadAnswer.FromString(message)
            fences = decoded.fence
            if answer.status == _OK:
                self._absent(disk, decoded.ledger_id, answer, since)
        elif method == "fence":
            answer = ledger_pb2.FenceAnswer.FromString(message)
            # The first read of a recovery comes with the fence.
            if answer.status == _OK and answer.read.status == _OK:
                self._absent(disk, decoded.ledger_id, answer.read, since)
                self._last_add_confirmed(disk, decoded.ledger_id, answer.read.last_add_confirmed, reported)
        else:
            answer = ledger_pb2.LastAddConfirmedAnswer.FromString(message)
        if answer.status != _OK:
            return
        if fences:
            self._fenced(disk, decoded.ledger_id, "9, 10" if unknown else "8, 10" if method == "read" else "10")
        self._last_add_confirmed(disk, decoded.ledger_id, answer.last_add_confirmed, reported)

    def _request(
        self, method: str, request: bytes
    ) -> ledger_pb2.ReadRequest | ledger_pb2.FenceRequest | ledger_pb2.LastAddConfirmedRequest:
        if method == "read":
            return ledger_pb2.ReadRequest.FromString(request)
        if method == "fence":
            return ledger_pb2.FenceRequest.FromString(request)
        return ledger_pb2.LastAddConfirmedRequest.FromString(request)

    def _alive(self, disk: Disk) -> None:
        history = self._history
        storage = disk.disk.storage
        if storage is not None and storage.dead == "a sync failed":
            raise Violation("21", f"{disk.bookie_id} answers, though a sync of its disk has failed")
        if disk.wiped:
            raise Violation("23", f"{disk.bookie_id} answers, though its disk was wiped")
        history.look("23")

    def _fenced(self, disk: Disk, ledger_id: int, items: str) -> None:
        self._history.look(items)
        durable = disk.disk.durable_ledger(ledger_id)
        if durable is None or not durable.fenced:
            raise Violation(items, f"{disk.bookie_id} reports ledger {ledger_id} as fenced, and its disk does not")
        disk.fenced.add(ledger_id)

    def _confirmed(self, disk: Disk, request: bytes, message: bytes) -> None:
        if ledger_pb2.ConfirmAnswer.FromString(message).status != _OK:
            return
        decoded = ledger_pb2.ConfirmRequest.FromString(request)
        self._history.look("6")
        durable = disk.disk.durable_ledger(decoded.ledger_id)
        if self._history.ledger(decoded.ledger_id).may_go:
            return
        if durable is None or durable.last_add_confirmed < decoded.last_add_confirmed:
            raise Violation(
                "6",
                f"{disk.bookie_id} confirms {decoded.last_add_confirmed} of ledger {decoded.ledger_id}, and has on its "
                f"disk {durable}",
            )

    def _last_add_confirmed(self, disk: Disk, ledger_id: int, value: int, reported: int) -> None:
        history = self._history
        history.look("6")
        ledger = history.ledger(ledger_id)
        if value > ledger.acked:
            raise Violation(
                "6", f"{disk.bookie_id} reports {value} as the LAC of ledger {ledger_id}: {ledger.acked} completed"
            )
        if ledger.may_go:
            return
        reported_now = disk.reported_lac.get(ledger_id, -1)
        # A fault may have occurred since the request arrived.
        reported = min(reported, reported_now)
        if value < reported:
            raise Violation(
                "6",
                f"{disk.bookie_id} reports {value} as the LAC of ledger {ledger_id}, and reported {reported} before",
            )
        if value > reported_now:
            if value > (durable := disk.durable_lac(ledger, count_lost=True)):
                raise Violation(
                    "6", f"{disk.bookie_id} reports {value} as the LAC of ledger {ledger_id}: {durable} is durable"
                )
            disk.reported_lac[ledger_id] = max(reported_now, min(value, disk.durable_lac(ledger)))

    def _absent(self, disk: Disk, ledger_id: int, answer: ledger_pb2.ReadAnswer, since: float) -> None:
        ledger = self._history.ledger(ledger_id)
        metadata = ledger.metadata
        if ledger.may_go or metadata is None:
            return
        promised = disk.promised.get(ledger_id, {})
        for entry_id in answer.absent:
            self._history.look("15, 22")
            if promised.get(entry_id, since) >= since:
                continue  # it was not here when the question came
            if metadata.state == ledger_pb2.CLOSED and entry_id > metadata.last_entry_id:
                continue
            if disk.bookie_id in ledger.where(entry_id):
                raise Violation(
                    "15, 22",
                    f"{disk.bookie_id} reports as absent entry {entry_id} of ledger {ledger_id}, which it "
                    f"answered OK at {promised[entry_id]:.3f} s",
                )
