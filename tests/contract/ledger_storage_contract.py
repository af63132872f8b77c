"""The contract of ledger storages. Each storage's test module subclasses `LedgerStorageContract` and gives it a disk.

A test takes the fixture `disk`: an empty `Disk`, whose storage it opens as often as it needs. Faults that a kind of
disk does not override skip the tests that need them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

import pytest

from magnetar_bookie.storage.interface import (
    DAMAGED,
    Changes,
    LedgerData,
    LedgerStorage,
    StorageFailed,
    StorageFull,
)
from tests.running import until

LARGEST_ID = 2**63 - 2
# More bytes than any test writes.
ALL = 2**40
_CRASHES = 30


class Disk(ABC):
    """An empty disk. Leaving it closes it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abstractmethod
    async def open(self) -> LedgerStorage:
        """Open it as a new process. The storage that was open before was closed, or has crashed."""

    @abstractmethod
    async def crash(self) -> None:
        """The machine stops: what was not synced is on the disk or not."""

    async def fail_next_sync(self) -> None:
        pytest.skip("this disk can't fail a sync")

    async def fill(self) -> None:
        """Leave no space for any record from now on."""
        pytest.skip("this disk can't be full")

    async def damage(self, ledger_id: int, entry_id: int) -> None:
        """What is on the disk of this record is other bytes from now on."""
        pytest.skip("this disk can't damage a record")

    async def lose_synced(self) -> None:
        """The machine stops, and of what was synced last something is lost."""
        pytest.skip("this disk can't lose what was synced")

    @abstractmethod
    async def close(self) -> None:
        """The test is over."""


def record_of(ledger_id: int, entry_id: int) -> bytes:
    return b"record %d of ledger %d" % (entry_id, ledger_id) * 3


def records(ledger_id: int, *entry_ids: int) -> dict[tuple[int, int], bytes]:
    return {(ledger_id, entry_id): record_of(ledger_id, entry_id) for entry_id in entry_ids}


async def held(storage: LedgerStorage, ledger_id: int) -> list[int]:
    """The entries held, after it was made sure that they read as they were written."""
    entry_ids = storage.list_entry_ids(ledger_id, 0, LARGEST_ID, 1_000_000)
    read = await storage.read(ledger_id, entry_ids, ALL) if entry_ids else []
    assert read == [record_of(ledger_id, entry_id) for entry_id in entry_ids]
    assert storage.get_last_entry_id(ledger_id) == (entry_ids[-1] if entry_ids else -1)
    assert all(storage.has_entry(ledger_id, entry_id) for entry_id in entry_ids)
    return entry_ids


def all_ledgers(storage: LedgerStorage) -> list[int]:
    return storage.list_ledger_ids(0, 1_000_000)


