"""Each check reports a small constructed history with its violation, and accepts one without it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from magnetar_bookie.storage.interface import Changes, LedgerData
from magnetar_metadata.envelope import Envelope
from magnetar_metadata.node_table import Record
from magnetar_protos import ledger_pb2
from magnetar_protos.frame_pb2 import Frame, Run
from tests.sim.chance import Chance
from tests.sim.clock import SimulatedClock
from tests.sim.disk import SimulatedDisk
from tests.sim.invariants import Checker, Violation
from tests.sim.invariants.ending import check_chain_entries, unrest
from tests.sim.invariants.history import Chain
from tests.sim.loop import new_loop
from tests.sim.process import Process
from tests.sim.world.metadata import SimulatedMetadata

LEDGER = 7
PATH = "/ledgers/0000/0000/0000/0007"
CHAIN = "/chains/c"
OPEN, RECOVERING = ledger_pb2.OPEN, ledger_pb2.IN_RECOVERY
CLOSED, TOMBSTONE = ledger_pb2.CLOSED, ledger_pb2.TOMBSTONE


def record(entry_id: int, payload: bytes, last_add_confirmed: int = -1, ledger_id: int = LEDGER) -> bytes:
    return struct.pack(">QQqQI", ledger_id, entry_id, last_add_confirmed, 0, 0) + payload


def stored(payload: bytes) -> bytes:
    return Envelope(bytes(8), (bytes(8),), payload).encode()


class Scene:
    """Three bookies, one chain, ledger 7 in it with two entries that two bookies hold and the writer knows of."""

    def __init__(self) -> None:
        self.loop = new_loop()
        self.checker = Checker(self.loop.time)
        self.history = self.checker.history
        self.b = [self.loop.process(f"b{number}") for number in range(4)]
        self.client = self.loop.process("client")
        self.disks = []
        for number in range(4):
            disk = SimulatedDisk(SimulatedClock(self.loop), Chance(1).stream(number))
            self.disks.append(self.checker.watch_disk(f"b{number}", disk))
            disk.open()
        self.metadata_is(OPEN)
        self.chain_is([LEDGER])
        for entry_id in range(2):
            self.checker.appended(LEDGER, entry_id, b"p%d" % entry_id)
            for number in range(2):
                self.writes(number, {(LEDGER, entry_id): record(entry_id, b"p%d" % entry_id)})
            self.checker.acked(LEDGER, entry_id)

    def writes(self, number: int, records: dict[tuple[int, int], bytes] | None = None, **others: object) -> None:
        """Durably."""
        disk = self.disks[number].disk
        disk.write(Changes(records=records or {}, **others))  # type: ignore[arg-type]
        disk.make_durable(1)

    def metadata_is(
        self,
        state: ledger_pb2.LedgerState,
        *fragments: tuple[int, str],
        last: int = -1,
        length: int = 0,
        by: Process | None = None,
    ) -> None:
        message = ledger_pb2.LedgerMetadata(
            state=state,
            ensemble_size=3,
            write_quorum=3,
            ack_quorum=2,
            last_entry_id=last,
            length_bytes=length,
            closed_ms=1 if state == CLOSED else 0,
            fragments=[
                ledger_pb2.Fragment(first_entry_id=first, bookies=bookies.split())
                for first, bookies in fragments or ((0, "b0 b1 b2"),)
            ],
        )
        self.checker.metadata_changed(PATH, stored(message.SerializeToString()), by or self.client)

    def closes(self) -> None:
        self.metadata_is(CLOSED, last=1, length=4)

    def chain_is(self, ledgers: list[int]) -> None:
        self.checker.metadata_changed(CHAIN, stored(Chain(ledgers, []).encode()), self.client)

    def answers(self, number: int, method: str, request: bytes, answer: bytes) -> None:
        self.checker.request_arrived(self.client, self.b[number], method, request)
        self.loop.now += 1
        self.checker.answer_sent(self.b[number], self.client, method, request, answer)
        self.checker.answer_arrived(self.b[number], self.client, method, request, answer)

    def answers_adds(self, number: int, entry_id: int) -> None:
        answer = ledger_pb2.AddAnswer(ledger_id=LEDGER, first_entry_id=entry_id, count=1, status=ledger_pb2.OK)
        message = ledger_pb2.AddAnswers(answers=[answer]).SerializeToString()
        self.checker.message_sent(self.b[number], self.client, "add", message, served=True)
        self.loop.now += 1

    def reads(self, number: int, *, fence: bool = False, first: int = 0, **answer: object) -> None:
        request = ledger_pb2.ReadRequest(ledger_id=LEDGER, first_entry_id=first, last_entry_id=1, fence=fence)
        sent = ledger_pb2.ReadAnswer(status=ledger_pb2.OK, **{"last_add_confirmed": -1, **answer})  # type: ignore[arg-type]
        self.answers(number, "read", request.SerializeToString(), sent.SerializeToString())

    def confirms(self, number: int, last_add_confirmed: int) -> None:
        """Store this explicit LAC on the bookie's disk, durably."""
        remembered = self.disks[number].disk.durable_ledger(LEDGER) or LedgerData(b"k")
        self.writes(number, ledgers={LEDGER: replace(remembered, last_add_confirmed=last_add_confirmed)})

    def fences(
        self,
        number: int,
        *,
        durably: bool = True,
        last_add_confirmed: int = -1,
        read: ledger_pb2.ReadAnswer | None = None,
    ) -> None:
        if durably:
            remembered = self.disks[number].disk.durable_ledger(LEDGER) or LedgerData(b"k")
            self.writes(number, ledgers={LEDGER: replace(remembered, fenced=True)})
        request = ledger_pb2.FenceRequest(ledger_id=LEDGER, read_entries=8 if read else 0)
        answer = ledger_pb2.FenceAnswer(status=ledger_pb2.OK, last_add_confirmed=last_add_confirmed, read=read)
        self.answers(number, "fence", request.SerializeToString(), answer.SerializeToString())

    def reports_lac(self, number: int, last_add_confirmed: int) -> None:
        request = ledger_pb2.LastAddConfirmedRequest(ledger_id=LEDGER)
        answer = ledger_pb2.LastAddConfirmedAnswer(status=ledger_pb2.OK, last_add_confirmed=last_add_confirmed)
        self.answers(number, "last_add_confirmed", request.SerializeToString(), answer.SerializeToString())

    def finds_the_end(self, beyond: int = 2) -> None:
        """As much as a recovery needs to close: two are fenced, and have nothing behind the end."""
        self.metadata_is(RECOVERING)
        for number in (1, 2):
            self.fences(number)
        for number in (1, 2):
            self.reads(number, fence=True, first=beyond, absent=[beyond], next_entry_id=beyond + 1)

    def asks_recovery_add(self, number: int, entry_id: int) -> None:
        request = ledger_pb2.AddRequest(
            frame=Frame(runs=[Run(channel=LEDGER, first=entry_id, count=1)], entries=[b""]),
            runs=[ledger_pb2.AddRun(recovery=True)],
        )
        self.checker.message_arrived(self.client, self.b[number], "add", request.SerializeToString(), served=False)

    def deleted(self) -> None:
        self.chain_is([])
        self.metadata_is(TOMBSTONE)


