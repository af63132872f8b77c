"""A network that delays, reorders, loses, duplicates and cuts, with the errors of a real one.

Theory of operation
-------------------
A call is a request that arrives at the process which listens at its address, a task there, and an answer on the way
back. A stream is a chain of messages each way; each way keeps its order, and different streams and calls do not. Every
message has a delay of its own.

A message in flight is bound to the listener at the time of sending: a request never reaches the successor of a
process that was restarted, as a TCP connection would not. Without a listener the caller gets `NotReached`.

- **Loss.** A lost message breaks its stream: nothing comes after it. Both ends learn it at different times, by the
  keep-alive at the latest. A lost request or answer is a deadline that passes, or a `Disconnected`.
- **Duplication** delivers a call's request twice, and the first answer counts.
- **Cuts** are one-way, between two hosts: messages that would arrive during one are lost.
- **Refusals** are one-way, between two hosts: new calls and streams that way are refused as if no process listened,
  though the process is alive, and those in flight go on.
- **Death** of a process: the others learn at once, or not until the keep-alive.

All events of a process are queued in its context: a service's code runs as the process that listens, a killed one
runs nothing, a paused one runs it late. `taps` see each message when it is sent and when it arrives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from magnetar_testing.randomness import SeededRandomness
from magnetar_wire.transport import (
    Disconnected,
    Failed,
    NotReached,
    Refusal,
    Rejected,
    Service,
    ServiceFailed,
    TransportError,
)
from tests.sim.call import SimulatedCall, check_size
from tests.sim.loop import Handle, SimulatedLoop
from tests.sim.process import Process
from tests.sim.stream import SimulatedStream

__all__ = ["NetworkOptions", "SimulatedNetwork", "SimulatedTransport", "StreamTap", "Tap", "is_mistake"]

_log = logging.getLogger(__name__)
# What a service may meet from outside; anything else is a mistake in it.
_MISTAKES: Final = (
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    TypeError,
    ValueError,
    ArithmeticError,
    NotImplementedError,
)


@dataclass(slots=True)
class NetworkOptions:
    """How bad the network is. Probabilities are per message."""

    delay_s: float = 0.0005
    # One message in this many takes up to `long_delay_s`.
    long_share: float = 0.0
    long_delay_s: float = 0.5
    loss_share: float = 0.0
    duplicate_share: float = 0.0
    keep_alive_s: float = 6.0
    connect_timeout_s: float = 2.0


class Tap(Protocol):
    """Who watches the network. `source` and `target` are the processes."""

    def request_sent(self, source: Process, target: Process, method: str, request: bytes) -> object: ...

    def request_arrived(self, source: Process, target: Process, method: str, request: bytes) -> object: ...

    def answer_sent(self, source: Process, target: Process, method: str, request: bytes, answer: bytes) -> object: ...

    def answer_arrived(
        self, source: Process, target: Process, method: str, request: bytes, answer: bytes
    ) -> object: ...

    def message_sent(self, source: Process, target: Process, method: str, message: bytes, *, served: bool) -> object:
        """`served`: it goes from the service to the client."""

    def message_arrived(
        self, source: Process, target: Process, method: str, message: bytes, *, served: bool
    ) -> object: ...


class StreamTap(Protocol):
    """Who watches streams one by one: each has a number, the same at both ends."""

    def sent(
        self, stream: int, source: Process, target: Process, method: str, message: bytes, *, served: bool
    ) -> object: ...

    def arrived(
        self, stream: int, source: Process, target: Process, method: str, message: bytes, *, served: bool
    ) -> object: ...

    def taken(self, stream: int, by: Process, method: str, message: bytes, *, served: bool) -> object:
        """Handle the message in the process at this end now."""

    def ended(self, stream: int) -> object:
        """Its service knows, or is about to, that the client is at it no more."""


class SimulatedNetwork:
    def __init__(self, loop: SimulatedLoop, chance: SeededRandomness, options: NetworkOptions | None = None) -> None:
        self.loop = loop
        self.options = options or NetworkOptions()
        self.taps: list[Tap] = []
        self.stream_taps: list[StreamTap] = []
        # What went wrong in a service that is no refusal and no fault of the world.
        self.on_mistake: Callable[[Process, str, Exception], object] | None = None
        # Called with both ends of a stream and its service's `in_process_api`, where the client is a part of the same
        # process; returns the object that the client finds. The client's end comes first.
        self.hand_over: Callable[[SimulatedStream, SimulatedStream, object], object] = lambda client, served, what: what
        self._draw = chance.random
        self._listeners: dict[str, SimulatedListener] = {}
        self._ports = 0
        self._streams = 0
        # Servers learn of clients that are disconnected, and each end of the other that stands still for too long.
        # Bookies ignore that: these events would only cost time.
        self.keeps_alive = False
        self._connections: dict[Process, list[SimulatedConnection]] = {}
        # (from, to): messages that way vanish. Hosts are process names.
        self._cuts: dict[tuple[str, str], None] = {}
        # (from, to): connections that way are refused.
        self._refused: dict[tuple[str, str], None] = {}
        # (from, to): messages that way take up to so much longer, each by itself.
        self._slow: dict[tuple[str, str], float] = {}
        self.counts: dict[str, int] = {}
        # (from, to): a probe was refused since the process there listens.
        self.probes_refused: dict[tuple[str, str], None] = {}

    # ── faults ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def cut(self, source: str, target: str, *, both_ways: bool = True) -> None:
        self._cuts[source, target] = None
        if both_ways:
            self._cuts[target, source] = None

    def slow_down(self, source: str, target: str, up_to_s: float) -> None:
        self._slow[source, target] = up_to_s

    def speed_up(self, source: str, target: str) -> None:
        self._slow.pop((source, target), None)

    def heal(self, source: str, target: str) -> None:
        self._cuts.pop((source, target), None)
        self._cuts.pop((target, source), None)

    def refuse(self, source: str, target: str) -> None:
        self._refused[source, target] = None

    def accept(self, source: str, target: str) -> None:
        self._refused.pop((source, target), None)

    def heal_all(self) -> None:
        self._cuts.clear()
        self._refused.clear()
        self._slow.clear()

    def is_cut(self, source: Process, target: Process) -> bool:
        if source.shares_unit(target):
            return False
        return bool(self._cuts) and (source.name, target.name) in self._cuts

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def next_stream(self) -> int:
        self._streams += 1
        return self._streams

    # ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def delay(self) -> float:
        options = self.options
        delay = options.delay_s * (0.5 + self._draw())
        if options.long_share and self._draw() < options.long_share:
            self.count("long delay")
            delay += options.long_delay_s * self._draw()
        return delay

    def travel(self, source: Process, target: Process) -> float:
        """How long a message takes from one to the other."""
        slow_s = self._slow.get((source.name, target.name), 0.0) if self._slow else 0.0
        return self.delay() + slow_s * self._draw() if slow_s else self.delay()

    def is_lost(self, source: Process, target: Process) -> bool:
        """Whether a message that arrives now is lost."""
        if source.shares_unit(target):
            return False
        if self._cuts and (source.name, target.name) in self._cuts:
            self.count("message cut off")
            return True
        share = self.options.loss_share
        if share and self._draw() < share:
            self.count("message lost")
            return True
        return False

    def is_duplicated(self) -> bool:
        share = self.options.duplicate_share
        if share and self._draw() < share:
            self.count("call duplicated")
            return True
        return False

    def learns_after(self, *, silent: bool | None = None) -> float:
        """How long until an end learns that its peer is down: soon, or by the keep-alive."""
        if silent is None:
            silent = self._draw() < 0.5
        return self.options.keep_alive_s * (0.5 + self._draw()) if silent else self.delay()

    def later(self, process: Process, delay_s: float, callback: Callable[..., object], *args: Any) -> Handle:
        return self.loop.call_at(self.loop.now + delay_s, callback, *args, context=process.context)

    def transport(self, process: Process) -> SimulatedTransport:
        return SimulatedTransport(self, process)

    def listener(self, source: Process, address: str) -> SimulatedListener | None:
        """The one that connections of `source` to this address reach; None: they are refused."""
        if self._refused and (source.name, _host_of(address)) in self._refused:
            self.count("connection refused though its target is alive")
            return None
        return self._listeners.get(address)

    async def refuses_connections(self, source: Process, address: str, timeout_s: float) -> bool:
        target = _host_of(address)
        if (source.name, target) in self._cuts or (target, source.name) in self._cuts:
            await self._pass(source, timeout_s)
            return False
        await self._pass(source, self.delay())
        if self.listener(source, address) is not None:
            return False
        self.probes_refused[source.name, target] = None
        return True

    async def _pass(self, process: Process, seconds: float) -> None:
        passed = self.loop.create_future()
        timer = self.later(process, seconds, passed.set_result, None)
        try:
            await passed
        finally:
            timer.cancel()

    def listen(self, process: Process, address: str, service: Service) -> SimulatedListener:
        host, _, port = address.rpartition(":")
        if port == "0":
            while address.endswith(":0") or address in self._listeners:
                self._ports += 1
                address = f"{host}:{self._ports}"
        if address in self._listeners:
            raise NotReached(f"{address} is taken")
        listener = self._listeners[address] = SimulatedListener(self, process, address, service)
        for source, target in list(self.probes_refused):
            if target == process.name:
                del self.probes_refused[source, target]
        process.on_end.append(listener.died)
        return listener

    def loses_touch(self, process: Process) -> None:
        """The peers learn by the keep-alive that the process does not answer, and so does it, late."""
        for listener in list(self._listeners.values()):
            if listener.process is process:
                listener.does_not_answer()
        for connection in self._connections.get(process, []):
            connection.does_not_answer()

    def breaks_at(self, process: Process, method: str = "") -> None:
        """Break the streams that the process opened, of one method or of all. The other ends learn it by the
        keep-alive, and have received what was sent."""
        for connection in self._connections.get(process, []):
            connection.breaks(method)

    def connected(self, process: Process, connection: SimulatedConnection) -> None:
        known = self._connections.get(process)
        if known is None:
            known = self._connections[process] = []
            process.on_end.append(lambda: self._client_died(process))
        known.append(connection)

    def _client_died(self, process: Process) -> None:
        for connection in self._connections.pop(process):
            connection.does_not_answer()

    def disconnected(self, process: Process, connection: SimulatedConnection) -> None:
        known = self._connections.get(process)
        if known is not None and connection in known:
            known.remove(connection)

    def forget(self, listener: SimulatedListener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]


class SimulatedTransport:
    """One process' way to the network."""

    def __init__(self, network: SimulatedNetwork, process: Process) -> None:
        self._network = network
        self._process = process

    def connect(self, address: str) -> SimulatedConnection:
        connection = SimulatedConnection(self._network, self._process, address)
        if self._network.keeps_alive:
            self._network.connected(self._process, connection)
        return connection

    async def refuses_connections(self, address: str, timeout_s: float) -> bool:
        return await self._network.refuses_connections(self._process, address, timeout_s)

    async def listen(self, address: str, service: Service) -> SimulatedListener:
        return self._network.listen(self._process, address, service)


