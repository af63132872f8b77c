"""A store's session as its owner sees it: the state, who listens to it, and how long it can be believed.

A state only moves between CONNECTED and SUSPENDED until it is LOST, which is told once and last. What is wrong with a
request at this moment is said here too (`check`), so that every store says it in the same words and order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from magnetar_metadata.errors import Closed, NotSent, SessionLost
from magnetar_metadata.store import SessionState
from magnetar_wire.clock import Clock

log = logging.getLogger(__name__)

Listener = Callable[[SessionState], object]


class StoreSession:
    """The `Session` of all three stores; the store moves its state."""

    def __init__(self, clock: Clock, session_id: int, timeout_s: float) -> None:
        self._clock = clock
        self.id = session_id
        self.timeout_s = timeout_s
        self.state = SessionState.CONNECTED
        # Never goes back: an answer that comes late belongs to a request sent early.
        self.answered_sent_at = clock.monotonic()
        self.lost_because: str | None = None
        self.closed = False
        self._lost = asyncio.Event()
        self._listeners: list[Listener] = []

    def safe_until(self, margin_s: float = 1.0) -> float:
        return self.answered_sent_at + self.timeout_s - margin_s

    def answered(self, sent_at: float) -> None:
        self.answered_sent_at = max(self.answered_sent_at, sent_at)

    def listen(self, listener: Listener) -> Callable[[], None]:
        if self.state is SessionState.LOST:
            self._call(listener)
            return lambda: None
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    async def wait_lost(self) -> None:
        await self._lost.wait()

    def check(self) -> None:
        """Raises what a request made now must raise, if anything."""
        if self.state is SessionState.LOST:
            raise self.over()
        if self.state is SessionState.SUSPENDED:
            raise NotSent("the metadata store is disconnected: nothing was sent")

    def over(self) -> SessionLost:
        """What is raised after the end: a new object each time, since a traceback is tied to it."""
        if self.closed:
            return Closed("the metadata store is closed")
        return SessionLost(f"the session with the metadata store was lost: {self.lost_because}; open another store")

    def suspend(self) -> None:
        self._move(SessionState.SUSPENDED)

    def resume(self) -> None:
        self._move(SessionState.CONNECTED)

    def lose(self, because: str) -> None:
        if self.state is not SessionState.LOST:
            self.lost_because = because
            self._move(SessionState.LOST)
            self._lost.set()

    def close(self) -> None:
        self.closed = True
        self.lose("it was closed")

    def _move(self, state: SessionState) -> None:
        if self.state in (state, SessionState.LOST):
            return
        self.state = state
        # A listener may end itself or others while they are being called.
        for listener in list(self._listeners):
            if listener in self._listeners:
                self._call(listener)
        if state is SessionState.LOST:
            self._listeners.clear()

    def _call(self, listener: Listener) -> None:
        try:
            listener(self.state)
        except Exception:  # A listener's mistake must not keep the others from hearing.
            log.exception("A session listener of the metadata store failed on %s", self.state)
