"""Adds and fences on one bookie: which are accepted, and that they are durable when they are answered."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_bookie.server.group_commit_rules import CommitGroup
from magnetar_bookie.server.ledger_rules import LedgerRules
from magnetar_bookie.storage.interface import LedgerData
from magnetar_protos.ledger_pb2 import FenceAnswer, ReadAnswer, ReadRequest, Status
from magnetar_testing.clock import ManualClock
from magnetar_testing.randomness import SeededRandomness
from tests.running import until
from tests.sim.disk import SimulatedDisk
from tests.unit.bookie.bookie_client import KEY, OneBookie, record
from tests.unit.bookie.slow_disk import slow_disk, written

FENCED = LedgerData(master_key=KEY, fenced=True)


async def moving(clock: ManualClock, task: asyncio.Task[FenceAnswer] | asyncio.Task[ReadAnswer]) -> None:
    def done() -> bool:
        clock.advance(1)
        return task.done()

    await until(done, "the disk is done")


async def test_fenced_ledger_accepts_only_recovery_adds() -> None:
    """CHK-17: a recovery's or repair's write passes the fence, and nothing else does."""
    async with OneBookie() as one:
        assert await one.add_one(1, 0) == Status.OK
        assert (await one.fence(1)).status == Status.OK
        assert await one.add_one(1, 1) == Status.FENCED
        assert await one.confirm(1, 0) == Status.FENCED
        assert await one.add_one(1, 1, recovery=True) == Status.OK
        assert await one.add_one(1, 2) == Status.FENCED
        assert (await one.read(1, 0, 2)).absent == [2]


async def test_fence_of_a_ledger_never_seen_makes_it_fenced() -> None:
    """CHK-9: and it is still fenced after a crash, with the key of the fence."""
    async with OneBookie() as one:
        answer = await one.fence(7)
        assert (answer.status, answer.last_add_confirmed) == (Status.OK, -1)
        assert await one.add_one(7, 0) == Status.FENCED
        await one.crash()
        await one.start()
        assert await one.add_one(7, 0) == Status.FENCED
        assert (await one.fence(7, key=b"another")).status == Status.WRONG_KEY


async def test_recovery_read_fences_before_it_looks() -> None:
    """CHK-8: after any answer to a recovery read, ordinary adds of the ledger are refused."""
    async with OneBookie() as one:
        assert await one.add_one(1, 0) == Status.OK
        answer = await one.read(1, 1, fence=True)
        assert list(answer.absent) == [1]
        assert one.disk.durable_ledger(1) is not None
        assert await one.add_one(1, 1) == Status.FENCED
        assert list((await one.read(2, 0, fence=True)).absent) == [0]
        assert await one.add_one(2, 0) == Status.FENCED


async def test_fence_response_includes_entries_above_the_lac_on_request() -> None:
    """CHK-8: read after the fence; a bookie that is at too many reads leaves it out."""
    async with OneBookie() as one:
        for entry_id in range(3):
            assert await one.add_one(1, entry_id) == Status.OK
        assert not (await one.fence(1)).HasField("read")
        answer = await one.fence(1, read_entries=4)
        assert answer.last_add_confirmed == 1
        assert len(answer.read.records) == 1
        assert list(answer.read.absent) == [3, 4, 5]
        assert answer.read.next_entry_id == 6
        assert list((await one.fence(9, read_entries=1)).read.absent) == [0]
        one.bookie.requests.concurrent_reads = one.bookie.settings.max_concurrent_reads
        answer = await one.fence(1, read_entries=4)
        assert (answer.status, answer.HasField("read")) == (Status.OK, False)


async def test_fence_response_is_read_after_the_fence_is_durable() -> None:
    """CHK-8, CHK-10: or an entry could be added that its answer has called absent."""
    async with OneBookie() as one:
        read, fenced = one.bookie.requests._read, []

        async def watched(request: ReadRequest) -> ReadAnswer | bytes:
            fenced.append(one.disk.durable_ledger(1) == FENCED)
            return await read(request)

        one.bookie.requests._read = watched  # type: ignore[method-assign]
        await one.fence(1, read_entries=1)
        assert fenced == [True]


@pytest.mark.parametrize("by_read", [False, True])
async def test_fence_is_durable_before_it_is_answered(by_read: bool) -> None:
    """CHK-10: with nothing else to be written, and each time: a second fence waits for the first one's sync."""
    clock = ManualClock()
    disk = slow_disk(clock)
    one = await OneBookie(disk=disk, clock=clock).start()

    async def ask() -> Status:
        return (await one.read(1, 0, fence=True)).status if by_read else (await one.fence(1)).status

    first = asyncio.create_task(ask())
    await written(disk)
    second = asyncio.create_task(ask())
    await one.last_add_confirmed(99)  # answered after the second fence came in
    assert not first.done()
    assert not second.done()
    assert disk.durable_ledger(1) is None
    durable: list[bool] = []
    for task in (first, second):
        task.add_done_callback(lambda _: durable.append(disk.durable_ledger(1) == FENCED))
    while len(durable) < 2:
        clock.advance(1)
        await asyncio.sleep(0)
    assert durable == [True, True]
    disk.crash()
    assert disk.open().get_ledger(1) == FENCED
    await one.stop()