class SimulatedListener:
    def __init__(self, network: SimulatedNetwork, process: Process, address: str, service: Service) -> None:
        self.address = address
        self.process = process
        self.service = service
        self.closed = False
        self._network = network
        # The requests that are being served, oldest first, and how their clients learn that nothing serves them any
        # more.
        self.serving: dict[asyncio.Task[Any], Callable[[bool | None], object]] = {}
        # Requests that are in flight to here, and streams, in the same form.
        self.coming: dict[object, Callable[[bool | None], object]] = {}

    def died(self) -> None:
        """The process was killed."""
        self.closed = True
        self._network.forget(self)
        for notify in [*self.serving.values(), *self.coming.values()]:
            notify(None)
        self.serving.clear()
        self.coming.clear()

    def does_not_answer(self) -> None:
        """Notify each client; what is in flight ends when the process goes on."""
        for task, notify in list(self.serving.items()):
            notify(False)
            self._network.later(self.process, 0.0, task.cancel)

    async def close(self) -> None:
        self.closed = True
        self._network.forget(self)
        tasks = list(self.serving)
        for notify in list(self.coming.values()):
            notify(False)
        self.coming.clear()
        for task in tasks:
            task.cancel()
        for task in tasks:
            await asyncio.wait([task])

    def failed(self, method: str, error: Exception) -> TransportError:
        """The caller's error for an error in the service."""
        if isinstance(error, Refusal):
            return Rejected(error.code, str(error))
        if not isinstance(error, ServiceFailed):
            _log.error("a request failed", exc_info=error)
        if is_mistake(error) and self._network.on_mistake is not None:
            self._network.on_mistake(self.process, method, error)
        return Failed("the server failed to handle the request: see its log")


