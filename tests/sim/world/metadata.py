"""The metadata server in the simulation: a process of its own, watched by the checker.

The production's `MemoryServer` does the work. Here its clock's timers belong to the server's process, and what it tells
a session of its own accord runs as the process that owns the session, so that a killed one hears nothing and a paused
one hears it late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magnetar_metadata.core import tree
from magnetar_metadata.memory.server import MemoryServer, _Link
from magnetar_metadata.memory.store import MemoryStore, Request
from magnetar_metadata.store import Delete, Put
from tests.sim.clock import ProcessClock
from tests.sim.loop import SimulatedLoop
from tests.sim.process import Process

__all__ = ["SimulatedMetadata"]

# The path, what stands there now (None: nothing), and whose session changed it.
Observer = Callable[[str, "bytes | None", Process], object]


class SimulatedMetadata(MemoryServer):
    def __init__(self, loop: SimulatedLoop, session_timeout_s: float, observe: Observer) -> None:
        super().__init__(ProcessClock(loop, loop.process("metadata")), session_timeout_s=session_timeout_s)
        self._observe = observe
        self._owners: dict[int, Process] = {}

    def open(self, process: Process, answer_delay_s: float) -> MemoryStore:
        """A session of this process. It is cut off when the process is killed, and runs out."""
        store = self.connect()
        self._owners[store.session.id] = process
        self.delay_answers(store, answer_delay_s)
        process.on_end.append(lambda: self.cut_silently(store))
        return store

    def value(self, path: str) -> bytes | None:
        record = self._table.get(path)
        return None if record is None else record.value

    def names(self, path: str) -> list[str]:
        return sorted(self._table.child_names(path))

    def change(self, store: MemoryStore, request: Request) -> tree.Applied:
        applied = super().change(store, request)
        owner = self._owners[store.session.id]
        for change in request.changes:
            if isinstance(change, Put) and not change.sequential:
                self._observe(change.path, change.value, owner)
            elif isinstance(change, Delete):
                self._observe(change.path, None, owner)
        return applied

    def _tell_of_the_end(self, link: _Link) -> None:
        self._as_owner(link, super()._tell_of_the_end, link)

    def _as_owner(self, link: _Link, callback: Callable[..., object], *args: Any) -> None:
        self._owners[link.store.session.id].call_soon(callback, *args)
