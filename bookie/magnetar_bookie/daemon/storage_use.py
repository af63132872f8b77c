"""What the storage says of itself, where it is one on a real disk and has not failed."""

from __future__ import annotations

from magnetar_bookie.storage.interface import LedgerStorage, StorageFailed
from magnetar_bookie.storage.rocksdb.storage import RocksStorage
from magnetar_bookie.storage.rocksdb.storage_stats import StorageStats

__all__ = ["read_storage_stats"]


def read_storage_stats(storage: LedgerStorage) -> StorageStats | None:
    if not isinstance(storage, RocksStorage):
        return None
    try:
        return storage.use()
    except StorageFailed:  # which is the health's to tell
        return None
