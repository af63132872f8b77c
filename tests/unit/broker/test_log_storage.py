"""What a log keeps, frees and finds again: trims, deletions, rolls, the cache, reads by place and time."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from magnetar_broker import paths
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger import trimmer as trimming
from magnetar_broker.managed_ledger.ledger_lifetime_settings import create_roll_rule
from magnetar_broker.managed_ledger.log_entry import LogEntry
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.managed_ledger.topic_node import decode_topic
from magnetar_broker.position import EARLIEST, LATEST, Position
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_broker.topics.topic_deletion import delete_topic
from magnetar_metadata import compare_and_set
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import ABSENT, Check, MetadataStore, Put
from magnetar_protos import managed_ledger_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_testing.metadata.server import Fault
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.log_scene import SMALL, TOPIC, Scene, numbered, payload, running_log_scene


async def topic_exists(store: MetadataStore, name: TopicName) -> bool:
    """Return whether the topic exists. A topic that is being deleted does not."""
    path = paths.topic(name)
    stored = await compare_and_set.read(store, path)
    return stored is not None and decode_topic(path, stored.payload).state != pb.DELETING


async def delete(scene: Scene) -> None:
    await scene.patiently(delete_topic(TOPIC, scene.client, scene.clock, SeededRandomness(7)))


async def test_a_deletion_of_one_incarnation_leaves_a_later_topic_alone() -> None:
    """TOP-7, CHK-69: the topic that was to be deleted is gone, and another one has its name."""

    async with running_log_scene() as scene:
        before = await scene.open()
        await scene.append(before, b"old")
        await delete(scene)
        log = await scene.open()
        await scene.append(log, b"new")
        randomness = SeededRandomness(7)
        for incarnation, is_left in ((before.incarnation, True), (log.incarnation, False)):
            await scene.patiently(delete_topic(TOPIC, scene.client, scene.clock, randomness, incarnation=incarnation))
            assert await topic_exists(scene.client.ledgers.store, TOPIC) == is_left
            if is_left:
                assert await scene.payloads(log) == [b"new"]


async def test_closed_ledgers_go_when_all_in_them_is_read() -> None:
    """RET-3: by whole ledgers, from the front. Where nothing is retained without a durable subscription, all closed
    ledgers go without one (test_log_retention.py has what is retained)."""

    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(10))
        ledgers = [one.ledger_id for one in log.stats().ledgers]
        assert len(ledgers) == 4
        assert not await scene.patiently(log.trim(lambda: Position(ledgers[0], 1)))
        assert await scene.patiently(log.trim(lambda: Position(ledgers[1], 2)))
        assert [one.ledger_id for one in log.stats().ledgers] == ledgers[2:]
        assert log.before_first == Position(ledgers[2], -1)
        assert log.entries_between(EARLIEST, LATEST) == 4
        assert await scene.payloads(log) == numbered(4, 6)
        assert log.closed_ledgers == 1
        lease = bytes(16)
        await scene.patiently(log.leases.take_lease(lease, ledgers[2], 3_600_000, "a reader"))
        assert not await scene.patiently(log.trim(lambda: None))
        await scene.patiently(log.leases.end_lease(lease))
        assert await scene.patiently(log.trim(lambda: None))
        assert await scene.payloads(log) == numbered(1, 9)  # of the open one
        again = await scene.open(await scene.another())
        assert await scene.payloads(again) == numbered(1, 9)
        assert await scene.patiently(again.trim(lambda: None))
        assert again.last == again.before_first == Position(ledgers[3], 0)
        assert again.first_after(EARLIEST) == Position(ledgers[3], 1)
        assert await scene.payloads(again) == []
        await scene.append(again, b"goes on")
        assert again.next_index == 11
        assert await scene.payloads(again) == [b"goes on"]


async def test_trim_rereads_its_limit_before_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """RET-1: a subscription that is made while the ledgers of one change are deleted keeps the others."""
    monkeypatch.setattr(trimming, "_LEDGERS_AT_A_TIME", 1)

    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(10))
        ledgers = [one.ledger_id for one in log.stats().ledgers]
        # As a subscription at the earliest message: its place is before what there is when it is made.
        places: list[Position | None] = [None, Position(ledgers[1], -1)]
        assert await scene.patiently(log.trim(lambda: places.pop(0) if len(places) > 1 else places[0]))
        assert [one.ledger_id for one in log.stats().ledgers] == ledgers[1:]


async def test_an_idle_ledger_rolls_at_its_age_and_none_before() -> None:
    """RET-3: 50,000 entries or 2 GiB, but not within 10 minutes; 4 h in any case, idle or not."""

    async with running_log_scene() as scene:
        options = ManagedLedgerSettings()
        rule = create_roll_rule(options)
        assert min(rule.find_limits(599)) > 2**62
        assert rule.find_limits(600) == rule.find_limits(4 * 3600 - 1) == (50_000, 2**31)
        assert rule.find_limits(4 * 3600) == (0, 0)
        log = await scene.open(options=options)
        await scene.append(log, b"alone")
        scene.clock.advance(4 * 3600 - 60)
        log.tick()
        await scene.idle()
        assert log.stats().state == "written"
        scene.clock.advance(60)
        log.tick()
        await scene.wait(lambda: log.stats().state == "idle")
        assert log.closed_ledgers == 1
        assert len(log.stats().ledgers) == 1


async def test_an_idle_log_that_has_rolled_is_ticked_for_nothing() -> None:
    """CHK-59: one roll, and then neither ledgers nor requests, however long nothing happens."""

    async with running_log_scene() as scene:
        log = await scene.open(options=ManagedLedgerSettings())
        await scene.append(log, b"alone")

        async def four_hours() -> None:
            scene.clock.advance(4 * 3600)
            log.tick()
            await scene.idle()

        await four_hours()
        await scene.wait(lambda: log.stats().state == "idle")
        ledgers, node = log.stats().ledgers, await scene.node()
        asked = [len(bookie.calls) for bookie in scene.bookies.values()]
        tasks = len(asyncio.all_tasks())
        for _ in range(3):
            await four_hours()
            assert (log.stats().state, log.stats().ledgers) == ("idle", ledgers)
        assert await scene.node() == node
        assert [len(bookie.calls) for bookie in scene.bookies.values()] == asked
        assert len(asyncio.all_tasks()) == tasks
        await scene.append(log, b"wakes it")
        assert await scene.payloads(log) == [b"alone", b"wakes it"]


async def test_a_deleted_topic_leaves_nothing_and_is_another_one_when_made_again() -> None:
    """TOP-7, CHK-58: nothing of it is left, not in the metadata either; the next has another incarnation."""

    async with running_log_scene() as scene:
        log = await scene.open()
        first = log.incarnation
        await scene.append(log, *numbered(7))
        ledgers = [one.ledger_id for one in log.stats().ledgers]
        assert await topic_exists(scene.store, TOPIC)
        await delete(scene)
        assert await scene.node() is None
        assert not await topic_exists(scene.store, TOPIC)
        for ledger_id in ledgers:
            assert (await scene.metadata(ledger_id)).state.name == "TOMBSTONE"
        await scene.append(log, b"too late")  # its owner did not know
        assert isinstance(scene.outcomes.refused[0], TopicUnloaded)
        with pytest.raises(BrokerError) as raised:
            await scene.open(create=False)
        assert raised.value.code == ErrorCode.TOPIC_NOT_FOUND
        new = await scene.open()
        assert new.incarnation != first
        assert await scene.payloads(new) == []
        assert new.next_index == 0
        await delete(scene)
        await delete(scene)  # nothing is there: no error


@pytest.mark.parametrize("at", range(24))
async def test_interrupted_topic_deletion_is_finished_on_next_open(at: int) -> None:
    """TOP-7: whichever request was its last."""

    async with running_log_scene() as scene:
        log = await scene.open()
        first = log.incarnation
        await scene.append(log, *numbered(7))
        dying = scene.server.connect()
        client = scene.another_client(dying)
        scene.clients.append(client)
        await client.start()
        scene.server.queue_faults(dying, *[None] * at, Fault.LOSE_REQUEST)
        task = asyncio.create_task(delete_topic(TOPIC, client, scene.clock, SeededRandomness(8)))
        for _ in range(2000):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        node = await scene.node()
        new = await scene.open(await scene.another())
        if at == 0 or (node is not None and node.state == 0):
            assert new.incarnation == first
            assert await scene.payloads(new) == numbered(7)
        else:
            assert new.incarnation != first
            assert await scene.payloads(new) == []
        await scene.every_ledger_is_accounted_for()


async def test_topic_deletion_deletes_cursors_and_ledgers() -> None:
    """TOP-7: with its subscriptions' cursors."""

    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(3))
        await scene.subscribe(log)
        await delete(scene)
        assert await scene.node() is None
        assert await scene.store.children(paths.cursors(TOPIC)) == []
        await scene.every_ledger_is_deleted()


