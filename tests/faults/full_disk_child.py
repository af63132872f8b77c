"""A storage on a disk that another program fills completely: its failure, and its starts until there is space again.

Run by `test_full_disk.py` where the folder is a small file system of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from magnetar_bookie.storage.interface import Changes, LedgerData, StorageFailed, StorageFull
from magnetar_bookie.storage.rocksdb import RocksStorage, StorageSettings, open_rocksdb
from magnetar_bookie.storage.rocksdb.disk_space import BALLAST_NAME
from tests.running import until

_OPTIONS = StorageSettings(
    reserve_disk_bytes=12 << 20,
    resume_disk_bytes=1 << 20,
    ballast_disk_bytes=6 << 20,
    segment_bytes=1 << 20,
    index_flush_bytes=1 << 20,
    mark_sync_interval_seconds=0.01,
)
_RECORD = b"x" * 1000


def _fill(path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for size in (1 << 20, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    os.write(file, bytes(size))
    finally:
        os.close(file)


# Nothing of it is dropped before the process ends.
_open: list[RocksStorage] = []


async def _until_full(disk: Path) -> None:
    folder = disk / "bookie"
    # What the other frees at last must be more than all that is held besides: the index grows, too.
    (disk / "other").write_bytes(bytes(6 << 20))
    storage = await open_rocksdb(folder, _OPTIONS)
    _open.append(storage)
    assert (folder / BALLAST_NAME).stat().st_blocks * 512 >= _OPTIONS.ballast_disk_bytes
    written = 0
    with contextlib.suppress(StorageFull):
        while True:
            storage.write(Changes({(1, written + one): _RECORD for one in range(100)}))
            await storage.sync()
            written += 100
    (disk / "written").write_text(str(written))
    _fill(disk / "other")
    assert os.statvfs(folder).f_bavail == 0
    # There is no space for a fence in a file, which ends the process.
    with contextlib.suppress(StorageFailed):
        for _ in range(1000):
            storage.write(Changes(ledgers={one: LedgerData(b"k" * 100, fenced=True) for one in range(2, 20)}))
            await storage.sync()
        raise AssertionError("a thousand groups were written to a full disk")


async def _on_the_full_disk(disk: Path, *, index_is_missing: bool) -> None:
    folder, written = disk / "bookie", int((disk / "written").read_text())
    if index_is_missing:
        shutil.rmtree(folder / "index")
    storage = await open_rocksdb(folder, _OPTIONS)
    _open.append(storage)
    assert storage.is_intact is not index_is_missing
    assert not (folder / BALLAST_NAME).exists()
    assert await storage.read(1, range(written), 1 << 40) == [_RECORD] * written
    storage.write(Changes(ledgers={30: LedgerData(fenced=True)}))
    await storage.sync()
    try:
        storage.write(Changes({(1, written): _RECORD}))
    except StorageFull:
        return
    raise AssertionError("an entry was taken on a full disk")


async def _with_space_again(disk: Path) -> None:
    ballast = disk / "bookie" / BALLAST_NAME
    storage = await open_rocksdb(disk / "bookie", _OPTIONS)
    assert storage.get_ledger(30) == LedgerData(fenced=True)
    assert not ballast.exists()
    (disk / "other").unlink()
    storage.write(Changes({(2, 0): _RECORD}))
    await storage.sync()
    await until(ballast.exists, "space is reserved again while it is open")
    await storage.close()
    ballast.unlink()
    storage = await open_rocksdb(disk / "bookie", _OPTIONS)
    assert ballast.exists()
    await storage.close()


async def _and_end(body: Coroutine[Any, Any, None]) -> None:
    """Before the storage is dropped: RocksDB may wait there until the disk has space."""
    await body
    os._exit(0)


def _in_a_process(body: Coroutine[Any, Any, None]) -> None:
    """It ends as by kill -9."""
    child = os.fork()
    if not child:
        try:
            asyncio.run(_and_end(body))
        except BaseException:  # noqa: BLE001 (nothing of the parent's may run here)
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    body.close()
    if os.waitpid(child, 0)[1]:
        sys.exit(1)


def main(disk: Path) -> None:
    _in_a_process(_until_full(disk))
    _in_a_process(_on_the_full_disk(disk, index_is_missing=False))
    _in_a_process(_on_the_full_disk(disk, index_is_missing=True))
    _in_a_process(_with_space_again(disk))
    sys.stdout.write("all of it\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
