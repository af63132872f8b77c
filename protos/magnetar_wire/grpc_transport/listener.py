"""A service behind a gRPC server.

All calls are one gRPC method and all streams another, with bytes as messages. Each is served in a task of gRPC's
library, which is cancelled if the client disconnects. The listener knows all tasks, so that closing it can wait for
them. Errors of a service end here: a refusal is sent with our mark, any other error as "failed" and without details,
which are logged.

**A call is received like a stream** of one message, though the client makes it as a plain call; the bytes on the wire
are the same. Otherwise the library would read the request before the service is called, and `Admission` decides when it
is read.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final
from urllib.parse import unquote

from magnetar_wire.grpc_transport.admission import Admission
from magnetar_wire.grpc_transport.channel_arguments import server_arguments
from magnetar_wire.grpc_transport.error_status import ErrorStatus
from magnetar_wire.grpc_transport.grpc_library import grpc
from magnetar_wire.grpc_transport.known_methods import KnownMethodsServer
from magnetar_wire.grpc_transport.served_stream import ServedStream
from magnetar_wire.grpc_transport.settings import GrpcSettings
from magnetar_wire.grpc_transport.wire import CALL, SERVICE, STREAM, read_method
from magnetar_wire.pipe import check_message_size
from magnetar_wire.transport import Code, Disconnected, NotReached, Peer, Refusal, Service, ServiceFailed

__all__ = ["FLUSH_BEFORE_ERROR_TIMEOUT_S", "GrpcListener", "listen"]

_log = logging.getLogger(__name__)

# How long a closing listener waits for clients to read their last messages, and then for them to disconnect.
_LAST_MESSAGES_TIMEOUT_S: Final = 1.0
_DISCONNECT_TIMEOUT_S: Final = 1.0
# How long a client may take to read the messages before an error. Then they are dropped: until the error is sent, what
# it refers to stays in memory.
FLUSH_BEFORE_ERROR_TIMEOUT_S: Final = 5.0

Context = grpc.aio.ServicerContext[bytes, bytes]
_Serve = Callable[[str, Context, ErrorStatus], Awaitable[bytes | None]]


async def listen(address: str, service: Service, settings: GrpcSettings) -> GrpcListener:
    """Start a server for the service at the address. Raises `NotReached`."""
    host, _, _ = address.rpartition(":")
    handler = _Handler(service, settings)
    server = KnownMethodsServer(SERVICE, handler.handlers(), server_arguments(settings))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        # The rest is advice on how to get more of gRPC's log.
        because = str(error).partition("; set GRPC_VERBOSITY")[0]
        raise NotReached(
            f"can't listen at {address}: the port is in use, or the address is not one of this machine: {because}"
        ) from None
    if port == 0:
        raise NotReached(f"can't listen at {address}: the port is in use, or the address is not one of this machine")
    # gRPC ignores a cancellation during the start of a server, so it is shielded.
    starting = asyncio.ensure_future(server.start())
    try:
        await asyncio.shield(starting)
    except BaseException:
        await asyncio.wait([starting])
        await server.stop(None)
        raise
    return GrpcListener(f"{host}:{port}", server, handler)


class GrpcListener:
    """A server that accepts calls and streams."""

    def __init__(self, address: str, server: KnownMethodsServer, handler: _Handler) -> None:
        self.address = address
        self._server = server
        self._handler = handler

    async def close(self) -> None:
        """End all calls and streams. Their clients get what was sent to them, and their statuses."""
        await self._handler.end()
        # gRPC asks the clients to disconnect. If this end closed first, and a client was still sending, the client's
        # kernel would report a broken connection before the client has read everything. After the timeout gRPC breaks
        # the connections: nothing else ends a call that waits until its client reads.
        await self._server.stop(_DISCONNECT_TIMEOUT_S)
        await self._handler.wait_ended()


class _Handler:
    def __init__(self, service: Service, settings: GrpcSettings) -> None:
        self._service = service
        self._settings = settings
        self._admission = Admission(settings)
        # The tasks of calls and streams, oldest first, until their statuses are sent.
        self._serving: dict[asyncio.Task[object], None] = {}
        # Those of them that run the service.
        self._running: dict[asyncio.Task[object], None] = {}
        # The number of streams, in total and by connection.
        self._streams = 0
        self._streams_of: dict[str, int] = {}
        self._is_ending = False

    def handlers(self) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
        return {
            CALL: grpc.stream_unary_rpc_method_handler(functools.partial(self._serve, self._call)),
            STREAM: grpc.stream_stream_rpc_method_handler(functools.partial(self._serve, self._stream)),
        }

    async def end(self) -> None:
        """Cancel the service, and wait a limited time until all statuses are sent."""
        self._is_ending = True
        for task in list(self._running):
            task.cancel()
        if self._serving:
            await asyncio.wait(list(self._serving), timeout=_LAST_MESSAGES_TIMEOUT_S)

    async def wait_ended(self) -> None:
        """Wait until all tasks have ended, when the server has stopped."""
        for task in list(self._serving):
            task.cancel()
        while self._serving:
            await asyncio.wait(list(self._serving))

    async def _serve(self, serve: _Serve, _messages: object, context: Context) -> bytes | None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = None
        task.add_done_callback(self._serving.pop)
        status = ErrorStatus(context)
        if self._is_ending:
            status.send_cancelled()
            return await status.wait_sent()
        self._running[task] = None
        try:
            if len(self._serving) > self._settings.grpc_max_served:
                raise Refusal(
                    Code.RESOURCE_EXHAUSTED,
                    f"the server handles {self._settings.grpc_max_served} requests already, its maximum "
                    "(grpc_max_served): try again later",
                )
            method = read_method(context.invocation_metadata() or ())
            if method is None:
                raise Refusal(Code.UNIMPLEMENTED, "the request names no method")
            answer = await serve(method, context, status)
        except Refusal as refusal:
            status.send_refusal(refusal)
        except asyncio.CancelledError:
            if task.cancelling() and not self._is_ending:  # the client disconnected
                raise
            status.send_cancelled()
        except Exception as error:  # noqa: BLE001 (the client must not get the error itself)
            if not (status.is_sent and isinstance(error, Disconnected)):  # the transport has cancelled it
                if not isinstance(error, ServiceFailed):
                    _log.exception("a request failed with an internal error")
                status.send_failure()
        else:
            if not status.is_sent:
                return answer
        finally:
            self._running.pop(task, None)
        return await status.wait_sent()

    async def _call(self, method: str, context: Context, _status: ErrorStatus) -> bytes:
        request = await self._admission.receive(context)
        if request is None:  # cancelled by the client; the library cancels this task now or in a moment
            raise asyncio.CancelledError
        try:
            peer = replace(_peer(context), when_call_ends=functools.partial(_add_done_callback, context))
            answer = await self._service.call(peer, method, request)
            check_message_size(answer)
            return answer
        finally:
            self._admission.release_request(request)

    async def _stream(self, method: str, context: Context, status: ErrorStatus) -> None:
        connection, settings = context.peer(), self._settings
        of_connection = self._streams_of.get(connection, 0)
        if self._streams >= settings.grpc_max_long_streams:
            raise Refusal(Code.RESOURCE_EXHAUSTED, f"{self._streams} streams are being served")
        if of_connection >= settings.grpc_max_long_streams_per_connection:
            raise Refusal(Code.RESOURCE_EXHAUSTED, f"{of_connection} streams of this connection are being served")
        self._streams += 1
        self._streams_of[connection] = of_connection + 1
        # The stream counts until its status is sent: gRPC holds messages that the client does not read.
        task = asyncio.current_task()
        assert task is not None
        task.add_done_callback(lambda _: self._release_stream(connection))
        await self._serve_stream(method, context, status)

    def _release_stream(self, connection: str) -> None:
        self._streams -= 1
        self._streams_of[connection] -= 1
        if not self._streams_of[connection]:
            del self._streams_of[connection]

    async def _serve_stream(self, method: str, context: Context, status: ErrorStatus) -> None:
        stream = ServedStream(context, self._admission, self._settings, on_cancel=status.send_cancelled)
        try:
            await self._service.stream(_peer(context), method, stream)
            await self._flush(stream)
        except Exception as error:
            if isinstance(error, Disconnected) and stream.client_disconnected:
                raise asyncio.CancelledError from None  # as the library does, now or in a moment
            await self._flush(stream, FLUSH_BEFORE_ERROR_TIMEOUT_S)  # messages before an error arrive before it
            raise
        except asyncio.CancelledError:
            if self._is_ending:
                await self._flush(stream)
            raise
        finally:
            await stream.close()

    async def _flush(self, stream: ServedStream, timeout_s: float | None = None) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.pop(task, None)  # not to be cancelled, even if the listener closes
        await stream.flush(timeout_s)


def _add_done_callback(context: Context, ended: Callable[[], None]) -> None:
    context.add_done_callback(lambda _: ended())  # type: ignore[arg-type]  # the stub has a class, not a protocol


def _peer(context: Context) -> Peer:
    """Return the peer's address. gRPC has `ipv4:10.0.0.1:5000` or `ipv6:%5B::1%5D:5000`."""
    return Peer(unquote(context.peer().partition(":")[2]))