async def test_truncated_is_all_that_was_stored_before() -> None:
    """TOP-7: truncate deletes everything, the ledger that is written too; the topic stays the same one."""

    async with running_log_scene() as scene:
        log = await scene.open()
        incarnation = log.incarnation
        await scene.append(log, *numbered(7))
        await scene.patiently(log.truncate())
        assert await scene.payloads(log) == []
        await scene.append(log, *numbered(2, 7))
        assert await scene.payloads(log) == numbered(2, 7)
        again = await scene.open(await scene.another())
        assert again.incarnation == incarnation
        assert await scene.payloads(again) == numbered(2, 7)
        assert again.next_index == 9
        await scene.patiently(again.truncate())
        await scene.patiently(again.truncate())
        assert await scene.payloads(again) == []


async def test_topic_creation_is_refused_if_its_precondition_changed() -> None:
    async with running_log_scene() as scene:
        await scene.store.put("/allows", b"", ABSENT)
        await scene.store.put("/allows", b"changed", 0)
        with pytest.raises(BrokerError) as raised:
            await scene.open(along=[Check("/allows", 0)])
        assert raised.value.code == ErrorCode.SERVICE_NOT_READY
        assert await scene.node() is None
        await scene.open(along=[Check("/allows", 1)])
        await scene.open(await scene.another(), along=[Check("/allows", 0)])  # it is there: nothing is to be allowed


