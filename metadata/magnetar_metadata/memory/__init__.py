"""A metadata server in memory with faults at will, for tests and simulation. `server` is where to begin."""

from __future__ import annotations

from magnetar_metadata.memory.server import Fault, MemoryServer
from magnetar_metadata.memory.store import MemoryStore

__all__ = ["Fault", "MemoryServer", "MemoryStore"]
