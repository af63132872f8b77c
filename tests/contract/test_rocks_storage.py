"""The storage on a real disk keeps the contract.

A crash is a copy of the folder as it is, which is what kill -9 leaves; tests/faults/test_ledger_storage_crash.py kills.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar_bookie.storage.interface import Changes, LedgerData, LedgerStorage, StorageFailed
from magnetar_bookie.storage.rocksdb import RocksStorage, StorageSettings, disk_space, open_rocksdb
from magnetar_bookie.storage.rocksdb.compaction import Compactor
from magnetar_bookie.storage.rocksdb.index import Index, entry_key
from magnetar_bookie.storage.rocksdb.segments import list_segments, segment_path
from tests.contract.ledger_storage_contract import Disk, LedgerStorageContract
from tests.running import run

# So small that each test has several segments, and flushes the index.
_SMALL = StorageSettings(segment_bytes=4096, index_flush_bytes=4096)


class _Folder(Disk):
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, options: StorageSettings) -> None:
        self._folder = folder
        self._monkeypatch = monkeypatch
        self._options = options
        self._generation = 0
        self._storage: RocksStorage | None = None

    @property
    def _now(self) -> Path:
        return self._folder / str(self._generation)

    async def open(self) -> LedgerStorage:
        await self._end()
        self._storage = await open_rocksdb(self._now, self._options)
        return self._storage

    async def crash(self) -> None:
        before = self._now
        self._generation += 1
        shutil.copytree(before, self._now)
        await self._end()
        shutil.rmtree(before)

    async def fail_next_sync(self) -> None:
        def fail(_: int) -> None:
            self._monkeypatch.undo()
            raise OSError(5, "Input/output error")

        self._monkeypatch.setattr(os, "fdatasync", fail)

    async def fill(self) -> None:
        self._monkeypatch.setattr(disk_space, "get_free_bytes", lambda _: 0)

    async def damage(self, ledger_id: int, entry_id: int) -> None:
        assert self._storage is not None
        (location,) = self._storage.log.index.locate_keys([entry_key(ledger_id, entry_id)])
        assert location is not None
        segment, offset, size = location
        with segment_path(self._now / "records", segment).open("r+b") as file:
            file.seek(offset + size // 2)
            byte = file.read(1)[0]
            file.seek(offset + size // 2)
            file.write(bytes([byte ^ 0x10]))

    async def lose_synced(self) -> None:
        await self.crash()
        records = self._now / "records"
        last = segment_path(records, list_segments(records)[-1])
        os.truncate(last, last.stat().st_size - 1)

    async def close(self) -> None:
        await self._end()

    async def _end(self) -> None:
        storage, self._storage = self._storage, None
        if storage is not None:
            try:
                await storage.close()
            except StorageFailed:
                assert storage.log.failure


class TestRocksStorage(LedgerStorageContract):
    @pytest.fixture(params=["as it comes", "small segments"])
    async def disk(
        self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[Disk]:
        options = StorageSettings() if request.param == "as it comes" else _SMALL
        async with _Folder(tmp_path, monkeypatch, options) as disk:
            yield disk


@settings(max_examples=25)
@given(
    st.lists(
        st.lists(
            st.one_of(
                st.tuples(st.just("add"), st.integers(1, 3), st.integers(0, 40)),
                st.tuples(st.sampled_from(["drop", "discard"]), st.integers(1, 3), st.integers(0, 40)),
            ),
            max_size=4,
        ),
        max_size=25,
    )
)
def test_index_is_independent_of_how_groups_are_batched(groups: list[list[tuple[str, int, int]]]) -> None:
    def changes(group: list[tuple[str, int, int]], number: int) -> Changes:
        made = Changes(bookie=b"%d" % number if number % 3 else None)
        for what, ledger_id, entry_id in group:
            if what == "drop":
                made.dropped.append(ledger_id)
            elif what == "discard":
                made.discarded.append((ledger_id, entry_id))
            else:
                made.records[ledger_id, entry_id] = b"r" * (entry_id * 40)
                made.ledgers[ledger_id] = LedgerData(last_add_confirmed=number)
        return made

    async def whole(folder: Path, *, together: bool) -> list[object]:
        storage = await open_rocksdb(folder, _SMALL)
        for number, group in enumerate(groups):
            storage.write(changes(group, number))
            assert together or storage.log.index  # the property indexes all groups
            if number % 5 == 4:
                await storage.sync()
        found = storage.log.index.scan(b"", b"\xff", None)
        usage = {segment: (use.live_bytes, use.end) for segment, use in storage.log.usage.segments.items()}
        await storage.close()
        return [found, usage]

    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as other,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(Compactor, "start_if_needed", lambda _: None)  # it would delete segments at some time
        assert run(whole(Path(one), together=True)) == run(whole(Path(other), together=False))


async def test_index_write_failure_is_raised_by_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strange: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: strange.append(what))
    storage = await open_rocksdb(tmp_path)
    # The compactor reads the live bytes after the first sync.
    storage.write(Changes({(1, 0): b"r"}))

    def fails(*_: object) -> None:
        raise StorageFailed("no space left")

    monkeypatch.setattr(Index, "write", fails)
    with pytest.raises(StorageFailed):
        await storage.sync()
    with pytest.raises(StorageFailed):
        storage.has_entry(1, 0)
    assert strange == []
    await storage.close()