class LedgerStorageContract:
    """The tests. A subclass defines the async fixture `disk`."""

    async def test_new_disk_is_empty_and_intact(self, disk: Disk) -> None:
        storage = await disk.open()
        assert storage.is_intact
        assert storage.get_bookie_record() is None
        assert storage.get_ledger(1) is None
        assert all_ledgers(storage) == []
        assert storage.get_last_entry_id(1) == -1
        assert not storage.has_entry(1, 0)
        assert storage.list_entry_ids(1, 0, 10, 10) == []
        assert await storage.read(1, [0, 5], ALL) == [None, None]

    async def test_write_is_readable_before_it_is_synced(self, disk: Disk) -> None:
        storage = await disk.open()
        remembered = LedgerData(master_key=b"key", fenced=True, last_add_confirmed=7, limbo_cleared=3)
        storage.write(Changes(records=records(1, 0, 1), ledgers={1: remembered}, bookie=b"who I am"))
        assert await held(storage, 1) == [0, 1]
        assert storage.get_ledger(1) == remembered
        assert all_ledgers(storage) == [1]
        assert storage.get_bookie_record() == b"who I am"

    async def test_synced_changes_survive_crash(self, disk: Disk) -> None:
        storage = await disk.open()
        remembered = LedgerData(master_key=b"\0key", deleted=True, last_add_confirmed=-1, settled=True)
        storage.write(Changes(records=records(1, 0, 1), ledgers={1: LedgerData(b"k"), 2: remembered}, bookie=b"me"))
        await storage.sync()
        await disk.crash()
        storage = await disk.open()
        assert storage.is_intact
        assert await held(storage, 1) == [0, 1]
        assert storage.get_ledger(1) == LedgerData(b"k")
        assert storage.get_ledger(2) == remembered
        assert storage.get_bookie_record() == b"me"

    async def test_crash_leaves_whole_groups_and_none_without_those_before_it(self, disk: Disk) -> None:
        """Each group has a record in two ledgers and ledger data; all three show the last group on the disk."""
        synced, written = 0, 0
        for crash in range(_CRASHES):
            storage = await disk.open()
            assert storage.is_intact
            there = await held(storage, 1)
            assert there == list(range(len(there))), "a group is there without one before it"
            assert synced <= len(there) <= written
            assert await held(storage, 2) == there
            remembered = storage.get_ledger(1)
            assert (remembered.last_add_confirmed if remembered else -1) == len(there) - 1
            synced = written = len(there)  # what is there when it is opened is durable
            for step in range(5):
                number = written
                storage.write(
                    Changes(
                        records=records(1, number) | records(2, number),
                        ledgers={1: LedgerData(last_add_confirmed=number), 2: LedgerData()},
                    )
                )
                written += 1
                if step == crash % 5:
                    await storage.sync()
                    synced = written
            await disk.crash()

    async def test_close_makes_all_durable(self, disk: Disk) -> None:
        storage = await disk.open()
        storage.write(Changes(records=records(1, 0), ledgers={1: LedgerData()}))
        await storage.close()
        storage = await disk.open()
        assert storage.is_intact
        assert await held(storage, 1) == [0]

    async def test_entry_ids_are_sorted_regardless_of_write_order(self, disk: Disk) -> None:
        storage = await disk.open()
        storage.write(Changes(records=records(1, 300, 2), ledgers={1: LedgerData()}))
        storage.write(Changes(records=records(1, LARGEST_ID, 0, 256)))
        assert await held(storage, 1) == [0, 2, 256, 300, LARGEST_ID]
        assert storage.list_entry_ids(1, 2, 300, 10) == [2, 256, 300]
        assert storage.list_entry_ids(1, 3, 299, 10) == [256]
        assert storage.list_entry_ids(1, 0, LARGEST_ID, 2) == [0, 2]
        assert storage.list_entry_ids(1, 5, 5, 10) == []
        assert storage.get_last_entry_id(1) == LARGEST_ID

    async def test_ledgers_do_not_see_each_other(self, disk: Disk) -> None:
        storage = await disk.open()
        ids = [1, 2, 255, 256, 2**32, 2**63, 2**64 - 1]
        for entry_id, ledger_id in enumerate(ids):
            storage.write(Changes(records=records(ledger_id, entry_id, 9), ledgers={ledger_id: LedgerData()}))
        for entry_id, ledger_id in enumerate(ids):
            assert await held(storage, ledger_id) == [entry_id, 9]
        assert all_ledgers(storage) == ids
        assert storage.list_ledger_ids(0, 2) == ids[:2]
        assert storage.list_ledger_ids(3, 3) == [255, 256, 2**32]
        assert storage.list_ledger_ids(2**63, 10) == [2**63, 2**64 - 1]
        assert storage.list_ledger_ids(2**63 + 1, 1) == [2**64 - 1]
        assert storage.list_ledger_ids(2**64, 10) == []
        assert storage.get_last_entry_id(3) == -1

    async def test_read_returns_records_in_requested_order(self, disk: Disk) -> None:
        storage = await disk.open()
        storage.write(Changes(records=records(1, 0, 1, 2), ledgers={1: LedgerData()}))
        assert await storage.read(1, [2, 7, 0], ALL) == [record_of(1, 2), None, record_of(1, 0)]

    async def test_reading_stops_after_the_record_that_passes_the_bytes_allowed(self, disk: Disk) -> None:
        storage = await disk.open()
        storage.write(Changes(records=records(1, 0, 1, 2, 3), ledgers={1: LedgerData()}))
        size = len(record_of(1, 0))
        entry_ids = [0, 7, 1, 8, 2, 3]
        found = [record_of(1, 0), None, record_of(1, 1), None, record_of(1, 2), record_of(1, 3)]
        for max_bytes, count in [
            (0, 1),
            (size - 1, 1),
            (size, 3),
            (2 * size - 1, 3),
            (2 * size, 5),
            (3 * size, 6),
            (ALL, 6),
        ]:
            assert await storage.read(1, entry_ids, max_bytes) == found[:count], f"{max_bytes} bytes allowed"
        assert (await storage.read(1, [7, 8], 0))[0] is None, "what is not held takes nothing"

    async def test_dropped_ledger_retains_only_its_ledger_record(self, disk: Disk) -> None:
        storage = await disk.open()
        storage.write(Changes(records=records(1, 0, 1) | records(2, 0), ledgers={1: LedgerData(b"k"), 2: LedgerData()}))
        storage.write(Changes(dropped=[1], ledgers={1: LedgerData(b"k", deleted=True)}))
        for _ in range(2):
            assert await held(storage, 1) == []
            assert storage.get_ledger(1) == LedgerData(b"k", deleted=True)
            assert all_ledgers(storage) == [1, 2]
            assert await held(storage, 2) == [0]
            await storage.sync()
            await disk.crash()
            storage = await disk.open()

    async def test_group_discards_and_drops_before_it_writes(self, disk: Disk) -> None:
        storage = await disk.open()
        other = records(1, 5) | {(2, 0): b"what was there before"}
        storage.write(Changes(records=other, ledgers={1: LedgerData(), 2: LedgerData()}))
        storage.write(Changes(records=records(1, 0) | records(2, 0), dropped=[1], discarded=[(2, 0)]))
        await storage.sync()
        await disk.crash()
        storage = await disk.open()
        assert await held(storage, 1) == [0]
        assert await held(storage, 2) == [0]

    async def test_discarded_record_is_removed_durably(self, disk: Disk) -> None:
        storage = await disk.open()
        storage.write(Changes(records=records(1, 0, 1), ledgers={1: LedgerData()}))
        storage.write(Changes(discarded=[(1, 1)]))
        assert await held(storage, 1) == [0]
        await storage.sync()
        await disk.crash()
        assert await held(await disk.open(), 1) == [0]

    async def test_full_disk_refuses_groups_with_records_and_stores_others(self, disk: Disk) -> None:
        storage = await disk.open()
        storage.write(Changes(records=records(1, 0), ledgers={1: LedgerData()}))
        await storage.sync()
        assert storage.has_free_space()
        await disk.fill()
        assert not storage.has_free_space()
        with pytest.raises(StorageFull):
            storage.write(Changes(records=records(1, 1), ledgers={2: LedgerData()}, bookie=b"me", dropped=[1]))
        assert await held(storage, 1) == [0]
        assert all_ledgers(storage) == [1]
        assert storage.get_bookie_record() is None
        storage.write(Changes(ledgers={3: LedgerData(fenced=True)}, bookie=b"me"))
        await storage.sync()
        await disk.crash()
        storage = await disk.open()
        assert await held(storage, 1) == [0]
        assert storage.get_ledger(3) == LedgerData(fenced=True)
        assert storage.get_bookie_record() == b"me"

    async def test_failed_sync_is_the_last_thing_that_a_storage_does(self, disk: Disk) -> None:
        """CHK-21, the storage's part: no second sync succeeds, as the system has forgotten what it could not write."""
        storage = await disk.open()
        storage.write(Changes(records=records(1, 0), ledgers={1: LedgerData()}))
        await storage.sync()
        storage.write(Changes(records=records(1, 1)))
        await disk.fail_next_sync()
        with pytest.raises(StorageFailed):
            await storage.sync()
        with pytest.raises(StorageFailed):
            await storage.sync()
        with pytest.raises(StorageFailed):
            storage.write(Changes(records=records(1, 2)))
        with pytest.raises(StorageFailed):
            await storage.read(1, [0], ALL)
        await disk.crash()
        assert (await held(await disk.open(), 1))[:1] == [0]

    async def test_begin_sync_reports_its_result_once_and_asynchronously(self, disk: Disk) -> None:
        storage = await disk.open()
        results: list[StorageFailed | None] = []
        for entry_id in range(3):
            storage.write(Changes(records=records(1, entry_id), ledgers={1: LedgerData()}))
            storage.start_sync(results.append)
            assert len(results) == entry_id
            await until(lambda count=entry_id + 1: len(results) == count, "the sync ends")  # type: ignore[misc]
        assert results == [None, None, None]
        storage.write(Changes(records=records(1, 3)))
        await disk.fail_next_sync()
        storage.start_sync(results.append)
        await until(lambda: len(results) == 4, "the sync fails")
        assert isinstance(results[3], StorageFailed)
        with pytest.raises(StorageFailed):
            storage.start_sync(results.append)
        assert len(results) == 4
        await disk.crash()
        assert (await held(await disk.open(), 1))[:3] == [0, 1, 2]

    async def test_damaged_record_is_held_and_never_absent(self, disk: Disk) -> None:
        storage = await disk.open()
        storage.write(Changes(records=records(1, 0, 1, 2), ledgers={1: LedgerData()}))
        await storage.sync()
        await disk.damage(1, 1)
        assert storage.has_entry(1, 1)
        assert storage.list_entry_ids(1, 0, 2, 10) == [0, 1, 2]
        first, second, third = await storage.read(1, [0, 1, 2], ALL)
        assert (first, third) == (record_of(1, 0), record_of(1, 2))
        assert second is DAMAGED or (isinstance(second, bytes) and second != record_of(1, 1))
        storage.write(Changes(records=records(1, 1), discarded=[(1, 1)]))
        await storage.sync()
        await disk.crash()
        assert await held(await disk.open(), 1) == [0, 1, 2]

    async def test_loss_is_reported_until_bookie_record_is_synced(self, disk: Disk) -> None:
        storage = await disk.open()
        for entry_id in range(3):
            storage.write(Changes(records=records(1, entry_id), ledgers={1: LedgerData()}, bookie=b"me"))
            await storage.sync()
        await disk.lose_synced()
        assert not (await disk.open()).is_intact
        await disk.crash()
        storage = await disk.open()
        assert not storage.is_intact, "it crashed before it wrote anything down"
        entry_ids = await held(storage, 1)
        assert entry_ids == list(range(len(entry_ids)))
        assert len(entry_ids) < 3
        storage.write(Changes(bookie=b"I have lost something"))
        await storage.sync()
        assert not storage.is_intact
        await disk.crash()
        assert (await disk.open()).is_intact
