"""Writers and recoverers against real bookies on simulated disks, some of which crash."""

from __future__ import annotations

import asyncio
import random

import pytest

from magnetar_bookie.errors import AddFailed, CloseLost, RecoveryUndecided
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata import LedgerMetadata
from magnetar_bookie.ledger.ledger_writer import LedgerWriter
from magnetar_bookie.read.striping import Striping, find_fragment
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_testing.randomness import SeededRandomness
from tests.sim.disk import SimulatedDisk
from tests.unit.bookie.patience import patiently
from tests.unit.bookie.writer_scene import FakeBookie, Scene

OPTIONS = LedgerClientSettings(
    add_entry_timeout_seconds=1.0,
    read_entry_timeout_seconds=1.0,
    bookie_quarantine_time_seconds=3.0,
    explicit_lac_interval_ms=50,
    max_pending_entries=40,
)
STRIPINGS = [Striping(3, 3, 2), Striping(3, 2, 2), Striping(4, 3, 2), Striping(2, 2, 1)]


class RealBookie(FakeBookie):
    """Its disk outlives it."""

    def __init__(self, scene: Scene, bookie_id: str) -> None:
        super().__init__(scene, bookie_id)
        self.disk = SimulatedDisk(scene.clock, SeededRandomness(bookie_id))
        self.service: Bookie | None = None

    async def come(self, *, read_only: bool = False) -> None:
        if self.service is None:
            self.service = Bookie(self.bookie_id, self.disk.open(), self.scene.clock)
            self.listener = await self.scene.transport.listen(self.address, self.service)
        await super().come(read_only=read_only)

    async def go(self, *, registered: bool = False) -> None:
        self.disk.crash()
        await super().go(registered=registered)
        if self.service is not None:
            await self.service.close()
            self.service = None


class Fight:
    """One writer, and others who want its ledger closed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.scene = Scene(0, OPTIONS)
        self.bookies = [RealBookie(self.scene, f"b{number}") for number in range(5)]
        self.acked: list[int] = []
        self.failed = 0
        self.writing = True

    async def run(self) -> None:
        for bookie in self.bookies:
            await bookie.come()
        writing, recovering, other = [await self.scene.client(self.scene.server.connect()) for _ in range(3)]
        try:
            _, writer = await writing.create(self.chance.choice(STRIPINGS), "a fight")
            appending = asyncio.create_task(self._append(writer))
            crashing = asyncio.create_task(self._crash())
            await self.scene.clock.sleep(self.chance.uniform(0.0, 3.0))
            if self.chance.random() < 0.3:  # the writer's own close comes into it
                ends = [asyncio.create_task(self._close(writer)), *self._recoveries(writer, recovering)]
            else:
                ends = self._recoveries(writer, recovering, other)
            results = [await end for end in ends]
            self.writing = False
            await appending
            await crashing
            closed = [await self._recover(client, writer.ledger_id) for client in (recovering, other)]
            await self._check(writer, [one for one in results if one is not None], closed, other)
        finally:
            for client in self.scene.clients:
                await client.close()
            for bookie in self.bookies:
                await bookie.go()

    def _recoveries(self, writer: LedgerWriter, *clients: LedgerClient) -> list[asyncio.Task[LedgerMetadata | None]]:
        return [asyncio.create_task(self._recover_later(client, writer.ledger_id)) for client in clients]

    async def _recover_later(self, client: LedgerClient, ledger_id: int) -> LedgerMetadata | None:
        await self.scene.clock.sleep(self.chance.uniform(0.0, 0.3))
        return await self._recover(client, ledger_id)

    async def _recover(self, client: LedgerClient, ledger_id: int) -> LedgerMetadata:
        while True:
            try:
                return await client.recover(ledger_id)
            except RecoveryUndecided:
                await self.scene.clock.sleep(0.5)

    async def _close(self, writer: LedgerWriter) -> LedgerMetadata | None:
        try:
            metadata = await writer.close()
        except CloseLost:
            return None
        assert metadata.last_entry_id == writer.last_add_confirmed
        return metadata

    async def _append(self, writer: LedgerWriter) -> None:
        def done(result: int | AddFailed) -> None:
            if isinstance(result, int):
                assert not self.failed, "completed behind one that failed"
                assert result == len(self.acked)
                self.acked.append(result)
            else:
                self.failed += 1

        while self.writing and writer.failure is None:
            await writer.wait_for_capacity()
            entry_id = writer.append(b"entry %d" % (len(self.acked) + writer.pending_entries), done)
            assert entry_id >= len(self.acked)
            if self.chance.random() < 0.3:
                await self.scene.clock.sleep(self.chance.uniform(0.0, 0.1))

    async def _crash(self) -> None:
        """At most one bookie is away at a time, so that there always is an ack quorum somewhere."""
        while self.writing:
            await self.scene.clock.sleep(self.chance.uniform(0.0, 1.5))
            bookie = self.chance.choice(self.bookies)
            await bookie.go(registered=self.chance.random() < 0.5)
            await self.scene.clock.sleep(self.chance.uniform(0.0, 2.0))
            if bookie.store is not None:
                await bookie.store.close()
            await bookie.come()

    async def _check(
        self,
        writer: LedgerWriter,
        results: list[LedgerMetadata],
        closed: list[LedgerMetadata],
        client: LedgerClient,
    ) -> None:
        metadata = closed[0]
        for one in (*results, *closed):
            assert (one.is_closed, one.last_entry_id, one.length_bytes) == (
                True,
                metadata.last_entry_id,
                metadata.length_bytes,
            )
        assert not self.acked or self.acked[-1] <= metadata.last_entry_id
        expected = [b"entry %d" % number for number in range(metadata.last_entry_id + 1)]
        assert metadata.length_bytes == sum(map(len, expected))
        for number in range(metadata.last_entry_id + 1):
            bookies = find_fragment(metadata.fragments, number).bookies
            slots = metadata.striping.write_set(number)
            holders = {
                bookie.bookie_id: bookie.disk.durable_record(writer.ledger_id, number) for bookie in self.bookies
            }
            assert sum(holders[bookies[slot]] is not None for slot in slots) >= metadata.striping.ack_quorum
        reader = await client.open(writer.ledger_id)
        assert [entry async for _, entry in reader.entries()] == expected


@pytest.mark.parametrize("first", range(0, 40, 10))
async def test_closed_ledger_contains_every_completed_entry(first: int) -> None:
    """CHK-1, STO-4: and by the first close; what the others found is discarded."""

    async def inside(seed: int) -> Fight:
        fight = Fight(seed)
        try:
            await patiently(fight.scene.clock, fight.run())
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        return fight

    fights = [(await inside(seed)) for seed in range(first, first + 10)]
    assert any(fight.failed for fight in fights)
    assert sum(len(fight.acked) for fight in fights) > 100