def well(scene: Scene) -> None:
    """A whole run without violations."""
    scene.answers_adds(0, 1)
    scene.reads(0, records=[record(0, b"p0")], next_entry_id=2)
    scene.reads(2, absent=[0, 1], next_entry_id=2)
    scene.confirms(0, 1)
    scene.fences(0, last_add_confirmed=1)
    scene.finds_the_end()
    scene.asks_recovery_add(2, 0)
    scene.writes(2, {(LEDGER, 0): record(0, b"p0")})
    scene.closes()
    scene.checker.was_read(LEDGER, 1, b"p1")
    scene.deleted()
    scene.writes(2, dropped=[LEDGER], ledgers={LEDGER: LedgerData(b"k", fenced=True, deleted=True)})
    scene.checker.metadata_changed(PATH, None, scene.client)


def closed_below_acked(scene: Scene) -> None:
    scene.metadata_is(CLOSED, last=0, length=2)


def closed_twice(scene: Scene) -> None:
    scene.closes()
    scene.metadata_is(CLOSED, last=0, length=2)


def reopened(scene: Scene) -> None:
    scene.metadata_is(RECOVERING)
    scene.metadata_is(OPEN)


def acked_on_one(scene: Scene) -> None:
    scene.checker.appended(LEDGER, 2, b"p2")
    scene.writes(0, {(LEDGER, 2): record(2, b"p2")})
    scene.checker.acked(LEDGER, 2)


def acked_on_a_bookie_not_named(scene: Scene) -> None:
    scene.checker.appended(LEDGER, 2, b"p2")
    for number in (0, 3):
        scene.writes(number, {(LEDGER, 2): record(2, b"p2")})
    scene.checker.acked(LEDGER, 2)


def replaced_by_one_without_the_entries(scene: Scene) -> None:
    scene.closes()
    scene.metadata_is(CLOSED, (0, "b3 b1 b2"), last=1, length=4)


