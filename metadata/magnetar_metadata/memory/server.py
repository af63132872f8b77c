"""A metadata server in memory, with as many sessions as wanted and faults at will: for tests and simulation.

Theory of operation
-------------------
`MemoryServer` holds the tree. `connect` opens a session on it and gives its `MemoryStore`. A request takes one turn of
the event loop to the server and one back, so that concurrent callers mix as they would over a network; nothing else
makes it wait, unless an answer is delayed. Requests of one session are applied in the order in which they were made.

Time is the clock's. A connected session is alive; one whose connection is cut ends after its time-out, on the server at
that moment, and for its own store when it is connected again, as with a real server.

**Faults** are ordered for one store at a time:

- `suspend` cuts its connection: what is under way ends in `OutcomeUnknown`, what comes later in `NotSent`.
  `resume` connects it again, and tells it if its session ended meanwhile. `expire` ends the session at once.
- `next_request(store, fault)` queues faults (or None) for its next requests, one each. LOSE_REQUEST: the connection is
  cut before the request is applied, and it never is. LOSE_ANSWER: it is applied, then the connection is cut.
  HOLD_REQUEST: the connection is cut and the request is on its way still; `release` has it arrive: after the store is
  connected again, after others have changed the node. As on ZooKeeper it can't arrive any more when a later change or
  sync of the same session has (the server takes a session's requests from one connection at a time) or when the session
  is over.
- `delay_answers` has each answer wait.
- `lag` has the store read from the tree as it is now, until `sync` or its own next change: a server that lags behind.
  Its watches lag with it.

Nothing here depends on the order of a set, a wall clock or chance: the same calls give the same run.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence

from magnetar_metadata.core import tree
from magnetar_metadata.core.paths import check_roots
from magnetar_metadata.core.records import MemoryTable
from magnetar_metadata.memory.store import MemoryStore, Request
from magnetar_metadata.session import StoreSession
from magnetar_metadata.store import SessionState
from magnetar_wire.clock import Clock, Timer


class Fault(enum.Enum):
    """What befalls one request."""

    LOSE_REQUEST = "lose request"
    LOSE_ANSWER = "lose answer"
    HOLD_REQUEST = "hold request"


class _Link:
    """What the server knows of one session."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.connected = True
        self.alive = True
        self.faults: list[Fault | None] = []
        self.held: list[Request] = []
        self.answer_delay_s = 0.0
        # What a lagging session still sees, and the changes that its watches have not been told of.
        self.stale: MemoryTable | None = None
        self.untold = tree.Applied()
        self.expiry: Timer | None = None


class MemoryServer:
    """The tree and its sessions."""

    def __init__(self, clock: Clock, subtree_roots: Sequence[str] = (), session_timeout_s: float = 10.0) -> None:
        self._clock = clock
        self._roots = check_roots(subtree_roots)
        self._session_timeout_s = session_timeout_s
        self._table = MemoryTable()
        self._links: dict[int, _Link] = {}
        self._next_session_id = 1

    def connect(self, session_timeout_s: float | None = None) -> MemoryStore:
        """Opens a session."""
        session = StoreSession(self._clock, self._next_session_id, session_timeout_s or self._session_timeout_s)
        self._next_session_id += 1
        store = MemoryStore(self, self._clock, session, self._roots)
        self._links[session.id] = _Link(store)
        return store

    def suspend(self, store: MemoryStore) -> None:
        """Cuts the store's connection."""
        link = self._link(store)
        if not link.connected or not link.alive:
            return
        link.connected = False
        link.expiry = self._clock.call_later(store.session.timeout_s, lambda: self._end(link))
        store.disconnected()

    def resume(self, store: MemoryStore) -> None:
        """Connects the store again."""
        link = self._link(store)
        if link.expiry is not None:
            link.expiry.cancel()
            link.expiry = None
        link.connected = True
        if link.alive:
            store.reconnected()
        else:
            store.lost("the server ended it, having heard nothing for its time-out")

    def expire(self, store: MemoryStore) -> None:
        """Ends the store's session on the server, and tells the store if it is connected."""
        link = self._link(store)
        self._end(link)
        if link.connected:
            store.lost("the server ended it")

    def next_request(self, store: MemoryStore, *faults: Fault | None) -> None:
        self._link(store).faults.extend(faults)

    def release(self, store: MemoryStore) -> int:
        """Has the requests that were held arrive; returns how many could be applied."""
        link = self._link(store)
        held, link.held = link.held, []
        if not link.alive:
            return 0
        return sum(self._apply(link, request) for request in held)

    def delay_answers(self, store: MemoryStore, seconds: float) -> None:
        self._link(store).answer_delay_s = seconds

    def lag(self, store: MemoryStore) -> None:
        link = self._link(store)
        if link.stale is None:
            link.stale = self._table.copy()

    def receive(self, store: MemoryStore, request: Request) -> None:
        """A request arrives."""
        link = self._link(store)
        if not link.connected or not link.alive:
            return
        fault = link.faults.pop(0) if link.faults else None
        if fault is Fault.HOLD_REQUEST:
            link.held.append(request)
        if fault in (Fault.HOLD_REQUEST, Fault.LOSE_REQUEST):
            self.suspend(store)
            return
        if request.goes_to_leader:
            link.held.clear()
        self._apply(link, request)
        if fault is Fault.LOSE_ANSWER:
            self.suspend(store)
        elif link.answer_delay_s:
            self._clock.call_later(link.answer_delay_s, request.answer)
        else:
            asyncio.get_running_loop().call_soon(request.answer)

    def close_session(self, store: MemoryStore) -> None:
        link = self._link(store)
        if link.connected:
            self._end(link)

    def table_for(self, store: MemoryStore) -> MemoryTable:
        return self._link(store).stale or self._table

    def change(self, store: MemoryStore, request: Request) -> tree.Applied:
        """Applies a transaction; raises what refuses it."""
        applied = tree.apply(self._table, request.changes, store.session.id)
        self.catch_up(store)
        self._tell(applied)
        return applied

    def catch_up(self, store: MemoryStore) -> None:
        """The store sees all that has happened."""
        link = self._link(store)
        link.stale = None
        untold, link.untold = link.untold, tree.Applied()
        store.flags.put_up(untold.changed, untold.children_changed)

    def _apply(self, link: _Link, request: Request) -> bool:
        request.perform()
        return request.refused is None

    def _end(self, link: _Link) -> None:
        if not link.alive:
            return
        link.alive = False
        if link.expiry is not None:
            link.expiry.cancel()
            link.expiry = None
        session_id = link.store.session.id
        owned = [path for path in self._table.paths() if self._owner(path) == session_id]
        self._tell(tree.delete_all(self._table, owned))

    def _owner(self, path: str) -> int:
        record = self._table.get(path)
        return record.ephemeral_owner if record is not None else 0

    def _tell(self, applied: tree.Applied) -> None:
        for link in self._links.values():
            if link.stale is not None:
                link.untold.changed += applied.changed
                link.untold.children_changed += applied.children_changed
            elif link.store.session.state is not SessionState.LOST:
                # One that is suspended has its flags put up when it is connected again.
                link.store.flags.put_up(applied.changed, applied.children_changed)

    def _link(self, store: MemoryStore) -> _Link:
        return self._links[store.session.id]
