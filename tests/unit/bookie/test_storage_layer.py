"""Whole bookie processes with everything that lives in them: bookies die, lose data and leave; ledgers come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.decommission import read_decommission_progress, start_decommission
from magnetar_bookie.errors import NoSuchLedger
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.server.bookie_process import BookieProcess
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_testing.metadata import MemoryStore
from magnetar_testing.randomness import SeededRandomness
from tests.unit.bookie.repair_scene import Scene, SceneBookie


class ProcessBookie(SceneBookie):
    """Its `come` starts the real process."""

    process: BookieProcess
    running: asyncio.Task[Any] | None = None

    async def come(self, *, read_only: bool = False) -> None:
        stores: list[MemoryStore] = []

        async def open_metadata() -> MemoryStore:
            stores.append(self.of.server.connect())
            return stores[-1]

        self.process = BookieProcess(
            self.bookie_id,
            self.disk.open(),
            open_metadata,
            self.of.transport,
            f"{self.bookie_id}:1",
            self.of.clock,
            SeededRandomness(self.bookie_id),
            BookieServerSettings(garbage_interval_seconds=3, metadata_retry_seconds=0.5, read_only=read_only),
            None,
            self.of.settings,
        )
        self.running = asyncio.get_running_loop().create_task(self.process.run())
        await self.of.until(self.process.started.is_set, "it has registered")
        self.bookie = self.process.bookie

    async def go(self) -> None:
        if self.running is not None:
            self.disk.crash()
            self.running.cancel()
            await asyncio.wait([self.running])
            self.running = self.bookie = None


class ProcessScene(Scene):
    """Its bookies are whole processes."""

    def __init__(self, bookies: int = 4) -> None:
        super().__init__(0)
        self.bookies = {f"b{number}": ProcessBookie(self, f"b{number}") for number in range(1, bookies + 1)}


@pytest.fixture
async def of() -> AsyncIterator[ProcessScene]:
    """A scene of four bookies."""
    async with ProcessScene() as of:
        yield of


async def gone(of: Scene, ledger_id: int) -> bool:
    try:
        await of.metadata(ledger_id)
    except NoSuchLedger:
        return True
    return False


async def test_deleted_ledgers_go_everywhere_and_others_nowhere(of: Scene) -> None:
    """CHK-26: dropped by every bookie by the tombstone alone, one that was away included; then the node goes."""
    kept, deleted = await of.ledger(4), await of.ledger(4)
    never_written, writer = await of.client.create(Striping(3, 3, 2), "nobody's")
    writer.abandon()
    holders = (await of.metadata(deleted)).bookies()
    away = of.bookies[holders[0]]
    await away.go()
    await of.client.delete(deleted)
    await of.passes(12)
    assert (await of.metadata(deleted)).holders == (holders[0],)
    assert away.holds(deleted, 0)
    await away.come()
    await of.until(lambda: gone(of, deleted), "the tombstone is gone")
    assert not any(one.disk.durable_entry_ids(deleted) for one in of.bookies.values())
    await of.until(lambda: gone(of, never_written.ledger_id), "the unclaimed ledger is gone")
    assert not await of.store.children(paths.INTENTS)
    await of.until(lambda: of.whole(kept), "the other is whole")


async def test_a_bookie_that_lost_data_is_led_out_of_limbo(of: Scene) -> None:
    ledgers = [await of.ledger(5) for _ in range(3)]
    name = (await of.metadata(ledgers[0])).bookies()[0]
    await of.bookies[name].go()
    assert of.bookies[name].disk.lose_synced(9) == 9
    await of.bookies[name].come()
    bookie = of.bookies[name].bookie
    assert bookie is not None
    named = [one for one in ledgers if name in (await of.metadata(one)).bookies()]
    await of.until(lambda: not any(bookie.in_limbo(one) for one in named), "it is out of limbo")
    for ledger_id in ledgers:
        assert await of.whole(ledger_id)


async def test_bookie_is_decommissioned_while_another_is_down() -> None:
    async with ProcessScene(bookies=5) as of:
        ledgers = [await of.ledger(5) for _ in range(4)]
        await start_decommission(of.client, "b1")
        await of.bookies["b2"].go()

        async def done() -> bool:
            progress = await read_decommission_progress(of.client, "b1")
            return progress is not None and progress.done

        await of.until(done, "b1 is empty")
        for ledger_id in ledgers:
            await of.until(lambda one=ledger_id: of.whole(one, without=["b1", "b2"]), "it is whole")  # type: ignore[misc]
        assert await of.store.exists(paths.cookie("b1")) is None
        assert await of.store.exists(paths.cookie("b2")) is not None
