"""Plans of logs on real ledgers: what they name is with the bookies that they name, whatever became of the ledgers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from magnetar_bookie.ledger import ledger_metadata
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.read.record import extract_entry
from magnetar_bookie.read.striping import Striping
from magnetar_broker.admin.ledger_locations import LedgerLocations
from magnetar_broker.admin.read_planner import ReadPlanner
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.log_entry import Chunk
from magnetar_broker.managed_ledger.log_reader import LogReader
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.managed_ledger.message_position import BEFORE_ALL, MessagePosition, find_end
from magnetar_broker.position import Position
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_protos import reading_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.entry import decode_entry
from tests.unit.broker.log_scene import SMALL, Scene, numbered, running_log_scene

STRIPED = SMALL.model_copy(
    update={
        "managed_ledger_max_entries_per_ledger": 12,
        "managed_ledger_default_ensemble_size": 3,
        "managed_ledger_default_write_quorum": 2,
        "managed_ledger_default_ack_quorum": 2,
    }
)


def making(client: LedgerClient) -> ReadPlanner:
    return ReadPlanner(LedgerLocations(client), lambda ids, listener: {one: f"{one}:1" for one in ids})


def request(start: MessagePosition, **others: Any) -> pb.PlanRequest:
    ledger_id, entry_id, skip_messages = start
    at = pb.MessagePosition(ledger_id=ledger_id, entry_id=entry_id, skip_messages=skip_messages)
    return pb.PlanRequest(start=at, **others)


def position_of(message: pb.MessagePosition) -> MessagePosition:
    return MessagePosition(message.ledger_id, message.entry_id, message.skip_messages)


def payloads(scene: Scene, plan: pb.PlanAnswer) -> list[bytes]:
    """Of the entries that the plan names, once for each of their messages in it."""
    addresses = {one.bookie_id: one.address for one in plan.bookies}
    found: list[bytes] = []
    for piece in plan.pieces:
        striping = Striping(piece.ensemble_size, piece.write_quorum, piece.ack_quorum)
        before, size = len(found), 0
        for entry_id in range(piece.first_entry_id, piece.last_entry_id + 1):
            fragment = [one for one in piece.fragments if one.first_entry_id <= entry_id][-1]
            holders = [fragment.bookies[slot] for slot in striping.write_set(entry_id)]
            assert all(addresses[one] == f"{one}:1" for one in holders)
            records = [scene.bookies[one].ledger(piece.ledger_id).records.get(entry_id) for one in holders]
            stored = next(extract_entry(one) for one in records if one is not None)
            size += len(stored)
            entry = decode_entry(stored)
            messages = max(1, entry.metadata.num_messages_in_batch)
            if piece.stop_after_messages and entry_id == piece.last_entry_id:
                messages = piece.stop_after_messages
            if entry_id == piece.first_entry_id:
                messages -= piece.skip_messages
            found += [entry.payload] * messages
        assert (len(found) - before, size) == (piece.messages, piece.bytes)
    return found


@pytest.mark.parametrize("seed", range(6))
async def test_reader_following_plans_gets_each_message_once_in_order(seed: int) -> None:
    """SPK-5: striped ledgers, bookies that fail, brokers that take the topic from one another, and trims of what was
    read: a reader who follows the log by plans gets each message once, in order, from the bookies named."""

    async with running_log_scene(bookies=5) as scene:
        chance = random.Random(seed)
        client, log = scene.client, await scene.open(options=STRIPED)
        plans = making(client)
        wanted: list[bytes] = []
        found: list[bytes] = []
        reader = MessagePosition(0, 0, 0)

        async def append() -> None:
            messages = chance.choice((0, 0, 1, 5))
            some = numbered(chance.randint(1, 8), len(wanted))
            await scene.append(log, *some, messages=messages)
            for one in some:
                wanted.extend([one] * max(1, messages))

        async def plan(**limits: int) -> None:
            nonlocal reader
            answer = await scene.patiently(plans.plan(log, request(reader, **limits)))
            assert not answer.begins_in_deleted
            found.extend(payloads(scene, answer))
            assert answer.messages_behind == len(wanted) - len(found)
            reader = position_of(answer.stop)

        for _ in range(40):
            match chance.randrange(9):
                case 0 | 1 | 2:
                    await append()
                case 3 | 4 | 5:
                    await plan(max_messages=chance.choice((0, 1, 4, 9)), max_bytes=chance.choice((0, 1, 150, 500)))
                case 6:
                    # Its ledgers go on with another one in its place.
                    bookie = scene.bookies[f"b{chance.randrange(5)}"]
                    bookie.failing.add("add")
                    await append()
                    bookie.failing.discard("add")
                case 7:
                    await scene.patiently(log.trim(lambda: Position(reader.ledger_id, reader.entry_id - 1)))
                case 8:
                    client = await scene.another()
                    log, plans = await scene.open(client, STRIPED), making(client)
        while reader < find_end(log.ledger_list):
            await plan(max_messages=7)
        assert found == wanted
        assert found


@asynccontextmanager
async def _running_log() -> AsyncIterator[tuple[Scene, ManagedLedger, ReadPlanner]]:
    async with running_log_scene() as scene:
        log = await scene.open()
        for number in range(10):
            await scene.append(log, b"%d" % number, messages=2)
        yield scene, log, making(scene.client)


async def test_plan_is_recomputed_if_ledger_is_trimmed_before_answer() -> None:
    async with _running_log() as (scene, log, plans):
        begin = position_of((await plans.plan(log, request(MessagePosition(0, 0, 0)))).start)
        find = plans._locations.find

        async def trimmed_first(*arguments: Any, **named: Any) -> Any:
            await log.trim(lambda: Position(begin.ledger_id, 99))
            return await find(*arguments, **named)

        plans._locations.find = trimmed_first  # type: ignore[method-assign]
        plan = await plans.plan(log, request(begin, fresh=True))
        assert plan.begins_in_deleted
        assert position_of(plan.start) == position_of(plan.first) > begin
        assert payloads(scene, plan) == [b"%d" % number for number in range(3, 10) for _ in range(2)]


@pytest.mark.parametrize("with_stop", [False, True])
async def test_plan_is_recomputed_if_ledger_is_trimmed_during_read(
    with_stop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bookie gives an entry whose ledger has just left the list: nothing is planned by what it says."""

    async with _running_log() as (scene, log, plans):
        begin = position_of((await plans.plan(log, request(MessagePosition(0, 0, 0)))).start)
        look = LogReader.read_record

        async def trimmed_meanwhile(reads: LogReader, position: Position) -> bytes | None:
            record = await look(reads, position)
            await log.trim(lambda: Position(begin.ledger_id, 99))
            return record

        monkeypatch.setattr(LogReader, "read_record", trimmed_meanwhile)
        stop = pb.MessagePosition(ledger_id=begin.ledger_id, entry_id=1) if with_stop else None
        plan = await plans.plan(log, request(begin._replace(skip_messages=1), stop=stop))
        assert plan.begins_in_deleted
        assert payloads(scene, plan) == ([] if with_stop else [b"%d" % one for one in range(3, 10) for _ in range(2)])