async def test_foreign_metadata_are_a_typed_error() -> None:
    async with running_log_scene() as scene:
        await scene.store.put(paths.topic(TOPIC), b"of nobody", ABSENT)
        with pytest.raises(BrokerError) as raised:
            await scene.open()
        assert raised.value.code == ErrorCode.METADATA_ERROR


async def test_tailing_reads_are_served_from_a_bounded_cache() -> None:
    """STO-3: what came last is in the broker's cache, whose entries are the stored bytes themselves."""

    async with running_log_scene() as scene:
        log = await scene.open(cache_bytes=20_000)
        asked = sum(len(bookie.reads()) for bookie in scene.bookies.values())
        seen: list[bytes] = []
        at = EARLIEST

        def tail() -> None:
            nonlocal at
            entries = log.read_nowait(at, 100, 100_000)
            assert entries is not None
            seen.extend(map(payload, entries))
            if entries:
                at = log.first_after(entries[-1].position)

        log.on_appended = tail
        await scene.append(log, *numbered(100))
        await scene.wait(lambda: len(seen) == 100)
        assert seen == numbered(100)
        assert asked == sum(len(bookie.reads()) for bookie in scene.bookies.values())
        assert scene.cache.size_bytes <= 20_000
        assert 10 < len(scene.cache) < 100
        assert log.read_nowait(EARLIEST, 1, 1) is None  # that one is in the ledgers only
        assert log.read_nowait(LATEST, 1, 1) == []
        first = await scene.patiently(log.read(EARLIEST, 1, 1))
        assert [payload(one) for one in first] == numbered(1)
        assert first[0] is not (await scene.patiently(log.read(EARLIEST, 1, 1)))[0]
        last = log.read_nowait(log.last, 10, 10)
        assert last is not None
        assert log.read_nowait(log.last, 10, 10)[0] is last[0]  # type: ignore[index]
        stored = await scene.patiently(log.reads.read_stored(log.last))
        assert stored is not None
        assert stored is not last[0]
        assert stored == last[0]
        log.abandon()
        assert scene.cache.size_bytes == 0
        assert len(scene.cache) == 0


