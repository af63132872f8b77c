"""Whole bookie processes with everything that lives in them: bookies die, lose data and leave; ledgers come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from magnetar_bookie import paths
from magnetar_bookie.auto_recovery.decommission import decommission, decommission_progress
from magnetar_bookie.errors import NoSuchLedger
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.server.bookie_process import BookieProcess
from magnetar_bookie.server.options import BookieOptions
from magnetar_testing.metadata import MemoryStore
from magnetar_testing.randomness import SeededRandomness
from tests.unit.bookie.repair_scene import PATIENT, Scene, SceneBookie


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
            BookieOptions(garbage_interval_s=3, metadata_retry_s=0.5, read_only=read_only),
            None,
            self.of.options,
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


def processes(
    bookies: int = 4,
) -> Callable[[Callable[[Scene], Awaitable[None]]], Callable[[], Coroutine[Any, Any, None]]]:
    def decorate(test: Callable[[Scene], Awaitable[None]]) -> Callable[[], Coroutine[Any, Any, None]]:
        async def running() -> None:
            of = Scene(0, PATIENT)
            of.bookies = {f"b{number}": ProcessBookie(of, f"b{number}") for number in range(1, bookies + 1)}
            await of.start()
            try:
                await test(of)
            finally:
                await of.stop()

        running.__doc__ = test.__doc__
        running.__name__ = test.__name__
        return running

    return decorate


async def gone(of: Scene, ledger_id: int) -> bool:
    try:
        await of.metadata(ledger_id)
    except NoSuchLedger:
        return True
    return False


@processes()
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


@processes()
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


@processes(bookies=5)
async def test_a_bookie_is_emptied_and_struck_off_while_another_dies(of: Scene) -> None:
    ledgers = [await of.ledger(5) for _ in range(4)]
    await decommission(of.client, "b1")
    await of.bookies["b2"].go()

    async def done() -> bool:
        progress = await decommission_progress(of.client, "b1")
        return progress is not None and progress.done

    await of.until(done, "b1 is empty")
    for ledger_id in ledgers:
        await of.until(lambda one=ledger_id: of.whole(one, without=["b1", "b2"]), "it is whole")  # type: ignore[misc]
    assert await of.store.exists(paths.cookie("b1")) is None
    assert await of.store.exists(paths.cookie("b2")) is not None
