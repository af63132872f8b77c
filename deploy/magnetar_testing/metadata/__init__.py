"""A metadata server in memory that injects faults, for tests and the simulation. Read `server` first."""

from __future__ import annotations

from magnetar_testing.metadata.server import Fault, MemoryServer
from magnetar_testing.metadata.store import MemoryStore

__all__ = ["Fault", "MemoryServer", "MemoryStore"]
