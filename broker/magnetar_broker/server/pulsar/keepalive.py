"""The liveness check of a connection's client.

A client that sends nothing for an interval gets a PING, and is disconnected if it sends nothing in the next interval. A
client that has not sent CONNECT by the first check is disconnected, even if it has sent other bytes. A client that
takes bytes that waited for it is alive too: while a long message is in flight to a slow client, it has nothing to send.
Only bytes that waited in this process count. The operating system's buffer takes bytes for a while even if the client
is disconnected; where bytes wait in this process, that buffer was full.

While reading from a connection is paused because the broker is overloaded, its silence has no meaning. While it is
paused because the client takes no answers, the client counts as alive as long as it takes some. It gets PINGs anyway:
if its machine does not acknowledge bytes in time, this machine closes the connection (listener.py).

While this process stands still, it reads no answers. So the time that a client has is counted in steps, and a step
that took far too long counts as one.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Final, Protocol

from magnetar_broker.server.pulsar.replies import frame
from magnetar_broker.settings.listeners import PulsarListenerSettings
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandPing

__all__ = ["Keepalive", "Peer"]

_log = logging.getLogger(__name__)
# The time of an answer is counted in `_STEPS` steps. One that takes longer than `_STILL_STEPS` shows that the process
# stood still. If it does all the time, the check ends after `_MAX_STEPS`.
_STEPS: Final = 10
_STILL_STEPS: Final = 2
_MAX_STEPS: Final = 50
_PING: Final = frame(BaseCommand(type=BaseCommand.PING, ping=CommandPing()))


class Peer(Protocol):
    """A connection's client."""

    address: str
    is_closed: bool
    # Its CONNECT was received.
    is_connected: bool
    # Reading from it is paused.
    is_paused: bool

    @property
    def is_behind(self) -> bool:
        """Whether it takes too little of the bytes that are sent to it."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes that it has not taken."""

    @property
    def taken_bytes(self) -> int:
        """Bytes that it has taken since the connection was opened."""

    def write(self, data: bytes) -> None: ...

    def abort(self) -> None: ...


class Keepalive:
    __slots__ = (
        "_due",
        "_is_pinged",
        "_loop",
        "_peer",
        "_settings",
        "_taken_bytes",
        "_timer",
        "has_received",
        "waiters",
    )

    def __init__(self, peer: Peer, settings: PulsarListenerSettings) -> None:
        self._peer = peer
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        # The next check, and when it is due.
        self._timer: asyncio.TimerHandle | None = None
        self._due = math.inf
        # Since the last check: whether bytes were received (the connection sets this), how many bytes had been taken if
        # more waited, and whether the client was pinged because it was silent.
        self.has_received = True
        self._taken_bytes: int | None = None
        self._is_pinged = False
        # Pending calls of `check_alive`. The connection calls `wake` when it receives bytes.
        self.waiters: list[asyncio.Future[None]] = []

    def start(self) -> None:
        self._start(self._settings.keep_alive_interval_seconds)

    def _start(self, delay_s: float) -> None:
        self._due = self._loop.time() + delay_s
        self._timer = self._loop.call_at(self._due, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.wake()

    def _check(self) -> None:
        peer, step_s = self._peer, self._settings.keep_alive_interval_seconds / _STEPS
        if self._loop.time() - self._due > _STILL_STEPS * step_s:
            self._start(step_s)  # what the client has sent is read first
            return
        if not peer.is_connected:
            self._disconnect("it has not sent CONNECT within keep_alive_interval_seconds")
            return
        is_quiet = peer.is_behind if peer.is_paused else not self.has_received
        is_silent = is_quiet and not self._has_taken_since(self._taken_bytes)
        if is_silent and self._is_pinged:
            self._disconnect("it has not answered a PING within keep_alive_interval_seconds")
            return
        self._is_pinged, self.has_received, self._taken_bytes = is_silent, False, self._count_taken()
        if is_silent or peer.is_paused:
            peer.write(_PING)
        self.start()

    def _count_taken(self) -> int | None:
        """Return how many bytes the client has taken, or None if no more wait for it."""
        return self._peer.taken_bytes if self._peer.waiting_bytes else None

    def _has_taken_since(self, taken_bytes: int | None) -> bool:
        return taken_bytes is not None and self._peer.taken_bytes > taken_bytes

    def _disconnect(self, reason: str) -> None:
        _log.info("Closing the connection of the client at %s: %s", self._peer.address, reason)
        self._peer.abort()

    async def check_alive(self) -> bool:
        """Ping the client and return whether it is alive. If it is not, its connection is closed."""
        peer = self._peer
        if peer.is_closed:
            return False
        taken_bytes = self._count_taken()
        waiter: asyncio.Future[None] = self._loop.create_future()
        if not self.waiters:
            peer.write(_PING)
        self.waiters.append(waiter)
        await self._wait_for(waiter)
        if not waiter.done() and not peer.is_paused and not self._has_taken_since(taken_bytes):
            self._disconnect("another client requests its producer name or subscription, and it does not answer a PING")
        return not peer.is_closed

    async def _wait_for(self, waiter: asyncio.Future[None]) -> None:
        """Wait in steps until the client's time has passed, and after the last step in which the process stood still
        for one more, in which its answer is read."""
        step_s = self._settings.connection_liveness_check_timeout_millis / 1000 / _STEPS
        steps, stood_still = 0, False
        while not waiter.done() and (steps < _STEPS or (stood_still and steps < _MAX_STEPS)):
            begun_at = self._loop.time()
            await asyncio.wait([waiter], timeout=step_s)
            stood_still = self._loop.time() - begun_at > _STILL_STEPS * step_s
            steps += 1

    def wake(self) -> None:
        """Report to pending calls of `check_alive` that bytes were received, or that the connection is closed."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
