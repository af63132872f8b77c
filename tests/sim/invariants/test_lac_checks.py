"""The check of reported LACs fires on each violation of item 6, and not where damage to a disk explains a lower LAC."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magnetar_bookie.storage.interface import Changes, LedgerData
from magnetar_protos import ledger_pb2
from tests.sim.invariants import Violation
from tests.sim.invariants.test_invariants_can_fail import LEDGER, Scene, record


def keep_entries_with_lacs(scene: Scene) -> None:
    """Complete entries 2 and 3 on b0 and b1. Their records carry the LACs 1 and 2."""
    for entry_id in (2, 3):
        scene.checker.appended(LEDGER, entry_id, b"p%d" % entry_id)
        for number in range(2):
            scene.writes(number, {(LEDGER, entry_id): record(entry_id, b"p%d" % entry_id, entry_id - 1)})
        scene.checker.acked(LEDGER, entry_id)


def lac_above_what_completed(scene: Scene) -> None:
    scene.fences(0, last_add_confirmed=2)


def lac_that_falls(scene: Scene) -> None:
    scene.confirms(0, 1)
    scene.fences(0, last_add_confirmed=1)
    scene.fences(0, last_add_confirmed=0)


def lac_that_falls_in_the_read_of_a_fence(scene: Scene) -> None:
    scene.confirms(0, 1)
    scene.reports_lac(0, 1)
    read = ledger_pb2.ReadAnswer(status=ledger_pb2.OK, next_entry_id=3, last_add_confirmed=0)
    scene.fences(0, last_add_confirmed=1, read=read)


def lac_that_is_not_durable(scene: Scene) -> None:
    scene.disks[0].disk.write(Changes(ledgers={LEDGER: LedgerData(b"k", last_add_confirmed=1)}))
    scene.reports_lac(0, 1)


def lac_of_a_record_that_is_not_durable(scene: Scene) -> None:
    scene.checker.appended(LEDGER, 2, b"p2")
    scene.disks[0].disk.write(Changes(records={(LEDGER, 2): record(2, b"p2", 1)}))
    scene.reports_lac(0, 1)


def lac_that_falls_after_another_record_was_damaged(scene: Scene) -> None:
    keep_entries_with_lacs(scene)
    scene.reports_lac(0, 2)
    scene.checker.disk_loses("b0", lambda: scene.disks[0].disk.damage(LEDGER, 0))
    scene.reports_lac(0, 1)


def lac_that_falls_below_what_is_whole(scene: Scene) -> None:
    keep_entries_with_lacs(scene)
    scene.reports_lac(0, 2)
    scene.checker.disk_loses("b0", lambda: scene.disks[0].disk.damage(LEDGER, 3))
    scene.reports_lac(0, 0)


def lac_that_was_never_durable(scene: Scene) -> None:
    keep_entries_with_lacs(scene)
    scene.checker.disk_loses("b0", lambda: scene.disks[0].disk.damage(LEDGER, 3))
    scene.reports_lac(0, 3)


def lac_that_falls_after_another_ledger_was_damaged(scene: Scene) -> None:
    scene.confirms(0, 1)
    scene.fences(0, last_add_confirmed=1)
    scene.history.ledger(8).payloads.append(b"q")
    scene.writes(0, {(8, 0): record(0, b"q", ledger_id=8)})
    scene.checker.disk_loses("b0", lambda: scene.disks[0].disk.damage(8, 0))
    scene.fences(0, last_add_confirmed=0)


CASES: list[tuple[Callable[[Scene], None], str]] = [
    (lac_above_what_completed, "reports 2 .* 1 completed"),
    (lac_that_falls, "reports 0 .* reported 1 before"),
    (lac_that_falls_in_the_read_of_a_fence, "reports 0 .* reported 1 before"),
    (lac_that_is_not_durable, "reports 1 .* -1 is durable"),
    (lac_of_a_record_that_is_not_durable, "reports 1 .* -1 is durable"),
    (lac_that_falls_after_another_record_was_damaged, "reports 1 .* reported 2 before"),
    (lac_that_falls_below_what_is_whole, "reports 0 .* reported 1 before"),
    (lac_that_was_never_durable, "reports 3 .* 2 is durable"),
    (lac_that_falls_after_another_ledger_was_damaged, "reports 0 .* reported 1 before"),
]


@pytest.mark.parametrize(("case", "message"), CASES, ids=[case.__name__ for case, _ in CASES])
def test_the_check_fires(case: Callable[[Scene], None], message: str) -> None:
    """CHK-6"""
    scene = Scene()
    with pytest.raises(Violation, match=message) as raised:
        case(scene)
    assert raised.value.item == "6", raised.value


@pytest.mark.parametrize("during_a_request", [False, True])
def test_lac_may_fall_once_to_the_undamaged_records(during_a_request: bool) -> None:
    """CHK-6: a LAC that a bookie reports from memory, after its record was damaged, does not bind it after eviction."""
    scene = Scene()
    keep_entries_with_lacs(scene)
    scene.reports_lac(0, 2)
    request = ledger_pb2.LastAddConfirmedRequest(ledger_id=LEDGER).SerializeToString()
    if during_a_request:
        scene.checker.request_arrived(scene.client, scene.b[0], "last_add_confirmed", request)
    scene.checker.disk_loses("b0", lambda: scene.disks[0].disk.damage(LEDGER, 3))
    if during_a_request:
        answer = ledger_pb2.LastAddConfirmedAnswer(status=ledger_pb2.OK, last_add_confirmed=1).SerializeToString()
        scene.checker.answer_sent(scene.b[0], scene.client, "last_add_confirmed", request, answer)
    else:
        scene.reports_lac(0, 2)
        scene.reports_lac(0, 1)
    with pytest.raises(Violation, match="reports 0 as the LAC"):
        scene.reports_lac(0, 0)
    scene.writes(0, {(LEDGER, 3): record(3, b"p3", 2)}, discarded=[(LEDGER, 3)])  # repaired
    scene.reports_lac(0, 2)
    with pytest.raises(Violation, match="reports 1 as the LAC"):
        scene.reports_lac(0, 1)