async def test_reads_keep_to_their_bounds() -> None:
    async with running_log_scene() as scene:
        for cache_bytes in (0, 1_000_000):
            log = await scene.open(cache_bytes=cache_bytes, options=ManagedLedgerSettings())
            scene.outcomes.append(log, *[b"x" * 1000] * 20)
            await scene.decided()
            start = log.first_after(log.before_first)
            assert len(await scene.patiently(log.read(start, 3, 1_000_000))) == 3
            assert len(await scene.patiently(log.read(start, 100, 1))) == 1
            some = await scene.patiently(log.read(start, 100, 5_000))
            assert 3 <= len(some) <= 5
            for at_a_time in (1, 7):
                assert len(await scene.read_all(log, start, at_a_time)) >= 20
            await scene.patiently(log.truncate())
            await log.close()


async def test_concurrent_readers_at_several_positions_read_all_entries() -> None:
    """STO-3: each with what follows fetched ahead; more of them than are fetched ahead for, too."""

    async with running_log_scene() as scene:
        log = await scene.open(cache_bytes=0, options=ManagedLedgerSettings(), read_ahead=2)
        await scene.append(log, *numbered(200))
        everything = [one.position for one in await scene.read_all(log)]

        async def reader(first: int) -> None:
            at, found = everything[first], []
            while entries := await log.read(at, 3, 100_000):
                found += [one.position for one in entries]
                at = Position(found[-1].ledger_id, found[-1].entry_id + 1)
            assert found == everything[first:]

        await scene.patiently(asyncio.wait_for(asyncio.gather(*(reader(20 * one) for one in range(5))), None))
        assert len(scene.cache.read_ahead) <= 2
        log.abandon()
        assert len(scene.cache.read_ahead) == 0


async def test_sequential_reads_prefetch_the_following_entries() -> None:
    """STO-3: the first read asks for what it gives, the second for all that follows, and the others for nothing."""

    async with running_log_scene() as scene:
        log = await scene.open(cache_bytes=0, options=ManagedLedgerSettings())
        await scene.append(log, *numbered(200))

        def asked() -> int:
            return sum(len(bookie.reads()) for bookie in scene.bookies.values())

        async def read(first: int) -> None:
            start = Position(log.last.ledger_id, first)
            found = await scene.patiently(log.read(start, 10, 100_000))
            assert [payload(one) for one in found] == numbered(10, first)

        await read(0)
        alone = asked()
        await read(10)
        await scene.idle()
        assert asked() > alone
        ahead = asked()
        for first in range(20, 200, 10):
            await read(first)
        assert asked() == ahead
        log.abandon()


