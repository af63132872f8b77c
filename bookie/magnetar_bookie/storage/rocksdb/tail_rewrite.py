"""The log's end, written anew before the storage vouches for it.

When a sync fails, the kernel says so once. The pages that it could not write count as clean from then on, and are read
as if nothing had been: a later sync of the same file succeeds, and writes none of them. So whoever opens the folder
after that can't make what it reads durable by a sync alone.

What was acknowledged up to the mark was synced without an error. What stands above the mark may be what a failed sync
left; or it may have been acknowledged, when the machine died and took the mark's last second along. So it is neither
cut nor trusted, but written again, the same bytes at the same place, and then synced. Should the power go meanwhile,
nothing is worse than before: a sector that is overwritten with what it holds, as each group does with the sector in
which the one before it ends, is assumed to hold it after.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from magnetar_bookie.storage.rocksdb.replay import FoundGroup
from magnetar_bookie.storage.rocksdb.segments import segment_path

__all__ = ["TailRewrite"]

_PORTION: Final = 1 << 20
# The page that is shared with what comes before was written by the same sync.
_PAGE_BYTES: Final = 4096


class TailRewrite:
    """The groups above the mark, as they are found."""

    def __init__(self, records: Path, acknowledged: int) -> None:
        self._records = records
        self._acknowledged = acknowledged
        # Segment → where the first begins, and where the last ends.
        self._ranges: dict[int, tuple[int, int]] = {}

    def add(self, group: FoundGroup) -> None:
        if group.head.number > self._acknowledged:
            begin, _ = self._ranges.get(group.segment, (group.offset, 0))
            self._ranges[group.segment] = begin, group.end

    def write_anew(self) -> None:
        """They are durable when it returns."""
        for segment, (begin, end) in self._ranges.items():
            file = os.open(segment_path(self._records, segment), os.O_RDWR | os.O_CLOEXEC)
            try:
                _write_anew(file, begin - begin % _PAGE_BYTES, end)
                os.fsync(file)
            finally:
                os.close(file)


def _write_anew(file: int, begin: int, end: int) -> None:
    while begin < end:
        data = os.pread(file, min(_PORTION, end - begin), begin)
        if not data:
            raise OSError(f"the log ends at byte {begin}, but was read up to {end} just before")
        begin += os.pwrite(file, data, begin)