async def test_add_behind_a_fence_that_is_not_durable_yet_is_refused() -> None:
    """CHK-11: the fence counts from when it is put in line, and its answer comes after those of the adds before it."""
    clock = ManualClock()
    disk = slow_disk(clock)
    async with OneBookie(disk=disk, clock=clock) as one:
        order: list[str] = []
        before = asyncio.create_task(one.add_one(1, 0))
        before.add_done_callback(lambda _: order.append("add"))
        await written(disk)
        fence = asyncio.create_task(one.fence(1))
        fence.add_done_callback(lambda _: order.append("fence"))
        # Nothing becomes durable before the clock moves: this is refused by what is in line.
        await one.last_add_confirmed(99)
        assert await one.add_one(1, 1) == Status.FENCED
        assert not fence.done()
        await moving(clock, fence)
        assert await before == Status.OK
        assert order == ["add", "fence"]


async def test_add_waiting_for_a_read_is_refused_when_fenced() -> None:
    """CHK-11: between the check that counts and the line there is no waiting, in this path either."""
    clock = ManualClock()
    disk = slow_disk(clock)
    async with OneBookie(disk=disk, clock=clock) as one:
        add = asyncio.create_task(one.add_one(1, 0))
        while not add.done():
            clock.advance(1)
            await asyncio.sleep(0)
        disk.damage(1, 0)
        again = asyncio.create_task(one.add_one(1, 0))
        for _ in range(50):
            await asyncio.sleep(0)  # it waits for the disk
        assert not again.done()
        fence = asyncio.create_task(one.fence(1))
        await moving(clock, fence)
        while not again.done():
            clock.advance(1)
            await asyncio.sleep(0)
        assert await again == Status.FENCED


def test_rules_take_adds_and_fences_in_one_step() -> None:
    """CHK-11: by the rules alone: an add is in the fence's group or an earlier one, or it is refused."""
    disk = SimulatedDisk(ManualClock(), SeededRandomness(1))
    rules = LedgerRules(disk.open(), 100)
    assert rules.add_run(1, KEY, 0, [record(1, 0)], False, "source").results == []
    first = rules.take_group()
    assert rules.add_run(1, KEY, 1, [record(1, 1)], False, "source").results == []
    status, group = rules.fence(1, KEY)
    assert status == Status.OK
    assert isinstance(group, CommitGroup)
    (refused,) = rules.add_run(1, KEY, 2, [record(1, 2)], False, "source").results
    assert refused.status == Status.FENCED
    assert list(first.changes.records) == [(1, 0)]
    assert list(group.changes.records) == [(1, 1)]
    assert group.changes.ledgers[1].fenced
    assert rules.take_group() is group


async def test_write_after_fence_and_delete_fails() -> None:
    """CHK-27: ordinary or recovery, now or after a crash."""
    async with OneBookie() as one:
        assert await one.add_one(1, 0) == Status.OK
        await one.fence(1)
        await one.bookie.delete_ledger(1)
        for _ in range(2):
            assert await one.add_one(1, 0) == Status.DELETED
            assert await one.add_one(1, 1, recovery=True) == Status.DELETED
            assert await one.confirm(1, 0) == Status.DELETED
            assert (await one.fence(1)).status == Status.DELETED
            assert (await one.read(1, 0)).status == Status.DELETED
            assert (await one.inventory(1, 0, 1)).status == Status.DELETED
            assert (await one.last_add_confirmed(1)).status == Status.DELETED
            assert one.disk.durable_entry_ids(1) == []
            await one.crash()
            await one.start()


async def test_adds_in_line_when_their_ledger_is_deleted_are_not_written_behind_it() -> None:
    """CHK-27: storage drops first and writes then, so what gathered in one group with the tombstone must go."""
    clock = ManualClock()
    disk = slow_disk(clock)
    async with OneBookie(disk=disk, clock=clock) as one:
        in_flight = asyncio.create_task(one.add_one(1, 0))
        await written(disk)
        gathering = asyncio.create_task(one.add_one(1, 1))
        other = asyncio.create_task(one.add_one(2, 0))
        await one.last_add_confirmed(99)
        for _ in range(50):
            await asyncio.sleep(0)
        deletion = asyncio.create_task(one.bookie.delete_ledger(1))
        while not (deletion.done() and gathering.done() and other.done()):
            clock.advance(1)
            await asyncio.sleep(0)
        assert await in_flight == Status.OK
        assert await gathering == Status.DELETED
        assert await other == Status.OK
        assert disk.durable_entry_ids(1) == []
        assert disk.durable_entry_ids(2) == [0]
