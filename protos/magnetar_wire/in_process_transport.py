"""The transport within one process: standalone's, and the simplest one that is whole.

An address is a name in a table. A call is the service's coroutine in a task of its own, so that a caller's deadline or
cancellation reaches it as over a network. A stream is two bounded queues. Nothing is copied.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from magnetar_wire.transport import (
    MAX_TRANSPORT_BYTES,
    Code,
    DeadlinePassed,
    Disconnected,
    Failed,
    NotReached,
    Peer,
    Rejected,
    Service,
    TransportError,
)

__all__ = ["InProcessTransport"]

_log = logging.getLogger(__name__)
_PEER: Final = Peer("in-process")
# How many messages may wait in one direction of a stream.
_QUEUE: Final = 16


class InProcessTransport:
    """One process' table of addresses. Everybody who is to be reached shares one object of this."""

    def __init__(self) -> None:
        self._listeners: dict[str, _Listener] = {}
        self._ports = 0

    def connect(self, address: str) -> _Connection:
        return _Connection(self._listeners, address)

    async def listen(self, address: str, service: Service) -> _Listener:
        host, _, port = address.rpartition(":")
        if port == "0":
            self._ports += 1
            address = f"{host}:{self._ports}"
        if address in self._listeners:
            raise NotReached(f"{address} is taken")
        listener = _Listener(address, service, lambda: self._listeners.pop(address, None))
        self._listeners[address] = listener
        return listener


class _Listener:
    def __init__(self, address: str, service: Service, forget: Callable[[], object]) -> None:
        self.address = address
        self._service = service
        self._forget = forget
        # Insertion-ordered, so that closing ends them in one order.
        self._serving: dict[asyncio.Task[Any], None] = {}

    def serve(self, work: Callable[[Service], Awaitable[Any]]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(_guarded(work, self._service))
        self._serving[task] = None
        task.add_done_callback(lambda done: self._serving.pop(done, None))
        return task

    async def close(self) -> None:
        self._forget()
        for task in list(self._serving):
            task.cancel()
        for task in list(self._serving):
            await asyncio.wait([task])


async def _guarded(work: Callable[[Service], Awaitable[Any]], service: Service) -> Any:
    """The service's own errors are its own affair: the caller learns that there was one."""
    try:
        return await work(service)
    except Rejected:
        raise
    except Exception:  # noqa: BLE001 (whatever it is, it must not reach the caller as it is)
        _log.exception("a request failed")
        raise Failed("the server broke off: its log says why") from None


class _Connection:
    def __init__(self, listeners: dict[str, _Listener], address: str) -> None:
        self._listeners = listeners
        self._address = address
        self._closed = False
        self._open: dict[_Stream | asyncio.Task[Any], None] = {}

    def _listener(self) -> _Listener:
        if self._closed:
            raise NotReached(f"the connection to {self._address} is closed")
        try:
            return self._listeners[self._address]
        except KeyError:
            raise NotReached(f"nobody listens at {self._address}") from None

    async def call(self, method: str, request: bytes, *, timeout_s: float) -> bytes:
        _check_size(request)
        task = self._listener().serve(lambda service: service.call(_PEER, method, request))
        self._open[task] = None
        try:
            done, _ = await asyncio.wait([task], timeout=timeout_s)
            if not done:
                raise DeadlinePassed(f"{method} at {self._address} did not answer within {timeout_s} s")
            if task.cancelled():
                raise Disconnected(f"{self._address} went away during {method}")
            answer: bytes = task.result()
            return answer
        finally:
            del self._open[task]
            task.cancel()

    def open_stream(self, method: str) -> _Stream:
        forth, back = _Pipe(), _Pipe()
        client = _Stream(back, forth)
        try:
            listener = self._listener()
        except NotReached as error:
            client.breaks(error)
            return client
        task = listener.serve(lambda service: _serve_stream(service, method, _Stream(forth, back)))
        task.add_done_callback(lambda done: _stream_served(done, forth, back))
        client.on_cancel = task.cancel
        self._open[client] = None
        task.add_done_callback(lambda _: self._open.pop(client, None))
        return client

    async def close(self) -> None:
        self._closed = True
        for one in list(self._open):
            one.cancel()


async def _serve_stream(service: Service, method: str, stream: _Stream) -> None:
    await service.stream(_PEER, method, stream)
    await stream.finish()


def _stream_served(task: asyncio.Task[None], forth: _Pipe, back: _Pipe) -> None:
    """However the service ended, the client's end learns it, and is not left waiting to send."""
    error = Disconnected("the server went away") if task.cancelled() else task.exception()
    if error is not None:
        assert isinstance(error, TransportError)
        back.breaks(error)
    forth.breaks(error or Disconnected("the server has ended the stream"))


class _Stream:
    def __init__(self, incoming: _Pipe, outgoing: _Pipe) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self.on_cancel: Callable[[], object] = lambda: None

    async def send(self, message: bytes) -> None:
        _check_size(message)
        await self._outgoing.put(message)

    async def receive(self) -> bytes | None:
        return await self._incoming.get()

    async def finish(self) -> None:
        self._outgoing.finish()

    def cancel(self) -> None:
        self.breaks(Disconnected("the stream was cancelled"))
        self.on_cancel()

    def breaks(self, error: TransportError) -> None:
        self._incoming.breaks(error)
        self._outgoing.breaks(error)


class _Pipe:
    """One direction of a stream. What was put before a break or the end is still got."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._finished = False
        self._error: TransportError | None = None
        # Set when something changed: whoever waits looks again.
        self._changed = asyncio.Event()

    async def put(self, message: bytes) -> None:
        while len(self._messages) >= _QUEUE and self._error is None:
            await self._wait()
        if self._error is not None:
            raise self._error
        if self._finished:
            raise RuntimeError("a stream was sent to after it was finished")
        self._messages.append(message)
        self._changed.set()

    async def get(self) -> bytes | None:
        while not self._messages:
            if self._error is not None and not self._finished:
                raise self._error
            if self._finished:
                return None
            await self._wait()
        self._changed.set()
        return self._messages.popleft()

    def finish(self) -> None:
        self._finished = True
        self._changed.set()

    def breaks(self, error: TransportError) -> None:
        if self._error is None:
            self._error = error
        self._changed.set()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _check_size(message: bytes) -> None:
    if len(message) > MAX_TRANSPORT_BYTES:
        told = f"the message has {len(message)} bytes, and at most {MAX_TRANSPORT_BYTES} are taken"
        raise Rejected(Code.RESOURCE_EXHAUSTED, told)
