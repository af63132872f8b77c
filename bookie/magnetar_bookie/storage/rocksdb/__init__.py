"""A bookie's ledgers on a real disk: records in log files, what is known of them in RocksDB. `storage` begins."""

from __future__ import annotations

from magnetar_bookie.settings.storage import StorageSettings
from magnetar_bookie.storage.rocksdb.crash_recovery import open_rocksdb
from magnetar_bookie.storage.rocksdb.storage import RocksStorage

__all__ = ["RocksStorage", "StorageSettings", "open_rocksdb"]
