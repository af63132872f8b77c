"""What a bookie's folder takes of its disk: looked at in a thread of its own, since a disk may hang."""

from __future__ import annotations

import asyncio
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["DiskUsage", "DiskUsageMonitor"]

_WAIT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class DiskUsage:
    # Of the file system.
    total_bytes: int
    free_bytes: int
    # Of the folder's files.
    folder_bytes: int


class DiskUsageMonitor:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disk-use")
        self._looking: asyncio.Future[DiskUsage] | None = None
        # The last answer; None: there has been none.
        self.last: DiskUsage | None = None

    async def look(self) -> DiskUsage | None:
        """As it is now, or where the disk does not say in time, as it was last."""
        if self._looking is None:
            self._looking = asyncio.get_running_loop().run_in_executor(self._thread, _look, self._folder)
        looking = self._looking
        await asyncio.wait([looking], timeout=_WAIT_S)
        if looking.done() and self._looking is looking:
            self._looking = None
            if looking.exception() is None:  # an error is the health's to tell
                self.last = looking.result()
        return self.last

    def close(self) -> None:
        """Does not wait: the thread may hang with the disk."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _look(folder: Path) -> DiskUsage:
    system = shutil.disk_usage(folder)
    taken = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                taken += os.stat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # deleted meanwhile, as storage does
    return DiskUsage(system.total, system.free, taken)