async def test_needed_from_covers_the_start_of_a_chunked_message() -> None:
    """SPK-1: no further, so that who keeps what he has not read keeps nothing of a topic that has no chunks."""

    async with running_log_scene() as scene:
        log = await scene.open()

        async def needed(before_ledgers: int = 8) -> MessagePosition:
            begin = find_end(log.ledger_list)
            asked = request(begin, before_ledgers=before_ledgers, before_bytes=1_000_000)
            answer = await scene.patiently(making(scene.client).plan(log, asked))
            return position_of(answer.needed_from) if position_of(answer.needed_from) != begin else BEFORE_ALL

        await scene.append(log, *numbered(7))
        assert await needed() == BEFORE_ALL
        await scene.append(log, b"first chunk", chunk=Chunk(1, 0, last=False))
        first = log.ledger_list.last
        assert first.entry_id == 0
        assert await needed() == MessagePosition(*first)
        await scene.append(log, *numbered(20))
        # Where a ledger had chunks, the next one may have some; that one had none.
        assert [one.chunks for one in log.ledger_list.ledgers] == [False] * 3 + [True] * 2 + [False] * 5
        assert await needed() == MessagePosition(*first)
        assert await needed(before_ledgers=4) == BEFORE_ALL
        log = await scene.open(await scene.another())
        assert await needed() == MessagePosition(*first)
        await scene.append(log, *numbered(2))
        await scene.append(log, b"last chunk", chunk=Chunk(1, 1, last=True))
        assert await needed(before_ledgers=4) == MessagePosition(*log.ledger_list.last)


