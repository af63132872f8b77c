"""Counters of a bookie's work. They are raised once per batch, and read by metrics and status."""

from __future__ import annotations

from typing import Final

from magnetar_wire.process.histogram import BYTES, SECONDS, Histogram

__all__ = ["BookieCounters"]

_ENTRIES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0)


class BookieCounters:
    """Counts since the process started. All numbers only rise, except `syncing_since`."""

    def __init__(self) -> None:
        # Entries in add requests, and the bytes of the requests.
        self.adds = 0
        self.add_bytes = 0
        # Status → number of entries answered with it.
        self.answers: dict[int, int] = {}
        # Read requests, and the records that they returned.
        self.reads = 0
        self.records_read = 0
        self.read_bytes = 0
        self.fences = 0
        # How often a damaged record was found, by reads or by the scrubber.
        self.damaged = 0
        self.scrubbed_records = 0
        self.scrubbed_bytes = 0
        self.scrub_passes = 0
        # Sizes of durable groups.
        self.group_entries = Histogram(_ENTRIES)
        self.group_bytes = Histogram(BYTES)
        # From the start of a group's write to the end of its sync.
        self.sync_seconds = Histogram(SECONDS)
        # When the write of the present group started, on the monotonic clock; None: no group is being written.
        self.syncing_since: float | None = None

    def count_results(self, status: int, count: int) -> None:
        self.answers[status] = self.answers.get(status, 0) + count

    def count_group(self, entries: int, size_bytes: int, now: float) -> None:
        """Count a durable group."""
        self.group_entries.observe(entries)
        self.group_bytes.observe(size_bytes)
        self.sync_seconds.observe(now - (now if self.syncing_since is None else self.syncing_since))
        self.syncing_since = None
