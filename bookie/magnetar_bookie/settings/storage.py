"""The storage's options."""

from __future__ import annotations

from pydantic import Field

from magnetar_wire.configuration import Configuration

__all__ = ["StorageSettings"]


class StorageSettings(Configuration):
    """How much memory and disk the storage takes."""

    # Size, in bytes, at which a log file is closed. Space is freed by whole log files.
    segment_bytes: int = Field(default=128 << 20, ge=1 << 12, le=1 << 30)
    # Bytes written to the log after which the index is flushed. A start after a crash reads as many again.
    index_flush_bytes: int = Field(default=256 << 20, ge=1 << 12)
    # Memory, in bytes, of the cache of the index's blocks and filters.
    block_cache_bytes: int = Field(default=32 << 20, ge=1 << 20)
    # Maximum number of log files that are open for reading.
    max_open_segments: int = Field(default=128, gt=0)
    # Threads that read entries. Each holds the records of one response in memory.
    read_threads: int = Field(default=4, gt=0)
    # Disk space, in bytes, that entries leave free: fences, tombstones, the index and compaction need it. Entries that
    # would use it are refused.
    reserve_disk_bytes: int = Field(default=512 << 20, ge=1 << 20)
    # Size, in bytes, of a file that holds disk space in reserve, at most half of reserve_disk_bytes. It is deleted at a
    # start that finds the disk full. 0: no such file.
    ballast_disk_bytes: int = Field(default=64 << 20, ge=0)
    # Disk space, in bytes, that must be free besides reserve_disk_bytes before a bookie whose disk was full accepts
    # entries again.
    room_disk_bytes: int = Field(default=256 << 20, ge=1 << 20)
    # Maximum size, in bytes, of the data folder. Entries that would exceed it are refused. 0: no limit but the disk's.
    max_disk_bytes: int = Field(default=0, ge=0)
    # Share of live data, between 0 and 1, below which a closed log file is rewritten without its deleted entries.
    rewrite_below: float = Field(default=0.5, gt=0, lt=1)
    # Seconds between two fsyncs of the mark, which records how much of the log is acknowledged.
    mark_sync_interval_s: float = Field(default=1.0, gt=0)
    # Seconds between two checks of the headers and tables of each closed log file; the scrubber checks the records. A
    # damaged file is rewritten from the index.
    log_check_interval_s: float = Field(default=7 * 86400.0, gt=0)
