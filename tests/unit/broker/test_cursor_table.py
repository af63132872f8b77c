"""The durable cursors of a topic: saving and restoring them, changes of the owner, and deletion of their ledgers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

import pytest

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.paths import ledger as ledger_path
from magnetar_broker.cursors import cursor_node_writer
from magnetar_broker.cursors.cursor_nodes import CursorNodes
from magnetar_broker.cursors.cursor_table import CursorTable
from magnetar_broker.cursors.durable_cursor import DurableCursor
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.trimmer import delete_ledgers
from magnetar_broker.settings.managed_ledgers import CursorSettings
from magnetar_metadata.store import ANY
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_testing.randomness import SeededRandomness
from tests.unit.broker.cursor_scene import CursorScene, at, entries, running_cursor_scene


async def test_saved_acknowledgements_are_restored_on_reopen() -> None:
    """ACK-1, ACK-2: positions, holes, and messages of a batch; from one snapshot and the changes after it."""

    async with running_cursor_scene() as scene:
        table = await scene.open()
        cursor = await table.create("s", at(5, 9), {"who": "we"})
        cursor.acknowledge([(5, 10, 19), (5, 30, 39)], [(at(5, 50), 0b101, 4)])
        await cursor.wait_until_saved()
        cursor.acknowledge(entries(5, 41, 60), [(at(5, 50), 0b010, 4), (at(5, 51), 1, 2)])
        await cursor.wait_until_saved()
        assert await scene.ledgers() == [1]
        table.abandon()
        again = (await scene.open()).get("s")
        assert again is not None
        assert again.properties == {"who": "we"}
        assert again.mark_delete == again.saved_mark_delete == at(5, 19)
        assert [one for one in range(100) if again.is_acknowledged(at(5, one))] == [*range(20), *range(30, 40), 41, 60]
        assert [again.get_acknowledged_messages(at(5, one)) for one in (49, 50, 51)] == [0, 0b111, 1]
        assert again.count_unacknowledged() == 100 - 32
        assert again.find_unacknowledged_after(at(5, 25)) == at(5, 26)


async def test_acks_during_a_pending_save_share_the_next_record() -> None:
    """ACK-2: they hold back trimming until they are durable."""
    async with running_cursor_scene() as scene:
        table = await scene.open()
        cursor = await table.create("s", at(5, -1), {})
        cursor.acknowledge(entries(5, 0))
        await cursor.wait_until_saved()
        bookies = scene.cluster.bookies.values()
        for bookie in bookies:
            bookie.hanging = {"add"}
        receipts = []
        for entry_id in range(1, 30):
            cursor.acknowledge(entries(5, entry_id))
            receipts.append(asyncio.create_task(cursor.wait_until_saved()))
            await scene.turns(3)
        assert cursor.mark_delete == at(5, 29)
        assert cursor.saved_mark_delete == table.find_slowest_position() == at(5, 0)
        assert not any(receipt.done() for receipt in receipts)
        for bookie in bookies:
            bookie.hanging = set()
        await asyncio.gather(*receipts)
        assert cursor.saved_mark_delete == at(5, 29)


@pytest.mark.parametrize("is_abandoned", [False, True])
async def test_a_callback_that_raises_keeps_no_other_from_its_result(
    is_abandoned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither when a save is complete nor when the cursors are closed; and the cursors stay open."""

    async with running_cursor_scene() as scene:
        table = await scene.open()
        lost: list[TopicUnloaded] = []
        table.on_lost = lost.append
        cursor = await table.create("s", at(5, -1), {})
        results: list[BrokerError | None] = []

        def fail(_error: BrokerError | None) -> None:
            raise ValueError("a broken caller")

        cursor.acknowledge(entries(5, 0))
        cursor.call_when_saved(fail)
        cursor.call_when_saved(results.append)
        if is_abandoned:
            table.abandon()
            assert [type(result) for result in results] == [TopicUnloaded]
        else:
            await cursor.wait_until_saved()
            assert results == [None]
            cursor.acknowledge(entries(5, 1))
            await cursor.wait_until_saved()
        assert not lost
    assert [record.message for record in caplog.records] == ["The callback of a save failed"]


async def test_new_owner_fences_the_cursors_of_the_previous_one() -> None:
    """OWN-2: opening a cursor fences its ledger, so acknowledgements of the former owner fail."""

    async with running_cursor_scene() as scene:
        zombie = await scene.open()
        lost: list[TopicUnloaded] = []
        zombie.on_lost = lost.append
        cursor = await zombie.create("s", at(5, -1), {})
        idle = await zombie.create("idle", at(5, -1), {})
        cursor.acknowledge(entries(5, 0, 2))
        await cursor.wait_until_saved()
        heir = await scene.open()
        cursor.acknowledge(entries(5, 4))
        with pytest.raises(TopicUnloaded):
            await cursor.wait_until_saved()
        assert len(lost) == 1
        for refused in (
            idle.wait_until_saved(),
            idle.move_to(at(5, 7)),
            zombie.create("n", at(5, 0), {}),
            zombie.delete("s"),
        ):
            idle.acknowledge(entries(5, 5))
            with pytest.raises(TopicUnloaded):
                await refused
        inherited = heir.get("s")
        assert inherited is not None
        assert [one for one in range(9) if inherited.is_acknowledged(at(5, one))] == [0, 2]
        inherited.acknowledge(entries(5, 1))
        await inherited.wait_until_saved()
        assert len(lost) == 1
        assert [cursor.name for cursor in heir.durable_cursors()] == ["idle", "s"]


