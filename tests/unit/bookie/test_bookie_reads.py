"""Reads from one bookie: its answers for entries that it has, lacks, may have lost or has damaged, and the LAC."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf.message import Message

from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_bookie.storage.interface import Changes, Damaged, LedgerData
from magnetar_protos.ledger_pb2 import (
    ConfirmAnswer,
    ConfirmRequest,
    FenceAnswer,
    FenceRequest,
    InventoryAnswer,
    InventoryRequest,
    ReadAnswer,
    ReadRequest,
    Status,
)
from magnetar_testing.clock import ManualClock
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.transport import Code, Rejected, TransportError
from tests.running import until, within
from tests.unit.bookie.bookie_client import KEY, OneBookie, record
from tests.unit.bookie.slow_disk import slow_disk, written


class _Lowest(SeededRandomness):
    """Draws the lowest always: of what a crash finds unsynced, nothing survives."""

    def __init__(self) -> None:
        super().__init__(0)
        self.below = lambda *_: 0


NOTHING_SURVIVES = _Lowest()


async def filled(one: OneBookie, ledger_id: int, *entry_ids: int) -> None:
    statuses = await one.add(ledger_id, *((entry_id, record(ledger_id, entry_id)) for entry_id in entry_ids))
    assert statuses == [Status.OK] * len(entry_ids)


async def test_unreadable_entries_are_never_reported_absent() -> None:
    """CHK-15: neither a record whose bits flipped nor one that the disk can't give is "no such entry"."""
    async with OneBookie() as one:
        await filled(one, 1, 0, 1, 2, 4)
        one.disk.damage(1, 0, unreadable=True)
        one.disk.damage(1, 2, unreadable=False)
        answer = await one.read(1, 0, 5)
        assert list(answer.records) == [record(1, 1), record(1, 4)]
        assert list(answer.damaged) == [0, 2]
        assert list(answer.absent) == [3, 5]
        assert answer.next_entry_id == 6
        assert list((await one.read(1, 0, 5, fence=True)).damaged) == [0, 2]


async def test_possibly_lost_entries_are_unknown_until_restored() -> None:
    """CHK-22: a bookie that lost synced data takes no ordinary adds to the ledgers before, and denies no entry."""
    one = await OneBookie().start()
    await filled(one, 1, 0)
    await filled(one, 1, 1)
    one.disk.lose_synced(1)
    await one.stop()
    await one.start()
    storage = one.bookie.storage
    assert not storage.is_intact
    await one.bookie.enter_limbo(5)
    answer = await one.read(1, 0, 1, fence=True)
    assert list(answer.records) == [record(1, 0)]
    assert (list(answer.unknown), list(answer.absent)) == ([1], [])
    assert list((await one.read(4, 0)).unknown) == [0]
    assert await one.add_one(4, 0) == Status.LIMBO
    assert await one.confirm(4, 0) == Status.LIMBO
    assert await one.add_one(5, 0) == Status.OK
    assert list((await one.read(5, 1)).absent) == [1]
    await one.crash()
    await one.start()
    storage = one.bookie.storage
    assert storage.is_intact
    assert one.bookie.is_in_limbo(1), "limbo outlives a restart"
    assert await one.add_one(1, 1, recovery=True) == Status.OK
    await one.bookie.clear_limbo(1)
    assert list((await one.read(1, 2)).absent) == [2]
    assert list((await one.read(4, 0)).unknown) == [0]
    await one.bookie.enter_limbo(5)
    assert list((await one.read(1, 2)).unknown) == [2], "what was made good before this loss may be lost again"
    await one.stop()


async def test_limbo_ends_for_a_read_with_the_next_one() -> None:
    """CHK-22: a read that started in limbo answers "unknown", although the ledger is repaired while it waits."""
    clock = ManualClock()
    disk = slow_disk(clock)
    async with OneBookie(disk=disk, clock=clock) as one:
        add = asyncio.create_task(filled(one, 1, 0))
        while not add.done():
            clock.advance(1)
            await asyncio.sleep(0)
        limbo = asyncio.create_task(one.bookie.enter_limbo(5))
        while not limbo.done():
            clock.advance(1)
            await asyncio.sleep(0)
        reading = asyncio.create_task(one.read(1, 0, 1))
        for _ in range(50):
            await asyncio.sleep(0)
        one.bookie._rules.clear_limbo(1)
        while not reading.done():
            clock.advance(1)
            await asyncio.sleep(0)
        assert list((await reading).unknown) == [1]


