"""A metadata server in memory with any number of sessions and injected faults, for tests and the simulation.

Theory of operation
-------------------
`MemoryServer` holds the tree. `connect` opens a session on it and gives its `MemoryStore`. A request takes one turn of
the event loop to the server and one back, so that concurrent callers mix as they would over a network; nothing else
makes it wait, unless an answer is delayed. Requests of one session are applied in the order in which they were made.

Time is the clock's. The server ends a session one time-out after it last heard from it: from a request, or from the
heartbeat that a connected client sends three times in each time-out. Its own store is told with the next answer that
reaches it. A client gives up a request that has no answer after two thirds of the time-out: `OutcomeUnknown`, and
suspended. It doesn't miss the answers of its heartbeats: one that asks nothing goes on in the belief to be connected,
as a process does that was stopped for a while. What holds then is `safe_until` alone.

No timer runs for heartbeats while they arrive; when they stop arriving, the last one is reckoned.

**Faults** are ordered for one store at a time:

- `suspend` cuts its connection: what is under way ends in `OutcomeUnknown`, what comes later in `NotSent`.
  `resume` connects it again, without any cut, and tells it if its session ended meanwhile. `expire` ends the session
  at once; the store is told at once too, if it is connected, or with `told=False` by the next answer only.
- `cut_silently` has its requests vanish on their way, or the answers, or both, and tells it nothing; `heal` ends that.
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
from typing import Final

from magnetar_metadata.core import tree
from magnetar_metadata.core.paths import check_roots
from magnetar_metadata.session import StoreSession
from magnetar_metadata.store import SessionState
from magnetar_testing.metadata.memory_table import MemoryTable
from magnetar_testing.metadata.store import MemoryStore, Request
from magnetar_wire.clock import Clock, Timer

# Of a connected client, in each session time-out.
_HEARTBEATS: Final = 3


class Fault(enum.Enum):
    """What befalls one request."""

    LOSE_REQUEST = "lose request"
    LOSE_ANSWER = "lose answer"
    HOLD_REQUEST = "hold request"


class SessionLink:
    """What the server knows of one session."""

    def __init__(self, store: MemoryStore, now: float) -> None:
        self.store = store
        self.connected = True
        self.alive = True
        # Silent cuts.
        self.requests_vanish = False
        self.answers_vanish = False
        # When the last request arrived, and since when heartbeats do.
        self.heard_at = now
        self.heartbeats_from = now
        self.faults: list[Fault | None] = []
        self.held: list[Request] = []
        self.answer_delay_s = 0.0
        # What a lagging session still sees, and the changes that its watches have not been told of.
        self.stale: MemoryTable | None = None
        self.untold = tree.Applied()
        # Runs while nothing arrives from the client.
        self.expiry: Timer | None = None

    def arrives(self) -> bool:
        return self.connected and not self.requests_vanish


class MemoryServer:
    """The tree and its sessions."""

    def __init__(self, clock: Clock, subtree_roots: Sequence[str] = (), session_timeout_s: float = 10.0) -> None:
        self._clock = clock
        self._roots = check_roots(subtree_roots)
        self.session_timeout_s = session_timeout_s
        self.table = MemoryTable()
        self._links: dict[int, SessionLink] = {}
        self._next_session_id = 1

    def connect(self, session_timeout_s: float | None = None) -> MemoryStore:
        """Opens a session."""
        session = StoreSession(self._clock, self._next_session_id, session_timeout_s or self.session_timeout_s)
        self._next_session_id += 1
        store = MemoryStore(self, self._clock, session, self._roots)
        self._links[session.id] = SessionLink(store, self._clock.monotonic())
        return store

    def suspend(self, store: MemoryStore) -> None:
        """Cuts the store's connection."""
        link = self.find_link(store)
        if link is None or not link.connected:
            return
        link.connected = False
        self._hear_no_more(link)
        store.disconnected()

    def resume(self, store: MemoryStore) -> None:
        """Connects the store again."""
        link = self.find_link(store)
        if link is None:
            return
        link.connected = True
        link.requests_vanish = link.answers_vanish = False
        self._hear_again(link)
        if link.alive:
            store.reconnected()
        else:
            self.notify_of_end(link)

    def cut_silently(self, store: MemoryStore, *, requests: bool = True, answers: bool = True) -> None:
        """Has the store's requests, or the answers to them, vanish from now on."""
        link = self.find_link(store)
        if link is None:
            return
        link.requests_vanish = link.requests_vanish or requests
        link.answers_vanish = link.answers_vanish or answers
        if requests:
            self._hear_no_more(link)

    def heal(self, store: MemoryStore) -> None:
        """Ends a silent cut. A connected store is told of its session's end by the answer to its next heartbeat."""
        link = self.find_link(store)
        if link is None:
            return
        link.requests_vanish = link.answers_vanish = False
        if not link.connected:
            return
        self._hear_again(link)
        if link.alive:
            # Signs may have vanished too.
            store.set_all_flags()
        else:
            self._answer_next_heartbeat(link)

    def expire(self, store: MemoryStore, *, told: bool = True) -> None:
        """Ends the store's session on the server, and tells the store if it is connected, or with its next answer."""
        link = self.find_link(store)
        if link is None:
            return
        self.end_session(link)
        if link.connected and told:
            self.notify_of_end(link)
        elif link.arrives():
            self._answer_next_heartbeat(link)

    def next_request(self, store: MemoryStore, *faults: Fault | None) -> None:
        link = self.find_link(store)
        if link is not None:
            link.faults.extend(faults)

    def release(self, store: MemoryStore) -> int:
        """Has the requests that were held arrive; returns how many could be applied."""
        link = self.find_link(store)
        if link is None:
            return 0
        held, link.held = link.held, []
        if not link.alive:
            return 0
        return sum(self._apply(link, request) for request in held)

    def delay_answers(self, store: MemoryStore, seconds: float) -> None:
        link = self.find_link(store)
        if link is not None:
            link.answer_delay_s = seconds

    def lag(self, store: MemoryStore) -> None:
        link = self.find_link(store)
        if link is not None and link.stale is None:
            link.stale = self.table.copy()

    def receive(self, store: MemoryStore, request: Request) -> None:
        """A request arrives."""
        link = self.find_link(store)
        if link is None or not link.arrives():
            return
        if not link.alive:
            self.notify_of_end(link)
            return
        link.heard_at = self._clock.monotonic()
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
            self._clock.call_later(link.answer_delay_s, lambda: self._answer(link, request))
        else:
            asyncio.get_running_loop().call_soon(self._answer, link, request)

    def close_session(self, store: MemoryStore) -> None:
        """The store is closed: its farewell arrives, or the session runs out."""
        link = self.find_link(store)
        if link is None:
            return
        if link.arrives():
            self.end_session(link)
        else:
            link.connected = False
        self._forget_if_over(link)

    def table_for(self, store: MemoryStore) -> MemoryTable:
        link = self.find_link(store)
        return self.table if link is None or link.stale is None else link.stale

    def change(self, store: MemoryStore, request: Request) -> tree.Applied:
        """Applies a transaction; raises what refuses it."""
        applied = tree.apply(self.table, request.changes, store.session.id)
        self.catch_up(store)
        self.notify_sessions(applied)
        return applied

    def catch_up(self, store: MemoryStore) -> None:
        """The store sees all that has happened."""
        link = self.find_link(store)
        if link is None:
            return
        link.stale = None
        untold, link.untold = link.untold, tree.Applied()
        store.flags.set_flags(untold.changed, untold.children_changed)

    def _apply(self, link: SessionLink, request: Request) -> bool:
        request.perform()
        return request.refused is None

    def _answer(self, link: SessionLink, request: Request) -> None:
        if not link.answers_vanish:
            request.answer()

    def _hear_no_more(self, link: SessionLink) -> None:
        """From now on nothing arrives: the session runs out, counted from what arrived last."""
        if link.expiry is not None or not link.alive:
            return
        now, timeout_s = self._clock.monotonic(), link.store.session.timeout_s
        last_heartbeat = now - (now - link.heartbeats_from) % (timeout_s / _HEARTBEATS)
        link.heard_at = max(link.heard_at, last_heartbeat)
        link.expiry = self._clock.call_later(link.heard_at + timeout_s - now, lambda: self.end_session(link))

    def _hear_again(self, link: SessionLink) -> None:
        link.heard_at = link.heartbeats_from = self._clock.monotonic()
        if link.expiry is not None:
            link.expiry.cancel()
            link.expiry = None

    def _answer_next_heartbeat(self, link: SessionLink) -> None:
        def heartbeat() -> None:
            if link.arrives():
                self.notify_of_end(link)

        self._clock.call_later(link.store.session.timeout_s / _HEARTBEATS, heartbeat)

    def notify_of_end(self, link: SessionLink) -> None:
        if not link.answers_vanish:
            link.store.lost("the server ended it, or it timed out")
            self._forget_if_over(link)

    def _forget_if_over(self, link: SessionLink) -> None:
        """Both sides know that the session is over."""
        if not link.alive and link.store.session.state is SessionState.LOST:
            self._links.pop(link.store.session.id, None)

    def end_session(self, link: SessionLink) -> None:
        if not link.alive:
            return
        link.alive = False
        if link.expiry is not None:
            link.expiry.cancel()
            link.expiry = None
        session_id = link.store.session.id
        owned = [path for path in self.table.paths() if self._owner(path) == session_id]
        self.notify_sessions(tree.delete_all(self.table, owned))
        self._forget_if_over(link)

    def _owner(self, path: str) -> int:
        record = self.table.get(path)
        return record.ephemeral_owner if record is not None else 0

    def notify_sessions(self, applied: tree.Applied) -> None:
        for link in list(self._links.values()):
            if link.stale is not None:
                link.untold.changed += applied.changed
                link.untold.children_changed += applied.children_changed
            elif link.alive and link.connected and not link.answers_vanish:
                # The others have their flags put up when they are connected again.
                link.store.flags.set_flags(applied.changed, applied.children_changed)

    def find_link(self, store: MemoryStore) -> SessionLink | None:
        """None where the session is over and its store knows it."""
        return self._links.get(store.session.id)
