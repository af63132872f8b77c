"""A metadata server in memory with any number of sessions and injected faults, for tests and the simulation.

Theory of operation
-------------------
`MemoryServer` holds the tree. `connect` opens a session and returns its `MemoryStore`. A request takes one turn of the
event loop to the server and one back, so that concurrent callers interleave as over a network. Only `delay_answers`
makes it wait longer. Requests of one session are applied in the order in which they were made.

Time is that of the clock. The server ends a session one timeout after it last received something: a request, or one of
the heartbeats that a connected client sends three times per timeout. The session's own store is notified by the next
answer that it gets. If a request has no answer after two thirds of the timeout, it ends in `OutcomeUnknown`, and the
session is suspended. Missing answers to heartbeats have no effect: a client without requests still believes that it is
connected, like a process that was paused for a while. Then only `safe_until` is reliable.

No timer runs for heartbeats while they arrive. When they stop, the time of the last one is computed.

**Faults** are injected into one store at a time:

- `suspend` cuts its connection: requests in flight end in `OutcomeUnknown`, later ones in `NotSent`. `resume` connects
  it again, also after a silent cut, and notifies it if its session has ended. `expire` ends the session at once; the
  store is notified at once, too, if it is connected, or with `notify=False` by the next answer only.
- `cut_silently` drops its requests, or the answers, or both, without notifying it; `heal` ends that.
- `queue_faults(store, fault)` queues faults (or None) for its next requests, one each. LOSE_REQUEST: the connection is
  cut before the request is applied, and it never is. LOSE_ANSWER: it is applied, then the connection is cut.
  HOLD_REQUEST: the connection is cut while the request is in flight, and `release` makes it arrive: after the store is
  connected again, and after others have changed the node. As on ZooKeeper it can't arrive after a later change or sync
  of the same session (the server reads a session's requests from one connection at a time), nor after the end of the
  session.
- `delay_answers` delays each answer.
- `lag` makes the store read from the tree as it is now, until `sync` or its own next change, like a server that lags
  behind. Its watches lag, too.

Nothing here depends on the order of a set, a wall clock or chance: the same calls give the same run.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from typing import Any, Final

from magnetar_metadata import tree
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.paths import check_roots, list_visible_names
from magnetar_metadata.session import StoreSession
from magnetar_metadata.store import SessionState
from magnetar_testing.metadata.memory_table import MemoryTable
from magnetar_testing.metadata.store import MemoryStore, Operation, Request, ServerConnection
from magnetar_wire.clock import Clock, Timer

# Number of heartbeats of a connected client per session timeout.
_HEARTBEATS: Final = 3


class Fault(enum.Enum):
    """A fault that is injected into one request."""

    LOSE_REQUEST = "lose request"
    LOSE_ANSWER = "lose answer"
    HOLD_REQUEST = "hold request"


class ServerSession:
    """The server's state of one session."""

    def __init__(self, store: MemoryStore, now: float) -> None:
        self.store = store
        self.connected = True
        self.alive = True
        # A silent cut drops requests, or answers.
        self.drops_requests = False
        self.drops_answers = False
        # The times of the last request, and since which heartbeats arrive.
        self.last_request_at = now
        self.heartbeats_since = now
        self.faults: list[Fault | None] = []
        self.held: list[Request] = []
        self.answer_delay_s = 0.0
        # The old tree that a lagging session reads, and the changes of which its watches were not notified.
        self.lagging_table: MemoryTable | None = None
        self.unseen_changes = tree.Applied()
        # The timer that ends the session. It runs while nothing arrives from the client.
        self.expiry: Timer | None = None

    def requests_arrive(self) -> bool:
        """Return whether the session's requests arrive."""
        return self.connected and not self.drops_requests


