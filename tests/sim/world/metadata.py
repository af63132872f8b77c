"""The metadata server in the simulation: a process of its own, watched by the checker.

The production's `MemoryServer` does the work. Here its clock's timers belong to the server's process, and notifications
to a session run as the process that owns the session, so that a killed one gets nothing and a paused one gets it late.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from magnetar_metadata import tree
from magnetar_metadata.node_table import Record
from magnetar_metadata.paths import parent_of
from magnetar_metadata.store import Check, Delete, Put
from magnetar_testing.metadata.server import Fault, MemoryServer, ServerSession
from magnetar_testing.metadata.store import MemoryStore, Request
from tests.sim.clock import ProcessClock
from tests.sim.loop import SimulatedLoop
from tests.sim.process import Process

__all__ = ["SimulatedMetadata"]

# The path, what stands there now (None: nothing), and whose session changed it.
Observer = Callable[[str, "bytes | None", Process], object]


@dataclass(frozen=True, slots=True)
class _PlannedFault:
    """The first change of a node below this one is befallen by the fault, and `then` is called."""

    below: str
    fault: Fault
    then: Callable[[], object]


class SimulatedMetadata(MemoryServer):
    def __init__(self, loop: SimulatedLoop, session_timeout_s: float, observe: Observer) -> None:
        super().__init__(ProcessClock(loop, loop.process("metadata")), session_timeout_s=session_timeout_s)
        self._observe = observe
        self._owners: dict[int, Process] = {}
        self._planned: dict[int, _PlannedFault] = {}
        # What the server has forgotten for a while.
        self._forgotten: dict[str, Record] = {}
        # Processes whose newest session is over, by their silence or so that they know it, and since when.
        self.over: dict[Process, float] = {}
        # Called with the path of an ephemeral node, the process whose session had it, and the process that deleted or
        # replaced it.
        self.on_taken: Callable[[str, Process, Process], object] = lambda path, owner, by: None
        self.on_over: Callable[[Process, MemoryStore], object] = lambda process, store: None
        self._loop = loop
        # A fault ends a session now, which its owner can't know.
        self._by_force = False

    def open(self, process: Process, answer_delay_s: float) -> MemoryStore:
        """A session of this process. It is cut off when the process is killed, and runs out."""
        store = self.connect()
        self._owners[store.session.id] = process
        self.over.pop(process, None)
        self.delay_answers(store, answer_delay_s)
        process.on_end.append(lambda: self.cut_silently(store))
        return store

    def value(self, path: str) -> bytes | None:
        record = self.table.get(path)
        return None if record is None else record.value

    def names(self, path: str) -> list[str]:
        return sorted(self.table.child_names(path))

    def apply_transaction(self, store: MemoryStore, request: Request) -> tree.Applied:
        records = {
            change.path: self.table.get(change.path) for change in request.changes if not isinstance(change, Check)
        }
        applied = super().apply_transaction(store, request)
        owner = self._owners[store.session.id]
        for path, record in records.items():
            if record is not None and record.ephemeral_owner not in (0, store.session.id):
                self.on_taken(path, self._owners[record.ephemeral_owner], owner)
        for change in request.changes:
            if isinstance(change, Put) and not change.sequential:
                self._observe(change.path, change.value, owner)
            elif isinstance(change, Delete):
                self._observe(change.path, None, owner)
        return applied

    def fail_change(self, store: MemoryStore, below: str, fault: Fault, then: Callable[[], object]) -> None:
        """Waits for the session's next change of a node below this one, and has the fault befall that very request."""
        self._planned[store.session.id] = _PlannedFault(below, fault, then)

    def cancel_planned_faults(self) -> None:
        self._planned.clear()

    def receive(self, store: MemoryStore, request: Request) -> None:
        planned = self._planned.get(store.session.id) if self._planned else None
        link = self.find_session(store)
        if (
            planned is None
            or link is None
            or not (link.alive and link.requests_arrive())
            or not any(change.path.startswith(planned.below) for change in request.changes)
        ):
            super().receive(store, request)
            return
        del self._planned[store.session.id]
        link.faults.insert(0, planned.fault)
        super().receive(store, request)
        planned.then()

    def forget(self, path: str) -> bool:
        """The node is missing now, as in a store that was restored from yesterday. Return whether it was there.

        Nobody deleted it, so no watch is notified.
        """
        record = self.table.get(path)
        if record is None:
            return False
        self._forgotten[path] = record
        self.notify_sessions(tree.delete_nodes(self.table, [path]))
        return True

    def is_forgotten(self, path: str) -> bool:
        return path in self._forgotten

    def remember(self, path: str) -> None:
        """The node is back as it was, with its version."""
        record = self._forgotten.pop(path, None)
        if record is not None:
            assert self.table.get(path) is None, f"{path} was created again"
            self.table.put(path, record)
            self.notify_sessions(tree.Applied(changed=[path], children_changed=[parent_of(path)]))

    def expire(self, store: MemoryStore, *, notify: bool = True) -> None:
        self._by_force = True
        super().expire(store, notify=notify)
        self._by_force = False

    def end_session(self, link: ServerSession) -> None:
        if link.alive and not self._by_force:
            self._is_over(link)
        super().end_session(link)

    def _is_over(self, link: ServerSession) -> None:
        process = self._owners[link.store.session.id]
        newest = max(number for number, owner in self._owners.items() if owner is process)
        if newest == link.store.session.id and process not in self.over:
            self.over[process] = self._loop.elapsed_s
            self.on_over(process, link.store)

    def notify_session_end(self, link: ServerSession) -> None:
        self._as_owner(link, self._notify_owner, link)

    def _notify_owner(self, link: ServerSession) -> None:
        if not link.drops_answers:
            self._is_over(link)
        super().notify_session_end(link)

    def _as_owner(self, link: ServerSession, callback: Callable[..., object], *args: Any) -> None:
        self._owners[link.store.session.id].call_soon(callback, *args)
