"""The log: appends over many ledgers, openings, and what is read back."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_bookie.read.striping import Striping
from magnetar_broker.errors import TopicUnloaded
from magnetar_broker.position import EARLIEST, Position
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_wire.topic_name import TopicName
from tests.unit.broker.log_scene import SMALL, numbered, payload, running_log_scene


async def test_appended_entries_are_read_in_order_over_many_ledgers() -> None:
    async with running_log_scene() as scene:
        log = await scene.open()
        await scene.append(log, *numbered(20))
        assert [one for one, _ in scene.outcomes.stored] == numbered(20)
        positions = [position for _, position in scene.outcomes.stored]
        assert positions == sorted(positions)
        entries = await scene.read_all(log)
        assert [one.position for one in entries] == positions
        assert [payload(one) for one in entries] == numbered(20)
        assert len({position.ledger_id for position in positions}) == 7
        assert log.entries_between(EARLIEST, log.last) == 20
        assert log.entries_between(positions[4], positions[9]) == 5
        await log.close()
        again = await scene.open()
        assert await scene.payloads(again) == numbered(20)
        assert again.next_index == 20
        await scene.append(again, b"and more")
        assert await scene.payloads(again) == [*numbered(20), b"and more"]
        assert scene.lost == []


async def test_reads_without_a_cache_come_from_the_ledgers() -> None:
    async with running_log_scene() as scene:
        log = await scene.open(cache_bytes=0)
        await scene.append(log, *numbered(20))
        for at_a_time in (1, 2, 100):
            assert [payload(one) for one in await scene.read_all(log, at_a_time=at_a_time)] == numbered(20)
        first = scene.outcomes.stored[0][1]
        found = await scene.patiently(log.read_at([Position(first.ledger_id, 2), first, Position(10**9, 0)]))
        assert [None if one is None else payload(one) for one in found] == [b"message 2", b"message 0", None]


async def test_new_owner_fences_the_previous_one() -> None:
    """CHK-30: who is fenced gives the topic up at once, and all that was acknowledged is there for the next."""

    async with running_log_scene() as scene:
        old = await scene.open()
        await scene.append(old, *numbered(5))
        new = await scene.open(await scene.another())
        assert await scene.payloads(new) == numbered(5)
        await scene.append(old, b"too late")
        assert isinstance(scene.outcomes.told[-1][1], TopicUnloaded)
        assert len(scene.lost) == 1
        with pytest.raises(TopicUnloaded):
            await old.read(EARLIEST, 1, 1)
        await scene.append(new, b"in time")
        assert await scene.payloads(new) == [*numbered(5), b"in time"]
        assert new.next_index == 6


async def test_trim_detects_new_owner_by_changed_ledger_list() -> None:
    """CHK-30: a list that is not as it was left means that another broker owns the topic: no trim goes on."""

    async with running_log_scene() as scene:
        old = await scene.open()
        await scene.append(old, *numbered(7))
        await scene.patiently(old._appender.roll_ledger())
        new = await scene.open(await scene.another())
        with pytest.raises(TopicUnloaded):
            await scene.patiently(old.trim(lambda: None))
        assert len(scene.lost) == 1
        assert await scene.payloads(new) == numbered(7)


async def test_no_ledger_is_made_before_the_first_append_and_one_only() -> None:
    """CHK-59: opening a topic, and an idle roll, make no ledger. CHK-31: however many appends wait, one is made."""

    async with running_log_scene() as scene:
        log = await scene.open(options=ManagedLedgerSettings())
        node = await scene.node()
        assert node is not None
        assert not node.ledgers
        await scene.append(log, *numbered(10))
        node = await scene.node()
        assert node is not None
        assert len(node.ledgers) == 1
        scene.clock.advance(4 * 3600 + 1)
        log.tick()
        await scene.wait(lambda: log.closed_ledgers == 1)
        assert log.stats().state == "idle"
        await scene.append(log, *numbered(10, 10))
        node = await scene.node()
        assert node is not None
        assert len(node.ledgers) == 2
        assert await scene.payloads(log) == numbered(20)


async def test_the_ledger_of_an_idle_topic_is_closed_early_if_that_is_set() -> None:
    """RET-3, CHK-59: once, and not while something is published; without it, the ledger stays for four hours."""
    idle = ManagedLedgerSettings(managed_ledger_inactive_ledger_rollover_time_seconds=60)
    async with running_log_scene() as scene:
        for options, expected in ((ManagedLedgerSettings(), 0), (idle, 1)):
            log = await scene.open(options=options, name=TopicName.parse(f"t{expected}"))
            for number in range(3):
                await scene.append(log, *numbered(1, number))
                scene.clock.advance(59)
                log.tick()
            await scene.idle()
            assert log.closed_ledgers == 0
            for _ in range(3):
                scene.clock.advance(60)
                log.tick()
                await scene.idle()
            assert (log.closed_ledgers, len(log.ledger_list.ledgers)) == (expected, 1)


async def test_a_clock_that_was_ahead_is_reported_and_stops_no_idle_roll(caplog: pytest.LogCaptureFixture) -> None:
    """RET-2, RET-3: the times of entries never fall, so they do not expire for that long. It is logged once."""
    idle = ManagedLedgerSettings(managed_ledger_inactive_ledger_rollover_time_seconds=60)
    async with running_log_scene() as scene:
        log = await scene.open(options=idle)
        await scene.append(log, *numbered(1))
        now_ms = scene.clock.time_ms()
        scene.clock.time_ms = lambda: now_ms - 365 * 86_400_000  # type: ignore[method-assign]
        await scene.append(log, *numbered(1, 1))
        for _ in range(3):
            log.tick()
            await scene.idle()
            scene.clock.advance(60)
        assert log.closed_ledgers == 1
        assert caplog.text.count("31536000 s ahead of this broker's clock") == 1


async def test_no_ledger_waits_for_the_policies() -> None:
    """TOP-4: it is created with the striping that is known, and rolled over when another one is."""
    async with running_log_scene() as scene:
        answered: asyncio.Future[Striping] = asyncio.get_running_loop().create_future()
        log = await scene.open(read_striping=lambda: asyncio.shield(answered))
        await scene.append(log, *numbered(7))
        answered.set_result(Striping(1, 1, 1))
        await scene.idle()
        log.tick()
        await scene.append(log, *numbered(1, 7))
        stripings = [(await scene.metadata(one.ledger_id)).striping.ensemble_size for one in log.ledger_list.ledgers]
        assert stripings == [SMALL.striping.ensemble_size] * 3 + [1]
        log.tick()
        await scene.append(log, *numbered(1, 8))
        assert len(log.ledger_list.ledgers) == 4
