"""How many streams a gRPC server has, and from whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from magnetar_wire.grpc_transport import GrpcSettings, GrpcTransport
from magnetar_wire.grpc_transport.admission import Admission
from magnetar_wire.grpc_transport.listener import GrpcListener
from magnetar_wire.grpc_transport.served_stream import ServedStream
from magnetar_wire.transport import Peer, Rejected, Stream
from tests.running import until, within


class Echo:
    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        return request

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        while (message := await stream.receive()) is not None:
            await stream.send(message)


@asynccontextmanager
async def listening(transport: GrpcTransport, service: Echo) -> AsyncIterator[GrpcListener]:
    """Closed in any case: a server that outlives its loop would fail whatever comes after a test that failed."""
    listener = await transport.listen("127.0.0.1:0", service)
    try:
        yield listener
    finally:
        await listener.close()


async def answers(stream: Stream) -> bool:
    await stream.send(b"x")
    return await within(stream.receive(), "the answer") == b"x"


async def test_one_connection_has_so_many_streams_and_others_have_theirs() -> None:
    """CHK-49: who takes all that one may have locks nobody else out."""
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

        async def has_room() -> bool:
            try:
                return await answers(greedy.open_stream("s"))
            except Rejected:
                return False

        await until(has_room, "a stream that has ended makes room")
        assert await answers(third.open_stream("s"))
        with pytest.raises(Rejected, match="5 streams are being served"):
            await answers(third.open_stream("s"))
        for connection in (greedy, other, third):
            await connection.close()


async def test_clients_that_take_nothing_do_not_stop_those_that_do() -> None:
    """CHK-49: `grpc_max_stream_bytes` is used up by some, and the others go on, message by message."""
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


async def test_a_handler_that_is_cancelled_while_its_stream_closes_gives_back_what_the_stream_held() -> None:
    """CHK-49: else so many bytes less were left for all others, until the server's end."""

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
