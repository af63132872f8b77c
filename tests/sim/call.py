"""One call in the simulated network, at both ends: a request, a task that serves it, and an answer in flight."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from magnetar_wire.transport import MAX_TRANSPORT_BYTES, DeadlinePassed, Disconnected, NotReached, Peer, TransportError
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.network import SimulatedListener, SimulatedNetwork

__all__ = ["SimulatedCall", "check_size"]


class SimulatedCall:
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

    def __init__(self, network: SimulatedNetwork, source: Process, address: str, method: str, request: bytes) -> None:
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
        listener = self._listener = network.listener(self._source, self._address)
        if listener is None:
            error = NotReached(f"nothing listens at {self._address}")
            network.later(self._source, network.delay(), self.fail, error)
            return
        for tap in network.taps:
            tap.request_sent(self._source, listener.process, self._method, self._request)
        listener.coming[self] = self._on_server_lost
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
        """Notify the service that the caller has its answer, or waits no more."""
        if self._listener is not None:
            self._listener.coming.pop(self, None)
            task = self._task
            if task is not None and not task.done():
                self._network.later(self._listener.process, self._network.delay(), task.cancel)
            elif task is None:
                self._listener = None

    def _on_server_lost(self, silent: bool | None) -> None:
        network = self._network
        error = Disconnected(f"the connection to {self._address} broke during {self._method}")
        network.later(self._source, network.learns_after(silent=silent), self.fail, error)

    def _answered(self, answer: bytes | TransportError) -> None:
        listener = self._listener
        if self.answer.done() or listener is None:
            return
        if self._network.is_lost(listener.process, self._source):
            self._on_server_lost(True)
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
                self._on_server_lost(True)
            return
        for tap in network.taps:
            tap.request_arrived(self._source, listener.process, self._method, self._request)
        task = network.loop.create_task(self._serve(listener), context=listener.process.context.copy())
        listener.serving[task] = self._on_server_lost
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
                self._on_server_lost(False)
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


def check_size(message: bytes) -> None:
    if len(message) > MAX_TRANSPORT_BYTES:
        raise ValueError(f"the message has {len(message)} bytes, above the limit of {MAX_TRANSPORT_BYTES}")
