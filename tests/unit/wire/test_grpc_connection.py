"""A client's connection over gRPC, beyond the contract of transports."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Awaitable

import pytest

from magnetar_wire.grpc_transport import GrpcSettings, GrpcTransport
from magnetar_wire.grpc_transport.wire import PIECE_BYTES
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


class _Refusing:
    """Answers nothing, and fails what is sent to it with `fail`."""

    waiting_calls = 0

    async def call(self, peer: Peer, method: str, request: bytes) -> bytes:
        if method == "fail":
            raise ValueError("a planted error")
        self.waiting_calls += method == "wait"
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        return await answer

    async def stream(self, peer: Peer, method: str, stream: Stream) -> None:
        while await stream.receive() is not None and method != "fail":
            pass
        raise ValueError("a planted error")


async def _error_of(work: Awaitable[object]) -> BaseException:
    try:
        await work
    except (TransportError, asyncio.CancelledError) as error:
        return error
    raise AssertionError("it has not failed")


def _count_grpc_objects() -> int:
    gc.collect()
    return sum(type(one).__name__ in ("AioChannel", "_AioCall") for one in gc.get_objects())


async def test_an_error_keeps_no_object_of_grpc() -> None:
    """CHK-60: else a process whose application, or producer, holds an error could not fork. The tracebacks of these
    errors refer to the connection, and to functions that a call has ended in."""
    before = _count_grpc_objects()
    transport = GrpcTransport()
    service = _Refusing()
    listener = await transport.listen("127.0.0.1:0", service)
    connection, nowhere = transport.connect(listener.address), transport.connect("127.0.0.1:1")  # nobody listens at 1
    errors = [
        await _error_of(connection.call("fail", b"", timeout_s=60)),
        await _error_of(connection.call("fail", b"x" * PIECE_BYTES, timeout_s=60)),
        await _error_of(connection.call("late", b"", timeout_s=0.001)),
        await _error_of(nowhere.call("fail", b"", timeout_s=60)),
        await _error_of(nowhere.open_stream("fail").receive()),
    ]
    failing, broken, cancelled, silent = (connection.open_stream(name) for name in ("fail", "wait", "wait", "wait"))
    await failing.send(b"")
    errors.append(await _error_of(failing.receive()))
    cancelled.cancel()
    errors.append(await _error_of(cancelled.receive()))
    tasks = [
        asyncio.create_task(_error_of(broken.receive())),
        asyncio.create_task(_error_of(connection.call("wait", b"", timeout_s=60))),
        asyncio.create_task(_error_of(connection.call("wait", b"", timeout_s=60))),
    ]
    await silent.send(b"")
    await until(lambda: service.waiting_calls == 2, "both calls wait for an answer")
    tasks[-1].cancel()
    errors.append(await tasks[-1])
    await connection.close()
    await nowhere.close()
    errors += [await task for task in tasks]
    await listener.close()
    await transport.close()
    del listener
    assert all(error.__traceback__ is not None for error in errors)
    assert len(errors) == 11
    for _ in range(10):  # gRPC's own tasks end in a few steps of the loop
        await asyncio.sleep(0)
    assert _count_grpc_objects() == before
