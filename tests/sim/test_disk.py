"""The simulated disk shows the durable state, without later writes. The contract tests check its storage."""

from __future__ import annotations

import pytest

from magnetar_bookie.storage.interface import Changes, LedgerData, StorageFailed
from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.clock import SystemClock
from tests.sim.disk import DiskFaults, SimulatedDisk

FAST = DiskFaults(shortest_sync_s=0, longest_sync_s=0, longest_read_s=0)


async def test_only_synced_changes_are_durable() -> None:
    disk = SimulatedDisk(SystemClock(), SeededRandomness(1), FAST)
    storage = disk.open()
    storage.write(Changes(records={(1, 0): b"zero", (1, 1): b"one"}, ledgers={1: LedgerData(b"key")}))
    assert disk.durable_record(1, 0) is None
    assert disk.durable_ledger(1) is None
    await storage.sync()
    storage.write(Changes(records={(1, 0): b"again", (1, 2): b"two"}, discarded=[(1, 0)]))
    storage.write(Changes(dropped=[1], ledgers={1: LedgerData(b"key", deleted=True)}))
    storage.write(Changes(records={(1, 3): b"three"}))
    assert disk.durable_record(1, 0) == b"zero"
    assert disk.durable_record(1, 2) is None
    assert disk.durable_entry_ids(1) == [0, 1]
    assert disk.durable_ledger(1) == LedgerData(b"key")
    await storage.sync()
    assert disk.durable_entry_ids(1) == [3]
    assert disk.durable_ledger(1) == LedgerData(b"key", deleted=True)
    assert disk.used_bytes == len(b"three")


async def test_synced_groups_are_lost_from_the_last_one_back() -> None:
    disk = SimulatedDisk(SystemClock(), SeededRandomness(1), FAST)
    storage = disk.open()
    for entry_id in range(4):
        storage.write(Changes(records={(1, entry_id): b"record"}, ledgers={1: LedgerData(b"key")}))
        await storage.sync()
    storage.write(Changes(dropped=[1]))
    await storage.sync()
    assert disk.lose_synced(2) == 2
    assert disk.durable_entry_ids(1) == [0, 1, 2]
    assert disk.used_bytes == 3 * len(b"record")
    assert not disk.open().is_intact


async def test_a_sync_fails_by_chance() -> None:
    disk = SimulatedDisk(SystemClock(), SeededRandomness(1), DiskFaults(0, 0, 0))
    storage = disk.open()
    storage.write(Changes(records={(1, 0): b"record"}, ledgers={1: LedgerData(b"key")}))
    await storage.sync()
    disk.faults = DiskFaults(0, 0, 0, failed_sync_probability=1)
    storage.write(Changes(records={(1, 1): b"record"}))
    with pytest.raises(StorageFailed):
        await storage.sync()