def stored_on_one_bookie(scene: Scene) -> None:
    scene.checker.appended(LEDGER, 2, b"p2")
    scene.writes(0, {(LEDGER, 2): record(2, b"p2")})
    scene.finds_the_end(3)
    scene.metadata_is(CLOSED, last=2, length=6)


def two_payloads(scene: Scene) -> None:
    scene.writes(2, {(LEDGER, 0): record(0, b"p0", -1) + b"!"})


def written_over_a_held_record(scene: Scene) -> None:
    scene.checker.disk_loses("b1", lambda: scene.disks[1].disk.damage(LEDGER, 0))
    scene.writes(1, {(LEDGER, 0): record(0, b"p0")}, discarded=[(LEDGER, 0)])  # it was damaged
    scene.writes(0, {(LEDGER, 0): record(0, b"p0")})


def added_by_a_call_ahead_of_a_frame(scene: Scene) -> None:
    scene.checker.added_by_call("b0", LEDGER, 0, overtakes=False)
    scene.checker.added_by_call("b0", LEDGER, 1, overtakes=True)


def acked_behind_the_next_ledger(scene: Scene) -> None:
    scene.history.chains["c"].ledgers.append(8)
    scene.checker.appended(LEDGER, 2, b"p2")
    for number in range(2):
        scene.writes(number, {(LEDGER, 2): record(2, b"p2")})
    scene.checker.acked(LEDGER, 2)


def two_open_ledgers(scene: Scene) -> None:
    scene.history.ledger(8).metadata = ledger_pb2.LedgerMetadata(state=OPEN)
    scene.chain_is([LEDGER, 8])


def payload_twice(scene: Scene) -> None:
    check_chain_entries(scene.history, "c", [b"c w 1", b"c w 1"])


def payloads_out_of_order(scene: Scene) -> None:
    check_chain_entries(scene.history, "c", [b"c w 2", b"c w 1"])


def acked_and_not_in_the_chain(scene: Scene) -> None:
    check_chain_entries(scene.history, "c", [])


def acked_out_of_order(scene: Scene) -> None:
    scene.checker.acked(LEDGER, 3)


def tail_that_hears_of_nothing(scene: Scene) -> None:
    scene.checker.tail_waits(LEDGER, 0, 1, 11.0)


def read_above_what_completed(scene: Scene) -> None:
    scene.checker.appended(LEDGER, 2, b"p2")
    scene.checker.was_read(LEDGER, 2, b"p2")


def fence_that_is_not_durable(scene: Scene) -> None:
    scene.fences(0, durably=False)


def fencing_read_that_fences_nothing(scene: Scene) -> None:
    scene.writes(0, ledgers={LEDGER: LedgerData(b"k")})
    scene.reads(0, fence=True, next_entry_id=2)


def fence_that_is_forgotten(scene: Scene) -> None:
    scene.fences(0)
    scene.writes(0, ledgers={LEDGER: LedgerData(b"k")})


def add_behind_a_fence(scene: Scene) -> None:
    scene.fences(2)
    scene.writes(2, {(LEDGER, 0): record(0, b"p0")})


def recovery_below_the_fragment(scene: Scene) -> None:
    scene.metadata_is(OPEN, (0, "b0 b1 b2"), (2, "b0 b1 b3"))
    scene.metadata_is(RECOVERING, (0, "b0 b1 b2"), (2, "b0 b1 b3"))
    scene.reads(1, fence=True)


def recovery_without_the_fences(scene: Scene) -> None:
    scene.metadata_is(RECOVERING)
    scene.fences(0)
    scene.reads(1, fence=True, first=2)


def recovery_below_reported_lac(scene: Scene) -> None:
    scene.metadata_is(RECOVERING)
    for number, last_add_confirmed in ((1, 0), (2, 1), (0, 0)):
        scene.confirms(number, last_add_confirmed)
        scene.fences(number, last_add_confirmed=last_add_confirmed)
    scene.reads(1, fence=True, first=0)


def recovery_reads_elsewhere(scene: Scene) -> None:
    scene.metadata_is(RECOVERING)
    for number in (1, 2):
        scene.fences(number)
    scene.reads(3, fence=True, first=2)


def closed_on_one_no(scene: Scene) -> None:
    scene.metadata_is(RECOVERING)
    for number in (1, 2):
        scene.fences(number)
    scene.reads(2, fence=True, first=2, absent=[2], next_entry_id=3)
    scene.closes()


def closed_on_the_no_of_one_that_is_not_fenced(scene: Scene) -> None:
    scene.metadata_is(RECOVERING)
    for number in (1, 2):
        scene.fences(number)
    scene.reads(0, first=2, absent=[2], next_entry_id=3)
    scene.reads(1, first=2, absent=[2], next_entry_id=3)
    scene.closes()


