"""A folder that only one process can open, with a mark of how far its log was acknowledged. Used by all stores on
disk."""

from __future__ import annotations

from magnetar_metadata.locked_folder import fork_handling
from magnetar_metadata.locked_folder.durable_mark import DurableMark, FolderInUse, sync_folder

__all__ = ["DurableMark", "FolderInUse", "fork_handling", "sync_folder"]