@pytest.mark.parametrize("begun_before", [False, True])
async def test_a_broker_that_has_lost_the_topic_releases_no_ledger_that_it_does_not_know(begun_before: bool) -> None:
    """SPK-5, CON-7: a reader asks for a plan behind the end that the broker knows. A chunked message is not whole there
    yet, and began in a ledger of the next owner, which the broker's list lacks, or in one of its own. The broker finds
    out that it has lost the topic, and the next owner says what is needed."""

    async with running_log_scene() as scene:
        lost, plans = await scene.open(), making(scene.client)
        await scene.append(lost, *numbered(4))
        if begun_before:
            await scene.append(lost, b"first chunk", chunk=Chunk(1, 0, last=False))
            first = MessagePosition(*lost.ledger_list.last)
        await scene.append(lost, *numbered(4))
        log = await scene.open(await scene.another())
        if not begun_before:
            await scene.append(log, b"first chunk", chunk=Chunk(1, 0, last=False))
            first = MessagePosition(*log.ledger_list.last)
        await scene.append(log, *numbered(4))
        start = find_end(log.ledger_list)
        assert start > find_end(lost.ledger_list)
        asked = request(start, before_ledgers=8, before_bytes=1_000_000)
        with pytest.raises(TopicUnloaded):
            await scene.patiently(plans.plan(lost, asked))
        assert scene.lost
        answer = await scene.patiently(plans.plan(log, asked))
        assert not answer.pieces
        assert position_of(answer.needed_from) == MessagePosition(first.ledger_id, 0)


@pytest.mark.parametrize("fails", [False, True])
async def test_chunks_are_stored_in_order_in_ledgers_that_take_them(fails: bool) -> None:
    """Whatever is on its way when the first comes, and when its ledger fails."""

    async with running_log_scene() as scene:
        log = await scene.open(options=SMALL.model_copy(update={"managed_ledger_max_entries_per_ledger": 20}))
        sent = numbered(12)
        if fails:
            for bookie in list(scene.bookies.values())[:2]:
                bookie.failing.add("add")
        for number, one in enumerate(sent):
            scene.outcomes.append(log, one, chunk=Chunk(1, number - 5, last=False) if number in (5, 6, 9) else None)
        await scene.decided()
        assert [one for one, _ in scene.outcomes.stored] == sent
        taking = {one.ledger_id for one in log.ledger_list.ledgers if one.chunks}
        for number in (5, 6, 9):
            assert scene.outcomes.stored[number][1].ledger_id in taking
        entries = await log.read(log.before_first, 100, 1_000_000)
        found = [entry for entry in entries if entry.chunk is not None]
        assert [entry.chunk.number for entry in found if entry.chunk] == [0, 1, 4]


async def test_plan_fails_and_names_a_deleted_ledger() -> None:
    async with _running_log() as (scene, log, plans):
        lost = log.ledger_list.ledgers[1].ledger_id
        await scene.client.ledgers.change_metadata(lost, ledger_metadata.make_tombstone)
        with pytest.raises(BrokerError, match=f"ledger {lost} was deleted") as told:
            await plans.plan(log, request(MessagePosition(0, 0, 0)))
        assert told.value.code == ErrorCode.PERSISTENCE_ERROR


@pytest.mark.parametrize("lost", [{3}, {0}, {5}, {0, 1, 2}, {2, 3, 5}, set(range(6))])
@pytest.mark.parametrize("damaged", [False, True])
async def test_an_entry_that_is_lost_or_damaged_stops_no_plan(lost: set[int], damaged: bool) -> None:
    """SPK-5: a cut beside it is found by its neighbours; it is named, and it is its reader who meets the loss."""

    async with running_log_scene() as scene:
        log = await scene.open(options=SMALL.model_copy(update={"managed_ledger_max_entries_per_ledger": 6}))
        await scene.append(log, *numbered(14, 0), messages=2)
        second = log.ledger_list.ledgers[1].ledger_id
        for bookie in scene.bookies.values():
            records = bookie.ledger(second).records
            for entry_id in lost & records.keys():
                record = records.pop(entry_id)
                if damaged:
                    records[entry_id] = record[:-1] + bytes([record[-1] ^ 1])
        everything = {Position(one.ledger_id, at) for one in log.ledger_list.ledgers for at in range(one.entries)}
        for limits in ({"max_messages": 5}, {"max_messages": 1}, {"max_bytes": 150}, {"max_messages": 2}):
            at, named = MessagePosition(0, 0, 0), set[Position]()
            plans = making(scene.client)
            while at < find_end(log.ledger_list):
                plan = await scene.patiently(plans.plan(log, request(at, **limits)))
                assert position_of(plan.stop) > at
                at = position_of(plan.stop)
                named |= {
                    Position(piece.ledger_id, entry_id)
                    for piece in plan.pieces
                    for entry_id in range(piece.first_entry_id, piece.last_entry_id + 1)
                }
                # What a broker knows that has just taken the topic over.
                plans = making(scene.client)
            assert named == everything


