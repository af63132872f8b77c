"""A client's connection over gRPC, beyond the contract of transports."""

from __future__ import annotations

import asyncio
import socket

import pytest

from magnetar_wire.grpc_transport import GrpcSettings, GrpcTransport
from magnetar_wire.transport import NotReached, Peer, Stream, TransportError
from tests.running import until


async def test_an_attempt_that_fails_without_a_waiter_is_not_an_error() -> None:
    """The owner of the stream has ended it, as writers do with streams to a failed bookie."""
    transport = GrpcTransport()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        connection = transport.connect(f"127.0.0.1:{nobody.getsockname()[1]}")
        asking = asyncio.create_task(connection.call("read", b"", timeout_s=5.0))
        while not (attempts := [task for task in asyncio.all_tasks() if "_connect()" in repr(task)]):
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        (attempt,) = attempts
        await until(attempt.done, "the attempt has failed")
    # An error of the task would be logged as never retrieved.
    assert attempt.exception() is None
    await connection.close()
    await transport.close()


class _Echo:
    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        return request

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        raise AssertionError("nobody asks for streams")


async def test_a_peer_that_is_known_to_be_back_is_reached_at_once() -> None:
    """Otherwise a bookie that has registered again would fail its writers during gRPC's pause, and be avoided."""
    options = GrpcSettings(grpc_reconnect_backoff_min_ms=600_000, grpc_reconnect_backoff_max_ms=600_000)
    transport = GrpcTransport(options)
    listener = await transport.listen("127.0.0.1:0", _Echo())
    connection = transport.connect(listener.address)
    assert await connection.call("echo", b"before", timeout_s=30) == b"before"
    connection.reset_backoff()
    await listener.close()

    async def nobody_is_there() -> bool:
        try:
            await connection.call("echo", b"", timeout_s=5)
        except NotReached:
            return True
        except TransportError:
            return False
        raise AssertionError("who answers?")

    await until(nobody_is_there, "it is known that nobody is there")
    again = await transport.listen(listener.address, _Echo())
    with pytest.raises(NotReached):
        await connection.call("echo", b"within the pause", timeout_s=30)
    connection.reset_backoff()
    assert await connection.call("echo", b"after", timeout_s=30) == b"after"
    await connection.close()
    await again.close()
    await transport.close()


class _Noting(_Echo):
    def __init__(self) -> None:
        self.ended: list[bytes] = []

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        assert peer.when_call_ends is not None
        peer.when_call_ends(lambda: self.ended.append(request))
        assert request not in self.ended
        return request


async def test_a_service_learns_when_its_call_has_ended() -> None:
    """So that it can bound the answers that are not sent yet."""
    transport, service = GrpcTransport(), _Noting()
    listener = await transport.listen("127.0.0.1:0", service)
    connection = transport.connect(listener.address)
    for request in (b"one", b"two"):
        assert await connection.call("echo", request, timeout_s=30) == request
        await until(lambda: request in service.ended, "it has ended")  # noqa: B023 (waited for in this round)
    assert service.ended == [b"one", b"two"]
    await connection.close()
    await listener.close()
    await transport.close()
