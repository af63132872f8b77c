"""A small HTTP server on the running event loop, for operators and probes: health, metrics, administration.

The application is an ASGI one (Starlette's); uvicorn speaks HTTP. The process installs its own signal handlers, and
closes the server. No client can take more than a stated amount of memory or time: the connections, and the head and the
body of a request, are limited. The application may allow larger bodies on single paths (`allow_body`), which are
limited together, too. A client that has no answer within the time for one exchange, because it sends or reads slowly or
because the request is slow, is disconnected. A connection above the limit is closed at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import socket
from collections.abc import Generator
from typing import Final

import h11
import uvicorn
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from magnetar_wire.process.listening_socket import open_listening_socket
from magnetar_wire.process.settings import HttpSettings

__all__ = ["HttpServer", "HttpSettings", "allow_body", "serve_http"]

_TOO_LARGE: Final = 413
_HEAD_TOO_LARGE: Final = 431
_TOO_MANY: Final = 429
# As uvicorn's, which renews the header Date at every tenth tick.
_TICK_SECONDS: Final = 0.1
_EXIT_POLL_SECONDS: Final = 0.005
_BODY_LIMIT: Final = "magnetar.body_limit"


class HttpServer:
    """A running server, started by `serve_http`."""

    def __init__(
        self, server: _Server, serving: asyncio.Task[None], address: str, close_timeout_seconds: float
    ) -> None:
        self._server = server
        self._serving = serving
        self._close_timeout_s = close_timeout_seconds
        # The requested address, with the port that was chosen.
        self.address = address

    @property
    def connections(self) -> int:
        return len(self._server.server_state.connections)

    async def close(self) -> None:
        """Stop accepting requests, wait a limited time for the answers in flight, and close the other connections."""
        self._server.begin_exit()
        await asyncio.wait([self._serving], timeout=self._close_timeout_s)
        self._server.force_exit = True
        for task in list(self._server.server_state.tasks):
            task.cancel()
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        await self._serving


async def serve_http(
    app: ASGIApp, address: str, settings: HttpSettings | None = None, listening: socket.socket | None = None
) -> HttpServer:
    """Serve at "host:port", or on a socket that listens there already. Port 0 chooses a free port. Raises `OSError`."""
    bounds = settings or HttpSettings()

    class Protocol(_BoundedProtocol):
        max_connections = bounds.http_max_connections
        exchange_timeout_s = bounds.http_exchange_timeout_seconds

    # Invalid requests are the matter of their senders, and would only fill the log.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        _Bounded(app, bounds),
        loop="none",
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=bounds.http_max_head_bytes,
    )
    host, _, _ = address.rpartition(":")
    if listening is None:
        listening = await open_listening_socket(address)
    server = _Server(config)
    bound = listening.getsockname()[1]
    serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listening]), name="http server")
    return HttpServer(server, serving, f"{host}:{bound}", bounds.http_close_timeout_seconds)


class _Server(uvicorn.Server):
    """uvicorn's server, without its pauses of 0.1 seconds when it is closed."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._exit_begun = asyncio.Event()

    def begin_exit(self) -> None:
        self.should_exit = True
        self._exit_begun.set()

    async def main_loop(self) -> None:
        for tick in itertools.count():
            if await self.on_tick(tick):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_SECONDS):
                    await self._exit_begun.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        await asyncio.sleep(_EXIT_POLL_SECONDS)  # connections that were just accepted are counted
        for connection in list(self.server_state.connections):
            connection.shutdown()  # now if it is idle, else after its answer
        while (self.server_state.connections or self.server_state.tasks) and not self.force_exit:  # noqa: ASYNC110
            await asyncio.sleep(_EXIT_POLL_SECONDS)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Install no signal handlers: the process has its own."""
        yield


class _BoundedProtocol(H11Protocol):
    max_connections: int
    exchange_timeout_s: float
    _deadline: asyncio.TimerHandle | None = None
    # What it sends is discarded.
    _is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.abort()
        else:
            self._begin_exchange()

    def send_400_response(self, msg: str) -> None:
        """Answer a request that is not HTTP, in JSON as all other refusals, and close the connection."""
        body = json.dumps({"reason": f"{msg} It is malformed, or its head is larger than the maximum."}).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Connection", "close")]
        # The rest of a body can be malformed when the request is answered already.
        with contextlib.suppress(h11.LocalProtocolError):
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        # Closed by the client, or at the deadline: if it were closed with bytes unread, the kernel would reset the
        # connection, and the client might not get the answer.
        self._is_refused = True
        self.transport.write_eof()

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            super().data_received(data)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._begin_exchange()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def _begin_exchange(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if not self.transport.is_closing():
            self._deadline = self.loop.call_later(self.exchange_timeout_s, self.transport.abort)


class _LargeBodies:
    """Counts what is in memory of bodies above `http_max_body_bytes`, over all connections."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.pending_bytes = 0

    def count(self, size: int) -> None:
        """Add to what is pending; a single body may be larger than the maximum. Raises HTTPException."""
        if self.pending_bytes and self.pending_bytes + size > self._max_bytes:
            raise HTTPException(
                _TOO_MANY,
                f"large requests with {self.pending_bytes:,} bytes are being received and served: the maximum is "
                f"{self._max_bytes:,} (http_max_pending_body_bytes): try again later",
            )
        self.pending_bytes += size