async def test_reader_continues_after_ledgers_trimmed_during_its_read() -> None:
    """STO-3: a ledger that is deleted while somebody reads it is passed over."""

    async with running_log_scene() as scene:
        log = await scene.open(cache_bytes=0)
        await scene.append(log, *numbered(12))
        first = log.stats().ledgers[0].ledger_id
        one = await scene.patiently(log.read(EARLIEST, 1, 100))
        assert payload(one[0]) == b"message 0"
        reading = asyncio.create_task(log.read(Position(first, 1), 1, 100))
        trimming = asyncio.create_task(log.trim(lambda: Position(first, 2)))
        await scene.patiently(asyncio.wait_for(trimming, None))
        assert payload((await scene.patiently(asyncio.wait_for(reading, None)))[0]) in (b"message 1", b"message 3")
        assert payload((await scene.patiently(log.read(Position(first, 1), 1, 100)))[0]) == b"message 3"
        assert await scene.patiently(log.read_at([Position(first, 1), log.last])) == [
            None,
            (await scene.patiently(log.read_at([log.last])))[0],
        ]


async def test_reads_of_positions_are_bounded() -> None:
    """CHK-66: entries that are redelivered take no more memory than others, also over ledgers and gaps."""

    async with running_log_scene() as scene:
        for options, cached in ((SMALL, 0), (ManagedLedgerSettings(), 0), (ManagedLedgerSettings(), 10_000_000)):
            log = await scene.open(options=options, cache_bytes=cached)
            await scene.append(log, *(b"%d" % number * 1000 for number in range(9)))
            positions = [one.position for one in await scene.read_all(log)][-9:]
            for wanted in (positions, positions[::2], positions[1:2] + positions[5:]):
                read: list[LogEntry | None] = []
                while len(read) < len(wanted):
                    part = await scene.patiently(log.read_at(wanted[len(read) :], 3000))
                    assert 1 <= len(part) <= (9 if cached else 3)
                    read += part
                assert [one.position for one in read if one is not None] == wanted
            assert len(await scene.patiently(log.read_at(positions))) == 9
            assert len(await scene.patiently(log.read_at(positions, 1))) == (9 if cached else 1)
            await scene.patiently(log.close())


async def test_the_first_entry_at_a_time_is_found() -> None:
    """By the broker's time, over ledgers and within one."""

    async with running_log_scene() as scene:
        for options in (SMALL, ManagedLedgerSettings()):
            name = TOPIC if options is SMALL else TOPIC.partition(0)
            log = await scene.open(options=options, name=name)
            times = []
            for number in range(11):
                await scene.append(log, b"%d" % number)
                times.append(scene.clock.time_ms())
                if number % 3:
                    scene.clock.advance(1)
            entries = await scene.read_all(log)
            for number, entry in enumerate(entries):
                expected = next(place for place, time in enumerate(times) if time >= entry.broker_time_ms)
                found = await scene.patiently(log.find_first_at_time(entry.broker_time_ms))
                assert found == entries[expected].position, number
            assert await scene.patiently(log.find_first_at_time(0)) == entries[0].position
            assert await scene.patiently(log.find_first_at_time(times[-1] + 1)) == log.first_after(log.last)
            empty = await scene.open(name=TOPIC.partition(1))
            assert await scene.patiently(empty.find_first_at_time(0)) == empty.first_after(EARLIEST)


async def test_closing_log_stores_pending_entries_and_refuses_further_ones() -> None:
    async with running_log_scene() as scene:
        log = await scene.open(options=ManagedLedgerSettings())
        await scene.append(log, b"first")
        scene.outcomes.append(log, *numbered(5))
        closing = asyncio.create_task(log.close())
        await asyncio.sleep(0)
        scene.outcomes.append(log, b"late")
        await scene.patiently(asyncio.wait_for(closing, None))
        assert [one for one, _ in scene.outcomes.stored] == [b"first", *numbered(5)]
        assert isinstance(scene.outcomes.told[-1][1], TopicUnloaded)
        await log.close()
        with pytest.raises(TopicUnloaded):
            await log.trim(lambda: None)
        assert scene.lost == []
        assert (await scene.metadata(scene.outcomes.stored[-1][1].ledger_id)).is_closed


