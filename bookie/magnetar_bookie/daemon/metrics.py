"""A bookie's metrics for Prometheus. Its parts count in plain numbers, which are formatted at a scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from prometheus_client.core import Metric

from magnetar_bookie.daemon.disk_usage import DiskUsage
from magnetar_bookie.read.read_answer import format_status
from magnetar_bookie.server.bookie_process import BookieProcess
from magnetar_bookie.storage.interface import StorageStats
from magnetar_wire.process.metric_families import MetricFamilies, format_exposition

__all__ = ["Metrics"]

_FAMILIES: Final = MetricFamilies("magnetar_bookie_")
_counter = _FAMILIES.counter
_gauge = _FAMILIES.gauge
_histogram = _FAMILIES.histogram


class Metrics:
    def __init__(self, process: BookieProcess) -> None:
        self._process = process

    def format(self, disk: DiskUsage | None) -> bytes:
        return format_exposition(list(self.collect(disk)))

    def collect(self, disk: DiskUsage | None) -> Iterator[Metric]:
        bookie, process = self._process.bookie, self._process
        counters, collector, repairs = bookie.counters, process.collector, process.repairs
        yield _counter("adds", "Entries in add requests.", counters.adds)
        yield _counter("add_bytes", "Bytes of add requests.", counters.add_bytes)
        yield _collect_answers(counters.answers)
        yield _counter("reads", "Read requests.", counters.reads)
        yield _counter("read_entries", "Entries returned by reads.", counters.records_read)
        yield _counter("read_bytes", "Bytes of the entries returned by reads.", counters.read_bytes)
        yield _counter("fences", "Fence requests.", counters.fences)
        yield _counter("damaged_records", "Damaged records found.", counters.damaged)
        yield _counter("scrubbed_entries", "Entries read by the scrubber.", counters.scrubbed_records)
        yield _counter("scrubbed_bytes", "Bytes read by the scrubber.", counters.scrubbed_bytes)
        yield _counter("scrub_passes", "Passes of the scrubber over all entries.", counters.scrub_passes)
        yield _histogram("group_entries", "Entries written and synced as one group.", counters.group_entries)
        yield _histogram("group_bytes", "Bytes written and synced as one group.", counters.group_bytes)
        yield _histogram("sync_seconds", "Seconds to write and sync one group.", counters.sync_seconds)
        yield _gauge("pending_entries", "Entries waiting to be written to the disk.", bookie.pending_entries)
        yield _gauge(
            "pending_bytes", "Memory of entries waiting to be written to the disk, in bytes.", bookie.pending_bytes
        )
        yield _gauge("add_streams", "Open streams of adds.", bookie.add_streams)
        yield _gauge("long_polls", "Readers waiting for new entries.", bookie.long_polls)
        yield _gauge("read_only", "1: the bookie accepts no new entries.", bookie.read_only)
        yield _gauge("disk_failed", "1: the disk failed, and no request is answered.", bookie.failure is not None)
        yield _gauge("registered", "1: the bookie is registered in the metadata store.", process.is_registered)
        in_limbo = bookie.record.limbo_below > 0 and process.ledgers_in_limbo != 0
        yield _gauge("limbo", "1: some ledgers may have lost entries on this bookie.", in_limbo)
        if process.ledgers_in_limbo is not None:
            yield _gauge(
                "limbo_ledgers",
                "Ledgers in limbo: they may have lost entries, and are not repaired yet.",
                process.ledgers_in_limbo,
            )
        if collector.ledgers is not None:
            yield _gauge("ledgers", "Ledgers stored.", collector.ledgers)
            yield _gauge(
                "tombstones", "Deleted ledgers remembered, so that late adds are refused.", collector.tombstones
            )
            unexplained = len(collector.unexplained)
            yield _gauge("unexplained_ledgers", "Ledgers that the metadata store does not know.", unexplained)
        if disk is not None:
            yield _gauge("disk_free_bytes", "Free bytes of the file system.", disk.free_bytes)
            yield _gauge("disk_total_bytes", "Size of the file system in bytes.", disk.total_bytes)
            yield _gauge("folder_bytes", "Bytes of the bookie's files.", disk.folder_bytes)
        yield from _collect_storage(bookie.storage.get_stats())
        auditing = process.auto_recovery is not None and process.auto_recovery.auditing
        yield _gauge("auditor", "1: this bookie is the auditor.", auditing)
        yield _counter("repair_tasks_done", "Repair tasks finished by the repair worker.", repairs.tasks_done)
        yield _counter(
            "repair_entries_in_place",
            "Entries that the repair worker copied, or found in place.",
            repairs.entries_in_place,
        )


def _collect_storage(stats: StorageStats | None) -> Iterator[Metric]:
    if stats is None:
        return
    yield _gauge("segments", "Log files.", stats.segments)
    yield _gauge("segments_held_bytes", "Bytes of the log files.", stats.held_bytes)
    yield _gauge("segments_used_bytes", "Bytes in the log files of entries that are not deleted.", stats.used_bytes)
    yield _gauge("index_bytes", "Bytes of the index files.", stats.index_bytes)
    yield _counter("reclaimed_segments", "Log files deleted to free space.", stats.reclaimed_segments)
    yield _counter("reclaimed_bytes", "Bytes freed with deleted log files.", stats.reclaimed_bytes)
    unreadable = stats.unreadable_segments
    yield _gauge("unreadable_segments", "Log files that can't be read completely.", unreadable)


def _collect_answers(answers: dict[int, int]) -> Metric:
    family: Any = _counter("add_answers", "Entries answered, by status.", labels=["status"])
    for status, count in sorted(answers.items()):
        family.add_metric([format_status(status)], count)
    return family  # type: ignore[no-any-return]
