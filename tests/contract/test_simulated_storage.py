"""The simulated disk's storage keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from magnetar_bookie.storage.interface import LedgerStorage
from magnetar_wire.clock import SystemClock
from magnetar_wire.randomness import SeededRandomness
from tests.contract.ledger_storage_contract import Disk, LedgerStorageContract
from tests.sim.disk import DiskFaults, SimulatedDisk


class _Simulated(Disk):
    def __init__(self, seed: int) -> None:
        self._disk = SimulatedDisk(SystemClock(), SeededRandomness(seed), DiskFaults(0, 0.000_1, 0.000_1))

    async def open(self) -> LedgerStorage:
        return self._disk.open()

    async def crash(self) -> None:
        self._disk.crash()

    async def fail_next_sync(self) -> None:
        self._disk.fail_next_sync()

    async def fill(self) -> None:
        self._disk.fill()

    async def damage(self, ledger_id: int, entry_id: int) -> None:
        assert self._disk.damage(ledger_id, entry_id)

    async def lose_synced(self) -> None:
        assert self._disk.lose_synced(1) == 1

    async def close(self) -> None:
        self._disk.crash()


class TestSimulatedStorage(LedgerStorageContract):
    @pytest.fixture(params=[1, 2])
    async def disk(self, request: pytest.FixtureRequest) -> AsyncIterator[Disk]:
        async with _Simulated(request.param) as disk:
            yield disk
