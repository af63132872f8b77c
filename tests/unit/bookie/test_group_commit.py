"""Groups on their way to the disk: what is one, when it is answered, and that nothing is once it is over."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_bookie.core.counters import BookieCounters
from magnetar_bookie.core.ledger_replicas import Durable, LedgerReplicas
from magnetar_bookie.server.group_commit import GroupCommit
from magnetar_bookie.storage.interface import Changes, StorageFailed
from magnetar_wire.clock import ManualClock
from tests.running import run, until
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
        self.replicas = LedgerReplicas(storage, 10)
        self.commit = GroupCommit(storage, self.replicas, self._durable, lambda: None, self.clock, self.counters)

    def add(self, entry_id: int) -> None:
        self.replicas.add_run(1, KEY, entry_id, [record(1, entry_id)], False, self)
        self.commit.kick()

    def syncing(self) -> bool:
        return self.counters.syncing_since is not None

    def _written(self, changes: Changes) -> None:
        self.groups.append(len(changes.records))

    def _durable(self, durable: Durable) -> None:
        self.answered += [answer.first_entry_id for answer in durable.answers]


async def _turn() -> None:
    await asyncio.sleep(0)


def test_all_that_comes_in_one_turn_is_one_group_and_what_comes_later_the_next() -> None:
    async def test() -> None:
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

    run(test())


def test_nothing_is_answered_after_its_end_though_the_sync_succeeds() -> None:
    async def test() -> None:
        scene = _Scene()
        scene.add(0)
        await _turn()
        scene.add(1)
        waiting = asyncio.ensure_future(scene.commit.durable(scene.replicas.group))
        await _turn()
        scene.commit.close()
        scene.clock.advance(_SYNC_S)
        assert scene.groups == [1]
        assert scene.answered == []
        with pytest.raises(StorageFailed):
            await waiting

    run(test())


def test_one_that_ends_before_its_turn_writes_nothing() -> None:
    async def test() -> None:
        scene = _Scene()
        scene.add(0)
        scene.commit.close()
        await _turn()
        assert scene.groups == []

    run(test())


def test_whatever_goes_wrong_in_answering_ends_it() -> None:
    """What the others were to hear is not known any more: nothing is answered from then on."""

    async def test() -> None:
        scene = _Scene()
        failed = asyncio.ensure_future(scene.commit.wait_failed())

        def breaks(durable: Durable) -> None:
            raise ValueError("nobody can be told")

        scene.commit._durable = breaks
        scene.add(0)
        await _turn()
        scene.clock.advance(_SYNC_S)
        await until(failed.done, "it has failed")
        assert isinstance(await failed, ValueError)
        scene.add(1)
        await _turn()
        assert scene.groups == [1]

    run(test())
