"""Rewrites the tail of the log when the storage is opened, since a failed sync may have left it unwritten.

If a sync fails, the kernel reports that once. The pages that it could not write are clean from then on, and are read as
if they had been written. A later sync of the file succeeds, and writes none of them. So a process that opens the folder
later can't make durable what it reads just by a sync.

Groups up to the durable mark were synced without an error. Groups above it may have been left by a failed sync. They
may also have been acknowledged, if the machine died and the last second of the mark was lost. So they are neither cut
off nor trusted: the same bytes are written again to the same offsets, and synced. A power failure during that does no
new harm: it is assumed that a sector that is overwritten with its own contents keeps them, as it is when a group is
appended in the sector in which the last one ends.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from magnetar_bookie.storage.rocksdb.replay import FoundGroup
from magnetar_bookie.storage.rocksdb.segments import segment_path

__all__ = ["TailRewrite"]

_COPY_BYTES: Final = 1 << 20
# A page that also has the end of an earlier group was written by the same sync.
_PAGE_BYTES: Final = 4096


class TailRewrite:
    """Collects the groups above the mark, and rewrites them."""

    def __init__(self, records: Path, acknowledged: int) -> None:
        self._records = records
        self._acknowledged = acknowledged
        # Segment → offset of its first such group, and end of its last.
        self._ranges: dict[int, tuple[int, int]] = {}

    def add_group(self, group: FoundGroup) -> None:
        if group.header.number > self._acknowledged:
            begin, _ = self._ranges.get(group.segment, (group.offset, 0))
            self._ranges[group.segment] = begin, group.end

    def rewrite(self) -> None:
        """Rewrite and sync the groups: they are durable when this returns."""
        for segment, (begin, end) in self._ranges.items():
            file = os.open(segment_path(self._records, segment), os.O_RDWR | os.O_CLOEXEC)
            try:
                _rewrite_range(file, begin - begin % _PAGE_BYTES, end)
                os.fsync(file)
            finally:
                os.close(file)


def _rewrite_range(file: int, begin: int, end: int) -> None:
    while begin < end:
        data = os.pread(file, min(_COPY_BYTES, end - begin), begin)
        if not data:
            raise OSError(f"the log ends at byte {begin}, but was read up to {end} just before")
        begin += os.pwrite(file, data, begin)