class MemoryServer:
    """The tree and its sessions."""

    def __init__(self, clock: Clock, subtree_roots: Sequence[str] = (), session_timeout_s: float = 10.0) -> None:
        self._clock = clock
        self._roots = check_roots(subtree_roots)
        self.session_timeout_s = session_timeout_s
        self.table = MemoryTable()
        self._links: dict[int, ServerSession] = {}
        self._next_session_id = 1

    def connect(self, session_timeout_s: float | None = None) -> MemoryStore:
        """Open a session."""
        session = StoreSession(self._clock, self._next_session_id, session_timeout_s or self.session_timeout_s)
        self._next_session_id += 1
        connection = ServerConnection(
            send=lambda request: self.receive(store, request),
            cut=lambda: self.suspend(store),
            close=lambda: self.close_session(store),
        )
        store = MemoryStore(connection, self._clock, session, self._roots)
        self._links[session.id] = ServerSession(store, self._clock.monotonic())
        return store

    def suspend(self, store: MemoryStore) -> None:
        """Cut the store's connection."""
        link = self.find_session(store)
        if link is None or not link.connected:
            return
        link.connected = False
        self._start_expiry(link)
        store.disconnected()

    def resume(self, store: MemoryStore) -> None:
        """Connect the store again."""
        link = self.find_session(store)
        if link is None:
            return
        link.connected = True
        link.drops_requests = link.drops_answers = False
        self._stop_expiry(link)
        if link.alive:
            store.reconnected()
        else:
            self.notify_session_end(link)

    def cut_silently(self, store: MemoryStore, *, requests: bool = True, answers: bool = True) -> None:
        """Drop the store's requests, or their answers, from now on."""
        link = self.find_session(store)
        if link is None:
            return
        link.drops_requests = link.drops_requests or requests
        link.drops_answers = link.drops_answers or answers
        if requests:
            self._start_expiry(link)

    def heal(self, store: MemoryStore) -> None:
        """End a silent cut. If the session has ended, the answer to the store's next heartbeat reports it."""
        link = self.find_session(store)
        if link is None:
            return
        link.drops_requests = link.drops_answers = False
        if not link.connected:
            return
        self._stop_expiry(link)
        if link.alive:
            # Watch events may have been dropped, too.
            store.set_all_flags()
        else:
            self._answer_next_heartbeat(link)

    def expire(self, store: MemoryStore, *, notify: bool = True) -> None:
        """End the store's session, and notify the store if it is connected, or by its next answer."""
        link = self.find_session(store)
        if link is None:
            return
        self.end_session(link)
        if link.connected and notify:
            self.notify_session_end(link)
        elif link.requests_arrive():
            self._answer_next_heartbeat(link)

    def queue_faults(self, store: MemoryStore, *faults: Fault | None) -> None:
        """Queue faults for the store's next requests, one each."""
        link = self.find_session(store)
        if link is not None:
            link.faults.extend(faults)

    def release(self, store: MemoryStore) -> int:
        """Let the held requests arrive. Return how many of them were applied."""
        link = self.find_session(store)
        if link is None:
            return 0
        held, link.held = link.held, []
        if not link.alive:
            return 0
        return sum(self._apply(link, request) for request in held)

    def delay_answers(self, store: MemoryStore, seconds: float) -> None:
        """Delay each answer to the store."""
        link = self.find_session(store)
        if link is not None:
            link.answer_delay_s = seconds

    def lag(self, store: MemoryStore) -> None:
        """Make the store read from the tree as it is now."""
        link = self.find_session(store)
        if link is not None and link.lagging_table is None:
            link.lagging_table = self.table.copy()

    def receive(self, store: MemoryStore, request: Request) -> None:
        """Receive a request, inject its fault, and answer it."""
        link = self.find_session(store)
        if link is None or not link.requests_arrive():
            return
        if not link.alive:
            self.notify_session_end(link)
            return
        link.last_request_at = self._clock.monotonic()
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
        """End the session of a closed store. If the request does not arrive, the session times out."""
        link = self.find_session(store)
        if link is None:
            return
        if link.requests_arrive():
            self.end_session(link)
        else:
            link.connected = False
        self._forget_if_over(link)

    def choose_table(self, store: MemoryStore) -> MemoryTable:
        """Return the tree that the store reads."""
        link = self.find_session(store)
        return self.table if link is None or link.lagging_table is None else link.lagging_table

    def apply_transaction(self, store: MemoryStore, request: Request) -> tree.Applied:
        """Apply a transaction. Raise the error that refuses it."""
        applied = tree.apply_changes(self.table, request.changes, store.session.id)
        self.end_lag(store)
        self.notify_sessions(applied)
        return applied

    def end_lag(self, store: MemoryStore) -> None:
        """Show all changes to a lagging store."""
        link = self.find_session(store)
        if link is None:
            return
        link.lagging_table = None
        missed, link.unseen_changes = link.unseen_changes, tree.Applied()
        store.flags.set_flags(missed.changed, missed.children_changed)

    def _apply(self, link: ServerSession, request: Request) -> bool:
        try:
            request.result = self._perform(link.store, request)
        except MetadataError as error:
            request.refused = error
        return request.refused is None

    def _perform(self, store: MemoryStore, request: Request) -> Any:
        table = self.choose_table(store)
        match request.operation:
            case Operation.GET:
                record = table.get(request.path)
                return record and record.node()
            case Operation.EXISTS:
                record = table.get(request.path)
                return record and record.stat()
            case Operation.CHILDREN:
                return list_visible_names(request.path, table.child_names(request.path))
            case Operation.CHANGE:
                return self.apply_transaction(store, request).results
            case Operation.SYNC:
                self.end_lag(store)
            case Operation.PING:
                pass
        return None

    def _answer(self, link: ServerSession, request: Request) -> None:
        if not link.drops_answers:
            request.answer()

    def _start_expiry(self, link: ServerSession) -> None:
        """Start the timeout of a session whose requests don't arrive any more. It counts from the last heartbeat or
        request."""
        if link.expiry is not None or not link.alive:
            return
        now, timeout_s = self._clock.monotonic(), link.store.session.timeout_s
        last_heartbeat = now - (now - link.heartbeats_since) % (timeout_s / _HEARTBEATS)
        link.last_request_at = max(link.last_request_at, last_heartbeat)
        link.expiry = self._clock.call_later(link.last_request_at + timeout_s - now, lambda: self.end_session(link))

    def _stop_expiry(self, link: ServerSession) -> None:
        link.last_request_at = link.heartbeats_since = self._clock.monotonic()
        if link.expiry is not None:
            link.expiry.cancel()
            link.expiry = None

    def _answer_next_heartbeat(self, link: ServerSession) -> None:
        def heartbeat() -> None:
            if link.requests_arrive():
                self.notify_session_end(link)

        self._clock.call_later(link.store.session.timeout_s / _HEARTBEATS, heartbeat)

    def notify_session_end(self, link: ServerSession) -> None:
        """Notify the store that its session has ended, if answers reach it."""
        if not link.drops_answers:
            link.store.lost("the server ended it, or it timed out")
            self._forget_if_over(link)

    def _forget_if_over(self, link: ServerSession) -> None:
        """Forget a session when both sides know that it has ended."""
        if not link.alive and link.store.session.state is SessionState.LOST:
            self._links.pop(link.store.session.id, None)

    def end_session(self, link: ServerSession) -> None:
        """End a session: delete its ephemeral nodes."""
        if not link.alive:
            return
        link.alive = False
        if link.expiry is not None:
            link.expiry.cancel()
            link.expiry = None
        session_id = link.store.session.id
        owned = [path for path in self.table.paths() if self._owner(path) == session_id]
        self.notify_sessions(tree.delete_nodes(self.table, owned))
        self._forget_if_over(link)

    def _owner(self, path: str) -> int:
        record = self.table.get(path)
        return record.ephemeral_owner if record is not None else 0

    def notify_sessions(self, applied: tree.Applied) -> None:
        """Set the flags of watches of all connected sessions. A lagging session gets the changes later."""
        for link in list(self._links.values()):
            if link.lagging_table is not None:
                link.unseen_changes.changed += applied.changed
                link.unseen_changes.children_changed += applied.children_changed
            elif link.alive and link.connected and not link.drops_answers:
                # The other stores' flags are set when they are connected again.
                link.store.flags.set_flags(applied.changed, applied.children_changed)

    def find_session(self, store: MemoryStore) -> ServerSession | None:
        """Return the server's state of a session; None if it has ended and its store knows it."""
        return self._links.get(store.session.id)
