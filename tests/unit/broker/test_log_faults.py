"""What a log does when bookies, the metadata store or another broker are in its way."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import cast

import pytest

from magnetar_broker.errors import BrokerError, DamagedEntry, TopicUnloaded
from magnetar_broker.managed_ledger.append_queue import AppendQueue
from magnetar_broker.managed_ledger.ledger_lifetime_settings import create_roll_rule
from magnetar_broker.managed_ledger.log_entry import Chunk, NewEntry
from magnetar_broker.managed_ledger.read_ahead import SequentialRead
from magnetar_broker.position import Position
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_testing.metadata.server import Fault
from magnetar_wire.entry import add_broker_metadata, split_broker_metadata
from magnetar_wire.entry_memory import ENTRY_OVERHEAD_BYTES
from tests.unit.broker.log_scene import SMALL, Scene, entry, numbered, payload, running_log_scene

WIDE = ManagedLedgerSettings()


def stored_entry(index: int) -> bytes:
    return add_broker_metadata(entry(b"%d" % index), 1, index)


def unreachable(scene: Scene, *names: str) -> None:
    """These bookies take nothing and answer nothing any more."""
    for name in names:
        scene[name].failing |= {"add", "read", "fence", "last_add_confirmed"}


def reachable(scene: Scene) -> None:
    for bookie in scene.bookies.values():
        bookie.failing.clear()


async def test_failed_entries_are_stored_unchanged_first_in_next_ledger() -> None:
    """MSG-5: an entry keeps index and broker time. What is appended while its ledger fails comes behind it."""

    async with running_log_scene(bookies=3) as scene:
        log = await scene.open(options=WIDE)
        await scene.append(log, *numbered(4))
        unreachable(scene, "b0", "b1")
        scene.outcomes.append(log, *numbered(4, 4))
        await scene.wait(lambda: log.waiting_for != "")
        assert len(scene.outcomes.told) == 4
        assert "bookies" in log.waiting_for
        assert log.stats().state == "waiting"
        scene.outcomes.append(log, *numbered(4, 8))
        scene.clock.advance(60)
        reachable(scene)
        await scene.decided()
        assert log.waiting_for == ""
        assert [one for one, _ in scene.outcomes.stored] == numbered(12)
        entries = await scene.read_all(log)
        assert [payload(one) for one in entries] == numbered(12)
        assert [one.index for one in entries] == list(range(12))
        times = [one.broker_time_ms for one in entries]
        assert times == sorted(times)
        assert times[7] < times[8] + 1
        ledgers = [one.position.ledger_id for one in entries]
        assert len(set(ledgers)) == 2
        assert ledgers == sorted(ledgers)
        assert scene.lost == []


async def test_broker_unloads_the_topic_if_another_closes_its_ledger() -> None:
    """CHK-30: failed adds whose ledger somebody else closes are unknown: they are told so, and not sent again."""

    async with running_log_scene(bookies=3) as scene:
        old = await scene.open(options=WIDE)
        await scene.append(old, *numbered(4))
        held = [bookie for name, bookie in scene.bookies.items() if name != "b0"]
        for bookie in held:
            bookie.hanging.add("add")
        scene.outcomes.append(old, *numbered(3, 4))
        await scene.wait(lambda: len(scene.outcomes.told) == 4)
        new = await scene.open(await scene.another(), options=WIDE)
        for bookie in held:
            bookie.hanging.clear()
        await scene.decided()
        assert all(isinstance(error, TopicUnloaded) for error in scene.outcomes.refused)
        assert len(scene.outcomes.refused) == 3
        assert len(scene.lost) == 1
        found = await scene.payloads(new)
        assert found[:4] == numbered(4)  # what was pending may be there, in order
        assert found == numbered(7)[: len(found)]


async def test_bookies_that_take_nothing_hinder_no_trim() -> None:
    """RET-3: though a publish waits for them all the while (test_retained_messages.py has disks that are full)."""

    async with running_log_scene(bookies=3) as scene:
        log = await scene.open()
        await scene.append(log, *numbered(9))
        await scene.patiently(log._appender.roll_ledger())
        unreachable(scene, *scene.bookies)
        scene.outcomes.append(log, b"waits")
        await scene.wait(lambda: log.waiting_for != "")
        ledgers = [one.ledger_id for one in log.stats().ledgers]
        assert await scene.patiently(log.trim(lambda: Position(ledgers[1], 2)))
        assert log.stats().ledgers[0].ledger_id == ledgers[2]
        assert log.stats().ledgers_to_delete == 0
        for ledger_id in ledgers[:2]:
            assert (await scene.metadata(ledger_id)).state.name == "TOMBSTONE"
        node = await scene.node()
        assert node is not None
        assert list(node.deleting) == []
        reachable(scene)
        await scene.decided()
        assert await scene.payloads(log) == [*numbered(3, 6), b"waits"]


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.HOLD_REQUEST])
@pytest.mark.parametrize("at", range(10))
async def test_a_lost_metadata_answer_loses_no_entry(at: int, fault: Fault) -> None:
    """CHK-31, CHK-58: whichever request of the roll and the trim is lost: every append is stored once, in order, no
    ledger is made that the list does not get or the sweeper does not find, and the list names none that is deleted."""

    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(4))
        scene.server.queue_faults(scene.store, *[None] * at, fault)
        scene.outcomes.append(log, *numbered(8, 4))

        def resumed() -> bool:
            if scene.store.session.state.name == "SUSPENDED":
                scene.server.resume(scene.store)
                scene.server.release(scene.store)
            return scene.outcomes.are_all_reported

        await scene.wait(resumed)
        if scene.outcomes.refused:
            assert all(isinstance(error, TopicUnloaded) for error in scene.outcomes.refused)
            log = await scene.open()
        stored = [one for one, _ in scene.outcomes.stored]
        assert stored == numbered(12)[: len(stored)]
        found = await scene.payloads(log)
        assert found == numbered(12)[: len(found)]
        assert len(found) >= len(stored)
        await scene.every_ledger_is_accounted_for()


async def test_session_loss_unloads_the_topic_without_losing_entries() -> None:
    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(2))
        scene.server.expire(scene.store)
        scene.outcomes.append(log, *numbered(4, 2))
        await scene.decided()
        stored = [one for one, _ in scene.outcomes.stored]
        assert stored == numbered(len(stored))
        assert len(scene.lost) == 1
        log = await scene.open(await scene.another())
        assert (await scene.payloads(log))[: len(stored)] == stored


async def test_appends_wait_in_order_up_to_a_bound() -> None:
    """STO-1: publishing waits and says why; beyond the bound an append is refused, behind those that wait."""

    async with running_log_scene() as scene:
        unreachable(scene, *scene.bookies)
        bound = 1000 + 2 * ENTRY_OVERHEAD_BYTES
        log = await scene.open(options=ManagedLedgerSettings(managed_ledger_max_pending_bytes=bound))
        scene.outcomes.append(log, *[b"." * 400] * 3, b"one too many", b"two too many")
        await scene.wait(lambda: log.waiting_for != "")
        assert scene.outcomes.told == []
        assert bound <= log.pending_bytes < bound + 500 + ENTRY_OVERHEAD_BYTES
        reachable(scene)
        scene.clock.advance(60)
        await scene.decided()
        assert [one for one, _ in scene.outcomes.told] == [*[b"." * 400] * 3, b"one too many", b"two too many"]
        assert [error.code for error in scene.outcomes.refused] == [ErrorCode.TOO_MANY_REQUESTS] * 2
        assert len(scene.outcomes.stored) == 3
        assert log.pending_bytes == 0


async def test_an_entry_that_is_too_large_is_refused_alone() -> None:
    async with running_log_scene() as scene:
        log = await scene.open()
        told: list[object] = []
        log.append([NewEntry(b"x" * 5_253_120, 1, 0)], told.append)
        assert told == []  # not from within the call
        await scene.append(log, b"and a small one")
        assert len(told) == 1
        assert isinstance(told[0], BrokerError)
        assert told[0].code == ErrorCode.MESSAGE_TOO_BIG
        assert log.next_index == 1


def test_an_append_that_raises_leaves_the_queue_as_it_was() -> None:
    queue, ignore = AppendQueue(0, 0, 1_000_000), id
    assert queue.append([NewEntry(b"a", 3, 3)], ignore, 1) == 1
    before = (len(queue), queue.next_index, queue.pending_bytes, queue.waiting_chunks)
    with pytest.raises(TypeError):
        queue.append([NewEntry(b"b", 1, 0, Chunk(7, 0, last=False)), NewEntry(cast("bytes", None), 1, 0)], ignore, 1)
    assert (len(queue), queue.next_index, queue.pending_bytes, queue.waiting_chunks) == before
    assert queue.append([NewEntry(b"c", 1, 0)], ignore, 1) == 1
    assert [append.entry.index for append in queue.waiting] == [2, 3]


async def test_foreign_bytes_in_a_ledger_are_a_typed_error() -> None:
    async with running_log_scene() as scene:
        log = await scene.open(options=WIDE, cache_bytes=0)
        await scene.append(log, *numbered(2))
        current = log._appender.current_ledger
        assert current is not None
        foreign = [await scene.patiently(current.writer.add(b"of nobody"))]
        log._node.ledger_list.add_confirmed(Position(current.writer.ledger_id, foreign[0]), 9, 2, 0)
        assert [payload(one) for one in await scene.patiently(log.read(log.before_first, 10, 10_000))] == numbered(2)
        place = Position(current.writer.ledger_id, 2)
        for read in (log.read(place, 10, 10_000), log.read_at([place])):
            with pytest.raises(DamagedEntry) as raised:
                await scene.patiently(read)
            assert raised.value.position == place


async def test_entries_after_a_malformed_one_keep_their_positions() -> None:
    """STO-3: when a read ahead is continued at the malformed entry, no later one is taken for it."""

    async def fetched() -> AsyncGenerator[tuple[int, list[bytes]], None]:
        yield 0, [*(stored_entry(number) for number in range(2)), b"malformed", stored_entry(3), stored_entry(4)]

    read = SequentialRead(Position(7, 0), fetched(), lambda work: work.close())
    assert [one.index for one in await read.read(4, 10_000)] == [0, 1]
    assert read.next == Position(7, 2)
    with pytest.raises(DamagedEntry) as raised:
        await read.read(4, 10_000)
    assert raised.value.position == Position(7, 2)


async def test_a_damaged_replica_is_passed_over() -> None:
    """STO-3: the next replica is asked."""

    async with running_log_scene(bookies=3) as scene:
        log = await scene.open(options=WIDE, cache_bytes=0)
        await scene.append(log, *numbered(6))
        for entry_id in range(6):
            ledger_id = log.last.ledger_id
            scene[scene.holders(ledger_id, entry_id)[entry_id % 3]].damage(ledger_id, entry_id)
        assert await scene.payloads(log) == numbered(6)


async def test_the_clock_may_fall_and_broker_times_do_not() -> None:
    """MSG-5: every entry has the broker's part in front: its time, which never falls, and the index of its last
    message, which counts messages."""

    async with running_log_scene() as scene:
        log = await scene.open()
        sizes = (1, 10, 3, 1, 7)
        for number, messages in enumerate(sizes):
            await scene.append(log, b"%d" % number, messages=messages if messages > 1 else 0)
            scene.clock.jump(-60_000)
        log = await scene.open(await scene.another())
        await scene.append(log, b"of the next life", messages=2)
        entries = await scene.read_all(log)
        parts = [split_broker_metadata(one.stored)[0] for one in entries]
        indexes = [part.index for part in parts if part is not None]
        assert indexes == [0, 10, 13, 14, 21, 23]
        assert indexes == [one.index for one in entries]
        assert [one.messages for one in entries] == [*sizes, 2]
        assert [one.batch_size for one in entries] == [0, 10, 3, 0, 7, 2]
        times = [part.broker_timestamp for part in parts if part is not None]
        assert times == sorted(times)
        assert len(times) == 6
        assert log.next_index == 24


async def test_next_owner_deletes_empty_ledger_of_dead_broker() -> None:
    """CHK-31: the next owner takes it off the list, and it is deleted."""

    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(3))
        for bookie in scene.bookies.values():
            bookie.hanging.add("add")
        scene.outcomes.append(log, b"never gets there")
        await scene.wait(lambda: log.stats().state == "written" and len(log.stats().ledgers) == 2)
        empty = log.stats().ledgers[-1].ledger_id
        await scene.idle()
        log.abandon()
        assert isinstance(scene.outcomes.refused[0], TopicUnloaded)
        for bookie in scene.bookies.values():
            bookie.hanging.clear()
        log = await scene.open(await scene.another())
        await scene.append(log, b"more")
        assert empty not in [one.ledger_id for one in log.stats().ledgers]
        assert await scene.payloads(log) == [*numbered(3), b"more"]
        await scene.patiently(log.trim(lambda: Position(-1, -1)))
        assert (await scene.metadata(empty)).state.name == "TOMBSTONE"


async def test_a_degraded_ledger_rolls_when_enough_bookies_are_back() -> None:
    async with running_log_scene(bookies=2) as scene:
        log = await scene.open(options=WIDE)
        await scene.append(log, b"one")
        assert log.stats().ledgers[0].ledger_id == log.last.ledger_id
        metadata = await scene.metadata(log.last.ledger_id)
        assert metadata.is_degraded
        await scene.join("b2")
        await scene.wait(lambda: "b2" in scene.client.bookies.writable())
        log.tick()
        await scene.wait(lambda: log.stats().state == "idle")
        await scene.append(log, b"two")
        assert not (await scene.metadata(log.last.ledger_id)).is_degraded


def test_settings_that_contradict_each_other_are_refused() -> None:
    """CHK-66: the error names both settings, both values, and what to do."""
    ack_quorum, write_quorum = "managed_ledger_default_ack_quorum", "managed_ledger_default_write_quorum"
    with pytest.raises(ValueError, match=f"{ack_quorum} is 2, above {write_quorum}, which is 1: lower {ack_quorum} or"):
        ManagedLedgerSettings(managed_ledger_default_write_quorum=1)
    with pytest.raises(ValueError, match=r"rollover_time_minutes is 10, above .*, which is 5"):
        ManagedLedgerSettings(managed_ledger_max_ledger_rollover_time_minutes=5)
    assert create_roll_rule(SMALL).find_limits(0)[0] == 3


async def test_append_returns_the_number_of_entries_it_accepted() -> None:
    """PRD-10: an append says at once whether it was taken, so that nothing is stored that came behind a refused one."""

    async with running_log_scene() as scene:
        bound = 400 + 2 * ENTRY_OVERHEAD_BYTES
        log = await scene.open(options=ManagedLedgerSettings(managed_ledger_max_pending_bytes=bound))
        told: list[object] = []
        new = NewEntry(entry(b"." * 150), 1, 0)
        assert [log.append([new], told.append), log.append([new, new, new, new], told.append)] == [1, 2]
        assert told == []
        await scene.wait(lambda: any(isinstance(one, BrokerError) for one in told))
        *places, refused = told
        assert sum(len(some) for some in places if isinstance(some, list)) == 3
        assert isinstance(refused, BrokerError)
        told.clear()
        assert log.append([NewEntry(entry(b"room again"), 1, 0)], told.append) == 1
        await scene.wait(lambda: len(told) == 1)
        await log.close()
        assert log.append([NewEntry(entry(b"closed"), 1, 0)], told.append) == 0
        await scene.wait(lambda: len(told) == 2)
        assert isinstance(told[1], TopicUnloaded)


async def test_callbacks_run_in_order_if_the_first_abandons_log() -> None:
    async with running_log_scene() as scene:
        log = await scene.open()
        told: list[tuple[str, object]] = []

        def first(result: object) -> None:
            told.append(("first", result))
            log.append([NewEntry(entry(b"pending"), 1, 0)], lambda result: told.append(("pending", result)))
            log.abandon()

        # While there is no ledger yet: they go to it together.
        log.append([NewEntry(entry(b"a"), 1, 0)], first)
        log.append([NewEntry(entry(b"b"), 1, 0)], lambda result: told.append(("second", result)))
        await scene.wait(lambda: len(told) == 3)
        assert [who for who, _ in told] == ["first", "second", "pending"]
        assert isinstance(told[2][1], TopicUnloaded)
