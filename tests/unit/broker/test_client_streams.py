"""The open streams of a session: each is cancelled once, and its client gets a status."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from magnetar_broker.client_streams import ClientStreams
from magnetar_wire.grpc_transport import GrpcTransport, listener
from magnetar_wire.transport import Peer, Refusal, Rejected, Stream
from tests.running import until, within
from tests.unit.broker.subscription_scene import settle


class StuckStream:
    """Does not end, and when it is cancelled, not before `may_end`."""

    def __init__(self, stream: Stream | None = None, error: Exception | None = None) -> None:
        self._stream = stream
        self._error = error
        self.may_end = asyncio.Event()
        self.interruptions = 0

    async def serve(self) -> None:
        try:
            while self._stream is not None:  # the client takes no more at some time
                await self._stream.send(bytes(100_000))
            await asyncio.Event().wait()
        finally:
            try:
                if self._stream is None:
                    await self.may_end.wait()
            except asyncio.CancelledError:
                self.interruptions += 1
            if self._error is not None:
                raise self._error

    def end(self) -> None:
        pass


async def test_cancelled_stream_is_not_cancelled_again() -> None:
    """Its clean-up would be interrupted. It is listed until that is done."""
    streams, stream = ClientStreams(0.0), StuckStream()
    serving = asyncio.create_task(streams.serve(stream))
    await settle()
    for _ in range(2):  # the client has disconnected, and then the listener closes
        serving.cancel()
        await settle()
    assert serving.cancelled()
    assert len(streams) == 1
    ending = asyncio.create_task(streams.end("the session has ended"))
    await settle()
    assert not ending.done()
    stream.may_end.set()
    await within(ending, "the session ends")
    assert stream.interruptions == len(streams) == 0


@pytest.mark.parametrize("cancelled_by", ["listener", "session"])
async def test_error_of_a_cancelled_stream_is_logged(cancelled_by: str, caplog: pytest.LogCaptureFixture) -> None:
    streams, stream = ClientStreams(0.0), StuckStream(error=RuntimeError("while it was cancelled"))
    stream.may_end.set()
    serving = asyncio.create_task(streams.serve(stream))
    await settle()
    if cancelled_by == "listener":
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
    else:
        await streams.end("the broker is shutting down")
        with pytest.raises(Refusal, match="the broker is shutting down"):
            await serving
    assert "while it was cancelled" in caplog.text


async def test_stream_that_something_else_interrupts_is_refused() -> None:
    class InterruptedStream(StuckStream):
        async def serve(self) -> None:
            raise asyncio.CancelledError

    with pytest.raises(Refusal, match="interrupted"):
        await ClientStreams().serve(InterruptedStream())


async def test_failed_stream_is_freed_without_the_garbage_collector() -> None:
    """Its error refers to the frames that it has passed."""

    class FailingStream(StuckStream):
        async def serve(self) -> None:
            raise RuntimeError("failed")

    streams, stream = ClientStreams(), FailingStream()
    freed = weakref.ref(stream)
    gc.disable()
    try:
        with pytest.raises(RuntimeError, match="failed"):
            await streams.serve(stream)
        del stream
        await settle()
        assert freed() is None
    finally:
        gc.enable()


class StuckService:
    def __init__(self) -> None:
        self.streams = ClientStreams(0.01)

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        raise AssertionError

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        await self.streams.serve(StuckStream(stream))


async def test_client_that_does_not_read_is_refused_with_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a status it would wait for ever for answers of a stream that the broker does not serve. What it has not
    read keeps no session in memory."""
    monkeypatch.setattr(listener, "FLUSH_BEFORE_ERROR_TIMEOUT_S", 0.01)
    transport, service = GrpcTransport(), StuckService()
    served = await transport.listen("127.0.0.1:0", service)
    connection = transport.connect(served.address)
    try:
        stream = connection.open_stream("produce")
        await stream.send(b"opening")
        await until(lambda: len(service.streams) == 1, "the stream is served")
        await within(service.streams.end("the broker's metadata session has ended"), "the session ends")
        freed = weakref.ref(service.streams)
        service.streams = ClientStreams()
        await until(lambda: freed() is None, "nothing refers to the session")
        with pytest.raises(Rejected, match="session has ended"):
            while await within(stream.receive(), "the client gets the status") is not None:
                pass
    finally:
        await connection.close()
        await served.close()
