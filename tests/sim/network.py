"""A network that delays, reorders, loses, duplicates and cuts, and tells its users what a real one would tell.

Theory of operation
-------------------
A call is a request that arrives at the process which listens at its address, a task there, and an answer on its way
back. A stream is a chain of messages each way; each way keeps its order, and different streams and calls do not. Every
message has a delay of its own.

What is under way is bound to the listener that was there when it was sent: a request never reaches the successor of a
process that was restarted, as a TCP connection would not. When nobody listens the caller is told `NotReached`.

- **Loss.** A lost message breaks its stream: nothing comes after it. Both ends learn it at different times, by the
  keep-alive at the latest. A lost request or answer is a deadline that passes, or a `Disconnected`.
- **Duplication** delivers a call's request twice, and the first answer counts.
- **Cuts** are one-way, between two hosts: what would arrive meanwhile is lost.
- **Death** of a process: the others learn at once, or not until the keep-alive.

Whatever happens in a process is queued in its context: a service's code runs as the process that listens, a killed one
runs nothing, a paused one runs it late. `taps` see each message when it is sent and when it arrives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from magnetar_wire.randomness import SeededRandomness
from magnetar_wire.transport import (
    MAX_TRANSPORT_BYTES,
    DeadlinePassed,
    Disconnected,
    Failed,
    NotReached,
    Peer,
    Refusal,
    Rejected,
    Service,
    TransportError,
)
from tests.sim.loop import Handle, SimulatedLoop
from tests.sim.process import Process
from tests.sim.stream import SimulatedStream

__all__ = ["NetworkOptions", "SimulatedNetwork", "SimulatedTransport", "Tap", "is_mistake"]

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
    # A message in so many takes up to `long_delay_s`.
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

    def message_arrived(self, source: Process, target: Process, method: str, message: bytes, *, served: bool) -> object:
        ...


class SimulatedNetwork:
    def __init__(self, loop: SimulatedLoop, chance: SeededRandomness, options: NetworkOptions | None = None) -> None:
        self.loop = loop
        self.options = options or NetworkOptions()
        self.taps: list[Tap] = []
        # What went wrong in a service that is no refusal and no fault of the world.
        self.on_mistake: Callable[[Process, str, Exception], object] | None = None
        self._draw = chance.random
        self._listeners: dict[str, SimulatedListener] = {}
        self._ports = 0
        # (from, to): messages that way vanish. Hosts are process names.
        self._cuts: dict[tuple[str, str], None] = {}
        # (from, to): messages that way take up to so much longer, each by itself.
        self._slow: dict[tuple[str, str], float] = {}
        self.counts: dict[str, int] = {}

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

    def heal_all(self) -> None:
        self._cuts.clear()
        self._slow.clear()

    def is_cut(self, source: Process, target: Process) -> bool:
        return bool(self._cuts) and (source.name, target.name) in self._cuts

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

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
        """How long until an end learns that its peer is gone: soon, or by the keep-alive."""
        if silent is None:
            silent = self._draw() < 0.5
        return self.options.keep_alive_s * (0.5 + self._draw()) if silent else self.delay()

    def later(self, process: Process, delay_s: float, callback: Callable[..., object], *args: Any) -> Handle:
        return self.loop.call_at(self.loop.now + delay_s, callback, *args, context=process.context)

    def transport(self, process: Process) -> SimulatedTransport:
        return SimulatedTransport(self, process)

    def listener(self, address: str) -> SimulatedListener | None:
        return self._listeners.get(address)

    def listen(self, process: Process, address: str, service: Service) -> SimulatedListener:
        host, _, port = address.rpartition(":")
        if port == "0":
            while address.endswith(":0") or address in self._listeners:
                self._ports += 1
                address = f"{host}:{self._ports}"
        if address in self._listeners:
            raise NotReached(f"{address} is taken")
        listener = self._listeners[address] = SimulatedListener(self, process, address, service)
        process.on_end.append(listener.died)
        return listener

    def forget(self, listener: SimulatedListener) -> None:
        if self._listeners.get(listener.address) is listener:
            del self._listeners[listener.address]


class SimulatedTransport:
    """One process' way to the network."""

    def __init__(self, network: SimulatedNetwork, process: Process) -> None:
        self._network = network
        self._process = process

    def connect(self, address: str) -> SimulatedConnection:
        return SimulatedConnection(self._network, self._process, address)

    async def listen(self, address: str, service: Service) -> SimulatedListener:
        return self._network.listen(self._process, address, service)


class SimulatedListener:
    def __init__(self, network: SimulatedNetwork, process: Process, address: str, service: Service) -> None:
        self.address = address
        self.process = process
        self.service = service
        self.closed = False
        self._network = network
        # What is being served, oldest first, and how its client is told that nobody serves it any more.
        self.serving: dict[asyncio.Task[Any], Callable[[bool | None], object]] = {}
        # Requests on their way here, and streams: likewise.
        self.coming: dict[object, Callable[[bool | None], object]] = {}

    def died(self) -> None:
        """The process was killed."""
        self.closed = True
        self._network.forget(self)
        for tell in [*self.serving.values(), *self.coming.values()]:
            tell(None)
        self.serving.clear()
        self.coming.clear()

    async def close(self) -> None:
        self.closed = True
        self._network.forget(self)
        tasks = list(self.serving)
        for tell in list(self.coming.values()):
            tell(False)
        self.coming.clear()
        for task in tasks:
            task.cancel()
        for task in tasks:
            await asyncio.wait([task])

    def failed(self, method: str, error: Exception) -> TransportError:
        """What a caller is told of an error in the service."""
        if isinstance(error, Refusal):
            return Rejected(error.code, str(error))
        _log.error("a request failed", exc_info=error)
        if is_mistake(error) and self._network.on_mistake is not None:
            self._network.on_mistake(self.process, method, error)
        return Failed("the server broke off: its log says why")


