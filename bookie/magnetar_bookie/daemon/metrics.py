"""A bookie's numbers for Prometheus: kept as plain numbers where they arise, and put into words at a scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from prometheus_client.core import Metric

from magnetar_bookie.daemon.disk_use import Use
from magnetar_bookie.daemon.storage_use import use_of
from magnetar_bookie.read.read_answer import status_name
from magnetar_bookie.server.bookie_process import BookieProcess
from magnetar_bookie.storage.rocksdb.use import StorageUse
from magnetar_wire.process.metric_families import MetricFamilies, format_exposition

__all__ = ["Metrics"]

_FAMILIES: Final = MetricFamilies("magnetar_bookie_")
_counter = _FAMILIES.counter
_gauge = _FAMILIES.gauge
_histogram = _FAMILIES.histogram


class Metrics:
    def __init__(self, process: BookieProcess) -> None:
        self._process = process

    def text(self, disk: Use | None) -> bytes:
        return format_exposition(list(self.collect(disk)))

    def collect(self, disk: Use | None) -> Iterator[Metric]:
        bookie, process = self._process.bookie, self._process
        counters, collector, repairs = bookie.counters, process.collector, process.repairs
        yield _counter("adds", "Entries that were asked to be added.", counters.adds)
        yield _counter("add_bytes", "Bytes of the requests to add.", counters.add_bytes)
        yield _answers(counters.answers)
        yield _counter("reads", "Calls that read entries.", counters.reads)
        yield _counter("read_entries", "Entries that reads were given.", counters.records_read)
        yield _counter("read_bytes", "Bytes of those entries.", counters.read_bytes)
        yield _counter("fences", "Times that a ledger was to be fenced.", counters.fences)
        yield _counter("damaged_records", "Times that a damaged record was met.", counters.damaged)
        yield _counter("scrubbed_entries", "Entries that the scrubber read.", counters.scrubbed_records)
        yield _counter("scrubbed_bytes", "Bytes that the scrubber read.", counters.scrubbed_bytes)
        yield _counter("scrub_passes", "Passes of the scrubber through all that is held.", counters.scrub_passes)
        yield _histogram("group_entries", "Entries that got to the disk together.", counters.group_entries)
        yield _histogram("group_bytes", "Bytes that got to the disk together.", counters.group_bytes)
        yield _histogram("sync_seconds", "Time to write and sync one group.", counters.sync_seconds)
        yield _gauge("pending_entries", "Entries in line for the disk.", bookie.pending_entries)
        yield _gauge("pending_bytes", "What is in line for the disk takes in memory.", bookie.pending_bytes)
        yield _gauge("add_streams", "Streams of adds that are served.", bookie.add_streams)
        yield _gauge("long_polls", "Readers that wait for more.", bookie.long_polls)
        yield _gauge("read_only", "1: no new entries are taken.", bookie.read_only)
        yield _gauge("disk_failed", "1: nothing is answered any more.", bookie.failed is not None)
        yield _gauge("registered", "1: others find it.", process.registered)
        in_limbo = bookie.record.limbo_below > 0 and process.ledgers_in_limbo != 0
        yield _gauge("limbo", "1: some ledgers may have lost entries here.", in_limbo)
        if process.ledgers_in_limbo is not None:
            yield _gauge("limbo_ledgers", "Ledgers still in limbo.", process.ledgers_in_limbo)
        if collector.ledgers is not None:
            yield _gauge("ledgers", "Ledgers held.", collector.ledgers)
            yield _gauge("tombstones", "Deleted ledgers remembered.", collector.tombstones)
            unexplained = len(collector.unexplained)
            yield _gauge("unexplained_ledgers", "Ledgers that the metadata store does not know.", unexplained)
        if disk is not None:
            yield _gauge("disk_free_bytes", "Free on the file system.", disk.free_bytes)
            yield _gauge("disk_total_bytes", "Size of the file system.", disk.total_bytes)
            yield _gauge("folder_bytes", "Taken by the bookie's files.", disk.folder_bytes)
        yield from _storage(use_of(bookie.storage))
        auditing = process.auto_recovery is not None and process.auto_recovery.auditing
        yield _gauge("auditor", "1: this one is elected.", auditing)
        yield _counter("repair_tasks_done", "Repair tasks that the worker finished.", repairs.tasks_done)
        yield _counter(
            "repair_entries_in_place",
            "Entries that the worker copied, or found where they should be.",
            repairs.entries_in_place,
        )


def _storage(use: StorageUse | None) -> Iterator[Metric]:
    if use is None:
        return
    yield _gauge("segments", "Files of the log.", use.segments)
    yield _gauge("segments_held_bytes", "What the log's files hold.", use.held_bytes)
    yield _gauge("segments_used_bytes", "What of that is entries that are still there.", use.used_bytes)
    yield _gauge("index_bytes", "What the index' files take.", use.index_bytes)
    yield _counter("reclaimed_segments", "Files of the log that were freed.", use.reclaimed_segments)
    yield _counter("reclaimed_bytes", "What those held.", use.reclaimed_bytes)
    unreadable = use.unreadable_segments
    yield _gauge("unreadable_segments", "Files of the log of which something can't be read.", unreadable)


def _answers(answers: dict[int, int]) -> Metric:
    family: Any = _counter("add_answers", "Entries answered, by status.", labels=["status"])
    for status, count in sorted(answers.items()):
        family.add_metric([status_name(status)], count)
    return family  # type: ignore[no-any-return]
