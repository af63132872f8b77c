"""A ledger on real bookies with simulated disks: written, abandoned by its writer, recovered, read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from magnetar_bookie.errors import LedgerFenced, Unreadable
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_writer import LedgerWriter
from magnetar_bookie.read.striping import Striping
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_testing.clock import ManualClock
from magnetar_testing.metadata import MemoryServer
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.transport import Listener
from tests.registered_bookies import register_bookie
from tests.sim.disk import SimulatedDisk
from tests.unit.bookie.honest_bookie import entry
from tests.unit.bookie.patience import passing_time


class BookieCluster:
    """Bookies b0, b1 … and one client, on a manual clock that has to move for a disk to sync."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = MemoryServer(self.clock)
        self.transport = InProcessTransport(self.clock)
        self.disks: dict[str, SimulatedDisk] = {}
        self._up: dict[str, tuple[Listener, Bookie]] = {}
        self.client = self.another_client()

    def another_client(self) -> LedgerClient:
        settings = LedgerClientSettings(explicit_lac_interval_ms=0)
        return LedgerClient(self.server.connect(), self.transport, self.clock, SeededRandomness(1), settings)

    async def start(self, count: int) -> None:
        registry = self.server.connect()
        for bookie_id in (f"b{number}" for number in range(count)):
            self.disks[bookie_id] = SimulatedDisk(self.clock, SeededRandomness(bookie_id))
            await self.up(bookie_id)
            await register_bookie(registry, bookie_id, f"{bookie_id}:1")
        await self.client.start()

    async def up(self, bookie_id: str) -> None:
        bookie = Bookie(bookie_id, self.disks[bookie_id].open(), self.clock)
        self._up[bookie_id] = await self.transport.listen(f"{bookie_id}:1", bookie), bookie

    async def crash(self, bookie_id: str) -> None:
        self.disks[bookie_id].crash()
        listener, bookie = self._up.pop(bookie_id)
        await listener.close()
        await bookie.close()

    async def close(self) -> None:
        await self.client.close()
        for listener, bookie in self._up.values():
            await listener.close()
            await bookie.close()

    async def written(self, striping: Striping, count: int) -> tuple[int, LedgerWriter]:
        """A ledger with `count` completed entries."""
        made, writer = await self.client.create(striping, "a test")
        for number in range(count):
            await writer.add(entry(number))
        return made.ledger_id, writer

    async def everything(self, ledger_id: int) -> list[bytes]:
        reader = await self.client.open(ledger_id)
        return [found async for _, found in reader.entries()]


@asynccontextmanager
async def _running_bookies(count: int = 4) -> AsyncIterator[BookieCluster]:
    cluster = BookieCluster()
    async with passing_time(cluster.clock):
        await cluster.start(count)
        yield cluster
        await cluster.close()


@pytest.mark.parametrize("striping", [Striping(3, 3, 2), Striping(4, 2, 2), Striping(1, 1, 1)], ids=str)
async def test_ledger_is_recovered_while_its_writer_is_active(striping: Striping) -> None:
    async with _running_bookies() as cluster:
        ledger_id, writer = await cluster.written(striping, 30)
        other = cluster.another_client()
        await other.start()
        metadata = await other.recover(ledger_id)
        assert metadata.last_entry_id == 29
        assert metadata.length_bytes == sum(len(entry(number)) for number in range(30))
        with pytest.raises(LedgerFenced):
            await writer.add(b"too late")
        assert await cluster.everything(ledger_id) == [entry(number) for number in range(30)]
        await other.close()


async def test_completed_entries_survive_crashes_of_bookies_and_writer() -> None:
    """CHK-3: and those that were fenced are so after one more crash."""

    async with _running_bookies() as cluster:
        ledger_id, writer = await cluster.written(Striping(3, 3, 2), 12)
        names = writer.metadata.last_fragment.bookies
        writer.abandon()
        for name in names:
            await cluster.crash(name)
            await cluster.up(name)
        cluster.disks[names[2]].damage(ledger_id, 11)
        assert (await cluster.client.recover(ledger_id)).last_entry_id == 11
        for name in names:
            await cluster.crash(name)
            await cluster.up(name)
        held = [cluster.disks[name].durable_ledger(ledger_id) for name in names]
        assert sum(one is not None and one.fenced for one in held) >= 2
        assert await cluster.everything(ledger_id) == [entry(number) for number in range(12)]


async def test_a_closed_ledger_is_read_from_any_bookie_that_is_left() -> None:
    async with _running_bookies() as cluster:
        ledger_id, writer = await cluster.written(Striping(3, 3, 3), 20)
        metadata = await writer.close()
        for name in metadata.last_fragment.bookies[:2]:
            await cluster.crash(name)
        assert await cluster.everything(ledger_id) == [entry(number) for number in range(20)]
        await cluster.crash(metadata.last_fragment.bookies[2])
        with pytest.raises(Unreadable):
            await cluster.everything(ledger_id)


async def test_a_tail_follows_a_writer_through_a_bookie_s_crash_to_the_close() -> None:
    async with _running_bookies() as cluster:
        ledger_id, writer = await cluster.written(Striping(3, 3, 2), 1)
        seen: list[tuple[int, bytes]] = []

        async def follow() -> None:
            reader = await cluster.client.open(ledger_id)
            async with aclosing(reader.tail()) as tail:
                seen.extend([one async for one in tail])

        following = asyncio.create_task(follow())
        for number in range(1, 20):
            await writer.add(entry(number))
        await cluster.crash(writer.metadata.last_fragment.bookies[0])
        for number in range(20, 40):
            await writer.add(entry(number))
        await writer.close()
        await following
        assert seen == [(number, entry(number)) for number in range(40)]
