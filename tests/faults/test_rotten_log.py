"""One byte of a group is damaged: the other groups stay readable, and the data of that group is in the index."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from magnetar_bookie.storage.interface import Changes, LedgerData
from magnetar_bookie.storage.rocksdb import RocksStorage, StorageSettings, open_rocksdb
from magnetar_bookie.storage.rocksdb.compaction_rules import CheckSchedule
from magnetar_bookie.storage.rocksdb.group_format import HEADER_BYTES, encode_group
from magnetar_bookie.storage.rocksdb.segments import list_segments, segment_path
from tests.running import run, until

_RECORD = b"r" * 1000
_SMALL = StorageSettings(segment_bytes=16 << 10, index_flush_bytes=16 << 10)


def _on(folder: Path, body: Callable[[RocksStorage], Awaitable[None]], options: StorageSettings | None = None) -> None:
    async def scenario() -> None:
        storage = await open_rocksdb(folder, options)
        try:
            await body(storage)
        finally:
            await storage.close()

    run(scenario())


async def _fill(storage: RocksStorage) -> None:
    for entry_id in range(100):
        storage.write(Changes({(1, entry_id): _RECORD}))
        await storage.sync()


def _rot(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x40]))


# The magic, the checksum, the group's number, the table's size, the records' size, and the table.
@pytest.mark.parametrize("byte", [0, 5, 12, 17, 25, HEADER_BYTES + 3])
def test_rotten_group_loses_no_other_group_on_index_rebuild(tmp_path: Path, byte: int) -> None:
    """CHK-25: the first group's, so that no earlier group shows where it ends."""

    async def written(storage: RocksStorage) -> None:
        await _fill(storage)
        storage.write(Changes(ledgers={9: LedgerData(b"key", deleted=True)}))

    async def found(storage: RocksStorage) -> None:
        assert not storage.is_intact
        assert storage.list_entry_ids(1, 0, 1000, 1000) == list(range(1, 100))
        assert storage.get_ledger(9) == LedgerData(b"key", deleted=True)

    _on(tmp_path, written)
    _rot(segment_path(tmp_path / "records", 1), byte)
    shutil.rmtree(tmp_path / "index")
    _on(tmp_path, found)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 1 << 60])
def test_record_resembling_a_group_is_not_parsed_as_one(tmp_path: Path, number: int) -> None:
    """A client that writes entries can't forge a group by their bytes, although one byte before them is damaged."""
    planted = b"".join(encode_group(number, Changes(ledgers={7: LedgerData(b"stolen", deleted=True)})).parts)

    async def written(storage: RocksStorage) -> None:
        for entry_id in range(6):
            storage.write(Changes({(1, entry_id): planted if entry_id == 1 else _RECORD}))
            await storage.sync()

    async def found(storage: RocksStorage) -> None:
        assert storage.get_ledger(7) is None
        assert storage.list_entry_ids(1, 0, 1000, 1000) == [0, 2, 3, 4, 5]

    _on(tmp_path, written)
    log = segment_path(tmp_path / "records", 1)
    second = len(encode_group(1, Changes({(1, 0): _RECORD})).parts[0]) + len(_RECORD)
    _rot(log, second)  # its magic: it must be looked for
    shutil.rmtree(tmp_path / "index")
    _on(tmp_path, found)


def test_ledger_records_of_rotten_group_are_copied_before_file_deletion(tmp_path: Path) -> None:
    """CHK-25: nothing of the file is in use but what is remembered of a ledger, behind what can't be read."""
    remembered = LedgerData(b"key", fenced=True, last_add_confirmed=5)

    async def written(storage: RocksStorage) -> None:
        storage.write(Changes({(1, 100): _RECORD}, ledgers={8: remembered}))
        storage.write(Changes(ledgers={9: remembered}, bookie=b"me"))
        await _fill(storage)

    async def dropped(storage: RocksStorage) -> None:
        storage.write(Changes(ledgers={1: LedgerData(deleted=True)}, dropped=[1]))
        await storage.sync()
        await until(lambda: not segment_path(tmp_path / "records", 1).exists(), "the file is freed")

    async def still_there(storage: RocksStorage) -> None:
        assert (storage.get_ledger(8), storage.get_ledger(9), storage.get_bookie_record()) == (
            remembered,
            remembered,
            b"me",
        )
        assert storage.get_ledger(1) == LedgerData(deleted=True)

    _on(tmp_path, written, _SMALL)
    _rot(segment_path(tmp_path / "records", 1), 12)
    _on(tmp_path, dropped, _SMALL)
    shutil.rmtree(tmp_path / "index")
    _on(tmp_path, still_there, _SMALL)


