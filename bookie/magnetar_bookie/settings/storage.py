"""Settings of a bookie's storage: limits of memory and disk space."""

from __future__ import annotations

from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import Subject, setting

__all__ = ["StorageSettings"]


class StorageSettings(Configuration):
    """Limits of memory and disk space."""

    segment_bytes: int = setting(
        128 << 20,
        "Size, in bytes, at which a log file is closed. Space is freed by whole log files.",
        subject=Subject.STORAGE,
        ge=1 << 12,
        le=1 << 30,
    )
    index_flush_bytes: int = setting(
        256 << 20,
        "Bytes written to the log after which the index is flushed. A start after a crash reads this much of the log.",
        subject=Subject.STORAGE,
        ge=1 << 12,
    )
    block_cache_bytes: int = setting(
        32 << 20,
        "Memory, in bytes, of the cache of the index's blocks and filters.",
        subject=Subject.STORAGE,
        ge=1 << 20,
    )
    max_open_segments: int = setting(
        128,
        "Maximum number of log files that are open for reading.",
        subject=Subject.STORAGE,
        unit="files",
        ge=1,
    )
    read_threads: int = setting(
        4,
        "Threads that read entries. Each holds the records of one response in memory.",
        subject=Subject.STORAGE,
        unit="threads",
        ge=1,
    )
    reserve_disk_bytes: int = setting(
        512 << 20,
        "Disk space, in bytes, that entries leave free: fences, tombstones, the index and compaction need it. "
        "Entries that would use it are refused.",
        subject=Subject.STORAGE,
        ge=1 << 20,
    )
    ballast_disk_bytes: int = setting(
        64 << 20,
        "Size, in bytes, of a file that reserves disk space, at most half of reserve_disk_bytes. A bookie that starts "
        "with a full disk deletes the file. 0: no such file.",
        subject=Subject.STORAGE,
        ge=0,
    )
    resume_disk_bytes: int = setting(
        256 << 20,
        "Disk space, in bytes, that must be free besides reserve_disk_bytes before a bookie whose disk was full "
        "accepts entries again.",
        subject=Subject.STORAGE,
        ge=1 << 20,
        formerly="room_disk_bytes",
    )
    max_disk_bytes: int = setting(
        0,
        "Maximum size, in bytes, of the data folder. Entries that would exceed it are refused. 0: no limit but "
        "the disk's.",
        subject=Subject.STORAGE,
        ge=0,
    )
    rewrite_below: float = setting(
        0.5,
        "Share of live data, between 0 and 1, below which a closed log file is rewritten without its deleted entries.",
        subject=Subject.STORAGE,
        unit="ratio",
        gt=0,
        lt=1,
    )
    mark_sync_interval_seconds: float = setting(
        1.0,
        "Seconds between two fsyncs of the mark, which records how much of the log is acknowledged.",
        subject=Subject.STORAGE,
        gt=0,
        formerly="mark_sync_interval_s",
    )
    log_check_interval_seconds: float = setting(
        7 * 86400.0,
        "Seconds between two checks of the headers and tables of each closed log file; the scrubber checks the "
        "records. A damaged file is rewritten from the index.",
        subject=Subject.STORAGE,
        gt=0,
        formerly="log_check_interval_s",
    )
