"""A cursor whose ledgers fail pauses before it creates the next one. Some calls do not wait for the pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar_bookie.read.striping import Striping
from magnetar_broker.cursors.cursor_table import CursorTable
from magnetar_broker.cursors.durable_cursor import DurableCursor
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.ledger_striping import LedgerStriping
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.transport import Disconnected
from tests.unit.broker.cursor_scene import CursorScene, at, entries, running_cursor_scene

ONE_BOOKIE = Striping(1, 1, 1)


async def _open_cursor(scene: CursorScene) -> tuple[CursorTable, DurableCursor]:
    scene.log.striping = LedgerStriping(ONE_BOOKIE)
    table = await scene.open()
    await table.create("c", at(5, -1), {})
    (cursor,) = table.durable_cursors()
    assert isinstance(cursor, DurableCursor)
    return table, cursor


async def _fail_until_it_pauses(scene: CursorScene, cursor: DurableCursor) -> None:
    """Have the bookie refuse all adds until the cursor's pauses have their full length and one has just begun."""
    (bookie,) = scene.cluster.bookies.values()
    bookie.failing.add("add")
    cursor._begin_save()
    await scene.clock.sleep(60)
    while cursor._ledger_pause.is_due:
        await scene.clock.sleep(0.05)
    while not cursor._ledger_pause.is_due:
        await scene.clock.sleep(0.05)


async def _created(scene: CursorScene) -> int:
    return len([one async for one in scene.cluster.client.ledgers.ledger_ids()])


async def test_cursor_creates_few_ledgers_when_all_adds_are_refused() -> None:
    """CHK-66: at most 9 and one in 2.5 seconds. The acknowledgement waits, and `waiting_for` is the reason."""

    async with running_cursor_scene(bookies=1) as scene:
        _, cursor = await _open_cursor(scene)
        (bookie,) = scene.cluster.bookies.values()
        bookie.failing.add("add")
        cursor.acknowledge(entries(5, 2))
        receipt = asyncio.ensure_future(cursor.wait_until_saved())
        before = await _created(scene)
        await scene.clock.sleep(60)
        assert 8 < await _created(scene) - before <= 9 + 60 / 2.5
        assert not receipt.done()
        assert cursor.waiting_for
        bookie.failing.clear()
        await receipt
        assert cursor.waiting_for == ""
        again = (await scene.open()).get("c")
        assert again is not None
        assert again.is_acknowledged(at(5, 2))


async def test_a_position_without_holes_is_saved_though_all_adds_are_refused() -> None:
    """RET-3, CHK-66: to the node, once for each ledger that fails: so what consumers have acknowledged can be deleted
    from disks that are full."""

    async with running_cursor_scene(bookies=1) as scene:
        _, cursor = await _open_cursor(scene)
        (bookie,) = scene.cluster.bookies.values()
        bookie.failing.add("add")
        before = await _created(scene)
        for number in range(60):
            cursor.acknowledge(entries(5, number))
            await scene.clock.sleep(1)
        assert await _created(scene) - before <= 9 + 60 / 2.5
        assert cursor.saved_mark_delete >= at(5, 50)
        await cursor.wait_until_saved()
        assert (await scene.known("c")).mark_delete.entry_id == 59
        cursor.acknowledge(entries(5, 60, 62))
        bookie.failing.clear()
        await cursor.wait_until_saved()
        assert cursor.ledger_id
        again = (await scene.open()).get("c")
        assert again is not None
        assert again.is_acknowledged(at(5, 62))


async def test_cursor_creates_few_ledgers_when_each_stores_one_entry() -> None:
    """CHK-66: a ledger that stored its snapshot before it failed shortens no pause."""

    async with running_cursor_scene(bookies=1) as scene:
        _, cursor = await _open_cursor(scene)
        (bookie,) = scene.cluster.bookies.values()
        add = bookie._add

        def add_first_only(ledger_id: int, entry_id: int, record: bytes, *, recovery: bool) -> Any:
            if entry_id > 0 and not recovery:
                raise Disconnected("overloaded: it takes one entry of each ledger")
            return add(ledger_id, entry_id, record, recovery=recovery)

        bookie._add = add_first_only  # type: ignore[method-assign]
        began, before = scene.clock.monotonic(), await _created(scene)
        for number in range(1, 41):
            cursor.acknowledge(entries(5, 2 * number))
            await cursor.wait_until_saved()
            assert await _created(scene) - before <= 9 + (scene.clock.monotonic() - began) / 2.5


