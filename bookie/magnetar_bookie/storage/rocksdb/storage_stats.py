"""What a storage takes, and what of that is still needed: for whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StorageStats"]


@dataclass(frozen=True, slots=True)
class StorageStats:
    # The log's files: how many, what they hold, and what of that is records that are still there.
    segments: int
    held_bytes: int
    used_bytes: int
    # The index' files, without what it has in memory and its own log.
    index_bytes: int
    # Since the process began: files that were deleted, and what they held.
    reclaimed_segments: int
    reclaimed_bytes: int
    # Files of which something was found that can't be read; they stay until it is mended and written elsewhere.
    unreadable_segments: int