async def test_an_entry_that_may_be_there_is_waited_for() -> None:
    """Unknown is not no."""

    async with _running_log() as (scene, log, plans):
        ledger_id = log.ledger_list.ledgers[1].ledger_id
        for bookie in scene.bookies.values():
            bookie.failing.add("read")
        begin = MessagePosition(ledger_id, 1, 0)
        with pytest.raises(BrokerError, match=f"{ledger_id}:1 can't be read now") as told:
            await scene.patiently(plans.plan(log, request(begin)))
        assert told.value.code == ErrorCode.PERSISTENCE_ERROR
        for bookie in scene.bookies.values():
            bookie.failing.clear()
        assert (await scene.patiently(plans.plan(log, request(begin)))).pieces


async def test_ledger_locations_are_cached_until_fresh_ones_are_requested() -> None:
    async with _running_log() as (scene, log, plans):
        ledger_id = log.ledger_list.ledgers[0].ledger_id

        async def bookies(**how: bool) -> list[str]:
            answer = await plans.plan(log, request(MessagePosition(0, 0, 0), **how))
            return list(answer.pieces[0].fragments[0].bookies)

        before = await bookies()
        spare = next(one for one in scene.bookies if one not in before)
        await scene.client.ledgers.change_metadata(
            ledger_id, lambda now: ledger_metadata.replace_bookie(now, 0, 0, before[0], spare)
        )
        assert await bookies() == before
        assert await bookies(fresh=True) == [spare, *before[1:]] == await bookies()


async def test_a_plan_that_is_cancelled_at_any_point_hinders_no_other() -> None:
    async with _running_log() as (_, log, plans):
        whole = await plans.plan(log, request(MessagePosition(0, 0, 0)))
        for turns in range(40):
            asked = request(MessagePosition(0, 0, 0), max_messages=7, fresh=True)
            task = asyncio.create_task(plans.plan(log, asked))
            for _ in range(turns):
                await asyncio.sleep(0)
            done = task.done()
            task.cancel()
            await asyncio.wait([task])
            assert (await plans.plan(log, request(MessagePosition(0, 0, 0)))) == whole
        assert done


async def test_a_bookie_that_hangs_delays_the_plans_alone_that_look_at_its_entries() -> None:
    async with _running_log() as (scene, log, plans):
        for bookie in scene.bookies.values():
            bookie.hanging.add("read")
        waits = asyncio.create_task(plans.plan(log, request(MessagePosition(0, 0, 0), max_messages=3)))
        await scene.idle()
        assert not waits.done()
        plan = await plans.plan(log, request(MessagePosition(0, 0, 0)))
        assert plan.messages == 20
        waits.cancel()
        await asyncio.wait([waits])


async def test_an_answer_is_bounded_however_many_ledgers_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPK-5: no more pieces than an answer takes; the plans that follow give the rest."""

    async with running_log_scene() as scene:
        one = ManagedLedgerSettings(
            managed_ledger_max_entries_per_ledger=1, managed_ledger_min_ledger_rollover_time_minutes=0
        )
        log = await scene.open(options=one)
        await scene.append(log, *numbered(9))
        monkeypatch.setattr("magnetar_broker.admin.read_planner.MAX_PIECES", 4)
        plans, reader, found = making(scene.client), MessagePosition(0, 0, 0), list[bytes]()
        for pieces in (4, 4, 1):
            plan = await plans.plan(log, request(reader))
            assert len(plan.pieces) == pieces
            found += payloads(scene, plan)
            reader = position_of(plan.stop)
        assert found == numbered(9)
        # So many bookies that fewer pieces fit: it is planned anew, with as many as do.
        monkeypatch.setattr("magnetar_broker.admin.read_planner._MAX_FRAGMENTS", 2)
        plan = await plans.plan(log, request(MessagePosition(0, 0, 0)))
        assert len(plan.pieces) == 1