def last_fragment_changed_by_a_repair(scene: Scene) -> None:
    scene.metadata_is(OPEN, (0, "b0 b1 b3"), by=scene.b[3])


def open_ledger_closed_by_another(scene: Scene) -> None:
    scene.metadata_is(CLOSED, last=1, length=4, by=scene.b[3])


def decommissioned_before_it_is_empty(scene: Scene) -> None:
    mark = ledger_pb2.Decommission(asked_ms=1).SerializeToString()
    scene.checker.metadata_changed("/bookies/leaving/b2", stored(mark), scene.client)
    scene.checker.metadata_changed("/bookies/cookies/b2", None, scene.b[0])


def made_on_a_bookie_that_leaves(scene: Scene) -> None:
    mark = ledger_pb2.Decommission(asked_ms=1).SerializeToString()
    scene.checker.metadata_changed("/bookies/leaving/b3", stored(mark), scene.client)
    scene.metadata_is(OPEN, (0, "b0 b1 b2"), (2, "b0 b1 b3"))


def ok_for_what_was_damaged_and_sent_again(scene: Scene) -> None:
    scene.answers_adds(0, 1)
    scene.checker.disk_loses("b0", lambda: scene.disks[0].disk.damage(LEDGER, 1))
    scene.asks_recovery_add(0, 1)
    scene.answers_adds(0, 1)


def dropped_though_there_is_no_tombstone(scene: Scene) -> None:
    scene.closes()
    scene.chain_is([])
    scene.writes(0, dropped=[LEDGER])


def absent_though_promised(scene: Scene) -> None:
    scene.answers_adds(0, 1)
    scene.reads(0, absent=[1], next_entry_id=2)


def absent_in_the_read_of_a_fence_though_promised(scene: Scene) -> None:
    scene.answers_adds(0, 1)
    read = ledger_pb2.ReadAnswer(status=ledger_pb2.OK, absent=[1], next_entry_id=2, last_add_confirmed=-1)
    scene.fences(0, read=read)


def absent_though_promised_and_lost(scene: Scene) -> None:
    scene.answers_adds(0, 1)
    scene.checker.disk_loses("b0", lambda: scene.disks[0].disk.lose_synced(1))
    scene.reads(0, absent=[1], next_entry_id=2)


def fragment_changed_in_recovery(scene: Scene) -> None:
    scene.metadata_is(RECOVERING)
    scene.metadata_is(RECOVERING, (0, "b0 b1 b2"), (2, "b0 b1 b3"))


def fragment_behind_what_completed(scene: Scene) -> None:
    scene.metadata_is(OPEN, (0, "b0 b1 b2"), (3, "b0 b1 b3"))


def ok_that_is_not_durable(scene: Scene) -> None:
    scene.answers_adds(2, 1)


def answer_after_a_failed_sync(scene: Scene) -> None:
    storage = scene.disks[0].disk.storage
    assert storage is not None
    storage.dead = "a sync failed"
    scene.answers_adds(0, 1)


def answer_of_a_wiped_bookie(scene: Scene) -> None:
    scene.disks[0].wiped = True
    scene.answers_adds(0, 1)


def dropped_without_request(scene: Scene) -> None:
    scene.writes(0, dropped=[LEDGER])


def tombstone_without_request(scene: Scene) -> None:
    scene.metadata_is(TOMBSTONE)


def node_missing_without_a_tombstone(scene: Scene) -> None:
    scene.chain_is([])
    scene.checker.metadata_changed(PATH, None, scene.client)


def write_behind_a_tombstone(scene: Scene) -> None:
    scene.deleted()
    scene.writes(2, ledgers={LEDGER: LedgerData(b"k", deleted=True)})
    scene.writes(2, {(LEDGER, 0): record(0, b"p0")})


def swept_though_claimed(scene: Scene) -> None:
    intent = ledger_pb2.LedgerIntent(sweeping=True).SerializeToString()
    scene.checker.metadata_changed("/ledger-intents/0000000000000007", stored(intent), scene.b[0])


