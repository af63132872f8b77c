"""Adds to one bookie: what is taken twice, what is refused, what is damaged, and a disk that fails or is full."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import pytest

from magnetar_bookie.server.ledger_rules import LedgerRules
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_bookie.storage.interface import Changes, LedgerData, StorageFailed
from magnetar_protos.frame_pb2 import Frame
from magnetar_protos.ledger_pb2 import AddAnswers, AddRequest, AddRun, Status
from magnetar_testing.clock import ManualClock
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import SystemClock
from magnetar_wire.frame import FrameBuilder
from magnetar_wire.transport import Code, Disconnected, Failed, Peer, Rejected, Stream, TransportError
from tests.running import until, within
from tests.sim.disk import SimulatedDisk
from tests.unit.bookie.bookie_client import KEY, NO_LATENCY, OneBookie, add_request, record
from tests.unit.bookie.slow_disk import slow_disk, written

T = TypeVar("T")


async def test_same_entry_again_is_ok_and_another_one_is_a_conflict() -> None:
    """CHK-4: one entry id never stands for two payloads, whether the first is in line, durable, or from before."""
    async with OneBookie() as one:
        entry, other = record(1, 0), record(1, 0, b"another entry")
        assert sorted(await one.add(1, (0, entry), (0, entry), (0, other))) == [
            Status.OK,
            Status.OK,
            Status.CONFLICT,
        ]
        assert await one.add(1, (0, entry)) == [Status.OK]
        assert await one.add(1, (0, other)) == [Status.CONFLICT]
        await one.crash()
        await one.start()
        assert await one.add(1, (0, entry)) == [Status.OK]
        assert await one.add(1, (0, other), recovery=True) == [Status.CONFLICT]
        assert list((await one.read(1, 0)).records) == [entry]


async def test_repeated_add_is_answered_when_the_first_copy_is_durable() -> None:
    clock = ManualClock()
    disk = slow_disk(clock)
    async with OneBookie(disk=disk, clock=clock) as one:
        first = asyncio.create_task(one.add_one(1, 0))
        await written(disk)
        second = asyncio.create_task(one.add_one(1, 0))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not second.done()
        while not (first.done() and second.done()):
            assert disk.durable_record(1, 0) is None
            clock.advance(1)
            for _ in range(50):
                await asyncio.sleep(0)
        assert (await first, await second) == (Status.OK, Status.OK)


async def test_invalid_records_are_refused() -> None:
    async with OneBookie() as one:
        good = record(1, 0)
        flipped = good[:-1] + bytes([good[-1] ^ 1])
        for bad in (flipped, record(1, 1), record(2, 0), good[:20], b""):
            assert await one.add(1, (0, bad)) == [Status.BAD_RECORD]
        largest = 2**64 - 1
        assert await one.add(1, (largest, record(1, largest, last_add_confirmed=0))) == [Status.BAD_RECORD]
        assert one.disk.durable_ledger(1) is None
        for no_ledger in (0, 2**63, 2**64 - 1):
            assert await one.add_one(no_ledger, 0) == Status.BAD_RECORD
            assert one.disk.durable_ledger(no_ledger) is None


async def test_refusals_are_looked_for_in_one_order() -> None:
    """Each ledger below has one reason less than the one before it."""
    async with OneBookie() as one:
        bookie = one.bookie
        for ledger_id in (1, 2, 3, 4):
            assert await one.add_one(ledger_id, 0) == Status.OK
        await one.fence(1)
        await one.fence(3)
        await bookie.enter_limbo(4)
        await bookie.clear_limbo(3)
        await bookie.delete_ledger(1)
        bookie.read_only = True
        assert await one.add(1, (1, b"no record"), key=b"wrong") == [Status.BAD_RECORD]
        assert await one.add_one(1, 1, key=b"wrong") == Status.DELETED
        assert await one.add_one(2, 1, key=b"wrong") == Status.WRONG_KEY
        assert await one.add_one(2, 1) == Status.LIMBO
        assert await one.add_one(3, 1) == Status.FENCED
        assert await one.add_one(4, 1) == Status.READ_ONLY
        assert await one.add_one(2, 1, recovery=True) == Status.OK
        bookie.read_only = False
        assert await one.add_one(4, 1) == Status.OK
        assert await one.add_one(5, 0, key=b"") == Status.WRONG_KEY
        assert await one.add_one(5, 0, key=b"k" * 65) == Status.WRONG_KEY


async def test_read_only_bookie_confirms_stored_entries_and_refuses_new() -> None:
    """Its disk is full, or it leaves: what lies on it counts for an ack quorum as before."""
    clock = ManualClock()
    disk = slow_disk(clock)
    async with OneBookie(disk=disk, clock=clock) as one:

        async def done(work: Awaitable[T]) -> T:
            task = asyncio.ensure_future(work)
            while not task.done():
                clock.advance(1)
                await asyncio.sleep(0)
            return await task

        both = (0, record(1, 0)), (1, record(1, 1))
        assert await done(one.add(1, *both)) == [Status.OK] * 2
        assert await done(one.confirm(1, 0)) == Status.OK
        disk.damage(1, 1)
        in_line = asyncio.create_task(one.add_one(1, 2))
        await written(disk)
        one.bookie.read_only = True
        again = asyncio.create_task(one.add_one(1, 2))
        assert await done(in_line) == Status.OK
        assert await done(again) == Status.OK
        assert await done(one.add(1, *both)) == [Status.OK, Status.READ_ONLY], "the second is damaged"
        assert await done(one.add(1, (0, record(1, 0, b"other")))) == [Status.CONFLICT]
        assert await done(one.add(1, *both, (3, record(1, 3)))) == [Status.OK, Status.READ_ONLY, Status.READ_ONLY]
        assert await done(one.confirm(1, 0)) == Status.OK
        assert await done(one.confirm(1, 1)) == Status.READ_ONLY
        assert await done(one.confirm(9, 1)) == Status.READ_ONLY
        assert disk.durable_ledger(9) is None
        recovered = [Status.OK] * 3
        assert await done(one.add(1, *both, (3, record(1, 3)), recovery=True)) == recovered
        assert list((await done(one.read(1, 0, 4))).records) == [record(1, entry_id) for entry_id in range(4)]


async def test_damaged_record_is_written_again() -> None:
    async with OneBookie() as one:
        for entry_id in range(2):
            await one.add_one(1, entry_id)
            one.disk.damage(1, entry_id, unreadable=bool(entry_id))
        assert list((await one.read(1, 0, 1)).damaged) == [0, 1]
        assert await one.add(1, (0, record(1, 0)), (1, record(1, 1)), recovery=True) == [Status.OK] * 2
        await one.crash()
        await one.start()
        assert list((await one.read(1, 0, 1)).records) == [record(1, 0), record(1, 1)]
        assert await one.add(1, (0, record(1, 0, b"other"))) == [Status.CONFLICT]


async def test_failed_sync_ends_it_all() -> None:
    """CHK-21: nothing is answered after it, neither what waited for it nor anything new; it is not tried again."""
    one = await OneBookie().start()
    assert await one.add_one(1, 0) == Status.OK
    stream = one.adds()
    waiting = asyncio.create_task(stream.receive())
    one.disk.fail_next_sync()
    await stream.send(add_request(1, [(1, record(1, 1))], KEY, recovery=False))
    assert isinstance(await within(one.bookie.wait_for_failure(), "the failure"), StorageFailed)
    assert not waiting.done()
    synced: list[object] = []
    one.disk.on_write = synced.append
    with pytest.raises(Failed):
        await one.fence(1)
    with pytest.raises(Failed):
        await one.read(1, 0)
    with pytest.raises(Failed):
        await one.add_one(1, 2)
    assert synced == []
    await one.stop()
    with pytest.raises(TransportError):
        await waiting
    await one.start()
    assert await one.add_one(1, 1) == Status.OK
    await one.stop()


async def test_calls_that_wait_for_a_sync_that_fails_break_off() -> None:
    """CHK-21"""
    one = await OneBookie().start()
    one.disk.fail_next_sync()
    with pytest.raises(Failed):
        await one.fence(1)
    assert one.bookie.failure is not None
    await one.stop()


async def test_full_disk_refuses_records_but_accepts_fences() -> None:
    clock = ManualClock()
    disk = slow_disk(clock)
    async with OneBookie(disk=disk, clock=clock) as one:
        first = asyncio.create_task(one.add_one(1, 0))
        await written(disk)
        disk.fill()
        # One group: a record of the same ledger, its fence, and a damaged-free repeat of the record.
        second = asyncio.create_task(one.add_one(1, 1))
        repeated = asyncio.create_task(one.add_one(1, 1))
        for _ in range(50):
            await asyncio.sleep(0)
        fence = asyncio.create_task(one.fence(1))
        while not (second.done() and repeated.done() and fence.done()):
            clock.advance(1)
            await asyncio.sleep(0)
        assert await first == Status.OK
        assert (await second, await repeated) == (Status.READ_ONLY, Status.READ_ONLY)
        assert (await fence).status == Status.OK
        assert (disk.durable_ledger(1) or pytest.fail("the fence is lost")).fenced
        assert one.bookie.read_only
        assert disk.durable_entry_ids(1) == [0]


async def test_full_bookie_accepts_entries_after_garbage_collection() -> None:
    async with OneBookie() as one:
        assert await one.add_one(1, 0) == Status.OK
        one.disk.fill()
        changes: list[bool] = []
        one.bookie.add_read_only_listener(lambda: changes.append(one.bookie.read_only))
        assert await one.add_one(2, 0) == Status.READ_ONLY
        assert one.bookie.read_only_reasons == ["its disk is full"]
        await one.bookie.delete_ledger(1)
        assert await one.add_one(2, 0) == Status.OK
        assert changes == [True, False]


async def test_full_bookie_accepts_entries_after_disk_space_is_freed() -> None:
    clock, disk = ManualClock(), SimulatedDisk(SystemClock(), SeededRandomness(1), NO_LATENCY)
    async with OneBookie(BookieServerSettings(disk_check_interval_seconds=10), disk, clock) as one:
        assert await one.add_one(1, 0) == Status.OK
        one.disk.fill()
        assert await one.add_one(1, 1) == Status.READ_ONLY
        clock.advance(30)
        assert one.bookie.read_only_reasons == ["its disk is full"]
        one.disk.capacity_bytes = None
        clock.advance(10)
        assert one.bookie.read_only_reasons == []
        assert await one.add_one(1, 1) == Status.OK


async def test_damaged_entry_on_a_full_disk_is_not_reported_absent() -> None:
    """CHK-15: a damaged record stays damaged if there is no space for its replacement."""
    async with OneBookie() as one:
        await one.add_one(1, 0)
        one.disk.damage(1, 0, unreadable=False)
        one.disk.fill()
        assert await one.add_one(1, 0, recovery=True) == Status.READ_ONLY
        answer = await one.read(1, 0)
        assert (list(answer.damaged), list(answer.absent)) == ([0], [])


async def test_stream_is_not_read_on_while_too_much_is_in_line() -> None:
    clock = ManualClock()
    disk = slow_disk(clock)
    async with OneBookie(BookieServerSettings(max_pending_bytes=1000), disk, clock) as one:
        stream = one.adds()
        taken: list[int] = []
        disk.on_write = lambda changes: taken.append(len(changes.records))

        async def send() -> None:
            for entry_id in range(100):
                await stream.send(add_request(1, [(entry_id, record(1, entry_id))], KEY, recovery=False))
            await stream.finish()

        sending = asyncio.create_task(send())
        for _ in range(500):
            await asyncio.sleep(0)
        assert not sending.done()
        answered = asyncio.create_task(_all(stream))
        while not answered.done():
            clock.advance(1)
            await asyncio.sleep(0)
        assert sum(taken) == 100
        assert max(taken) <= 6


async def _all(stream: Stream) -> list[bytes]:
    messages = []
    while (message := await stream.receive()) is not None:
        messages.append(message)
    return messages


async def test_answers_are_ranges() -> None:
    async with OneBookie() as one:
        stream = one.adds()
        records = [(entry_id, record(1, entry_id)) for entry_id in range(1000)]
        await stream.send(add_request(1, records, KEY, recovery=False))
        await stream.finish()
        assert len(b"".join(await _all(stream))) < 20


async def test_malformed_adds_are_refused() -> None:
    async with OneBookie() as one:
        frame = FrameBuilder()
        frame.try_add_entry(1, 0, record(1, 0))
        frame.try_add_entry(2, 0, record(2, 0))
        both = Frame.FromString(b"".join(frame.build_parts()))
        one_description = AddRequest(frame=both, runs=[AddRun(master_key=KEY)]).SerializeToString()
        for message in (b"\xff\xff", one_description, AddRequest(runs=[AddRun()]).SerializeToString()):
            stream = one.adds()
            await stream.send(message)
            with pytest.raises(Rejected) as refusal:
                await stream.receive()
            assert refusal.value.code is Code.INVALID_ARGUMENT
        assert await one.add_one(1, 0) == Status.OK


async def test_many_ledgers_take_no_more_memory_than_allowed() -> None:
    async with OneBookie(BookieServerSettings(max_ledgers_in_memory=10)) as one:
        for ledger_id in range(1, 51):
            assert await one.add_one(ledger_id, 0) == Status.OK
            await one.read(1000 + ledger_id, 0)
        assert one.bookie._rules.ledgers_in_memory <= 10
        for ledger_id in range(1, 51):
            assert await one.add_one(ledger_id, 0) == Status.OK
            assert await one.add_one(ledger_id, 1, key=b"wrong") == Status.WRONG_KEY


async def test_adds_of_a_disconnected_client_become_durable() -> None:
    clock = ManualClock()
    disk = slow_disk(clock)
    async with OneBookie(disk=disk, clock=clock) as one:
        stream = one.adds()
        await stream.send(add_request(1, [(0, record(1, 0))], KEY, recovery=False))
        await written(disk)
        stream.cancel()

        def durable() -> bool:
            clock.advance(1)
            return disk.durable_record(1, 0) is not None

        await until(durable, "the add is durable")


def test_record_written_again_is_not_overwritten_by_one_that_saw_it_damaged() -> None:
    """CHK-4: two adds find an entry damaged and differ; the second is decided again, by the record of the first."""
    disk = SimulatedDisk(ManualClock(), SeededRandomness(1))
    storage = disk.open()
    damaged = record(1, 0)[:-1] + b"?"
    storage.write(Changes(records={(1, 0): damaged}, ledgers={1: LedgerData(master_key=KEY)}))
    rules = LedgerRules(storage, 100)
    first, second = record(1, 0, b"first"), record(1, 0, b"second")
    (first_add,) = rules.add_run(1, KEY, 0, [first], True, "source").duplicates
    (second_add,) = rules.add_run(1, KEY, 0, [second], True, "source").duplicates
    assert rules.decide_duplicate(first_add, damaged, "source").results == []
    group = rules.take_group()
    storage.write(group.changes)
    rules.complete_group(group)
    (again,) = rules.decide_duplicate(second_add, damaged, "source").duplicates
    (answer,) = rules.decide_duplicate(again, first, "source").results
    assert answer.status == Status.CONFLICT


async def test_lac_of_refused_records_is_not_reported() -> None:
    """CHK-6: they are not on the disk. What was confirmed explicitly in the same group is."""
    async with OneBookie() as one:
        assert await one.add_one(1, 0) == Status.OK
        one.disk.fill()
        refused = asyncio.create_task(one.add_one(1, 5))
        confirmed = asyncio.create_task(one.confirm(1, 2))
        assert (await refused, await confirmed) == (Status.READ_ONLY, Status.OK)
        assert (await one.last_add_confirmed(1)).last_add_confirmed == 2


async def test_add_stream_pauses_while_its_responses_are_not_read() -> None:
    async with OneBookie(BookieServerSettings(max_waiting_answers=5)) as one:
        stream = one.adds()

        async def send() -> None:
            for ledger_id in range(1, 301):
                await stream.send(add_request(ledger_id, [(0, b"no record")], KEY, recovery=False))
            await stream.finish()

        sending = asyncio.create_task(send())
        for _ in range(5000):
            await asyncio.sleep(0)
        assert not sending.done()
        answers = [answer for message in await _all(stream) for answer in AddAnswers.FromString(message).answers]
        assert [answer.ledger_id for answer in answers] == list(range(1, 301))
        assert {answer.status for answer in answers} == {Status.BAD_RECORD}


class _Broken:
    """A stream whose client has disconnected."""

    in_process_api: object | None = None

    async def send(self, message: bytes) -> None:
        raise Disconnected("the client has disconnected")

    async def receive(self) -> bytes | None:
        raise Disconnected("the client has disconnected")

    async def finish(self) -> None:
        pass

    def cancel(self) -> None:
        pass


async def test_client_disconnect_is_not_a_bookie_error() -> None:
    """It would be logged with all that leads to it, time and again."""
    async with OneBookie() as one:
        await one.bookie.stream(Peer("a client"), "add", _Broken())
        assert one.bookie.add_streams == 0


async def test_operator_can_start_a_bookie_read_only() -> None:
    async with OneBookie(BookieServerSettings(read_only=True)) as one:
        assert await one.add_one(1, 0) == Status.READ_ONLY
        assert (await one.fence(1)).status == Status.OK
