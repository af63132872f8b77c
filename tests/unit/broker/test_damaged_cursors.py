"""Cursors whose stored state is damaged, or can't be read now. Only their own subscriptions are affected."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from magnetar_broker import paths
from magnetar_broker.cursors.cursor_nodes import CursorNodes
from magnetar_broker.cursors.cursor_table import CursorTable
from magnetar_broker.errors import BrokerError, DamagedCursor, TopicUnloaded
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.managed_ledger.prefetched_topic import prefetch_topic
from magnetar_broker.position import Position
from magnetar_broker.settings.delivery import SubscriptionSettings
from magnetar_broker.topics.client_positions import StartPosition, find_start
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_metadata.compare_and_set import encode_first_value
from magnetar_metadata.store import ANY
from magnetar_protos.broker_pb2 import ErrorCode, StartAt
from magnetar_testing.randomness import SeededRandomness
from tests.unit.broker.cursor_scene import CursorScene, at, entries, open_cursors, running_cursor_scene
from tests.unit.broker.subscription_scene import EARLIEST, LATEST


def destroy(scene: CursorScene, ledger_id: int, entry_id: int) -> None:
    """Damage an entry on all bookies."""
    for bookie in scene.cluster.bookies.values():
        if entry_id in bookie.ledger(ledger_id).records:
            bookie.damage(ledger_id, entry_id)


async def with_ledgers(scene: CursorScene) -> dict[str, int]:
    """Leave two cursors of a dead broker, each with a ledger of three records. Return the ledgers' ids by name."""
    table = await scene.open()
    for name in ("bad", "good"):
        cursor = await table.create(name, at(5, -1), {"of": name})
        for number in (2, 4, 6):
            cursor.acknowledge(entries(5, number))
            await cursor.wait_until_saved()
    table.abandon()
    return {name: node.ledger_id for name in ("bad", "good") if (node := await scene.node(name)) is not None}


async def open_without_bookies(scene: CursorScene) -> CursorTable:
    """Open two cursors, `bad` and `good`, whose ledgers can't be read until `bring_back_bookies`."""
    await with_ledgers(scene)
    for bookie in scene.cluster.bookies.values():
        bookie.hanging = {"read", "fence"}
    return await open_cursors(scene.log, await scene.client(), scene.options, scene.clock, SeededRandomness(9))


def bring_back_bookies(scene: CursorScene) -> None:
    for bookie in scene.cluster.bookies.values():
        bookie.hanging = set()


def subscriptions_of(scene: CursorScene, table: CursorTable) -> Subscriptions:
    return Subscriptions(
        scene.log.name,
        scene.log,  # type: ignore[arg-type]
        table,
        SubscriptionSettings(),
        scene.clock,
        SeededRandomness(1),
    )


@pytest.mark.parametrize("record", [0, 1, 2])
async def test_damaged_cursor_is_refused_alone_with_repair_advice(record: int) -> None:
    """CHK-67; ADM-3: the error names the damage and the remedy; ACK-2: the log is retained from its position on."""

    async with running_cursor_scene() as scene:
        ledgers = await with_ledgers(scene)
        destroy(scene, ledgers["bad"], record)
        table = await scene.open()
        good = table.get("good")
        assert good is not None
        assert [good.is_acknowledged(at(5, number)) for number in (2, 3, 4, 6)] == [True, False, True, True]
        good.acknowledge_up_to(at(5, 50))
        await good.wait_until_saved()
        assert table.get("bad") is None
        assert sorted(table.names()) == ["bad", "good"]
        with pytest.raises(DamagedCursor) as raised:
            await table.wait_until_open("bad")
        message = str(raised.value)
        assert raised.value.code == ErrorCode.CHECKSUM_ERROR
        assert f"entry {record} of ledger {ledgers['bad']} can't be read" in message
        assert "Reset the subscription to a message or a time, or delete it" in message
        assert table.find_slowest_position() == at(5, -1)
        subscriptions = subscriptions_of(scene, table)
        (stats,) = [one for one in subscriptions.stats() if one.name == "bad"]
        assert (stats.damaged, stats.unopened, stats.blocked_by) == (True, True, message)
        assert stats.backlog_entries == scene.log.entries_between(at(5, -1), scene.log.last)
        with pytest.raises(BrokerError, match="is damaged"):
            await subscriptions.skip("bad", 1)
        with pytest.raises(BrokerError, match="already"):
            await table.create("bad", at(5, -1), {})