async def _close(table: CursorTable, cursor: DurableCursor) -> None:
    await cursor.close()


async def _flush(table: CursorTable, cursor: DurableCursor) -> None:
    await cursor.flush()


async def _reset(table: CursorTable, cursor: DurableCursor) -> None:
    await cursor.move_to(at(5, 7))


async def _delete(table: CursorTable, cursor: DurableCursor) -> None:
    await table.delete("c")


@pytest.mark.parametrize("call", [_close, _flush, _reset, _delete])
@pytest.mark.parametrize("holes", [False, True])
async def test_closing_resetting_and_deleting_do_not_wait_for_the_pause(
    call: Callable[[CursorTable, DurableCursor], Awaitable[None]], holes: bool
) -> None:
    """CHK-66: the bookie takes adds again, and the pause is not over when the call returns."""

    async with running_cursor_scene(bookies=1) as scene:
        table, cursor = await _open_cursor(scene)
        cursor.acknowledge(entries(5, 2) if holes else entries(5, 0, 1, 2))
        for _ in range(20):
            cursor._ledger_pause.count_failure()
        cursor._begin_save()
        await scene.turns()
        assert await scene.ledgers() == []
        await call(table, cursor)
        assert cursor._ledger_pause.is_due
        again = (await scene.open()).get("c")
        if call is _delete:
            assert again is None
        else:
            assert again is not None
            assert again.is_acknowledged(at(5, 2))
            assert again.is_acknowledged(at(5, 7)) == (call is _reset)


@pytest.mark.parametrize("call", [_close, _flush, _reset])
async def test_a_cursor_without_holes_is_closed_and_reset_without_a_bookie(
    call: Callable[[CursorTable, DurableCursor], Awaitable[None]],
) -> None:
    """CHK-66: its position is in its node, and it creates no ledger."""

    async with running_cursor_scene(bookies=1) as scene:
        table, cursor = await _open_cursor(scene)
        cursor.acknowledge(entries(5, 2))
        await _fail_until_it_pauses(scene, cursor)
        cursor.acknowledge(entries(5, 0, 1))
        before = await _created(scene)
        await call(table, cursor)
        assert await _created(scene) == before
        assert cursor.waiting_for == ""
        assert (await scene.known("c")).mark_delete.entry_id == (7 if call is _reset else 2)


async def test_a_close_that_waits_for_the_bookies_does_not_end_later_pauses() -> None:
    """CHK-66: it has holes, so it needs a ledger."""

    async with running_cursor_scene(bookies=1) as scene:
        _, cursor = await _open_cursor(scene)
        cursor.acknowledge(entries(5, 2))
        await _fail_until_it_pauses(scene, cursor)
        before = await _created(scene)
        closing = asyncio.ensure_future(cursor.close())
        await scene.clock.sleep(60)
        assert await _created(scene) - before <= 2 + 60 / 2.5
        assert not closing.done()
        (bookie,) = scene.cluster.bookies.values()
        bookie.failing.clear()
        await closing


async def test_reset_pauses_between_failed_writes_of_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """CHK-66: a reset is saved later."""

    async with running_cursor_scene(bookies=1) as scene:
        _, cursor = await _open_cursor(scene)
        cursor.acknowledge(entries(5, 2))
        await _fail_until_it_pauses(scene, cursor)
        cursor.acknowledge(entries(5, 0, 1))
        refused = 0

        async def refuse(*_: Any) -> None:
            nonlocal refused
            refused += 1
            raise BrokerError(ErrorCode.METADATA_ERROR, "the metadata store is full")

        monkeypatch.setattr(DurableCursor, "_save_to_node", refuse)
        resetting = asyncio.ensure_future(cursor.move_to(at(5, 7)))
        await scene.clock.sleep(60)
        assert 0 < refused <= 2 * (2 + 60 / 2.5)  # before and after each ledger
        assert not resetting.done()
        (bookie,) = scene.cluster.bookies.values()
        bookie.failing.clear()
        await resetting
        assert (await scene.known("c")).mark_delete.entry_id == 7
