"""The transport within one process: standalone's, and the simplest one that is whole.

An address is a name in a table. A call is the service's coroutine in a task of its own, so that a caller's deadline or
cancellation reaches it as over a network. A stream is two bounded queues; the service's way ends when its coroutine has
returned, whatever it said before. Nothing is copied. What a service puts `in_process_api` its client sees.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from magnetar_wire.clock import Clock, SystemClock
from magnetar_wire.pipe import Pipe, PipedStream, check_size
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
    ServiceFailed,
    TransportError,
)

__all__ = ["InProcessTransport"]

_log = logging.getLogger(__name__)
_PEER: Final = Peer("in-process")
# How many messages may wait in one direction of a stream.
_QUEUE: Final = 16
_QUEUE_BYTES: Final = _QUEUE * MAX_TRANSPORT_BYTES


class InProcessTransport:
    """One process' table of addresses. Everybody who is to be reached shares one object of this."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._listeners: dict[str, _Listener] = {}
        self._ports = 0

    def connect(self, address: str) -> _Connection:
        return _Connection(self._listeners, address, self._clock)

    async def refuses_connections(self, address: str, timeout_s: float) -> bool:
        return address not in self._listeners

    async def listen(self, address: str, service: Service) -> _Listener:
        host, _, port = address.rpartition(":")
        if port == "0":
            while address.endswith(":0") or address in self._listeners:
                self._ports += 1
                address = f"{host}:{self._ports}"
        if address in self._listeners:
            raise NotReached(f"{address} is in use")
        listener = self._listeners[address] = _Listener(address, service, self._listeners)
        return listener


class _Listener:
    def __init__(self, address: str, service: Service, listeners: dict[str, _Listener]) -> None:
        self.address = address
        self._service = service
        self._listeners = listeners
        # Insertion-ordered, so that closing ends them in one order.
        self._serving: dict[asyncio.Task[Any], None] = {}

    def serve(self, work: Callable[[Service], Awaitable[Any]]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(_guarded(work, self._service))
        self._serving[task] = None
        task.add_done_callback(lambda done: self._serving.pop(done, None))
        return task

    async def close(self) -> None:
        if self._listeners.get(self.address) is self:  # and not whoever has the address since
            del self._listeners[self.address]
        for task in list(self._serving):
            task.cancel()
        for task in list(self._serving):
            await asyncio.wait([task])


async def _guarded(work: Callable[[Service], Awaitable[Any]], service: Service) -> Any:
    """The service's own errors are its own affair: the caller learns that there was one."""
    try:
        return await work(service)
    except Refusal as refusal:
        raise Rejected(refusal.code, str(refusal)) from None
    except Exception as error:  # noqa: BLE001 (whatever it is, it must not reach the caller as it is)
        if not isinstance(error, ServiceFailed):
            _log.exception("a request failed with an internal error")
        raise Failed("the server failed to handle the request: see its log") from None


class _Connection:
    def __init__(self, listeners: dict[str, _Listener], address: str, clock: Clock) -> None:
        self._clock = clock
        self._listeners = listeners
        self._address = address
        self._closed = False
        # What is under way, oldest first, and the stream that it serves if it is one.
        self._open: dict[asyncio.Task[Any], _Stream | None] = {}

    def _listener(self) -> _Listener:
        if self._closed:
            raise NotReached(f"the connection to {self._address} is closed")
        try:
            return self._listeners[self._address]
        except KeyError:
            raise NotReached(f"nothing listens at {self._address}") from None

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        check_size(request)
        task = self._listener().serve(lambda service: _answer(service, method, request))
        self._open[task] = None
        answered_or_late = asyncio.Event()
        task.add_done_callback(lambda _: answered_or_late.set())
        timer = self._clock.call_later(timeout_s, answered_or_late.set)
        try:
            await answered_or_late.wait()
            if not task.done():
                raise DeadlinePassed(f"{method} at {self._address} did not answer within {timeout_s} s")
            if task.cancelled():
                raise Disconnected(f"the connection to {self._address} broke during {method}")
            answer: bytes = task.result()
            return answer
        finally:
            timer.cancel()
            self._open.pop(task, None)
            task.cancel()

    def open_stream(self, method: str) -> _Stream:
        forth, back = Pipe(_QUEUE, _QUEUE_BYTES), Pipe(_QUEUE, _QUEUE_BYTES)
        client = _Stream(back, forth)
        served = _Served(forth, back, client)
        try:
            listener = self._listener()
        except NotReached as error:
            back.breaks(error)
            forth.breaks(error)
            return client
        client.finishes = forth.finish
        task = listener.serve(lambda service: service.stream(_PEER, method, served))
        task.add_done_callback(lambda done: _stream_served(done, forth, back))
        client.on_cancel = task.cancel
        self._open[task] = client
        task.add_done_callback(lambda done: self._open.pop(done, None))
        return client

    def reset_backoff(self) -> None:
        pass  # there are no pauses

    async def close(self) -> None:
        self._closed = True
        under_way = dict(self._open)
        for task, stream in under_way.items():
            if stream is not None:
                stream.cancel()
            task.cancel()
        for task in under_way:
            await asyncio.wait([task])


async def _answer(service: Service, method: str, request: bytes) -> bytes:
    answer = await service.call(_PEER, method, request)
    check_size(answer)
    return answer


def _stream_served(task: asyncio.Task[None], forth: Pipe, back: Pipe) -> None:
    """However the service ended, the client's end learns it, and is not left waiting to send."""
    error = Disconnected("the server is shutting down") if task.cancelled() else task.exception()
    if error is None:
        back.finish()
    else:
        assert isinstance(error, TransportError)
        back.breaks(error)
    forth.breaks(error or Disconnected("the server has ended the stream"))


class _Stream(PipedStream):
    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        super().__init__(incoming, outgoing)
        # What finishing does beyond that nothing more is sent; the service's way ends when the service has.
        self.finishes: Callable[[], object] = lambda: None
        self.on_cancel: Callable[[], object] = lambda: None

    async def finish(self) -> None:
        self._finished = True
        self.finishes()

    def cancel(self) -> None:
        self._break_pipes(Disconnected("the stream was cancelled"))
        self.on_cancel()


class _Served(_Stream):
    """The service's end."""

    def __init__(self, incoming: Pipe, outgoing: Pipe, client: _Stream) -> None:
        self._client = client
        super().__init__(incoming, outgoing)

    @property
    def in_process_api(self) -> object | None:
        return self._client.in_process_api

    @in_process_api.setter
    def in_process_api(self, what: object | None) -> None:
        self._client.in_process_api = what
