"""A bookie's registration when the metadata store has trouble of its own."""

from __future__ import annotations

import asyncio

from magnetar_bookie import paths
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.server.registration import Registration
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import SystemClock
from tests.sim.disk import SimulatedDisk
from tests.unit.bookie.full_store import FullStore
from tests.unit.bookie.repair_scene import Scene


async def test_registration_in_full_store_is_retried_after_pause() -> None:
    async with Scene(bookies=0) as of:
        store = of.server.connect()
        full = FullStore(store)
        bookie = Bookie("b1", SimulatedDisk(SystemClock(), SeededRandomness(1)).open(), of.clock)
        registered = asyncio.Event()
        of.spawn(Registration(bookie, "here:1", store, of.clock, 0.5, registered).run())
        await of.passes(3)
        assert 2 < full.refused < 10
        full.free_space()
        await of.until(registered.is_set, "it is registered")
        assert await of.store.exists(paths.available("b1")) is not None
