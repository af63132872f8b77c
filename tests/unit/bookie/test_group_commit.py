"""Group commit: which adds form a group, when they are answered, and that none is after a failure."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_bookie.server.counters import BookieCounters
from magnetar_bookie.server.group_commit import GroupCommit
from magnetar_bookie.server.ledger_rules import CommittedGroup, LedgerRules
from magnetar_bookie.storage.interface import Changes, StorageFailed
from magnetar_protos.ledger_pb2 import Status
from magnetar_testing.clock import ManualClock
from tests.running import until
from tests.unit.bookie.bookie_client import KEY, record
from tests.unit.bookie.slow_disk import slow_disk

_SYNC_S = 2.0


class _Scene:
    """A disk on which a sync ends when the clock is moved."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.disk = slow_disk(self.clock)
        self.groups: list[int] = []
        self.disk.on_write = self._written
        self.answered: list[int] = []
        self.counters = BookieCounters()
        storage = self.disk.open()
        self.rules = LedgerRules(storage, 10)
        self.commit = GroupCommit(storage, self.rules, self._report, lambda: None, self.clock, self.counters)

    def add(self, entry_id: int) -> None:
        self.rules.add_run(1, KEY, entry_id, [record(1, entry_id)], False, self)
        self.commit.start_if_idle()

    def syncing(self) -> bool:
        return self.counters.syncing_since is not None

    def _written(self, changes: Changes) -> None:
        self.groups.append(len(changes.records))

    def _report(self, committed: CommittedGroup) -> None:
        self.answered += [result.first_entry_id for result in committed.results]


async def _turn() -> None:
    await asyncio.sleep(0)


async def test_adds_of_one_loop_iteration_form_one_group() -> None:
    scene = _Scene()
    for entry_id in range(3):
        scene.add(entry_id)
    assert scene.groups == []
    await _turn()
    assert scene.groups == [3]
    for entry_id in (3, 4):
        scene.add(entry_id)
        await _turn()
    assert scene.groups == [3]
    assert scene.syncing()
    # In the very turn that hears of the sync's end it is answered, and the next group leaves.
    scene.clock.advance(_SYNC_S)
    assert scene.answered == [0, 1, 2]
    assert scene.groups == [3, 2]
    scene.clock.advance(_SYNC_S)
    assert scene.answered == [0, 1, 2, 3, 4]
    assert not scene.syncing()
    scene.add(5)
    await _turn()
    assert scene.groups == [3, 2, 1]


async def test_nothing_is_answered_after_its_end_though_the_sync_succeeds() -> None:
    scene = _Scene()
    scene.add(0)
    await _turn()
    scene.add(1)
    waiting = asyncio.ensure_future(scene.commit.wait_durable(scene.rules.group))
    await _turn()
    scene.commit.close()
    scene.clock.advance(_SYNC_S)
    assert scene.groups == [1]
    assert scene.answered == []
    with pytest.raises(StorageFailed):
        await waiting


async def test_one_that_ends_before_its_turn_writes_nothing() -> None:
    scene = _Scene()
    scene.add(0)
    scene.commit.close()
    await _turn()
    assert scene.groups == []


async def test_response_failure_stops_group_commit() -> None:
    """What the others were to hear is not known any more: nothing is answered from then on."""
    scene = _Scene()
    failed = asyncio.ensure_future(scene.commit.wait_for_failure())

    def breaks(committed: CommittedGroup) -> None:
        raise ValueError("the results can't be sent")

    scene.commit._on_committed = breaks
    scene.add(0)
    await _turn()
    scene.clock.advance(_SYNC_S)
    await until(failed.done, "it has failed")
    assert isinstance(await failed, ValueError)
    scene.add(1)
    await _turn()
    assert scene.groups == [1]


@pytest.mark.parametrize("count", [1, 2, 5])
async def test_add_run_is_equivalent_to_adding_entries_singly(count: int) -> None:
    """Runs are put into the group as a whole, with the same records, LAC and memory as single entries."""
    runs, singles = _Scene(), _Scene()
    records = [record(1, entry_id) for entry_id in range(7, 7 + count)]
    for scene in (runs, singles):
        scene.add(0)
    runs.rules.add_run(1, KEY, 7, records, False, runs)
    for entry_id, one in enumerate(records, 7):
        singles.rules.add_run(1, KEY, entry_id, [one], False, singles)
    for scene in (runs, singles):
        assert scene.rules.list_pending_entry_ids(1) == [0, *range(7, 7 + count)]
        assert scene.rules.get_pending_record(1, 7) == records[0]
        assert scene.rules.get_highest_entry_id(1) == 6 + count
    assert runs.rules.group.changes == singles.rules.group.changes
    assert runs.rules.group.lacs == singles.rules.group.lacs
    assert runs.rules.pending_bytes == singles.rules.pending_bytes
    assert runs.commit.pending_entries == singles.commit.pending_entries == 1 + count
    await _turn()
    for scene in (runs, singles):
        scene.clock.advance(_SYNC_S)
        assert scene.rules.pending_bytes == 0
        assert scene.rules.list_pending_entry_ids(1) == []
        assert scene.rules.get_loaded_highest_entry_id(1) == -1
    assert runs.answered == [0, 7]
    assert singles.answered == [0, *range(7, 7 + count)]


async def test_run_of_which_one_is_bad_or_held_is_decided_on_one_by_one() -> None:
    scene = _Scene()
    scene.add(0)
    decided = scene.rules.add_run(1, KEY, 1, [record(1, 1), b"bad", record(1, 3)], False, scene)
    assert [(one.first_entry_id, one.count, one.status) for one in decided.results] == [(2, 1, Status.BAD_RECORD)]
    assert scene.rules.list_pending_entry_ids(1) == [0, 1, 3]
    decided = scene.rules.add_run(1, KEY, 2, [record(1, 2), record(1, 3, b"other"), record(1, 4)], False, scene)
    assert [(one.first_entry_id, one.count, one.status) for one in decided.results] == [(3, 1, Status.CONFLICT)]
    scene.rules.read_only = True
    decided = scene.rules.add_run(1, KEY, 5, [record(1, 5), record(1, 6)], False, scene)
    assert [(one.first_entry_id, one.count, one.status) for one in decided.results] == [(5, 2, Status.READ_ONLY)]
    assert scene.rules.add_run(1, KEY, 5, [record(1, 5), record(1, 6)], True, scene).results == []
    assert scene.rules.list_pending_entry_ids(1) == [0, 1, 3, 2, 4, 5, 6]
