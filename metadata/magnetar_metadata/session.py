"""A store's session: its state, the listeners to it, and how long it can be relied on.

The state alternates between CONNECTED and SUSPENDED until it is LOST, which is reported once and last. `check` raises
the error of a request that is made now, so all stores raise the same errors in the same order.
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
    """The `Session` of all three stores. The store sets its state."""

    def __init__(self, clock: Clock, session_id: int, timeout_s: float) -> None:
        self._clock = clock
        self.id = session_id
        self.timeout_s = timeout_s
        self.state = SessionState.CONNECTED
        # Never decreases: a late answer belongs to an early request.
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
        """Raise the error of a request that is made now, if it can't be made."""
        if self.state is SessionState.LOST:
            raise self.over()
        if self.state is SessionState.SUSPENDED:
            raise NotSent("the metadata store is disconnected: nothing was sent")

    def over(self) -> SessionLost:
        """Return the error to raise after the end. It is a new object each time, since it gets a traceback."""
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
        # A listener may remove itself or others during the calls.
        for listener in list(self._listeners):
            if listener in self._listeners:
                self._call(listener)
        if state is SessionState.LOST:
            self._listeners.clear()

    def _call(self, listener: Listener) -> None:
        try:
            listener(self.state)
        except Exception:  # the other listeners must be called, too
            log.exception("A session listener of the metadata store failed on %s", self.state)
