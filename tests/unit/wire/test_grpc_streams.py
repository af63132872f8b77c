"""The limits of the streams of a gRPC server."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from magnetar_wire.grpc_transport import GrpcSettings, GrpcTransport
from magnetar_wire.grpc_transport import listener as listener_module
from magnetar_wire.grpc_transport.admission import Admission
from magnetar_wire.grpc_transport.grpc_library import grpc
from magnetar_wire.grpc_transport.listener import GrpcListener
from magnetar_wire.grpc_transport.outcomes import to_transport_error
from magnetar_wire.grpc_transport.served_stream import ServedStream
from magnetar_wire.grpc_transport.wire import SERVICE, STREAM, method_metadata
from magnetar_wire.transport import Code, Disconnected, Peer, Refusal, Rejected, Stream, TransportError
from tests.running import until, within


class Echo:
    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        return request

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        while (message := await stream.receive()) is not None:
            await stream.send(message)


@asynccontextmanager
async def listening(transport: GrpcTransport, service: Echo) -> AsyncIterator[GrpcListener]:
    """Serve, and close the server also after a failure: a server that outlives its loop would fail the next tests."""
    listener = await transport.listen("127.0.0.1:0", service)
    try:
        yield listener
    finally:
        await listener.close()


class Farewell(Echo):
    """Receives messages until `end` is set. Then it sends a few messages, and ends the stream."""

    def __init__(self) -> None:
        self.end = asyncio.Event()
        self.has_ended = asyncio.Event()
        self.received = 0

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        reading = asyncio.create_task(self._read(stream))
        await self.end.wait()
        reading.cancel()
        await asyncio.wait([reading])
        for at in range(20):
            await stream.send(b"%d" % at)
        asyncio.get_running_loop().call_soon(self.has_ended.set)

    async def _read(self, stream: Stream) -> None:
        while await stream.receive() is not None:
            self.received += 1


async def answers(stream: Stream) -> bool:
    await stream.send(b"x")
    return await within(stream.receive(), "the answer") == b"x"


async def test_a_connection_with_all_its_streams_does_not_block_others() -> None:
    """CHK-49: a client that uses up its own limit blocks no other client."""
    options = GrpcSettings(grpc_max_long_streams=5, grpc_max_long_streams_per_connection=2)
    transport = GrpcTransport(options)
    async with listening(transport, Echo()) as listener:
        greedy, other, third = (transport.connect(listener.address) for _ in range(3))
        streams = [greedy.open_stream("s") for _ in range(2)]
        assert all([await answers(stream) for stream in streams])
        with pytest.raises(Rejected, match="2 streams of this connection"):
            await answers(greedy.open_stream("s"))
        assert all([await answers(other.open_stream("s")) for _ in range(2)])
        assert await greedy.call("c", b"a call", timeout_s=10) == b"a call"
        streams[0].cancel()

        async def has_capacity() -> bool:
            try:
                return await answers(greedy.open_stream("s"))
            except Rejected:
                return False

        await until(has_capacity, "a stream that has ended releases capacity")
        assert await answers(third.open_stream("s"))
        with pytest.raises(Rejected, match="5 streams are being served"):
            await answers(third.open_stream("s"))
        for connection in (greedy, other, third):
            await connection.close()


class RefusedFlood(Echo):
    """Sends until the client does not receive for a moment, and refuses the stream then."""

    def __init__(self) -> None:
        self.refusals: list[weakref.ref[Refusal]] = []

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                while True:
                    await stream.send(bytes(100_000))
        refusal = Refusal(Code.INVALID_ARGUMENT, "too much")
        self.refusals.append(weakref.ref(refusal))
        try:
            raise refusal
        finally:
            del refusal  # it refers to this frame


async def test_refused_stream_of_a_client_that_does_not_receive_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """CHK-49: gRPC still holds messages of it. The error and all that it refers to are freed."""
    monkeypatch.setattr(listener_module, "FLUSH_BEFORE_ERROR_TIMEOUT_S", 0.01)
    transport, service = GrpcTransport(GrpcSettings(grpc_max_long_streams_per_connection=1)), RefusedFlood()
    async with listening(transport, service) as listener:
        connection = transport.connect(listener.address)
        first = connection.open_stream("flood")
        await first.send(b"x")
        await until(lambda: bool(service.refusals) and service.refusals[0]() is None, "the error is freed")
        with pytest.raises(Rejected, match="1 streams of this connection"):
            await within(connection.open_stream("flood").receive(), "the second stream is refused")
        with pytest.raises(Rejected, match="too much"):
            while await within(first.receive(), "the error") is not None:
                pass
        assert await within(connection.open_stream("flood").receive(), "another stream is served") is not None
        await connection.close()


async def test_clients_that_do_not_receive_do_not_block_others() -> None:
    """CHK-49: some clients use up `grpc_max_stream_bytes`, and the others continue, message by message."""
    options = GrpcSettings(grpc_max_stream_bytes=200_000, grpc_stream_buffer_bytes=100_000)
    transport = GrpcTransport(options)
    async with listening(transport, Flood()) as listener:
        stuck = [transport.connect(listener.address) for _ in range(4)]
        for connection in stuck:
            stream = connection.open_stream("flood")
            await stream.send(b"x")
        handler = listener._handler
        await until(lambda: handler._admission.held_by_streams.used_bytes >= 200_000, "the bound is reached")
        good = transport.connect(listener.address)
        stream = good.open_stream("echo")
        for _ in range(50):
            assert await answers(stream)
        for connection in (*stuck, good):
            await connection.close()
        await until(lambda: handler._admission.held_by_streams.used_bytes == 0, "all is given back")


async def test_a_handler_that_is_cancelled_while_its_stream_closes_releases_the_memory_of_the_stream() -> None:
    """CHK-49: otherwise these bytes would be missing for all others, until the server ends."""

    class Stalled:
        async def read(self) -> bytes:
            return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

        async def write(self, message: bytes) -> None:
            await self.read()

    options = GrpcSettings()
    admission = Admission(options)
    stream = ServedStream(Stalled(), admission, options, lambda: None)  # type: ignore[arg-type]
    await stream.send(bytes(1000))
    await asyncio.sleep(0)
    await stream.send(bytes(1000))
    assert admission.held_by_streams.used_bytes == 1000
    closing = asyncio.create_task(stream.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert admission.held_by_streams.used_bytes == 0


class Flood(Echo):
    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        if method == "echo":
            return await super().stream(peer, method, stream)
        while True:
            await stream.send(bytes(50_000))


def test_a_stream_that_broke_while_it_was_written_to() -> None:
    """gRPC's library reports that as an internal error, which a user can't understand."""
    none = grpc.aio.Metadata()
    status = grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, none, none, details="Internal error from Core")
    error = to_transport_error(status, "produce", "b:1")
    assert isinstance(error, Disconnected)
    assert str(error) == "produce at b:1: the connection is lost"


async def test_a_listener_that_closes_sends_the_messages_of_services_that_run() -> None:
    has_sent = asyncio.Event()

    class Endless(Echo):
        async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
            for at in range(12):
                await stream.send(b"%d" % at)
            has_sent.set()
            await asyncio.Event().wait()

    transport = GrpcTransport()
    async with listening(transport, Endless()) as listener:
        connection = transport.connect(listener.address)
        stream = connection.open_stream("s")
        await within(has_sent.wait(), "the service has sent all messages")
    assert [await stream.receive() for _ in range(12)] == [b"%d" % at for at in range(12)]
    with pytest.raises(Disconnected, match="shutting down"):
        await stream.receive()
    await connection.close()
    await transport.close()


async def test_a_listener_closes_while_a_client_reads_no_more() -> None:
    """Neither the last messages of the stream nor its status can be sent to that client."""
    has_ended = asyncio.Event()

    class Letters(Echo):
        async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
            for _ in range(3):
                await stream.send(bytes(100_000))
            asyncio.get_running_loop().call_soon(has_ended.set)

    transport = GrpcTransport()
    listener = await transport.listen("127.0.0.1:0", Letters())
    arguments = [("grpc.http2.bdp_probe", 0)]  # so that the client's end of the connection stores little
    async with grpc.aio.insecure_channel(listener.address, options=arguments) as channel:
        method: grpc.aio.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(f"/{SERVICE}/{STREAM}")
        call = method(metadata=method_metadata("s"))
        await call.write(b"x")
        await within(call.read(), "the first message")
        await within(has_ended.wait(), "the service has ended")
        closing = asyncio.create_task(listener.close())
        done, _ = await asyncio.wait([closing], timeout=10)
        call.cancel()
        await closing
        assert done, "the listener waits for its client"
    await transport.close()


async def test_a_client_that_sends_gets_the_last_messages_of_a_server_that_closes() -> None:
    """Among them are receipts, and the reason why a producer has ended."""
    for _ in range(5):
        service, transport = Farewell(), GrpcTransport()
        received: list[bytes | None] = []
        async with listening(transport, service) as listener:
            connection = transport.connect(listener.address)
            stream = connection.open_stream("s")

            async def send(stream: Stream = stream) -> None:
                with contextlib.suppress(TransportError):
                    while True:
                        await stream.send(bytes(20_000))

            async def receive(stream: Stream = stream, received: list[bytes | None] = received) -> None:
                with contextlib.suppress(Disconnected):
                    while (message := await stream.receive()) is not None:
                        received.append(message)

            tasks = [asyncio.create_task(send()), asyncio.create_task(receive())]
            await until(lambda service=service: service.received > 10, "messages arrive")  # type: ignore[misc]
            service.end.set()
            await within(service.has_ended.wait(), "the service has ended")
        await within(asyncio.wait(tasks), "the stream of the client ends")
        await connection.close()
        await transport.close()
        assert received == [b"%d" % at for at in range(20)]
