"""A folder that one process has open, with how far its log was acknowledged: what every store on a disk needs."""

from __future__ import annotations

from magnetar_metadata.locked_folder import forked
from magnetar_metadata.locked_folder.durable_mark import DurableMark, FolderInUse, sync_folder

__all__ = ["DurableMark", "FolderInUse", "forked", "sync_folder"]