@pytest.mark.parametrize("what", ["first save", "create", "delete", "next ledger", "close"])
async def test_replaced_owner_changes_no_cursor_node(what: str) -> None:
    """OWN-2: also if there is no ledger to fence."""

    async with running_cursor_scene(bookies=5) as scene:
        zombie = await scene.open()
        fresh = await zombie.create("fresh", at(5, -1), {})
        used = await zombie.create("used", at(5, -1), {})
        used.acknowledge(entries(5, 1))
        await used.wait_until_saved()
        if what == "next ledger":
            for bookie in list(scene.cluster.bookies.values())[:2]:
                bookie.failing = {"add"}
        heir = await scene.open()
        before = [await scene.node(name) for name in ("fresh", "used", "new")]
        fresh.acknowledge(entries(5, 0))
        with pytest.raises(TopicUnloaded):
            match what:
                case "first save":
                    await fresh.wait_until_saved()
                case "create":
                    await zombie.create("new", at(5, 3), {})
                case "delete":
                    await zombie.delete("used")
                case "next ledger":
                    used.acknowledge(entries(5, 9))
                    await used.wait_until_saved()
                case _:
                    await zombie.close()
        for bookie in scene.cluster.bookies.values():
            bookie.failing = set()
        assert [await scene.node(name) for name in ("fresh", "used", "new")] == before
        for cursor in heir.durable_cursors():
            cursor.acknowledge(entries(5, 7))
            await cursor.wait_until_saved()


async def test_cursor_in_deleted_ledger_moves_to_the_next_one() -> None:
    """CHK-54, ACK-2: acknowledgements in a deleted ledger are not applied to another ledger."""

    async with running_cursor_scene() as scene:
        table = await scene.open()
        cursor = await table.create("s", at(5, 9), {})
        scene.log.roll(6)
        scene.log.append(50)
        cursor.acknowledge([*entries(5, 20, 30), *entries(6, 3)])
        await cursor.wait_until_saved()
        lagging = await table.create("untouched", at(5, 0), {})
        scene.log.trim(at(5, 99))
        table.abandon()
        for _ in range(3):
            table = await scene.open()
            found = [table.get(name) for name in ("s", "untouched")]
            assert [one and one.mark_delete for one in found] == [at(6, -1)] * 2
            assert [one and one.count_unacknowledged() for one in found] == [49, 50]
            assert [one for one in range(50) if found[0] and found[0].is_acknowledged(at(6, one))] == [3]
            scene.log.append(1)
            scene.log.ledgers[6] -= 1
            table.abandon()
        # The same while the cursor is open.
        table = await scene.open()
        scene.log.roll(9)
        scene.log.append(1)
        transient = table.create_transient("t", at(6, 10))
        scene.log.trim(at(6, 49))
        table.drop_trimmed_ledgers()
        assert [cursor.mark_delete for cursor in table.durable_cursors()] == [at(9, -1)] * 2
        assert transient.mark_delete == at(9, -1)
        assert lagging.mark_delete == at(5, 0)


async def test_non_durable_cursor_does_not_hold_back_trimming() -> None:
    """SUB-7: nothing is retained for a reader; only durable cursors count for trimming."""

    async with running_cursor_scene() as scene:
        table = await scene.open()
        reader = table.create_transient("reader", at(5, -1))
        assert table.find_slowest_position() is None
        cursor = await table.create("s", at(5, -1), {})
        cursor.acknowledge([(5, 0, 49)])
        await cursor.wait_until_saved()
        assert reader.mark_delete == at(5, -1)
        assert table.find_slowest_position() == at(5, 49)


async def test_retention_mark_is_recorded_before_the_first_cursor() -> None:
    """RET-1: if it can't be recorded, no cursor is created. It is recorded for each first cursor, and for no other."""

    async with running_cursor_scene() as scene:
        table = await scene.open()
        marks = scene.log.retention
        marks.fails = BrokerError(ErrorCode.METADATA_ERROR, "not now")
        with pytest.raises(BrokerError, match="not now"):
            await table.create("s", at(5, -1), {})
        assert (await scene.node("s"), table.names(), table.find_slowest_position()) == (None, [], None)
        marks.fails = None
        for names in (("s", "other"), ("again",)):
            marks.calls.clear()
            for name in names:
                await table.create(name, at(5, -1), {})
            assert marks.calls[:2] == ["mark", "save"]
            assert marks.calls.count("mark") == 1
            for name in names:
                await table.delete(name)


