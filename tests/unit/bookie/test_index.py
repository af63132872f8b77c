"""The bookie's index: what RocksDB is given stays in memory for as long as RocksDB uses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Rdict, ReadOptions

from magnetar_bookie.storage.rocksdb import index as index_module
from magnetar_bookie.storage.rocksdb.index import Index, IndexBatch, entry_key, pack_location


class _Iterator:
    """Before each step the memory that the caller has freed is used for something else."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        self._others: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        for _ in range(50):
            bounds: Any = ReadOptions()
            bounds.set_iterate_lower_bound(b"\xff" * 17)
            bounds.set_iterate_upper_bound(b"\xff" * 18)
            self._others.append(bounds)
        return getattr(self._iterator, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._iterator)


class _Database:
    def __init__(self, database: Any) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def iter(self, bounds: Any) -> _Iterator:
        return _Iterator(self._database.iter(bounds))

    def items(self, *, from_key: bytes, read_opt: Any) -> _Iterator:
        return _Iterator(self._database.items(from_key=from_key, read_opt=read_opt))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    monkeypatch.setattr(index_module, "Rdict", lambda *arguments: _Database(Rdict(*arguments)))
    index = Index(tmp_path / "index", block_cache_bytes=1 << 20)
    batch = IndexBatch()
    for ledger_id in range(1, 20):
        for entry_id in range(ledger_id):
            batch.put(entry_key(ledger_id, entry_id), pack_location(1, entry_id, 1))
    index.write(batch.batch)
    yield index
    index.close()


def test_last_entry_is_found_after_caller_memory_is_freed(index: Index) -> None:
    """CHK-1, STO-1: a ledger whose entries are not found would be closed empty by a recovery."""
    assert [index.get_last_entry_id(ledger_id) for ledger_id in range(1, 21)] == [*range(19), -1]


def test_all_entries_are_found_after_caller_memory_is_freed(index: Index) -> None:
    """CHK-1, STO-1"""
    for ledger_id in range(1, 20):
        assert index.list_entry_ids(ledger_id, 0, 100, 100) == [*range(ledger_id)]
