"""The storage's options."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["RocksOptions"]


class RocksOptions(Configuration):
    """How much memory and disk the storage takes."""

    # A log file is closed when it has so many bytes. Room is freed by the file.
    segment_bytes: int = Field(default=128 << 20, ge=1 << 12, le=1 << 30)
    # The index is flushed when so much was written to the log since: what an opening after a crash reads again.
    index_flush_bytes: int = Field(default=256 << 20, ge=1 << 12)
    # What is read of the index is kept in so much memory; its filters with it.
    block_cache_bytes: int = Field(default=32 << 20, ge=1 << 20)
    # So many log files are open for reading at a time.
    max_open_segments: int = Field(default=128, gt=0)
    # Threads that read. Each has one answer's records in memory.
    read_threads: int = Field(default=4, gt=0)
    # Entries are refused when they would leave less free than this on the disk: fences and tombstones, the index and
    # what frees room need some.
    reserve_disk_bytes: int = Field(default=512 << 20, ge=1 << 20)
    # A file holds so much besides, half of what is kept back at most; an opening gives it up where somebody else has
    # filled the disk. 0: none.
    ballast_disk_bytes: int = Field(default=64 << 20, ge=0)
    # Once it was full, a disk has room again when so much more is free.
    room_disk_bytes: int = Field(default=256 << 20, ge=1 << 20)
    # Entries are refused that would have the folder hold more; 0: no limit but the disk's.
    max_disk_bytes: int = Field(default=0, ge=0)
    # A closed log file is written anew, without what was deleted, when less than this share of it is left.
    rewrite_below: float = Field(default=0.5, gt=0, lt=1)
    # How far the log was acknowledged is synced so often by itself.
    mark_sync_interval_s: float = Field(default=1.0, gt=0)
    # So often each closed log file's heads and tables are looked at: records are what the scrubber looks at. One that
    # rotted has the file written anew from the index.
    log_check_interval_s: float = Field(default=7 * 86400.0, gt=0)
