"""The gRPC transport over connections that go silent, break, and recover.

A proxy that swallows bytes leaves both ends with a connection that looks alive: only keep-alive detects it. The options
here make that quick; `test_the_defaults_find_a_silent_end_in_time` is about the shipped ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable

import pytest

from magnetar_wire.grpc_transport import GrpcSettings, GrpcTransport
from magnetar_wire.transport import Connection, DeadlinePassed, Disconnected, NotReached
from tests.contract.transport_contract import Echo
from tests.faults.grpc_process import grpc_child
from tests.faults.proxy import Proxy
from tests.running import GENEROUS_S, run, until, within

QUICK = GrpcSettings(
    grpc_keepalive_time_ms=300,
    grpc_keepalive_timeout_ms=300,
    grpc_min_ping_interval_ms=50,
    grpc_connect_timeout_seconds=1.0,
)


def through_a_proxy(scenario: Callable[[Connection, Echo, Proxy], Awaitable[None]]) -> None:
    async def whole() -> None:
        transport, service = GrpcTransport(QUICK), Echo()
        listener = await transport.listen("127.0.0.1:0", service)
        async with Proxy("127.0.0.1", int(listener.address.rpartition(":")[2])) as proxy:
            connection = transport.connect(proxy.address)
            await scenario(connection, service, proxy)
            await connection.close()
        await listener.close()

    run(whole())


async def works(connection: Connection) -> bool:
    try:
        return await connection.call("m", b"x", timeout_s=GENEROUS_S) == b"m:x"
    except (Disconnected, NotReached):
        return False


def test_the_defaults_find_a_silent_end_in_time() -> None:
    options = GrpcSettings()
    assert options.grpc_keepalive_time_ms + options.grpc_keepalive_timeout_ms <= 20_000
    assert options.grpc_min_ping_interval_ms < options.grpc_keepalive_time_ms
    assert options.grpc_reconnect_backoff_max_ms <= 1_000


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["both ways", "requests", "answers"])
def test_a_half_open_connection_is_found_by_both_ends(lost: str) -> None:
    """Calls and streams end as `Disconnected`, the service's work for them too; later ones go over a new connection."""

    async def scenario(connection: Connection, service: Echo, proxy: Proxy) -> None:
        stream = connection.open_stream("echo")
        await stream.send(b"before")
        assert await stream.receive() == b"before"
        call = asyncio.create_task(connection.call("hang", b"", timeout_s=GENEROUS_S))
        hanging = connection.open_stream("hang")
        await hanging.send(b"x")
        waiting = [asyncio.create_task(one.receive()) for one in (stream, hanging)]
        await within(service.waiting.wait(), "the call at the server")
        proxy.loses_requests = lost != "answers"
        proxy.loses_answers = lost != "requests"
        for task in (call, *waiting):
            with pytest.raises(Disconnected):
                await within(task, "the end of what was in flight")
        await until(lambda: service.cancelled == 2, "the server's end is cancelled")
        proxy.heal()
        await until(lambda: works(connection), "a call gets through again")
        assert proxy.let_in >= 2

    through_a_proxy(scenario)


@pytest.mark.slow
def test_an_idle_half_open_connection_is_found_before_it_is_used() -> None:
    """A client that does nothing asks all the same, so that its next call does not meet the dead connection."""

    async def scenario(connection: Connection, _service: Echo, proxy: Proxy) -> None:
        assert await works(connection)
        proxy.lost = 0
        proxy.loses_requests = proxy.loses_answers = True
        await until(lambda: proxy.lost > 0, "a ping is lost")

        async def over_a_new_one() -> bool:
            try:
                await connection.call("m", b"", timeout_s=0.2)
            except (Disconnected, DeadlinePassed, NotReached):
                return False
            return proxy.let_in > 1

        proxy.heal()
        await until(over_a_new_one, "a call over a new connection")

    through_a_proxy(scenario)


@pytest.mark.slow
def test_a_client_that_went_silent_is_dropped_by_the_server() -> None:
    """The server pings by itself: the client has nothing in flight here, and a stream of its own only waits."""

    async def scenario(connection: Connection, service: Echo, proxy: Proxy) -> None:
        stream = connection.open_stream("hang")
        await stream.send(b"x")
        await within(service.waiting.wait(), "the stream at the server")
        proxy.loses_requests = True
        await until(lambda: service.cancelled == 1, "the server gives the client up")
        with pytest.raises(Disconnected):
            await within(stream.receive(), "the client's end")

    through_a_proxy(scenario)


@pytest.mark.slow
def test_a_broken_connection_is_made_again() -> None:
    async def scenario(connection: Connection, service: Echo, proxy: Proxy) -> None:
        for _ in range(5):
            await until(lambda: works(connection), "a call gets through")
            service.waiting.clear()
            call = asyncio.create_task(connection.call("hang", b"", timeout_s=GENEROUS_S))
            await within(service.waiting.wait(), "the call at the server")
            proxy.cut()
            with pytest.raises(Disconnected):
                await within(call, "the end of the call")
        await until(lambda: service.cancelled == 5, "the services are cancelled")

    through_a_proxy(scenario)


@pytest.mark.slow
def test_a_stopped_server_is_found_though_much_is_being_sent_to_it() -> None:
    """Its kernel takes bytes until its buffers are full, and answers for it: only the process does not."""

    async def scenario(address: str, stop: Callable[[], None], resume: Callable[[], None]) -> None:
        connection = GrpcTransport(QUICK).connect(address)
        assert await works(connection)
        stream = connection.open_stream("hang")

        async def send() -> None:
            while True:
                await stream.send(bytes(1_000_000))

        sending = asyncio.create_task(send())
        call = asyncio.create_task(connection.call("hang", b"", timeout_s=GENEROUS_S))
        stop()
        try:
            for task in (sending, call):
                with pytest.raises(Disconnected):
                    await within(task, "the end of what was in flight")
        finally:
            resume()
        await until(lambda: works(connection), "a call gets through again")
        await connection.close()

    with grpc_child() as child:
        run(
            scenario(
                child.address,
                lambda: child.process.send_signal(signal.SIGSTOP),
                lambda: child.process.send_signal(signal.SIGCONT),
            )
        )


@pytest.mark.slow
async def test_connection_reaches_server_again_after_restart() -> None:
    transport = GrpcTransport()
    listener = await transport.listen("127.0.0.1:0", Echo())
    connection = transport.connect(listener.address)
    for _ in range(3):
        assert await works(connection)
        await listener.close()
        with pytest.raises((NotReached, Disconnected)):
            await connection.call("m", b"", timeout_s=GENEROUS_S)
        listener = await transport.listen(listener.address, Echo())
        await until(lambda: works(connection), "it is reached again")
    await connection.close()
    await listener.close()


@pytest.mark.slow
async def test_an_address_that_nobody_answers_for_is_not_reached_in_time() -> None:
    """Packets to it vanish: the attempt fails, and a call's own timeout may be shorter."""
    # A listener with its queue full takes no further connection, and does not refuse it either.
    with contextlib.ExitStack() as sockets:
        full = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            filler = sockets.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        connection = GrpcTransport(QUICK).connect(f"127.0.0.1:{full.getsockname()[1]}")
        with pytest.raises(NotReached):
            await within(connection.call("m", b"", timeout_s=0.01), "the call's time is over")
        with pytest.raises(NotReached):
            await within(connection.call("m", b"", timeout_s=GENEROUS_S), "the attempt fails")
        with pytest.raises(NotReached):
            await within(connection.open_stream("m").receive(), "the attempt fails")
        await connection.close()