CASES: list[tuple[str, Callable[[Scene], None]]] = [
    ("1", closed_below_acked),
    ("1", closed_twice),
    ("1", reopened),
    ("2, 3", acked_on_one),
    ("2, 3", acked_on_a_bookie_not_named),
    ("2, 3", replaced_by_one_without_the_entries),
    ("2, 3", stored_on_one_bookie),
    ("4", two_payloads),
    ("4", written_over_a_held_record),
    ("4", added_by_a_call_ahead_of_a_frame),
    ("5", acked_behind_the_next_ledger),
    ("5", two_open_ledgers),
    ("5", payload_twice),
    ("5", payloads_out_of_order),
    ("2", acked_and_not_in_the_chain),
    ("6", acked_out_of_order),
    ("6", tail_that_hears_of_nothing),
    ("6", read_above_what_completed),
    ("7", recovery_without_the_fences),
    ("16", recovery_reads_elsewhere),
    ("7, 13", closed_on_one_no),
    ("8", closed_on_the_no_of_one_that_is_not_fenced),
    ("9, 10", fence_that_is_not_durable),
    ("8, 10", fencing_read_that_fences_nothing),
    ("10", fence_that_is_forgotten),
    ("11, 17", add_behind_a_fence),
    ("12", recovery_below_the_fragment),
    ("12", recovery_below_reported_lac),
    ("15, 22", absent_though_promised),
    ("15, 22", absent_in_the_read_of_a_fence_though_promised),
    ("15, 22", absent_though_promised_and_lost),
    ("16", fragment_changed_in_recovery),
    ("18", fragment_behind_what_completed),
    ("21", ok_that_is_not_durable),
    ("21", answer_after_a_failed_sync),
    ("23", answer_of_a_wiped_bookie),
    ("21", ok_for_what_was_damaged_and_sent_again),
    ("26", dropped_though_there_is_no_tombstone),
    ("28", decommissioned_before_it_is_empty),
    ("STO-2", made_on_a_bookie_that_leaves),
    ("62", last_fragment_changed_by_a_repair),
    ("62", open_ledger_closed_by_another),
    ("26", dropped_without_request),
    ("26", tombstone_without_request),
    ("26", node_missing_without_a_tombstone),
    ("27", write_behind_a_tombstone),
    ("58", swept_though_claimed),
]


def test_nothing_fires_where_nothing_is_wrong() -> None:
    well(Scene())


@pytest.mark.parametrize(("item", "case"), CASES, ids=[case.__name__ for _, case in CASES])
def test_the_check_fires(item: str, case: Callable[[Scene], None]) -> None:
    scene = Scene()
    with pytest.raises(Violation) as raised:
        case(scene)
    assert raised.value.item == item, raised.value


def test_the_end_is_not_at_rest_while_something_is_missing() -> None:
    scene = Scene()
    metadata = SimulatedMetadata(scene.loop, 10.0, lambda path, value, by: None)
    serving = ["b0", "b1", "b2", "b3"]
    for bookie in serving:
        metadata.table.put(f"/bookies/cookies/{bookie}", Record())

    def wrong() -> str:
        found = unrest(scene.history, metadata, serving)
        return found[0] if found else ""

    assert wrong() == "29"  # not closed
    scene.closes()
    assert wrong() == "28"  # b2 lacks both entries
    scene.writes(2, {(LEDGER, 0): record(0, b"p0"), (LEDGER, 1): record(1, b"p1")})
    assert wrong() == ""
    scene.history.tasks[LEDGER] = ledger_pb2.RepairTask()
    assert wrong() == "29"
    scene.history.tasks[LEDGER].stuck = "there is a reason"
    assert wrong() == "29"  # and nothing is missing
    metadata.table.put("/bookies/leaving/b2", Record())
    assert wrong() == "28"  # b3 could replace b2
    metadata.table.delete("/bookies/cookies/b3")
    assert wrong() == ""  # it could not: there is the reason
    metadata.table.put("/bookies/cookies/b3", Record())
    metadata.table.delete("/bookies/leaving/b2")
    del scene.history.tasks[LEDGER]
    limbo = ledger_pb2.BookieRecord(limbo_below=LEDGER + 1, limbo_generation=1)
    scene.writes(1, bookie=limbo.SerializeToString())
    assert wrong() == ""  # it came to hold the ledger later
    scene.disks[1].owes[LEDGER] = None
    assert wrong() == "22"
    scene.writes(1, ledgers={LEDGER: LedgerData(b"k", limbo_cleared=1)})
    assert wrong() == ""
    scene.history.ledger(8).payloads.append(b"q")
    scene.writes(3, {(8, 0): record(0, b"q", ledger_id=8)})
    assert wrong() == "26"  # the metadata know nothing of it
    scene.disks[3].revived.add(8)
    assert wrong() == ""  # its disk has lost the tombstone
    scene.chain_is([])
    assert wrong() == "58"  # a ledger that nobody has
    scene.history.chains["c"].ledgers.append(LEDGER)
    scene.history.ledger(LEDGER).metadata = None
    with pytest.raises(Violation, match="58"):
        wrong()
