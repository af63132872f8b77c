"""Measures how much of its disk a bookie's folder uses, in a thread of its own, since the disk may hang."""

from __future__ import annotations

import asyncio
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["DiskUsage", "DiskUsageMonitor"]

_TIMEOUT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class DiskUsage:
    # Of the file system.
    total_bytes: int
    free_bytes: int
    # Of the files in the folder.
    folder_bytes: int


class DiskUsageMonitor:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disk-use")
        self._measuring: asyncio.Future[DiskUsage] | None = None
        # The last result; None: there was none.
        self.last: DiskUsage | None = None

    async def measure(self) -> DiskUsage | None:
        """Return the present usage, or the last one if the disk does not answer in time."""
        if self._measuring is None:
            self._measuring = asyncio.get_running_loop().run_in_executor(self._thread, _measure, self._folder)
        measuring = self._measuring
        await asyncio.wait([measuring], timeout=_TIMEOUT_S)
        if measuring.done() and self._measuring is measuring:
            self._measuring = None
            if measuring.exception() is None:  # errors of the disk are reported by the health check
                self.last = measuring.result()
        return self.last

    def close(self) -> None:
        """Close without waiting: the thread may hang with the disk."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _measure(folder: Path) -> DiskUsage:
    file_system = shutil.disk_usage(folder)
    folder_bytes = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                folder_bytes += os.stat(os.path.join(path, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # the storage has deleted it
    return DiskUsage(file_system.total, file_system.free, folder_bytes)