@pytest.mark.parametrize("way", ["reset", "delete"])
async def test_an_administrator_mends_it(way: str) -> None:
    """CHK-67: a reset, which is durable when it returns, or a deletion; the damaged ledger is deleted."""

    async with running_cursor_scene() as scene:
        ledgers = await with_ledgers(scene)
        destroy(scene, ledgers["bad"], 0)
        table = await scene.open()
        subscriptions = subscriptions_of(scene, table)
        if way == "delete":
            await subscriptions.delete("bad")
            assert table.names() == ["good"]
            await subscriptions.create("bad", EARLIEST)
            expected = scene.log.before_first
        else:
            await subscriptions.reset("bad", LATEST)
            expected = scene.log.last
        assert table.find_slowest_position() is not None
        assert ledgers["bad"] not in await scene.ledgers()
        table.abandon()
        table = await scene.open()
        cursor = table.get("bad")
        assert cursor is not None
        assert cursor.mark_delete == expected
        assert cursor.properties == ({} if way == "delete" else {"of": "bad"})
        cursor.acknowledge_up_to(scene.log.last)
        await cursor.wait_until_saved()


async def damage_node(scene: CursorScene, path: str, damage: str) -> bytes:
    """Overwrite the node's value, and return the new one."""
    store = scene.cluster.server.connect()
    stored = await store.get(path)
    assert stored is not None
    value = {"cut": stored.value[:-1], "cut early": stored.value[:9], "empty": b"", "garbage": b"\xff\xff\xff"}[damage]
    await store.put(path, value, stored.version)
    return value


