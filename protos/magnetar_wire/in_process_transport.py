"""The transport within one process: that of `magnetar standalone`, and the simplest complete one.

An address is a name in a table. A call is the service's coroutine in a task of its own, so that the caller's deadline
or cancellation reaches it as over a network. A stream is two pipes; the service's direction ends when its coroutine has
returned. Nothing is copied. The client sees the object that the service sets as `in_process_api`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from magnetar_wire.clock import Clock, SystemClock
from magnetar_wire.pipe import Pipe, PipedStream, check_message_size
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
# The maximum number of messages that wait in one direction of a stream.
_QUEUE: Final = 16
_QUEUE_BYTES: Final = _QUEUE * MAX_TRANSPORT_BYTES


class InProcessTransport:
    """The table of addresses of one process. All of its parts share one object."""

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
        # In order of insertion, so that closing cancels them in a fixed order.
        self._serving: dict[asyncio.Task[Any], None] = {}

    def serve(self, work: Callable[[Service], Awaitable[Any]]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(_guarded(work, self._service))
        self._serving[task] = None
        task.add_done_callback(lambda done: self._serving.pop(done, None))
        return task

    async def close(self) -> None:
        if self._listeners.get(self.address) is self:  # the address may belong to another listener now
            del self._listeners[self.address]
        for task in list(self._serving):
            task.cancel()
        for task in list(self._serving):
            await asyncio.wait([task])


async def _guarded(work: Callable[[Service], Awaitable[Any]], service: Service) -> Any:
    """Run the service's work. Its own errors become `Failed`, without details."""
    try:
        return await work(service)
    except Refusal as refusal:
        raise Rejected(refusal.code, str(refusal)) from None
    except Exception as error:  # noqa: BLE001 (the caller must not get the error itself)
        if not isinstance(error, ServiceFailed):
            _log.exception("a request failed with an internal error")
        raise Failed("the server failed to handle the request: see its log") from None


class _Connection:
    def __init__(self, listeners: dict[str, _Listener], address: str, clock: Clock) -> None:
        self._clock = clock
        self._listeners = listeners
        self._address = address
        self._closed = False
        # The calls and streams in flight, oldest first. A call has no stream.
        self._open: dict[asyncio.Task[Any], _Stream | None] = {}

    def _listener(self) -> _Listener:
        if self._closed:
            raise NotReached(f"the connection to {self._address} is closed")
        try:
            return self._listeners[self._address]
        except KeyError:
            raise NotReached(f"nothing listens at {self._address}") from None

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        check_message_size(request)
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
            back.fail(error)
            forth.fail(error)
            return client
        client.finishes = forth.finish
        task = listener.serve(lambda service: service.stream(_PEER, method, served))
        task.add_done_callback(lambda done: _stream_served(done, forth, back))
        client.on_cancel = task.cancel
        self._open[task] = client
        task.add_done_callback(lambda done: self._open.pop(done, None))
        return client

    def reset_backoff(self) -> None:
        pass  # a connection has no pauses

    async def close(self) -> None:
        self._closed = True
        in_flight = dict(self._open)
        for task, stream in in_flight.items():
            if stream is not None:
                stream.cancel()
            task.cancel()
        for task in in_flight:
            await asyncio.wait([task])


async def _answer(service: Service, method: str, request: bytes) -> bytes:
    answer = await service.call(_PEER, method, request)
    check_message_size(answer)
    return answer


def _stream_served(task: asyncio.Task[None], forth: Pipe, back: Pipe) -> None:
    """End both pipes when the service has ended, so that the client's end doesn't wait for it."""
    error = Disconnected("the server is shutting down") if task.cancelled() else task.exception()
    if error is None:
        back.finish()
    else:
        assert isinstance(error, TransportError)
        back.fail(error)
    forth.fail(error or Disconnected("the server has ended the stream"))


class _Stream(PipedStream):
    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        super().__init__(incoming, outgoing)
        # Called by `finish`. The service's end has none: its direction ends when the service returns.
        self.finishes: Callable[[], object] = lambda: None
        self.on_cancel: Callable[[], object] = lambda: None

    async def finish(self) -> None:
        self._finished = True
        self.finishes()

    def cancel(self) -> None:
        self._fail_pipes(Disconnected("the stream was cancelled"))
        self.on_cancel()


class _Served(_Stream):
    """The service's end of a stream."""

    def __init__(self, incoming: Pipe, outgoing: Pipe, client: _Stream) -> None:
        self._client = client
        super().__init__(incoming, outgoing)

    @property
    def in_process_api(self) -> object | None:
        return self._client.in_process_api

    @in_process_api.setter
    def in_process_api(self, what: object | None) -> None:
        self._client.in_process_api = what
