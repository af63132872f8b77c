"""After a failed sync the next process does not acknowledge what the disk has not."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.storage.interface import Changes, StorageFailed
from magnetar_bookie.storage.rocksdb import RocksStorage, StorageSettings, open_rocksdb
from magnetar_bookie.storage.rocksdb.marker_files import INDEX_DAMAGED, write_marker
from magnetar_metadata.locked_folder import DurableMark
from magnetar_wire.clock import SystemClock
from tests.faults.forgetful_disk import ForgetfulDisk
from tests.running import within

_RECORD = b"r" * 1000
_SMALL = StorageSettings(segment_bytes=8 << 10)


async def _fails(folder: Path, disk: ForgetfulDisk) -> None:
    """Entries 0 … 9 are durable; 10 … 29 are in files whose sync has failed."""
    storage = await open_rocksdb(folder, _SMALL)
    for entry in range(10):
        storage.write(Changes({(1, entry): _RECORD}))
        await storage.sync()
    for entry in range(10, 30):
        storage.write(Changes({(1, entry): _RECORD}))
    disk.fails = True
    with pytest.raises(StorageFailed):
        await storage.sync()
    disk.fails = False
    with contextlib.suppress(StorageFailed):
        await storage.close()


async def _durable(storage: RocksStorage) -> list[int]:
    held = storage.list_entry_ids(1, 0, 100, 100)
    assert await storage.read(1, held, 1 << 30) == [_RECORD] * len(held)
    return held


@pytest.mark.parametrize("is_rebuilt", [False, True])
async def test_data_found_after_failed_sync_is_synced_before_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_rebuilt: bool
) -> None:
    """CHK-21: the pages that were not written are read, and count as clean; the next sync succeeds without them."""
    disk = ForgetfulDisk(monkeypatch)
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))

    await _fails(first, disk)
    # The next process: where the one before is in this one, the folder must have another name.
    shutil.copytree(first, second)
    disk.moved(first, second)
    if is_rebuilt:
        write_marker(second, INDEX_DAMAGED, "as if")
    storage = await open_rocksdb(second, _SMALL)
    assert storage.is_intact != is_rebuilt
    vouched_for = await _durable(storage)
    assert vouched_for[:10] == list(range(10))
    assert len(vouched_for) > 10
    shutil.copytree(second, third)
    disk.moved(second, third)
    disk.lose_power(third / "records")
    again = await open_rocksdb(third, _SMALL)
    assert await _durable(again) == vouched_for
    assert again.is_intact != is_rebuilt
    await again.close()
    await storage.close()


class _BadSectors(io.FileIO):
    """A file on a disk that can't read what comes after the first `good_bytes`."""

    def __init__(self, path: Path, good_bytes: int) -> None:
        super().__init__(path)
        self._good_bytes = good_bytes

    def readinto(self, buffer: Any, /) -> int:
        good_bytes = self._good_bytes - self.tell()
        if good_bytes <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().readinto(memoryview(buffer)[:good_bytes]) or 0


async def test_end_of_the_log_that_cannot_be_read_was_never_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sector that could be neither written nor read must not keep the bookie from starting."""
    original, copy = tmp_path / "original", tmp_path / "copy"

    storage = await open_rocksdb(original)
    storage.write(Changes({(1, 0): _RECORD}))
    await storage.sync()
    shutil.copytree(original, copy)
    await storage.close()
    (log,) = (copy / "records").iterdir()
    whole = log.read_bytes()
    log.write_bytes(whole * 2)
    open_file = Path.open

    def open_on_bad_disk(path: Path, *args: Any, **options: Any) -> Any:
        if path != log:
            return open_file(path, *args, **options)
        return io.BufferedReader(_BadSectors(path, len(whole)))

    monkeypatch.setattr(Path, "open", open_on_bad_disk)
    storage = await open_rocksdb(copy)
    assert storage.is_intact
    assert await _durable(storage) == [0]
    await storage.close()


async def test_storage_that_fails_with_nobody_waiting_ends_its_bookie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CHK-21: compaction and the sync of the mark run by themselves, also on an idle bookie."""

    def fail(_: DurableMark) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    storage = await open_rocksdb(tmp_path, StorageSettings(mark_sync_interval_seconds=0.01))
    bookie = Bookie("b1", storage, SystemClock())
    storage.write(Changes({(1, 0): _RECORD}))
    await storage.sync()
    monkeypatch.setattr(DurableMark, "sync", fail)
    error = await within(bookie.wait_for_failure(), "the bookie hears of it")
    assert "Input/output error" in str(error)
    with pytest.raises(StorageFailed):
        await bookie.drain()
    await bookie.close()
    await storage.close()
