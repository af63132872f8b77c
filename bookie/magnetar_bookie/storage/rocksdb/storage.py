"""A bookie's storage on a disk: `LedgerStorage` on top of the indexed log, with limits of disk space and compaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar_bookie.settings.storage import StorageSettings
from magnetar_bookie.storage.interface import Changes, Damaged, LedgerData, StorageFailed, StorageStats
from magnetar_bookie.storage.rocksdb.compaction import Compactor
from magnetar_bookie.storage.rocksdb.disk_space import DiskSpace
from magnetar_bookie.storage.rocksdb.indexed_log import IndexedLog, OpenedFolder
from magnetar_bookie.storage.rocksdb.log_reader import read_records

__all__ = ["RocksStorage"]


class RocksStorage:
    """Implements `LedgerStorage`. Created by `open_rocksdb`."""

    def __init__(self, opened: OpenedFolder, settings: StorageSettings) -> None:
        self._is_intact = opened.is_intact
        self.log = IndexedLog(opened, settings)
        self._space = DiskSpace(opened.folder, settings)
        self._compactor = Compactor(self.log, self._space, settings.rewrite_below, settings.log_check_interval_seconds)
        self.log.on_synced = self._compactor.start_if_needed

    # Reads.

    @property
    def is_intact(self) -> bool:
        return self._is_intact

    def has_free_space(self) -> bool:
        return self._space.can_resume(self.log.count_log_bytes)

    def get_stats(self) -> StorageStats | None:
        log = self.log
        try:
            return StorageStats(
                segments=len(log.usage.segments),
                held_bytes=log.count_log_bytes(),
                used_bytes=log.count_live_bytes(),
                index_bytes=log.query(log.index.get_file_bytes),
                reclaimed_segments=self._compactor.deleted_segments,
                reclaimed_bytes=self._compactor.deleted_bytes,
                unreadable_segments=self._compactor.damaged_segments,
            )
        except StorageFailed:
            return None

    def get_bookie_record(self) -> bytes | None:
        return self.log.query(self.log.index.get_bookie_record)

    def get_ledger(self, ledger_id: int) -> LedgerData | None:
        return self.log.query(self.log.index.get_ledger, ledger_id)

    def list_ledger_ids(self, first: int, limit: int) -> list[int]:
        return self.log.query(self.log.index.list_ledger_ids, first, limit)

    def get_last_entry_id(self, ledger_id: int) -> int:
        return self.log.query(self.log.index.get_last_entry_id, ledger_id)

    def has_entry(self, ledger_id: int, entry_id: int) -> bool:
        return self.log.query(self.log.index.has_entry, ledger_id, entry_id)

    def list_entry_ids(self, ledger_id: int, first: int, last: int, limit: int) -> list[int]:
        return self.log.query(self.log.index.list_entry_ids, ledger_id, first, last, limit)

    async def read(self, ledger_id: int, entry_ids: Sequence[int], max_bytes: int) -> list[bytes | Damaged | None]:
        self.log.check_not_failed()
        if not entry_ids:
            return []
        return await self.log.run_in_thread(
            read_records, self.log.index, self.log.segments, ledger_id, entry_ids, max_bytes
        )

    # Changes.

    def write(self, changes: Changes) -> None:
        self.log.check_not_failed()
        if changes.records:
            self._space.check_entries_fit(self.log.count_log_bytes, sum(map(len, changes.records.values())))
        self.log.append(changes)
        if changes.dropped or changes.discarded:
            self._compactor.is_requested = True

    async def sync(self) -> None:
        await self.log.sync()

    def start_sync(self, on_done: Callable[[StorageFailed | None], object]) -> None:
        self.log.start_sync(on_done)

    def on_failure(self, callback: Callable[[StorageFailed], object]) -> None:
        self.log.on_failure = callback

    async def close(self) -> None:
        await self._compactor.stop()
        await self.log.close()