class SimulatedConnection:
    def __init__(self, network: SimulatedNetwork, process: Process, address: str) -> None:
        self._network = network
        self._process = process
        self._address = address
        self._closed = False
        # Futures of calls and streams, oldest first.
        self._calls: dict[_Call, None] = {}
        self._streams: dict[SimulatedStream, None] = {}

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        check_size(request)
        if self._closed:
            raise NotReached(f"the connection to {self._address} is closed")
        call = _Call(self._network, self._process, self._address, method, request)
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
        if self._closed:
            stream.breaks(NotReached(f"the connection to {self._address} is closed"))
        else:
            stream.on_end = lambda: self._streams.pop(stream, None)
            self._streams[stream] = None
            stream.open(self._network.listener(self._address))
        return stream

    def expect_reachable(self) -> None:
        pass  # there are no pauses

    async def close(self) -> None:
        self._closed = True
        for call in list(self._calls):
            call.fail(Disconnected("the connection was closed"))
        for stream in list(self._streams):
            stream.cancel()


class _Call:
    """One call, at both ends."""

    __slots__ = (
        "_address",
        "_listener",
        "_method",
        "_network",
        "_request",
        "_source",
        "_task",
        "answer",
    )

    def __init__(
        self, network: SimulatedNetwork, source: Process, address: str, method: str, request: bytes
    ) -> None:
        self._network = network
        self._source = source
        self._address = address
        self._method = method
        self._request = request
        self._listener: SimulatedListener | None = None
        self._task: asyncio.Task[Any] | None = None
        self.answer: asyncio.Future[bytes] = network.loop.create_future()

    # At the client.

    def start(self) -> None:
        network = self._network
        listener = self._listener = network.listener(self._address)
        if listener is None:
            error = NotReached(f"nobody listens at {self._address}")
            network.later(self._source, network.delay(), self.fail, error)
            return
        for tap in network.taps:
            tap.request_sent(self._source, listener.process, self._method, self._request)
        listener.coming[self] = self._server_is_gone
        network.later(listener.process, network.travel(self._source, listener.process), self._arrives, True)
        if network.is_duplicated():
            delay_s = network.delay() + network.travel(self._source, listener.process)
            network.later(listener.process, delay_s, self._arrives, False)

    def fail(self, error: TransportError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def late(self, timeout_s: float) -> None:
        self.fail(DeadlinePassed(f"{self._method} at {self._address} did not answer within {timeout_s} s"))

    def leave(self) -> None:
        """The caller has its answer, or waits no more: the service is told."""
        if self._listener is not None:
            self._listener.coming.pop(self, None)
            task = self._task
            if task is not None and not task.done():
                self._network.later(self._listener.process, self._network.delay(), task.cancel)
            elif task is None:
                self._listener = None

    def _server_is_gone(self, silent: bool | None) -> None:
        network = self._network
        error = Disconnected(f"{self._address} went away during {self._method}")
        network.later(self._source, network.learns_after(silent=silent), self.fail, error)

    def _answered(self, answer: bytes | TransportError) -> None:
        listener = self._listener
        if self.answer.done() or listener is None:
            return
        if self._network.is_lost(listener.process, self._source):
            self._server_is_gone(True)
        elif isinstance(answer, bytes):
            for tap in self._network.taps:
                tap.answer_arrived(listener.process, self._source, self._method, self._request, answer)
            self.answer.set_result(answer)
        else:
            self.answer.set_exception(answer)

    # At the server, in its process.

    def _arrives(self, first: bool) -> None:
        listener, network = self._listener, self._network
        if listener is None or listener.closed:
            return
        if network.is_lost(self._source, listener.process):
            if first:
                self._server_is_gone(True)
            return
        for tap in network.taps:
            tap.request_arrived(self._source, listener.process, self._method, self._request)
        task = network.loop.create_task(self._serve(listener), context=listener.process.context.copy())
        listener.serving[task] = self._server_is_gone
        task.add_done_callback(lambda done: self._served(listener, done))
        if first:
            self._task = task
            listener.coming.pop(self, None)

    async def _serve(self, listener: SimulatedListener) -> bytes:
        answer = await listener.service.call(Peer(self._source.name), self._method, self._request)
        check_size(answer)
        return answer

    def _served(self, listener: SimulatedListener, task: asyncio.Task[bytes]) -> None:
        network = self._network
        listener.serving.pop(task, None)
        if task.cancelled():
            if not self.answer.done():
                self._server_is_gone(False)
            return
        error = task.exception()
        answer: bytes | TransportError
        if error is None:
            answer = task.result()
            for tap in network.taps:
                tap.answer_sent(listener.process, self._source, self._method, self._request, answer)
        elif isinstance(error, Exception):
            answer = listener.failed(self._method, error)
        else:
            raise error
        if not self.answer.done():
            network.later(self._source, network.travel(listener.process, self._source), self._answered, answer)


def is_mistake(error: BaseException) -> bool:
    """An error that no fault of the world explains."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_mistake, error.exceptions))
    return isinstance(error, _MISTAKES)


def check_size(message: bytes) -> None:
    if len(message) > MAX_TRANSPORT_BYTES:
        raise ValueError(f"the message has {len(message)} bytes, and at most {MAX_TRANSPORT_BYTES} are taken")
