"""A bookie's ledgers on a disk: one log, which is both journal and entry log, and an index in RocksDB.

BookKeeper's terms, and their counterparts:

    journal and entry logs       one log in files, "segments" (`segments.py`). A record is written and synced once, and
                                 stays there until compaction; there is no second copy in a journal
    journal entries              groups (`group_format.py`): everything that became durable with one sync
    LastLogMark                  `DurableMark` of magnetar_metadata: up to which group was acknowledged
    DbLedgerStorage              `storage.py`, on top of `indexed_log.py`: log and index together
    EntryLocationIndex,          `index.py`; `index_updates.py` applies groups to it, and counts the live bytes of
    LedgerMetadataIndex          segments, like EntryLogMetadata
    checkpoint                   a flush of the index, after which an opening replays less of the log
    journal replay               `crash_recovery.py`, with `replay.py` and `tail_rewrite.py`
    EntryLogCompactor            `compaction.py`, with `live_data.py`
    disk thresholds              `disk_space.py`

A write goes `storage.py` → `indexed_log.py` → `segments.py`, in memory. A sync goes `indexed_log.py` → `sync_thread.py`
→ `Segments.write_and_sync` in that thread; the index gets the group a little later. A read goes `storage.py` →
`log_reader.py` → `index.py` and `segments.py`.
"""

from __future__ import annotations

from magnetar_bookie.settings.storage import StorageSettings
from magnetar_bookie.storage.rocksdb.crash_recovery import open_rocksdb
from magnetar_bookie.storage.rocksdb.storage import RocksStorage

__all__ = ["RocksStorage", "StorageSettings", "open_rocksdb"]