async def test_a_long_ledger_is_followed_by_one_that_begins_with_a_snapshot() -> None:
    """ACK-2: so little has to be read on a recovery, and one ledger is left."""

    async with running_cursor_scene() as scene:
        scene.options = CursorSettings(managed_ledger_cursor_max_size_per_ledger_bytes=300)
        table = await scene.open()
        cursor = await table.create("s", at(5, -1), {})
        for entry_id in range(1, 99, 2):
            cursor.acknowledge(entries(5, entry_id))
            await cursor.wait_until_saved()
        await scene.turns()
        await scene.delete_former_ledgers(table)
        node = await scene.known("s")
        assert node.ledger_id > 1
        assert await scene.ledgers() == [node.ledger_id]
        assert not await scene.intents()
        again = (await scene.open()).get("s")
        assert again is not None
        assert [one for one in range(100) if again.is_acknowledged(at(5, one))] == list(range(1, 99, 2))


async def test_a_cursor_of_a_dead_broker_is_opened_with_few_requests() -> None:
    """OWN-2: a take-over opens hundreds of cursors. Each costs two reads and two transactions of the metadata store, a
    fence at three bookies, which returns the end of the ledger, and one read of its entries. Later changes read no
    nodes."""

    async with running_cursor_scene() as scene:
        table = await scene.open()
        for name in "abcd":
            cursor = await table.create(name, at(5, -1), {})
            cursor.acknowledge(entries(5, 3))
            await cursor.wait_until_saved()
            cursor.acknowledge(entries(5, 5))
            await cursor.wait_until_saved()
        table.abandon()
        client = await scene.client()
        for bookie in scene.cluster.bookies.values():
            bookie.reads_with_fences = True
            bookie.calls.clear()
        store, requests = client.ledgers.store, dict.fromkeys(("get", "transaction", "children", "sync"), 0)
        for method in requests:
            setattr(store, method, counted(requests, method, getattr(store, method)))
        again = await scene.open(client)
        assert [cursor.is_acknowledged(at(5, 5)) for cursor in again.durable_cursors()] == [True] * 4
        # One more of each for all cursors: the table is claimed, and its cursors are listed. And the cursor of
        # deduplication is read when they are claimed.
        assert requests == {"get": 2 + 4 * 2, "transaction": 1 + 4 * 2, "children": 1, "sync": 0}
        calls = [method for bookie in scene.cluster.bookies.values() for method, _ in bookie.calls if method != "add"]
        assert (calls.count("fence"), len(calls)) == (4 * 3, 4 * 3 + 4)
        requests.update(get=0, transaction=0)
        for cursor in again.durable_cursors():
            cursor.acknowledge(entries(5, 7))
            await cursor.wait_until_saved()
        # Each cursor creates a ledger, which needs an id.
        assert (requests["get"], requests["transaction"]) == (4, 4 * 3)
        await again.delete("d")
        # The deletion of each of its two ledgers reads it.
        assert requests["get"] == 4 + 2
        again.durable_cursors()[0].acknowledge_up_to(at(5, 9))
        await again.close()
        assert requests["get"] == 4 + 2