@pytest.mark.parametrize("way", ["reset", "delete", "delete_topic"])
@pytest.mark.parametrize("damage", ["cut", "empty", "garbage"])
async def test_a_node_that_holds_no_cursor_is_damage_too(
    damage: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CHK-67: whether the value's envelope or the cursor in it can't be decoded. Other cursors are not affected. An
    administrator's reset or deletion repairs it, and logs the bytes of the node, which named a ledger."""

    async with running_cursor_scene() as scene:
        await with_ledgers(scene)
        store, path = scene.cluster.server.connect(), paths.cursor(scene.log.name, "bad")
        value = await damage_node(scene, path, damage)
        table = await scene.open()
        assert table.get("good") is not None
        with pytest.raises(DamagedCursor, match="is not a valid cursor"):
            await table.wait_until_open("bad")
        if way == "delete_topic":
            await scene.delete_topic()
            assert await store.get(path) is None
        else:
            subscriptions = subscriptions_of(scene, table)
            await (subscriptions.reset("bad", EARLIEST) if way == "reset" else subscriptions.delete("bad"))
            cursor = table.get("bad")
            assert (cursor is not None) == (way == "reset")
            if cursor is not None:
                cursor.acknowledge(entries(5, 3))
                await cursor.wait_until_saved()
            table.abandon()
            again = (await scene.open()).get("bad")
            assert (again is not None and again.is_acknowledged(at(5, 3))) == (way == "reset")
            assert (await store.get(path) is None) == (way == "delete")
        assert f"The node of cursor 'bad' of {scene.log.name} can't be decoded" in caplog.text
        assert f"{len(value)} bytes begin with {value.hex()}" in caplog.text


@pytest.mark.parametrize("damage", ["cut early", "empty", "garbage"])
async def test_a_cursor_table_s_node_that_can_t_be_decoded_costs_no_cursor(
    damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CHK-67, OWN-2: the node is replaced and logged, earlier owners are refused, and a deletion of the topic works."""

    async with running_cursor_scene() as scene:
        await with_ledgers(scene)
        zombie = await scene.open()
        store, path = scene.cluster.server.connect(), paths.cursors(scene.log.name)
        value = await damage_node(scene, path, damage)
        await store.put(paths.topic(scene.log.name), encode_first_value(b"", SeededRandomness(3)), ANY)
        assert (await prefetch_topic(store, scene.log.name)).cursors is None
        table = await scene.open()
        assert sorted(table.names()) == ["bad", "good"]
        for name in table.names():
            cursor = table.get(name)
            assert cursor is not None
            cursor.acknowledge(entries(5, 8))
            await cursor.wait_until_saved()
        assert f"no cursor is affected; its {len(value)} bytes began with {value.hex()}" in caplog.text
        with pytest.raises(TopicUnloaded):
            await zombie.create("late", at(5, -1), {})
        await table.create("new", at(5, -1), {})
        await damage_node(scene, path, damage)
        await scene.delete_topic()
        assert await store.get(path) is None


@pytest.mark.parametrize("way", ["reset", "delete"])
@pytest.mark.parametrize("by", ["another broker", "an operator"])
async def test_undecodable_node_is_not_overwritten_after_a_change(by: str, way: str) -> None:
    """CHK-67, OWN-2: by a broker that has lost the topic, or after a manual change of the node."""

    async with running_cursor_scene() as scene:
        await with_ledgers(scene)
        store, path = scene.cluster.server.connect(), paths.cursor(scene.log.name, "bad")
        await damage_node(scene, path, "empty")
        table = await scene.open()
        if by == "another broker":
            await scene.open()
        else:
            await store.put(path, b"manual", ANY)
        before = await store.get(path)
        with pytest.raises(TopicUnloaded):
            await (table.replace("bad", at(5, 3)) if way == "reset" else table.delete("bad"))
        assert await store.get(path) == before


async def test_bookies_that_are_away_are_no_damage_and_nobody_else_waits_for_them() -> None:
    """CHK-67: the table opens, other cursors work, and the cursor is opened when the bookies are back."""

    async with running_cursor_scene() as scene:
        table = await open_without_bookies(scene)  # returns although no bookie answers reads
        assert sorted(table.names()) == ["bad", "good"]
        assert table.find_slowest_position() == at(5, -1)
        new = await table.create("new", scene.log.last, {})
        assert new.mark_delete == scene.log.last
        with pytest.raises(BrokerError, match="can't be opened now") as raised:
            await table.wait_until_open("bad")
        assert not isinstance(raised.value, DamagedCursor)
        bring_back_bookies(scene)
        while table.get("bad") is None or table.get("good") is None:
            await asyncio.sleep(0)
        cursor = table.get("bad")
        assert cursor is not None
        assert cursor.is_acknowledged(at(5, 6))


# Longer than an administrator's change waits for the first attempt to open a cursor, and far shorter than an attempt.
_SOME_SECONDS = 5.0


async def test_one_that_can_t_be_opened_now_may_be_moved_or_deleted() -> None:
    """CHK-67: bookies may never come back. The first attempt, which takes a minute, is waited for some seconds."""

    async with running_cursor_scene() as scene:
        table = await open_without_bookies(scene)
        subscriptions = subscriptions_of(scene, table)
        began = scene.clock.monotonic()
        await subscriptions.reset("bad", StartAt(latest=True))
        assert scene.clock.monotonic() - began < _SOME_SECONDS
        cursor = table.get("bad")
        assert cursor is not None
        assert cursor.mark_delete == scene.log.last
        began = scene.clock.monotonic()
        await subscriptions.delete("good")
        assert scene.clock.monotonic() - began < _SOME_SECONDS
        assert table.names() == ["bad"]
        assert table.find_slowest_position() == scene.log.last
        assert isinstance(cursor.mark_delete, Position)


@pytest.mark.parametrize("way", ["reset", "delete"])
async def test_a_reset_or_deletion_that_fails_leaves_the_cursor_opening(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CHK-67: a healthy cursor opens when its bookies are back."""

    async def fail(*_: object, **__: object) -> None:
        raise BrokerError(ErrorCode.METADATA_ERROR, "no connection")

    async with running_cursor_scene() as scene:
        table = await open_without_bookies(scene)
        subscriptions = subscriptions_of(scene, table)
        with monkeypatch.context() as patch:
            patch.setattr(CursorNodes, "write", fail)
            with pytest.raises(BrokerError, match="no connection"):
                await (subscriptions.reset("bad", LATEST) if way == "reset" else subscriptions.delete("bad"))
        assert (unopened := table._opener.find("bad")) is not None
        assert unopened.task is not None  # else it is not opened any more
        bring_back_bookies(scene)
        # Waits for the next attempt, and raises if the last one failed.
        while table.get("bad") is None:
            with contextlib.suppress(BrokerError):
                await table.wait_until_open("bad")
        cursor = table.get("bad")
        assert cursor is not None
        assert cursor.is_acknowledged(at(5, 6))


@pytest.mark.parametrize("way", ["reset", "delete"])
async def test_reset_or_deletion_completes_after_its_caller_is_cancelled(way: str) -> None:
    """CHK-69: else the cursor would never be opened."""

    async with running_cursor_scene() as scene:
        table = await open_without_bookies(scene)
        change = table.replace("bad", scene.log.last) if way == "reset" else table.delete("bad")
        caller = asyncio.create_task(change)
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        await scene.turns()
        assert (table.get("bad") is not None) == (way == "reset")
        assert ("bad" in table.names()) == (way == "reset")


async def test_reset_seeks_a_cursor_that_opens_during_the_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """CHK-69: the bookies are back while the position is searched in the log."""
    find = find_start

    async def find_late(log: Log, start: StartAt) -> StartPosition:
        bring_back_bookies(scene_of_test[0])
        while tables[0].get("bad") is None:
            await asyncio.sleep(0)
        return await find(log, start)

    scene_of_test: list[CursorScene] = []
    tables: list[CursorTable] = []

    async with running_cursor_scene() as scene:
        scene_of_test.append(scene)
        tables.append(await open_without_bookies(scene))
        monkeypatch.setattr("magnetar_broker.topics.subscription_administration.find_start", find_late)
        await subscriptions_of(scene, tables[0]).reset("bad", LATEST)
        cursor = tables[0].get("bad")
        assert cursor is not None
        assert cursor.mark_delete == scene.log.last


@pytest.mark.parametrize("way", ["reset", "delete"])
async def test_a_reset_or_deletion_waits_for_no_further_attempt(way: str, caplog: pytest.LogCaptureFixture) -> None:
    """CHK-67: an attempt has failed, and the next one is in flight, which takes a minute."""

    async with running_cursor_scene() as scene:
        table = await open_without_bookies(scene)
        subscriptions = subscriptions_of(scene, table)
        with pytest.raises(BrokerError, match="can't be opened now"):
            await table.wait_until_open("bad")
        await scene.clock.sleep(1)  # past the pause before the next attempt
        failed = caplog.text.count("can't be opened now")
        began = scene.clock.monotonic()
        await (subscriptions.reset("bad", LATEST) if way == "reset" else subscriptions.delete("bad"))
        assert scene.clock.monotonic() - began < 1
        assert caplog.text.count("can't be opened now") == failed
        assert (table.get("bad") is not None) == (way == "reset")


@pytest.mark.parametrize("way", ["reset", "delete"])
@pytest.mark.parametrize("failed_before", [False, True])
async def test_waiting_callers_wake_when_cursor_is_replaced_or_deleted(way: str, failed_before: bool) -> None:
    """CHK-69"""

    async with running_cursor_scene() as scene:
        table = await open_without_bookies(scene)
        if failed_before:
            with pytest.raises(BrokerError, match="can't be opened now"):
                await table.wait_until_open("bad")
        waiting = asyncio.create_task(table.wait_until_open("bad"))
        await asyncio.sleep(0)
        change = asyncio.create_task(table.replace("bad", scene.log.last) if way == "reset" else table.delete("bad"))
        await asyncio.sleep(0)
        late = asyncio.create_task(table.wait_until_open("bad"))  # while it is not being opened
        await change
        await scene.turns()
        assert waiting.done()
        assert late.done()
        assert (waiting.exception() is None, late.exception() is None) == (True, not failed_before)