async def test_answers_are_bounded_in_ids_and_bytes() -> None:
    async with OneBookie(BookieServerSettings(max_ids_per_answer=10)) as one:
        await filled(one, 1, *range(30))
        size = len(record(1, 0))
        assert (await one.read(1, 0, 29)).next_entry_id == 10
        answer = await one.read(1, 0, 29, step=3, max_bytes=2 * size)
        assert (len(answer.records), answer.next_entry_id) == (2, 6)
        answer = await one.read(1, 25, 29, max_bytes=1)
        assert (len(answer.records), answer.next_entry_id) == (1, 26), "the first one always fits"
        huge = 2**63 - 2
        answer = await one.read(1, 40, huge, step=2**32 - 1)
        assert len(answer.absent) == 10
        assert answer.next_entry_id == 40 + 10 * (2**32 - 1)
        assert list((await one.read(1, huge)).absent) == [huge]


async def test_request_memory_is_bounded_for_records_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small records that go before say nothing of those that follow, and what is added nothing of what is held."""
    settings = BookieServerSettings(max_read_bytes=1_000_000, max_inventory_bytes=1_000_000)
    async with OneBookie(settings) as one:
        large = [record(1, entry_id, b"x" * 400_000) for entry_id in range(2, 40)]
        storage = one.bookie.storage
        held = [record(1, 0), record(1, 1), *large]
        storage.write(
            Changes(
                records={(1, entry_id): held_one for entry_id, held_one in enumerate(held)},
                ledgers={1: LedgerData(KEY)},
            )
        )
        await storage.sync()
        taken: list[int] = []
        read = storage.read

        async def watched(ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> list[bytes | Damaged | None]:
            found = await read(ledger_id, entry_ids, max_bytes)
            taken.append(sum(len(found_one) for found_one in found if isinstance(found_one, bytes)))
            return found

        monkeypatch.setattr(storage, "read", watched)
        answer = await one.read(1, 0, 39)
        assert list(answer.records) == held[:4]
        assert answer.next_entry_id == 4
        assert (await one.inventory(1, 0, 39)).next_entry_id == 4
        others = [(entry_id, record(1, entry_id, b"another")) for entry_id in range(40)]
        assert await one.add(1, *others) == [Status.CONFLICT] * 40
        assert len(taken) > 10
        assert max(taken) < 1_048_576 + 410_000


@pytest.mark.parametrize("step", [1, 2, 3, 7])
async def test_reading_on_gives_every_entry_once(step: int) -> None:
    async with OneBookie(BookieServerSettings(max_ids_per_answer=5, max_read_bytes=100)) as one:
        held = [entry_id for entry_id in range(60) if entry_id % 4]
        await filled(one, 1, *held)
        records, at = 0, 0
        absent: list[int] = []
        while at <= 70:
            answer = await one.read(1, at, 70, step=step)
            records += len(answer.records)
            absent += answer.absent
            assert answer.next_entry_id > at
            at = answer.next_entry_id
        entry_ids = range(0, 71, step)
        assert absent == [entry_id for entry_id in entry_ids if entry_id not in held]
        assert records == len(entry_ids) - len(absent)


async def test_records_in_line_can_be_read() -> None:
    clock = ManualClock()
    disk = slow_disk(clock)
    async with OneBookie(disk=disk, clock=clock) as one:
        adds = [asyncio.create_task(one.add_one(1, 0))]
        await written(disk)
        adds.append(asyncio.create_task(one.add_one(1, 1)))
        for _ in range(50):
            await asyncio.sleep(0)
        reading = asyncio.create_task(one.read(1, 0, 1))
        for _ in range(50):
            await asyncio.sleep(0)
        assert list((await within(reading, "the read")).records) == [record(1, 0), record(1, 1)]
        while not all(add.done() for add in adds):
            clock.advance(1)
            await asyncio.sleep(0)


async def test_malformed_requests_are_refused() -> None:
    async def refused(one: OneBookie, method: str, request: Message, answer: type[Message]) -> None:
        with pytest.raises(Rejected) as refusal:
            await one.call(method, request, answer)
        assert refusal.value.code in (Code.INVALID_ARGUMENT, Code.UNIMPLEMENTED)

    async with OneBookie() as one:
        await refused(one, "read", ReadRequest(ledger_id=1, first_entry_id=2, last_entry_id=1), ReadAnswer)
        await refused(one, "read", ReadRequest(ledger_id=1, last_entry_id=2**63), ReadAnswer)
        await refused(one, "inventory", InventoryRequest(ledger_id=1, last_entry_id=2**64 - 1), InventoryAnswer)
        await refused(one, "confirm", ConfirmRequest(ledger_id=1, last_add_confirmed=-2), ConfirmAnswer)
        await refused(one, "nonsense", ReadRequest(ledger_id=1), ReadAnswer)
        for no_ledger in (0, 2**63, 2**64 - 1):
            await refused(one, "fence", FenceRequest(ledger_id=no_ledger, master_key=KEY), FenceAnswer)
            await refused(one, "confirm", ConfirmRequest(ledger_id=no_ledger, master_key=KEY), ConfirmAnswer)
            assert one.disk.durable_ledger(no_ledger) is None
        with pytest.raises(Rejected):
            await one._connection.call("read", b"\xff\xff", timeout_s=60)


async def test_reads_at_a_time_are_bounded() -> None:
    clock = ManualClock()
    disk = slow_disk(clock)
    async with OneBookie(BookieServerSettings(max_concurrent_reads=2), disk, clock) as one:
        add = asyncio.create_task(filled(one, 1, 0))
        while not add.done():
            clock.advance(1)
            await asyncio.sleep(0)
        reads = [asyncio.create_task(one.read(1, 0)) for _ in range(3)]
        await until(lambda: reads[2].done(), "the third is refused")
        with pytest.raises(Rejected) as refusal:
            await reads[2]
        assert refusal.value.code is Code.RESOURCE_EXHAUSTED
        while not (reads[0].done() and reads[1].done()):
            clock.advance(1)
            await asyncio.sleep(0)
        assert (await reads[0]).records


async def test_inventory_lists_only_undamaged_entries() -> None:
    async with OneBookie() as one:
        await filled(one, 1, 0, 1, 2, 3, 5, 9)
        one.disk.damage(1, 2)
        answer = await one.inventory(1, 0, 20)
        held = [(entries.first_entry_id, entries.last_entry_id) for entries in answer.held]
        assert held == [(0, 1), (3, 3), (5, 5), (9, 9)]
        assert answer.next_entry_id == 21
        assert list((await one.inventory(9, 0, 20)).held) == []


async def test_inventory_excludes_entries_that_are_not_durable() -> None:
    """A repairer would take the replica away elsewhere, and a crash here the one that it counted on."""
    clock = ManualClock()
    disk = slow_disk(clock)
    async with OneBookie(disk=disk, clock=clock) as one:
        adding = asyncio.create_task(one.add_one(1, 0))
        await written(disk)
        assert (await one.read(1, 0)).records == [record(1, 0)]
        assert list((await one.inventory(1, 0, 9)).held) == []
        while not adding.done():
            clock.advance(1)
            await asyncio.sleep(0)
        asking = asyncio.create_task(one.inventory(1, 0, 9))
        while not asking.done():
            clock.advance(1)
            await asyncio.sleep(0)
        assert [(held.first_entry_id, held.last_entry_id) for held in asking.result().held] == [(0, 0)]


async def test_inventory_is_bounded_and_can_be_continued() -> None:
    settings = BookieServerSettings(max_inventory_bytes=200, max_ids_per_answer=7)
    async with OneBookie(settings) as one:
        entry_ids = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 50, 51, 1000]
        await filled(one, 1, *entry_ids)
        found: list[int] = []
        at = answers = 0
        while at <= 2000:
            answer = await one.inventory(1, at, 2000)
            for entries in answer.held:
                found += range(entries.first_entry_id, entries.last_entry_id + 1)
            at = answer.next_entry_id
            answers += 1
        assert found == entry_ids
        assert answers > 2


async def test_lac_is_reported_when_durable_and_never_falls() -> None:
    """CHK-6: from records and explicit, over restarts in which what was not synced is lost."""
    clock = ManualClock()
    disk = slow_disk(clock)
    one = await OneBookie(disk=disk, clock=clock).start()

    async def done(task: asyncio.Task[Any]) -> None:
        while not task.done():
            clock.advance(1)
            await asyncio.sleep(0)

    async def reported_lac() -> int:
        asking = asyncio.create_task(one.last_add_confirmed(1))
        await done(asking)
        return asking.result().last_add_confirmed

    assert (await one.last_add_confirmed(1)).last_add_confirmed == -1
    highest = -1
    for entry_id in range(6):
        explicit = entry_id % 2
        adding = asyncio.create_task(one.confirm(1, entry_id) if explicit else one.add_one(1, entry_id))
        await written(disk)
        asking = asyncio.create_task(one.last_add_confirmed(1))
        for _ in range(50):
            await asyncio.sleep(0)
        if asking.done():
            assert asking.result().last_add_confirmed == highest, "not durable yet"
        await done(adding)
        await done(asking)
        assert await reported_lac() == (entry_id if explicit else entry_id - 1)
        highest = await reported_lac()
        # An add that is lost with the crash: its LAC must not have been reported.
        lost = asyncio.create_task(one.add_one(1, 100 + entry_id))
        await written(disk)
        assert (await one.last_add_confirmed(1)).last_add_confirmed == highest
        disk.randomness = NOTHING_SURVIVES
        await one.crash()
        with pytest.raises(TransportError):
            await lost
        await one.start()
        assert await reported_lac() == highest

    await one.stop()


async def test_lac_is_derived_without_the_damaged_last_record() -> None:
    """CHK-6"""
    async with OneBookie() as one:
        await filled(one, 1, 0, 1, 2, 3)
        assert await one.confirm(1, 1) == Status.OK
        one.disk.damage(1, 3)
        await one.crash()
        await one.start()
        assert (await one.last_add_confirmed(1)).last_add_confirmed == 1
        assert await one.confirm(1, 0) == Status.OK
        assert (await one.last_add_confirmed(1)).last_add_confirmed == 1
        await filled(one, 2, 0, 4, 5)
        one.disk.damage(2, 5)
        await one.crash()
        await one.start()
        assert (await one.last_add_confirmed(2)).last_add_confirmed == 3, "the record below has this LAC"


@pytest.mark.parametrize("explicit", [False, True])
async def test_long_poll_wakes_when_the_last_add_confirmed_rises(explicit: bool) -> None:
    clock = ManualClock()
    disk = slow_disk(clock)
    async with OneBookie(disk=disk, clock=clock) as one:
        add = asyncio.create_task(filled(one, 1, 0, 1))
        while not add.done():
            clock.advance(1)
            await asyncio.sleep(0)
        poll = asyncio.create_task(one.last_add_confirmed(1, above=0, wait_ms=60_000))
        other = asyncio.create_task(one.last_add_confirmed(1, above=5, wait_ms=60_000))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not poll.done()
        raising = asyncio.create_task(one.confirm(1, 1) if explicit else one.add_one(1, 2))
        began = clock.monotonic()
        while not (poll.done() and raising.done()):
            clock.advance(1)
            await asyncio.sleep(0)
        assert clock.monotonic() - began < 30
        assert (await poll).last_add_confirmed == 1
        assert not other.done()
        clock.advance(60)
        assert (await other).last_add_confirmed == 1


async def test_long_polls_are_bounded_and_end_when_the_ledger_is_deleted() -> None:
    async with OneBookie(BookieServerSettings(max_long_polls=1)) as one:
        await filled(one, 1, 0)
        waiting = asyncio.create_task(one.last_add_confirmed(1, above=5, wait_ms=50_000))
        await until(lambda: one.bookie._polls._count == 1, "one waits")
        assert (await one.last_add_confirmed(1, above=5, wait_ms=50_000)).last_add_confirmed == -1
        await one.bookie.delete_ledger(1)
        assert (await within(waiting, "the poll", 20)).status == Status.DELETED


async def test_long_poll_waits_no_longer_than_the_bookie_allows() -> None:
    clock = ManualClock()
    async with OneBookie(BookieServerSettings(max_long_poll_ms=2000), clock=clock) as one:
        poll = asyncio.create_task(one.last_add_confirmed(1, above=0, wait_ms=2**32 - 1))
        await until(lambda: one.bookie._polls._count == 1, "it waits")
        clock.advance(2)
        assert (await within(poll, "the answer")).last_add_confirmed == -1