class SimulatedConnection:
    def __init__(self, network: SimulatedNetwork, process: Process, address: str) -> None:
        self._network = network
        self._process = process
        self._address = address
        self._closed = False
        # Futures of calls and streams, oldest first.
        self._calls: dict[SimulatedCall, None] = {}
        self._streams: dict[SimulatedStream, None] = {}

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        check_size(request)
        if self._closed:
            raise NotReached(f"the connection to {self._address} is closed")
        call = SimulatedCall(self._network, self._process, self._address, method, request)
        self._calls[call] = None
        timer = self._network.loop.call_later(timeout_s, call.late, timeout_s)
        call.start()
        try:
            return await call.answer
        finally:
            timer.cancel()
            self._calls.pop(call, None)
            call.leave()

    def open_stream(self, method: str) -> SimulatedStream:
        stream = SimulatedStream(self._network, self._process, self._address, method)
        stream.number = self._network.next_stream()
        if self._closed:
            stream.breaks(NotReached(f"the connection to {self._address} is closed"))
        else:
            stream.on_end = lambda: self._streams.pop(stream, None)
            self._streams[stream] = None
            stream.open(self._network.listener(self._process, self._address))
        return stream

    def reset_backoff(self) -> None:
        pass  # there are no pauses

    def breaks(self, method: str = "") -> None:
        for stream in list(self._streams):
            if method in ("", stream.method):
                stream.breaks_at_its_client()

    def does_not_answer(self) -> None:
        for stream in list(self._streams):
            stream.loses_its_client()

    async def close(self) -> None:
        self._closed = True
        self._network.disconnected(self._process, self)
        for call in list(self._calls):
            call.fail(Disconnected("the connection was closed"))
        for stream in list(self._streams):
            stream.cancel()


def _host_of(address: str) -> str:
    return address.rpartition(":")[0]


def is_mistake(error: BaseException) -> bool:
    """An error that no fault of the world explains."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_mistake, error.exceptions))
    return isinstance(error, _MISTAKES)