def counted(requests: dict[str, int], method: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def counting(*arguments: Any, **named: Any) -> Any:
        requests[method] += 1
        return call(*arguments, **named)

    return counting


async def test_ledgers_that_are_left_to_delete_have_a_bound_and_hold_up_nobody() -> None:
    """CHK-58: opening and closing a cursor deletes no ledger. Its node names all former ledgers, also without
    housekeeping only a few."""

    async with running_cursor_scene() as scene:
        scene.options = CursorSettings(managed_ledger_cursor_max_entries_per_ledger=2)
        table = await scene.open()
        cursor = await table.create("s", at(5, -1), {})
        most = 0
        for entry_id in range(0, 60, 2):
            cursor.acknowledge(entries(5, entry_id))
            await cursor.wait_until_saved()
            most = max(most, len(await scene.ledgers()))
        assert 4 < most <= 7
        await scene.turns()
        there = await scene.ledgers()
        assert len(there) > 1
        for table in (await scene.open(), await scene.open()):
            node = await scene.known("s")
            assert await scene.ledgers() == sorted([*node.deleting, node.ledger_id]) == there
            await table.close()
        table = await scene.open()
        await scene.delete_former_ledgers(table)
        assert await scene.ledgers() == [there[-1]]


async def with_former_ledgers(scene: CursorScene, *names: str) -> CursorTable:
    """Create cursors, each with a former ledger of a dead broker, which is to be deleted, and a current one."""
    table = await scene.open()
    for name in names:
        cursor = await table.create(name, at(5, -1), {})
        cursor.acknowledge(entries(5, 2))
        await cursor.wait_until_saved()
    table.abandon()
    table = await scene.open()
    for cursor in table.durable_cursors():
        cursor.acknowledge(entries(5, 4))
        await cursor.wait_until_saved()
        assert (await scene.known(cursor.name)).deleting
    return table


@pytest.mark.parametrize("then", ["another save", "close", "delete"])
async def test_no_save_waits_for_the_deletion_of_former_ledgers(then: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CHK-58, ACK-1: a save needs only bookies, not the metadata store. No close or deletion waits either."""

    async with running_cursor_scene() as scene:
        gate = asyncio.Event()
        begun: list[int] = []

        async def delete_late(client: LedgerClient, ledger_ids: list[int]) -> list[int]:
            first = not begun
            begun.extend(ledger_ids)
            if first:
                await gate.wait()
            return await delete_ledgers(client, ledger_ids)

        table = await with_former_ledgers(scene, "s")
        cursor = table.get("s")
        assert cursor is not None
        left = list((await scene.known("s")).deleting)
        monkeypatch.setattr(cursor_node_writer, "delete_ledgers", delete_late)
        table.tick(0.0)
        await scene.turns()
        assert begun == left
        cursor.acknowledge(entries(5, 6))
        await cursor.wait_until_saved()
        match then:
            case "close":
                await table.close()
            case "delete":
                await table.delete("s")
                assert not await scene.ledgers()
            case _:
                gate.set()
                await scene.delete_former_ledgers(table)
                cursor.acknowledge(entries(5, 8))
                await cursor.wait_until_saved()
                assert await scene.ledgers() == [(await scene.known("s")).ledger_id]
        gate.set()
        await scene.turns()
        if then == "delete":
            assert await scene.node("s") is None
        else:
            assert await _acknowledged(scene, "s") == [2, 4, 6, 8][: 3 + (then == "another save")]


def delete_all_but(undeletable: Collection[int]) -> Callable[[LedgerClient, list[int]], Awaitable[list[int]]]:
    """Return a replacement of `delete_ledgers` that can't delete the `undeletable` ledgers."""

    async def delete(client: LedgerClient, ledger_ids: list[int]) -> list[int]:
        return await delete_ledgers(client, [one for one in ledger_ids if one not in undeletable])

    return delete


async def test_undeletable_ledger_does_not_block_deletion_of_others() -> None:
    """CHK-58: the cursor has more former ledgers than a save leaves. All others are deleted, the node names all that
    exist, and the current one is never deleted. The undeletable one is deleted when that is possible."""

    async with running_cursor_scene() as scene:
        scene.options = CursorSettings(managed_ledger_cursor_max_entries_per_ledger=1)
        table = await scene.open()
        cursor = await table.create("s", at(5, -1), {})
        store = scene.cluster.server.connect()

        async def save_each(entry_ids: Iterable[int]) -> list[list[int]]:
            """Save each entry in a new ledger. Return the former ledgers that the node names after each save."""
            named = []
            for entry_id in entry_ids:
                cursor.acknowledge(entries(5, entry_id))
                await cursor.wait_until_saved()
                await scene.turns()
                node = await scene.known("s")
                assert await scene.ledgers(but=stuck) == sorted({*node.deleting, node.ledger_id} - {stuck})
                named.append(list(node.deleting))
            return named

        stuck = 0
        await save_each([2])
        (stuck,) = await scene.ledgers()
        path = ledger_path(stuck)
        metadata = await store.get(path)
        assert metadata is not None
        await store.put(path, b"no ledger's metadata", metadata.version)
        named = await save_each(range(4, 60, 2))
        assert all(ledgers[0] == stuck for ledgers in named)
        assert max(map(len, named)) == 4
        table.tick(0.0)
        await scene.turns()
        assert list((await scene.known("s")).deleting) == [stuck]
        await store.put(path, metadata.value, ANY)
        await scene.delete_former_ledgers(table)
        assert await scene.ledgers() == [(await scene.known("s")).ledger_id]
        assert not await scene.intents()
        assert await _acknowledged(scene, "s") == list(range(2, 60, 2))


async def test_a_deletion_deletes_each_ledger_that_can_be_deleted() -> None:
    """CHK-58: one can't be deleted now. The next opening of the topic deletes it, and the node that names it."""

    async with running_cursor_scene() as scene:
        table = await with_former_ledgers(scene, "s")
        stuck, in_use = await scene.ledgers()
        store, path = scene.cluster.server.connect(), ledger_path(stuck)
        metadata = await store.get(path)
        assert metadata is not None
        await store.put(path, b"no ledger's metadata", metadata.version)
        await table.delete("s")
        assert table.names() == []
        assert await scene.ledgers(but=stuck) == []
        node = await scene.known("s")
        assert (node.deleted, list(node.deleting), node.ledger_id) == (True, [stuck], in_use)
        await store.put(path, metadata.value, ANY)
        await scene.open()
        await scene.turns()
        assert await scene.ledgers() == []
        assert await scene.node("s") is None


async def test_undeletable_ledger_does_not_block_other_cursors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CHK-58: for each cursor that may have it."""

    async with running_cursor_scene() as scene:
        table = await with_former_ledgers(scene, "a", "b", "c")
        for stuck in "abc":
            for cursor in table.durable_cursors():  # each has one more former ledger
                assert isinstance(cursor, DurableCursor)
                cursor._drop_ledger()
                cursor.acknowledge(entries(5, 10 + ord(stuck) - ord("a")))
                await cursor.wait_until_saved()
            undeletable = list((await scene.known(stuck)).deleting)

            monkeypatch.setattr(cursor_node_writer, "delete_ledgers", delete_all_but(undeletable))
            for _ in range(6):
                table.tick(0.0)
                await scene.turns()
            assert [name for name in "abc" if (await scene.known(name)).deleting] == [stuck]


async def test_gracefully_closed_cursor_without_holes_leaves_no_ledger() -> None:
    async with running_cursor_scene() as scene:
        table = await scene.open()
        names = ["used", "unused", "unsaved", "holes"]
        used, _, unsaved, holes = [await table.create(name, at(5, -1), {}) for name in names]
        used.acknowledge_up_to(at(5, 10))
        await used.wait_until_saved()
        moves = used.moves
        await used.move_to(at(5, 3))
        unsaved.acknowledge([(5, 0, 7)])
        holes.acknowledge([(5, 3, 7)], [(at(5, 20), 1, 2)])
        await table.close()
        node = await scene.known("holes")
        assert not (await scene.known("used")).ledger_id
        table = await scene.open()
        await scene.delete_former_ledgers(table)
        assert await scene.ledgers() == [node.ledger_id]
        found = [table.get(name) for name in names]
        assert [one and one.mark_delete.entry_id for one in found] == [3, -1, 7, -1]
        assert found[0] is not None
        assert found[0].moves == moves + 1
        assert [one and one.get_acknowledged_messages(at(5, 20)) for one in found] == [0, 0, 0, 1]
        assert [one and one.count_unacknowledged() for one in found] == [96, 100, 92, 95]


async def test_idle_cursor_releases_its_ledger_until_used_again() -> None:
    """CHK-59: also a ledger of a dead broker. Acknowledgements made in the meantime are saved after it."""

    async with running_cursor_scene() as scene:
        table = await scene.open()
        used, holes = await table.create("used", at(5, -1), {}), await table.create("holes", at(5, -1), {})
        used.acknowledge([(5, 0, 3)])
        holes.acknowledge([(5, 3, 3)])
        await used.wait_until_saved()
        await holes.wait_until_saved()
        table.abandon()
        table = await scene.open()
        for now in (0.0, 299.0):
            table.tick(now)
            await scene.turns()
        assert len(await scene.ledgers()) == 2
        cursor = table.get("used")
        assert cursor is not None
        for turns in range(1, 60, 4):
            table.tick(now := now + 400)
            await scene.turns(turns)
            cursor.acknowledge(entries(5, 3 + turns))
            receipt = asyncio.create_task(cursor.wait_until_saved())
            cursor.acknowledge_up_to(at(5, 3 + turns))
            await receipt
            await cursor.wait_until_saved()
            again = (await scene.open()).get("used")
            assert again is not None
            assert again.mark_delete == at(5, 3 + turns)
            assert table.get("used") is cursor
            table = await scene.open()
            cursor = table.get("used")
            assert cursor is not None
            table.tick(now)
        await scene.delete_former_ledgers(table, now)
        table.tick(now + 400)
        await scene.turns()
        await scene.delete_former_ledgers(table, now + 400)
        node = await scene.known("holes")
        assert await scene.ledgers() == [node.ledger_id]


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 10, 20])
async def test_acks_during_release_of_idle_ledger_are_saved(turns: int) -> None:
    """ACK-1: the position in the node can't represent holes, so saving it completes no receipt for them."""

    async with running_cursor_scene() as scene:
        table = await scene.open()
        cursor = await table.create("s", at(5, -1), {})
        cursor.acknowledge(entries(5, 0))
        await cursor.wait_until_saved()
        table.tick(0.0)
        table.tick(400.0)
        await scene.turns(turns)
        cursor.acknowledge(entries(5, 3, 4), [(at(5, 8), 1, 2)])
        await cursor.wait_until_saved()
        await scene.turns()
        again = (await scene.open()).get("s")
        assert again is not None
        assert [one for one in range(9) if again.is_acknowledged(at(5, one))] == [0, 3, 4]
        assert again.get_acknowledged_messages(at(5, 8)) == 1


async def test_failed_release_of_idle_ledger_loses_no_ack() -> None:
    """ACK-1: the cursor continues in its ledger, or in a new one with the whole state."""

    async with running_cursor_scene() as scene:
        client = await scene.client(session_timeout_s=1000.0)
        table = await scene.open(client)
        cursor = await table.create("s", at(5, -1), {})
        cursor.acknowledge(entries(5, 0))
        await cursor.wait_until_saved()
        table.tick(0.0)
        scene.cluster.server.suspend(client.ledgers.store)  # type: ignore[arg-type]
        table.tick(400.0)
        await scene.turns()
        cursor.acknowledge(entries(5, 3))
        receipt = asyncio.create_task(cursor.wait_until_saved())
        await scene.clock.sleep(40.0)
        scene.cluster.server.resume(client.ledgers.store)  # type: ignore[arg-type]
        cursor.acknowledge(entries(5, 5))
        await receipt
        await cursor.wait_until_saved()
        assert await _acknowledged(scene, "s") == [0, 3, 5]


async def test_take_over_count_is_saved_with_the_cursor() -> None:
    """So acknowledgements of a consumer that has only reconnected count at the next owner, too."""

    async with running_cursor_scene() as scene:
        table = await scene.open()
        cursor = await table.create("s", at(5, -1), {})
        cursor.record_take_over()
        cursor.record_take_over()
        assert not await scene.ledgers()  # a take-over alone is not saved
        cursor.acknowledge(entries(5, 0))
        await cursor.wait_until_saved()
        table = await scene.open()  # from the ledger
        again = table.get("s")
        assert again is not None
        assert again.take_overs == 2
        again.record_take_over()
        await table.close()
        again = (await scene.open()).get("s")  # from the node
        assert again is not None
        assert (again.take_overs, again.moves) == (3, cursor.moves)


async def test_seek_is_durable_and_holds_back_trimming_immediately() -> None:
    """SUB-9, ACK-2: back over acknowledged entries, which are redelivered."""

    async with running_cursor_scene() as scene:
        table = await scene.open()
        cursor = await table.create("s", at(5, -1), {})
        cursor.acknowledge([(5, 0, 49), (5, 60, 69)], [(at(5, 80), 1, 3)])
        await cursor.wait_until_saved()
        assert table.find_slowest_position() == at(5, 49)
        moves = cursor.moves
        moving = asyncio.create_task(cursor.move_to(at(5, 19)))
        await asyncio.sleep(0)
        assert table.find_slowest_position() == at(5, 19)
        await moving
        # Acknowledgements after the seek do not count before they are durable.
        for bookie in scene.cluster.bookies.values():
            bookie.hanging = {"add"}
        moving = asyncio.create_task(cursor.move_to(at(5, 9)))
        await scene.turns()
        cursor.acknowledge([(5, 10, 19)])
        assert cursor.mark_delete == at(5, 19)
        assert table.find_slowest_position() == at(5, 9)
        for bookie in scene.cluster.bookies.values():
            bookie.hanging = set()
        await moving
        cursor.acknowledge(entries(5, 25))
        await cursor.wait_until_saved()
        assert table.find_slowest_position() == at(5, 19)
        again = (await scene.open()).get("s")
        assert again is not None
        assert again.moves == moves + 2
        assert [one for one in range(100) if again.is_acknowledged(at(5, one))] == [*range(20), 25]
        assert not again.get_acknowledged_messages(at(5, 80))


async def test_cursor_continues_in_another_ledger_after_recovery() -> None:
    """ACK-1: a fenced ledger does not mean that another broker owns the cursor."""

    async with running_cursor_scene() as scene:
        table = await scene.open()
        cursor = await table.create("s", at(5, -1), {})
        cursor.acknowledge(entries(5, 1))
        await cursor.wait_until_saved()
        (ledger_id,) = await scene.ledgers()
        await (await scene.client()).recover(ledger_id)
        cursor.acknowledge(entries(5, 3))
        await cursor.wait_until_saved()
        again = (await scene.open()).get("s")
        assert again is not None
        assert [one for one in range(100) if again.is_acknowledged(at(5, one))] == [1, 3]


async def test_a_cursor_is_deleted_with_its_ledger_and_may_be_made_again() -> None:
    """CHK-58: nothing of it is left in the stores."""

    async with running_cursor_scene() as scene:
        table = await scene.open()
        cursor = await table.create("s", at(5, -1), {})
        cursor.acknowledge(entries(5, 4))
        await cursor.wait_until_saved()
        waiting = asyncio.create_task(cursor.wait_until_saved())
        await table.delete("s")
        await waiting
        assert table.get("s") is None
        assert await scene.node("s") is None
        assert not await scene.ledgers()
        with pytest.raises(BrokerError) as refused:
            await table.delete("s")
        assert refused.value.code == ErrorCode.SUBSCRIPTION_NOT_FOUND
        with pytest.raises(BrokerError):
            await cursor.move_to(at(5, 1))
        scene.clock.advance(0.01)
        again = await table.create("s", at(5, 50), {})
        # So messages delivered for the one are not acknowledged for the other.
        assert again.moves != cursor.moves
        assert not again.is_acknowledged(at(5, 60))
        assert again.mark_delete == at(5, 50)


async def test_interrupted_cursor_deletion_is_finished_on_next_open() -> None:
    """CHK-58: the cursor is not visible in the meantime."""

    async with running_cursor_scene() as scene:
        client = await scene.client()
        table = await scene.open(client)
        cursor = await table.create("s", at(5, -1), {})
        cursor.acknowledge(entries(5, 4))
        await cursor.wait_until_saved()
        deleting = asyncio.create_task(table.delete("s"))
        while not (node := await scene.node("s")) or not node.deleted:
            await asyncio.sleep(0)
        scene.cluster.server.expire(client.ledgers.store)  # type: ignore[arg-type]
        await asyncio.gather(deleting, return_exceptions=True)
        assert await scene.node("s") is not None
        table = await scene.open()
        assert not table.names()
        while await scene.node("s") is not None:
            await asyncio.sleep(0)
        assert not await scene.ledgers()


@pytest.mark.parametrize("busy", [False, True])
async def test_failed_deletion_leaves_the_cursor_working(busy: bool) -> None:
    """ACK-1: earlier acknowledgements, those made in the meantime, and receipts that are waited for."""

    async with running_cursor_scene() as scene:
        client = await scene.client(session_timeout_s=1000.0)
        table = await scene.open(client)
        cursor = await table.create("s", at(5, -1), {})
        cursor.acknowledge(entries(5, 4))
        await cursor.wait_until_saved()
        if busy:
            for bookie in scene.cluster.bookies.values():
                bookie.hanging = {"add"}
        cursor.acknowledge(entries(5, 6))
        waiting = asyncio.create_task(cursor.wait_until_saved())
        await scene.turns(5)
        scene.cluster.server.suspend(client.ledgers.store)  # type: ignore[arg-type]
        with pytest.raises(BrokerError) as refused:
            await table.delete("s")
        assert refused.value.code == ErrorCode.METADATA_ERROR
        assert table.get("s") is cursor
        assert table.find_slowest_position() == at(5, -1)
        scene.cluster.server.resume(client.ledgers.store)  # type: ignore[arg-type]
        for bookie in scene.cluster.bookies.values():
            bookie.hanging = set()
        cursor.acknowledge(entries(5, 8))
        await waiting
        await cursor.wait_until_saved()
        assert await _acknowledged(scene, "s") == [4, 6, 8]


async def test_with_the_topic_all_of_its_cursors_go() -> None:
    async with running_cursor_scene() as scene:
        zombie = await scene.open()
        for name in ("a", "ä/b", ".", "c d"):
            cursor = await zombie.create(name, at(5, -1), {})
            cursor.acknowledge(entries(5, 4))
            await cursor.wait_until_saved()
        await scene.delete_topic()
        assert not await scene.ledgers()
        assert [await scene.node(name) for name in ("a", "ä/b", ".")] == [None, None, None]
        with pytest.raises(TopicUnloaded):
            await zombie.create("b", at(5, -1), {})
        # A recreated topic of the same name does not get the cursors that a dead broker left of the first.
        scene.log.incarnation = "another"
        table = await scene.open()
        assert not table.durable_cursors()
        left = await table.create("left", at(5, 3), {})
        assert left.mark_delete == at(5, 3)
        scene.log.incarnation = "a third"
        assert not (await scene.open()).names()
        while await scene.node("left") is not None:
            await asyncio.sleep(0)


@pytest.mark.parametrize("change", ["first save", "properties", "delete", "create"])
async def test_a_broker_that_lost_a_topic_changes_no_cursor_of_a_later_one(change: str) -> None:
    """CHK-57: the later topic has a subscription of the same name, and its nodes have the same versions."""

    async with running_cursor_scene() as scene:
        zombie = await scene.open()
        old = await zombie.create("s", at(5, -1), {"of": "old"})
        await scene.delete_topic()
        scene.log.incarnation = "another"
        table = await scene.open()
        await table.create("s", at(5, -1), {"of": "new"})
        before = await scene.known("s")
        lost: list[TopicUnloaded] = []
        zombie.on_lost = lost.append
        old.acknowledge(entries(5, 50))
        with pytest.raises(TopicUnloaded):
            match change:
                case "first save":
                    await old.wait_until_saved()
                case "properties":
                    await zombie.set_properties("s", {"of": "zombie"})
                case "delete":
                    await zombie.delete("s")
                case _:
                    await zombie.create("new", at(5, 3), {})
        assert len(lost) == 1
        assert await scene.known("s") == before
        assert await scene.node("new") is None
        table.abandon()
        again = (await scene.open()).get("s")
        assert again is not None
        assert again.properties == {"of": "new"}


async def test_a_late_deletion_of_a_topic_leaves_the_cursors_of_a_later_one() -> None:
    """CHK-57: the nodes have the same versions. Those of the later topic are read, but not deleted."""

    async with running_cursor_scene() as scene:
        first = await scene.open()
        await first.create("s", at(5, -1), {})
        late = CursorNodes(scene.log.name, await scene.client(), scene.clock, SeededRandomness("late"))
        await late.claim(scene.log.incarnation, lambda: ())
        await scene.delete_topic()
        scene.log.incarnation = "another"
        for _ in range(2):  # claimed as often as for the first topic
            table = await scene.open()
        await table.create("s", at(5, -1), {})
        stored = await late.read("s")
        with pytest.raises(TopicUnloaded):
            await late.remove("s", stored)
        await table.delete("s")
        with pytest.raises(TopicUnloaded):
            await late.remove_table()
        await table.create("s", at(5, -1), {})


async def test_names_properties_and_numbers_of_cursors_have_limits() -> None:
    async with running_cursor_scene() as scene:
        scene.options = CursorSettings(max_subscriptions_per_topic=2)
        table = await scene.open()

        async def refused(name: str, properties: dict[str, str]) -> ErrorCode:
            with pytest.raises(BrokerError) as error:
                await table.create(name, at(5, 0), properties)
            return error.value.code

        assert await refused("", {}) == ErrorCode.INVALID_ARGUMENT
        assert await refused("ä" * 128, {}) == ErrorCode.INVALID_ARGUMENT
        assert await refused("\ud800", {}) == ErrorCode.INVALID_ARGUMENT
        assert await refused("a", {"k": "v" * 70_000}) == ErrorCode.INVALID_ARGUMENT
        await table.create("ä" * 127, at(5, 0), {})
        assert await refused("ä" * 127, {}) == ErrorCode.ALREADY_EXISTS
        one, two = await asyncio.gather(
            table.create("b", at(5, 0), {}), table.create("c", at(5, 0), {}), return_exceptions=True
        )
        assert not isinstance(one, BaseException)
        assert isinstance(two, BrokerError)
        assert two.code == ErrorCode.NOT_ALLOWED


async def test_acknowledgements_wait_while_there_are_too_few_bookies_and_say_so() -> None:
    """STO-1, for cursors: nothing is lost, and no receipt is sent before it is durable."""

    async with running_cursor_scene() as scene:
        table = await scene.open()
        cursor = await table.create("s", at(5, -1), {})
        cursor.acknowledge(entries(5, 1))
        await cursor.wait_until_saved()
        bookies = list(scene.cluster.bookies.values())
        for bookie in bookies[1:]:
            bookie.failing = {"add"}
        cursor.acknowledge(entries(5, 3))
        receipt = asyncio.create_task(cursor.wait_until_saved())
        while not cursor.waiting_for:
            await scene.clock.sleep(0.1)
        assert not receipt.done()
        for bookie in bookies:
            bookie.failing = set()
        await receipt
        assert cursor.waiting_for == ""
        again = (await scene.open()).get("s")
        assert again is not None
        assert [one for one in range(100) if again.is_acknowledged(at(5, one))] == [1, 3]


async def test_a_caller_that_is_cancelled_leaves_its_work_to_be_done() -> None:
    async with running_cursor_scene() as scene:
        table = await scene.open()
        for turns in range(1, 60, 3):
            name = f"s{turns}"
            making = asyncio.create_task(table.create(name, at(5, -1), {}))
            await scene.turns(turns)
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)
            assert table.find_slowest_position() == at(5, -1)
            while (cursor := table.get(name)) is None:
                await asyncio.sleep(0)
            cursor.acknowledge(entries(5, 2))
            saving = asyncio.create_task(cursor.wait_until_saved())
            await scene.turns(turns)
            saving.cancel()
            await asyncio.gather(saving, return_exceptions=True)
            await cursor.wait_until_saved()
            assert await _acknowledged(scene, cursor.name) == [2]
            table = await scene.open()
            deleting = asyncio.create_task(table.delete(name))
            await scene.turns(turns)
            deleting.cancel()
            await asyncio.gather(deleting, return_exceptions=True)
            while await scene.node(name) is not None:
                await asyncio.sleep(0)
        await scene.turns()
        assert not await scene.ledgers()


async def test_abandoned_table_fails_pending_calls_with_broker_error() -> None:
    async with running_cursor_scene() as scene:
        for turns in range(1, 40, 3):
            table = await scene.open()
            cursor = await table.create(f"s{turns}", at(5, -1), {})
            cursor.acknowledge(entries(5, 3))
            waiting = [
                asyncio.create_task(cursor.wait_until_saved()),
                asyncio.create_task(table.create(f"n{turns}", at(5, -1), {})),
                asyncio.create_task(table.delete(f"s{turns}")),
            ]
            await scene.turns(turns)
            unfinished = [task for task in waiting if not task.done()]
            table.abandon()
            await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(task.exception(), BrokerError) for task in unfinished)


async def _acknowledged(scene: CursorScene, name: str) -> list[int]:
    table: CursorTable = await scene.open()
    cursor = table.get(name)
    assert cursor is not None
    return [one for one in range(100) if cursor.is_acknowledged(at(5, one))]


async def test_the_time_without_use_is_stored_with_the_cursor() -> None:
    """RET-2: for the next owner, also if the cursor is saved and moved in between."""
    async with running_cursor_scene() as scene:
        table = await scene.open()
        cursor = await table.create("s", at(5, -1), {})
        assert cursor.unused_ms == 0
        await table.set_unused("s", 123_456)
        cursor.acknowledge(entries(5, 0, 2))
        await cursor.wait_until_saved()
        opened = (await scene.open()).get("s")
        assert opened is not None
        assert (opened.unused_ms, opened.mark_delete) == (123_456, at(5, 0))
        with pytest.raises(BrokerError):
            await table.set_unused("s", 0)
        assert (await scene.known("s")).unused_ms == 123_456
