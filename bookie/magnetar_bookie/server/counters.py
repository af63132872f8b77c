"""What a bookie counts of its work: plain numbers, raised per batch, and read by whoever shows them."""

from __future__ import annotations

from typing import Final

from magnetar_wire.process.histogram import BYTES, SECONDS, Histogram

__all__ = ["BookieCounters", "RepairCounters"]

_ENTRIES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0)


class BookieCounters:
    """Since the process began. Numbers only rise, but for `syncing_since`."""

    def __init__(self) -> None:
        # Entries that were asked to be added, with the bytes of their frames.
        self.adds = 0
        self.add_bytes = 0
        # By status: entries answered.
        self.answers: dict[int, int] = {}
        # Calls that read, and the records that they were given.
        self.reads = 0
        self.records_read = 0
        self.read_bytes = 0
        self.fences = 0
        # Times that a record was met damaged, by readers and by the scrubber.
        self.damaged = 0
        self.scrubbed_records = 0
        self.scrubbed_bytes = 0
        self.scrub_passes = 0
        # Of the groups that are on the disk.
        self.group_entries = Histogram(_ENTRIES)
        self.group_bytes = Histogram(BYTES)
        # From the beginning of its write to the end of its sync.
        self.sync_seconds = Histogram(SECONDS)
        # Since when a group has been on its way to the disk, on the monotonic clock; None: there is none.
        self.syncing_since: float | None = None

    def answered(self, status: int, count: int) -> None:
        self.answers[status] = self.answers.get(status, 0) + count

    def synced(self, entries: int, size_bytes: int, now: float) -> None:
        """A group is on the disk."""
        self.group_entries.observe(entries)
        self.group_bytes.observe(size_bytes)
        self.sync_seconds.observe(now - (now if self.syncing_since is None else self.syncing_since))
        self.syncing_since = None


class RepairCounters:
    """What a process' worker has done since the process began."""

    def __init__(self) -> None:
        self.tasks_done = 0
        # Entries that it copied, or found where they should be.
        self.entries_in_place = 0
