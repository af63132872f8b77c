"""The flushed index has no record that is not durable in the log, although the end of the log may be lost."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from magnetar_bookie.storage.interface import Changes, LedgerData, StorageFailed
from magnetar_bookie.storage.rocksdb import StorageSettings, compaction_rules, indexed_log, open_rocksdb
from magnetar_bookie.storage.rocksdb.index import Index
from tests.running import run

_RECORD = b"r" * 100


async def test_index_flush_is_not_delayed_while_segment_is_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CHK-24: compaction and adds run concurrently, and RocksDB never has to flush by itself."""
    due, records = 200, 1200
    monkeypatch.setattr(indexed_log, "INDEX_CHANGES", due)
    monkeypatch.setattr(indexed_log, "MAX_UNFLUSHED_CHANGES", 2 * due)
    monkeypatch.setattr(compaction_rules, "MAX_MOVED_RECORDS", 5)
    options = StorageSettings(segment_bytes=1 << 20, rewrite_below=0.7)

    storage = await open_rocksdb(tmp_path, options)
    unflushed, most, started_ahead = 0, 0, 0
    write, start_flush = Index.write, Index.start_flush

    def watched_write(index: Index, batch: Any) -> None:
        nonlocal unflushed, most
        unflushed += len(batch)
        write(index, batch)
        most = max(most, unflushed)

    def watched_flush(index: Index) -> bool:
        nonlocal unflushed, started_ahead
        started_ahead += storage.log.written > storage.log.durable
        begun = start_flush(index)
        unflushed = 0 if begun else unflushed
        return begun

    monkeypatch.setattr(Index, "write", watched_write)
    monkeypatch.setattr(Index, "start_flush", watched_flush)
    for first in range(0, records, 100):
        both = {(ledger, entry): _RECORD for entry in range(first, first + 100) for ledger in (1, 2)}
        storage.write(Changes(both))
        await storage.sync()
    first_segment = storage.log.segments.current
    storage.write(Changes({(3, 0): b"x" * (1 << 20)}))  # in the next segment
    await storage.sync()
    storage.write(Changes(ledgers={2: LedgerData(deleted=True)}, dropped=[2]))
    entry = 0
    while first_segment in storage.log.usage.segments:
        entry += 1
        storage.write(Changes({(4, entry): _RECORD}))
        await storage.sync()
    assert await storage.read(1, range(records), 1 << 30) == [_RECORD] * records
    await storage.close()
    assert not started_ahead
    # At most one group of each comes in between.
    assert most < 3 * due


async def test_sync_waits_for_the_flush_where_too_much_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CHK-24: the one before may be slow."""
    monkeypatch.setattr(indexed_log, "INDEX_CHANGES", 100)
    monkeypatch.setattr(indexed_log, "MAX_UNFLUSHED_CHANGES", 200)
    start_flush, attempts = Index.start_flush, 0

    def slow(index: Index) -> bool:
        nonlocal attempts
        attempts += 1
        return attempts > 5 and start_flush(index)

    monkeypatch.setattr(Index, "start_flush", slow)

    storage = await open_rocksdb(tmp_path)
    storage.write(Changes({(1, entry): _RECORD for entry in range(150)}))
    await storage.sync()
    assert attempts == 1
    storage.write(Changes({(1, entry): _RECORD for entry in range(150, 300)}))
    await storage.sync()
    assert attempts == 6
    await storage.close()


@pytest.mark.parametrize("closed", [True, False])
def test_records_of_failed_sync_are_not_in_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool) -> None:
    """CHK-21: RocksDB flushes when it is closed or dropped; what the disk lost would be known of."""
    original, copy = tmp_path / "original", tmp_path / "copy"

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def fails() -> int:
        storage = await open_rocksdb(original)
        storage.write(Changes({(1, 0): _RECORD}))
        await storage.sync()
        (log,) = (original / "records").iterdir()
        size = log.stat().st_size
        storage.write(Changes({(1, 1): _RECORD}))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", fail)
            with pytest.raises(StorageFailed):
                await storage.sync()
        if closed:
            with contextlib.suppress(StorageFailed):
                await storage.close()
        return size

    async def looks() -> None:
        storage = await open_rocksdb(copy)
        assert storage.is_intact
        assert storage.list_entry_ids(1, 0, 10, 10) == [0]
        await storage.close()

    synced_bytes = run(fails())
    gc.collect()
    shutil.copytree(original, copy)
    (log,) = (copy / "records").iterdir()
    os.truncate(log, synced_bytes)
    run(looks())
