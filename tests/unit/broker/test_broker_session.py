"""A broker session: background tasks go on after any error, and clients notice the end of their streams."""

from __future__ import annotations

import asyncio

import pytest

from magnetar_broker import broker_session
from magnetar_broker.broker_session import BrokerSession
from magnetar_testing.clock import ManualClock
from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.transport import Peer, Rejected, Stream
from tests.running import within
from tests.unit.broker.subscription_scene import settle


async def test_failed_background_task_restarts_after_a_pause() -> None:
    """Without a pause, no other task would run."""
    session = BrokerSession.__new__(BrokerSession)
    session._clock = clock = ManualClock()
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        raise RuntimeError("it broke off")

    keeping = asyncio.ensure_future(session._restart_on_error(work))
    for times in (1, 2, 3):
        await settle()
        assert begun == times
        clock.advance(1.0)
    keeping.cancel()


class StuckStream:
    """Does not end, because its client does not take its last messages."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def serve(self) -> None:
        while await self._stream.receive() is not None:
            await self._stream.send(b"served")

    def end(self) -> None:
        pass


class StuckService:
    def __init__(self, session: BrokerSession) -> None:
        self._session = session

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        raise AssertionError

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        await self._session.serve_stream(StuckStream(stream))


async def test_clients_notice_the_end_of_streams_that_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a status the client would wait for ever for answers of a stream that the broker does not serve."""
    monkeypatch.setattr(broker_session, "STREAM_END_TIMEOUT_S", 0.01)
    session = BrokerSession.__new__(BrokerSession)
    session.open_streams = {}
    transport = GrpcTransport()
    listener = await transport.listen("127.0.0.1:0", StuckService(session))
    connection = transport.connect(listener.address)
    try:
        stream = connection.open_stream("produce")
        await stream.send(b"opening")
        assert await within(stream.receive(), "the stream is served") == b"served"
        await within(session.end_streams(), "the session ends")
        assert session.streams == 0
        with pytest.raises(Rejected, match="session has ended"):
            await within(stream.receive(), "the client gets the status")
    finally:
        await connection.close()
        await listener.close()