async def test_cancelled_anywhere_nothing_is_lost() -> None:
    """Whoever waits for a trim, a truncation, a read or the close may be cancelled at any await."""

    async def cancelled_at(scene: Scene, log: ManagedLedger, what: str, turns: int) -> bool:
        work = {
            "trim": lambda: log.trim(lambda: None),
            "truncate": lambda: log.truncate(),
            "read": lambda: log.read(EARLIEST, 5, 10_000),
            "close": log.close,
        }[what]()
        task = asyncio.create_task(work)
        for _ in range(turns):
            await asyncio.sleep(0)
        done = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await scene.idle()  # a change of the list that is under way goes on
        return done

    async with running_log_scene() as scene:
        turns, log, count = 0, await scene.open(cache_bytes=0), 0
        finished = dict.fromkeys(("trim", "truncate", "read", "close"), False)
        while not all(finished.values()):
            for what in finished:
                await scene.append(log, *numbered(4, count))
                count += 4
                finished[what] = await cancelled_at(scene, log, what, turns)
                if what == "close":
                    log.abandon()
                    log = await scene.open(cache_bytes=0)
                found = await scene.payloads(log)
                assert found == numbered(len(found), count - len(found))
                assert what != "read" or len(found) >= 4
            turns += 1
            assert turns < 2000
        await scene.patiently(log.truncate())
        await scene.every_ledger_is_accounted_for()
        assert scene.lost == []


async def test_an_idle_topic_has_neither_task_nor_timer() -> None:
    """CHK-59: however many topics there are, they cost nothing while nothing happens."""

    async with running_log_scene() as scene:

        async def used(number: int) -> ManagedLedger:
            log = await scene.open(name=TOPIC.partition(number))
            await scene.append(log, *numbered(5))
            await scene.read_all(log)
            await scene.patiently(log.trim(lambda: None))
            await scene.idle()
            return log

        def timers() -> int:
            return sum(timer.callback is not None for _, _, timer in scene.clock._due)

        logs = [await used(0)]
        tasks, running = len(asyncio.all_tasks()), timers()
        logs += [await used(number) for number in range(1, 20)]
        assert len(asyncio.all_tasks()) == tasks
        assert timers() == running
        assert len(logs) == 20


async def test_reads_stop_at_the_last_add_confirmed() -> None:
    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(2))
        for bookie in scene.bookies.values():
            bookie.hanging.add("add")
        scene.outcomes.append(log, b"pending")
        await scene.idle()
        assert await scene.payloads(log) == numbered(2)
        assert log.first_after(log.last) == Position(log.last.ledger_id, 2)
        log.abandon()


@pytest.mark.parametrize("at", range(1, 22))
async def test_late_deletion_does_not_affect_the_recreated_topic(at: int) -> None:
    """TOP-7: at whichever request it was held up, while another finished for it and the topic was made anew."""

    async with running_log_scene() as scene:
        old = await scene.open()
        await scene.append(old, *numbered(7))
        await scene.subscribe(old)
        slow = scene.server.connect()
        client = scene.another_client(slow)
        scene.clients.append(client)
        await client.start()
        scene.server.queue_faults(slow, *[None] * at, Fault.LOSE_REQUEST)
        late = asyncio.create_task(delete_topic(TOPIC, client, scene.clock, SeededRandomness(8)))
        await scene.wait(lambda: slow.session.state.name == "SUSPENDED" or late.done())
        await delete(scene)
        new = await scene.open()
        assert new.incarnation != old.incarnation
        await scene.append(new, *numbered(4))
        cursors = await scene.subscribe(new)
        scene.server.resume(slow)
        with suppress(BrokerError, MetadataError):
            await scene.patiently(asyncio.wait_for(late, None))
        await scene.append(new, *numbered(4, 4))
        assert await scene.payloads(new) == numbered(8)
        cursor = cursors.get("s")
        assert cursor is not None
        cursor.acknowledge_up_to(new.last)
        await scene.patiently(cursor.wait_until_saved())
        again = await scene.open(await scene.another())
        assert again.incarnation == new.incarnation
        assert await scene.payloads(again) == numbered(8)
        found = (await scene.patiently(scene.cursors(again))).get("s")
        assert found is not None
        assert found.mark_delete == again.last
        assert scene.lost == []