def test_used_bytes_are_correct_if_group_with_discard_is_lost(tmp_path: Path) -> None:
    """CHK-25: the older copy counts no more, or its file would never be freed."""

    async def written(storage: RocksStorage) -> None:
        storage.write(Changes({(1, entry_id): _RECORD for entry_id in range(20)}))
        storage.write(Changes({(2, entry_id): _RECORD for entry_id in range(20)}, discarded=[(1, 3)]))
        storage.write(Changes({(1, 3): _RECORD}))
        storage.write(Changes({(1, 3): _RECORD}, discarded=[(1, 3)]))

    async def counted(storage: RocksStorage) -> None:
        assert storage.list_entry_ids(1, 0, 100, 100) == list(range(20))
        assert storage.log.count_live_bytes() == 20 * len(_RECORD)
        storage.write(Changes(ledgers={1: LedgerData(deleted=True)}, dropped=[1]))
        assert storage.log.count_live_bytes() == 0

    _on(tmp_path, written, _SMALL)
    assert list_segments(tmp_path / "records") == [1, 2, 3]
    segment_path(tmp_path / "records", 2).unlink()
    shutil.rmtree(tmp_path / "index")
    _on(tmp_path, counted, _SMALL)


def test_file_with_rotten_group_is_found_and_rewritten(tmp_path: Path) -> None:
    """CHK-25: headers and tables are read only when the index is lost, and then their contents would be lost, too."""
    often = StorageSettings(segment_bytes=16 << 10, index_flush_bytes=16 << 10, log_check_interval_seconds=0.2)
    remembered = LedgerData(b"key", fenced=True)

    async def written(storage: RocksStorage) -> None:
        storage.write(Changes(ledgers={9: remembered}, bookie=b"me"))
        await _fill(storage)

    async def mended(storage: RocksStorage) -> None:
        async with asyncio.timeout(60):
            while any(segment_path(tmp_path / "records", one).exists() for one in rotten):
                await storage.sync()
                await asyncio.sleep(0.01)
        await whole(storage)

    async def whole(storage: RocksStorage) -> None:
        assert await storage.read(1, range(100), 1 << 30) == [_RECORD] * 100
        assert (storage.get_ledger(9), storage.get_bookie_record()) == (remembered, b"me")

    _on(tmp_path, written, _SMALL)
    segments = list_segments(tmp_path / "records")
    rotten = [segments[0], segments[2]]
    for segment in rotten:
        _rot(segment_path(tmp_path / "records", segment), 12)
    _on(tmp_path, mended, often)
    shutil.rmtree(tmp_path / "index")
    _on(tmp_path, whole, _SMALL)


def test_each_file_has_its_turn_once_in_an_interval_whenever_processes_begin() -> None:
    turns: list[int] = []
    for begun in range(0, 100, 7):
        times = CheckSchedule(100.0, 1_000_000.0 + begun)
        for passed in range(1, 8):
            turns += times.list_due(1_000_000.0 + begun + passed, 30)
    assert set(turns) == set(range(30))
    assert len(turns) <= 33
    assert sorted(CheckSchedule(100.0, 0.0).list_due(1000.0, 5)) == [0, 1, 2, 3, 4]
    assert CheckSchedule(100.0, 50.0).list_due(10.0, 5) == []
    assert CheckSchedule(100.0, 0.0).list_due(10.0, 0) == []
