"""A stream over the simulated network, at both ends.

Each way is a `_Way`: messages that were sent and that the receiver has not taken yet, at most `_WINDOW` of them. The
sender waits for capacity, and learns of it one delay after the receiver has taken a message.

Between two parts of one process a stream opens at once, loses nothing, and shows the client the service's
`in_process_api`, as the real in-process transport does. Its messages take time, longer than real ones: a call that must
not overtake a message has much to overtake.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from magnetar_wire.transport import (
    MAX_TRANSPORT_BYTES,
    Disconnected,
    NotReached,
    Peer,
    TransportError,
)
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.network import SimulatedListener, SimulatedNetwork

__all__ = ["SimulatedStream"]

_WINDOW: Final = 16


class _End:
    """What stands for the regular end of one way, in the queue of messages."""


_END: Final = _End()


class SimulatedStream:
    """One end of a stream. The client's makes the server's when it arrives there."""

    def __init__(self, network: SimulatedNetwork, process: Process, address: str, method: str) -> None:
        self._network = network
        self._in_process_api: object | None = None
        # The same at both ends.
        self.number = 0
        self._process = process
        self._address = address
        self._method = method
        self._served = False
        self._peer: SimulatedStream | None = None
        self._listener: SimulatedListener | None = None
        self._task: asyncio.Task[None] | None = None
        # Incoming: what has arrived.
        self._arrived: deque[bytes | _End | TransportError] = deque()
        self._receiving: asyncio.Future[None] | None = None
        self._over: TransportError | _End | None = None
        # Outgoing.
        self._outstanding = 0
        self._sending: asyncio.Future[None] | None = None
        self._finished = False
        self._broken: TransportError | None = None
        # The latest moment at which something sent arrives: order is kept.
        self._last_arrival = 0.0
        # It has no connection any more: the other end is not notified of anything.
        self._parted = False
        # A message was lost: nothing that follows it arrives.
        self._lost = False
        self.on_end: Callable[[], object] = lambda: None

    @property
    def process(self) -> Process:
        return self._process

    @property
    def method(self) -> str:
        return self._method

    @property
    def in_process_api(self) -> object | None:
        return self._in_process_api

    @in_process_api.setter
    def in_process_api(self, what: object | None) -> None:
        """Set by the service. Its client sees it where both are parts of one process."""
        client = self._peer
        assert self._served, "only a service sets its in-process object"
        assert client is not None
        if client._process.shares_unit(self._process):
            client._in_process_api = self._network.hand_over(client, self, what)

    @property
    def is_caught_up(self) -> bool:
        """At the served end: the service has handled all messages that were sent, and waits for the next one."""
        client = self._peer
        waits = self._receiving is not None and not self._receiving.done()
        return waits and not self._arrived and client is not None and not client._outstanding

    # ── for the user ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def send(self, message: bytes) -> None:
        if len(message) > MAX_TRANSPORT_BYTES:
            raise ValueError(f"the message has {len(message)} bytes, above the limit of {MAX_TRANSPORT_BYTES}")
        if self._finished:
            raise RuntimeError("a finished stream can't send")
        if self._sending is not None:
            raise RuntimeError("two tasks send to one stream: their order would be undefined")
        while self._outstanding >= _WINDOW and self._broken is None:
            self._sending = self._network.loop.create_future()
            try:
                await self._sending
            finally:
                self._sending = None
        if self._broken is not None:
            raise _again(self._broken)
        self._outstanding += 1
        peer = self._peer
        if peer is not None:
            for tap in self._network.taps:
                tap.message_sent(self._process, peer._process, self._method, message, served=self._served)
            for stream_tap in self._network.stream_taps:
                stream_tap.sent(self.number, self._process, peer._process, self._method, message, served=self._served)
        self._transmit(message)

    async def receive(self) -> bytes | None:
        if self._receiving is not None:
            raise RuntimeError("two tasks receive from one stream: each would get some of the messages")
        while not self._arrived and self._over is None:
            self._receiving = self._network.loop.create_future()
            try:
                await self._receiving
            finally:
                self._receiving = None
        if self._arrived:
            item = self._arrived.popleft()
            if isinstance(item, bytes):
                self._release_capacity()
                for tap in self._network.stream_taps:
                    tap.taken(self.number, self._process, self._method, item, served=not self._served)
                return item
            self._over = item
            if item is not _END:
                self._stop()
        if self._over is _END:
            return None
        assert isinstance(self._over, TransportError)
        raise _again(self._over)

    async def finish(self) -> None:
        if not self._finished:
            self._finished = True
            # The service's way ends when it has returned.
            if not self._served and self._broken is None:
                self._transmit(_END)

    def cancel(self) -> None:
        self.breaks(Disconnected("the stream was cancelled"))
        peer = self._peer
        if peer is not None and not self._parted:
            network = self._network
            if self._process is peer._process or not network.is_cut(self._process, peer._process):
                network.later(peer._process, network.delay(), peer._on_peer_lost)
            else:
                network.later(peer._process, network.learns_after(silent=True), peer._on_peer_lost)

    # ── how it begins and ends ───────────────────────────────────────────────────────────────────────────────────────

    def open(self, listener: SimulatedListener | None) -> None:
        network = self._network
        if listener is None:
            error = NotReached(f"nothing listens at {self._address}")
            network.later(self._process, network.delay(), self.breaks, error)
            return
        self._listener = listener
        self._peer = SimulatedStream(network, listener.process, self._address, self._method)
        self._peer.number = self.number
        self._peer._served = True
        self._peer._peer = self
        listener.coming[self] = self._on_server_lost
        if listener.process.shares_unit(self._process):
            listener.process.context.run(self._opens, listener)
            return
        self._last_arrival = network.loop.now + network.delay()
        network.loop.call_at(self._last_arrival, self._opens, listener, context=listener.process.context)

    def breaks(self, error: TransportError) -> None:
        """This end learns that the stream is over. What had arrived before can still be taken."""
        if self._broken is None:
            self._broken = error
            self._arrived.append(error)
            self._wake()
            self._stop()
            self._notify_end()

    def _notify_end(self) -> None:
        for tap in self._network.stream_taps if self._served else ():
            tap.ended(self.number)

    def _stop(self) -> None:
        """Nothing is taken any more, in either direction."""
        if self._broken is None:
            over = self._over
            self._broken = over if isinstance(over, TransportError) else Disconnected("the stream has ended")
        if self._sending is not None and not self._sending.done():
            self._sending.set_result(None)
        if self._listener is not None:
            self._listener.coming.pop(self, None)
        self.on_end()

    def _opens(self, listener: SimulatedListener) -> None:
        """In the serving process."""
        network, peer = self._network, self._peer
        assert peer is not None
        if listener.closed:
            return
        if network.is_lost(self._process, listener.process):
            listener.coming.pop(self, None)
            self._lost = True
            network.later(self._process, network.learns_after(silent=True), self._on_peer_lost)
            return
        if peer._broken is not None:
            return  # it was cancelled before it came
        work = listener.service.stream(Peer(f"{self._process.name}:{self.number}"), self._method, peer)
        task: asyncio.Task[None] = network.loop.create_task(work, context=listener.process.context.copy())
        peer._task = task
        listener.coming.pop(self, None)
        listener.serving[task] = self._on_server_lost
        task.add_done_callback(lambda done: peer._returned(listener, done))

    def _returned(self, listener: SimulatedListener, task: asyncio.Task[None]) -> None:
        """At the server: the service has returned, and so its way ends."""
        listener.serving.pop(task, None)
        self._task = None
        ends: _End | TransportError
        if task.cancelled():
            ends = Disconnected(f"the connection to {self._address} broke during {self._method}")
        elif (error := task.exception()) is None:
            ends = _END
        elif isinstance(error, Exception):
            ends = listener.failed(self._method, error)
        else:
            raise error
        if self._broken is None:
            self._transmit(ends)
            self._broken = Disconnected("the stream has ended")
            # The service is done with the stream, also where its client is paused and takes the end much later.
            self._notify_end()

    def _on_server_lost(self, silent: bool | None) -> None:
        """The serving process' state is lost; the client learns it."""
        network = self._network
        self._lost = True
        if self._peer is not None:
            self._peer._lost = True
        network.later(self._process, network.learns_after(silent=silent), self._on_peer_lost)

    def breaks_at_its_client(self) -> None:
        self._parted = True
        network, peer = self._network, self._peer
        if peer is not None:
            network.later(peer._process, network.learns_after(silent=True), peer._on_peer_lost)
        network.later(self._process, 0.0, self._on_peer_lost)

    def loses_its_client(self) -> None:
        """At the client's end: it is dead, or does not answer for too long. The server learns it, and so will it."""
        network, peer = self._network, self._peer
        self._lost = True
        if peer is not None:
            peer._lost = True
            network.later(peer._process, network.learns_after(), peer._on_peer_lost)
        network.later(self._process, 0.0, self._on_peer_lost)

    def _on_peer_lost(self) -> None:
        """At this end, in its process."""
        self.breaks(Disconnected(f"the stream {self._method} at {self._address} broke"))
        if self._task is not None:
            self._task.cancel()

    # ── messages in flight
    # ───────────────────────────────────────────────────────────────────────────────────────────────

    def _transmit(self, item: bytes | _End | TransportError) -> None:
        peer = self._peer
        if peer is None or self._lost:
            return
        network = self._network
        now = network.loop.now
        arrival = now + network.travel(self._process, peer._process)
        if arrival < self._last_arrival:
            arrival = self._last_arrival
        self._last_arrival = arrival
        network.loop.call_at(arrival, self._arrives, item, context=peer._process.context)

    def _arrives(self, item: bytes | _End | TransportError) -> None:
        """At the other end, in its process."""
        peer, network = self._peer, self._network
        assert peer is not None
        if self._lost or peer._broken is not None:
            return
        if network.is_lost(self._process, peer._process):
            self._lost = True
            network.later(self._process, network.learns_after(silent=True), self._on_peer_lost)
            network.later(peer._process, network.learns_after(), peer._on_peer_lost)
            return
        if isinstance(item, bytes):
            for tap in network.taps:
                tap.message_arrived(self._process, peer._process, self._method, item, served=self._served)
            for stream_tap in network.stream_taps:
                stream_tap.arrived(self.number, self._process, peer._process, self._method, item, served=self._served)
        else:
            peer._notify_end()
        peer._arrived.append(item)
        if not isinstance(item, bytes) and self._served:
            peer._ended_by_server()
        peer._wake()

    def _ended_by_server(self) -> None:
        """The service has returned: nobody takes what this end sends."""
        if self._sending is not None and not self._sending.done():
            self._sending.set_result(None)
        if self._broken is None:
            self._broken = Disconnected("the server has ended the stream")
        if self._listener is not None:
            self._listener.coming.pop(self, None)
        self.on_end()

    def _wake(self) -> None:
        if self._receiving is not None and not self._receiving.done():
            self._receiving.set_result(None)

    def _release_capacity(self) -> None:
        """The other end learns one delay later that a message was taken; it is notified only while it waits."""
        peer = self._peer
        if peer is None or self._lost:
            return
        peer._outstanding -= 1
        if peer._sending is not None:
            self._network.later(peer._process, self._network.delay(), peer._on_capacity)

    def _on_capacity(self) -> None:
        if self._sending is not None and not self._sending.done():
            self._sending.set_result(None)


def _again(error: TransportError) -> TransportError:
    """A new object each time it is raised: a traceback is tied to it."""
    copy: Any = type(error).__new__(type(error))
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    return copy  # type: ignore[no-any-return]