async def test_cursors_that_are_opened_late_do_not_bring_a_deleted_topic_back() -> None:
    """TOP-7: nothing rises below a topic's node, and with it an empty one, once that is gone."""

    async with running_log_scene() as scene:
        log = await scene.open()
        await delete(scene)
        with pytest.raises(TopicUnloaded):
            await scene.patiently(scene.cursors(log))
        assert await scene.store.get(paths.topic(TOPIC)) is None
        await scene.append(await scene.open(), b"anew")


@pytest.mark.parametrize("at", range(12))
async def test_late_metadata_change_does_not_affect_the_recreated_topic(at: int) -> None:
    """TOP-7: though the new topic's node comes by the very version that the change was made for."""

    async with running_log_scene() as scene:
        path, zombie = paths.topic(TOPIC), scene.server.connect()
        client = scene.another_client(zombie)
        scene.clients.append(client)
        await client.start()
        old = await scene.open(client)
        await scene.append(old, *numbered(3))
        scene.server.queue_faults(zombie, *[None] * at, Fault.HOLD_REQUEST)
        scene.outcomes.append(old, *numbered(9, 3))
        await scene.wait(lambda: zombie.session.state.name == "SUSPENDED")
        link = scene.server.find_session(zombie)
        assert link is not None
        late = [one for request in link.held for one in request.changes if isinstance(one, Put) and one.path == path]
        await delete(scene)
        new = await scene.open()
        versions = 0
        while late and versions < late[0].expected - 1:  # each life is a version
            versions += 1
            new = await scene.open()
        before = await scene.store.get(path)
        assert before is not None
        assert not late or before.version == late[0].expected
        scene.server.release(zombie)
        assert (await scene.store.get(path)) == before
        scene.server.resume(zombie)
        await scene.decided()
        assert isinstance(scene.outcomes.told[-1][1], TopicUnloaded)
        await scene.append(new, b"alone")
        assert await scene.payloads(new) == [b"alone"]


async def test_a_ledger_that_was_closed_empty_is_no_hindrance_to_a_trim() -> None:
    """CHK-31: it goes by itself, and with it nothing else does before its time."""

    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(3))
        for bookie in scene.bookies.values():
            bookie.hanging.add("add")
        scene.outcomes.append(log, b"never gets there")
        await scene.wait(lambda: log.stats().state == "written" and len(log.stats().ledgers) == 2)
        await scene.idle()
        log.abandon()
        for bookie in scene.bookies.values():
            bookie.hanging.clear()
        log = await scene.open(await scene.another())
        assert await scene.patiently(log.trim(lambda: None))
        assert not log.stats().ledgers
        assert not log.has_ledgers_to_delete
        assert log.last == log.before_first
        await scene.append(log, b"more")
        assert await scene.payloads(log) == [b"more"]
        assert log.next_index == 4


async def test_a_ledger_may_go_as_soon_as_its_last_entry_is_done_with() -> None:
    """RET-1, RET-3: also where the cursor stands in it still, at its end."""

    async with running_log_scene() as scene:
        log = await scene.open()
        assert not log.may_trim(None)
        await scene.append(log, *numbered(4))
        first = log.stats().ledgers[0].ledger_id
        assert not log.may_trim(Position(first, 1))
        assert log.may_trim(Position(first, 2))
        assert log.may_trim(None)
        await scene.patiently(log.leases.take_lease(bytes(16), first, 1000, "a reader"))
        assert not log.may_trim(None)
        await scene.patiently(log.leases.end_lease(bytes(16)))
        assert await scene.patiently(log.trim(lambda: Position(first, 2)))
        assert not log.may_trim(None)