class _BodyLimit:
    """The maximum size of one request's body, and what was received of it."""

    def __init__(self, max_bytes: int, large: _LargeBodies) -> None:
        self.max_bytes = self._usual_bytes = max_bytes
        self._large = large
        self._received = 0
        self._counted = 0

    def receive(self, size: int) -> None:
        """Count a part of the body. Raises HTTPException."""
        self._received += size
        if self._received > self.max_bytes:
            raise HTTPException(_TOO_LARGE, f"the request's body has more than {self.max_bytes} bytes, the maximum")
        excess = self._received - self._usual_bytes - self._counted
        if excess > 0:
            self._large.count(excess)
            self._counted += excess

    def release(self) -> None:
        self._large.pending_bytes -= self._counted


def allow_body(scope: Scope, max_bytes: int) -> None:
    """Allow a larger body than `http_max_body_bytes`, before the body is read."""
    limit: _BodyLimit = scope[_BODY_LIMIT]
    limit.max_bytes = max(limit.max_bytes, max_bytes)


class _Bounded:
    """The application, with limits of the requests' bodies and of its time."""

    def __init__(self, app: ASGIApp, settings: HttpSettings) -> None:
        self._app = app
        self._max_body_bytes = settings.http_max_body_bytes
        self._large_bodies = _LargeBodies(settings.http_max_pending_body_bytes)
        self._max_head_bytes = settings.http_max_head_bytes
        self._timeout_s = settings.http_exchange_timeout_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _head_bytes(scope) > self._max_head_bytes:
            await _refuse_head(self._max_head_bytes, send)
            return
        limit = _BodyLimit(self._max_body_bytes, self._large_bodies)

        async def bounded() -> Message:
            message = await receive()
            limit.receive(len(message.get("body", b"")))
            return message

        try:
            # The client is disconnected by then.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timeout_s):
                    await self._app({**scope, _BODY_LIMIT: limit}, bounded, send)
        finally:
            limit.release()


def _head_bytes(scope: Scope) -> int:
    """Return the size of the request line and the headers. h11 limits it only while they arrive in parts."""
    size = len(scope["method"]) + len(scope["raw_path"]) + len(scope["query_string"])
    return size + sum(len(name) + len(value) + 4 for name, value in scope["headers"])


async def _refuse_head(maximum: int, send: Send) -> None:
    reason = f"the request line and the headers have more than {maximum} bytes together, the maximum"
    body = json.dumps({"reason": reason}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": _HEAD_TOO_LARGE, "headers": headers})
    await send({"type": "http.response.body", "body": body})
