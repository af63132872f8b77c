"""The HTTP server: its limits, and how it closes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from magnetar_wire.process.http_server import HttpServer, HttpSettings, allow_body, serve_http
from tests.http_client import ask
from tests.running import until, within

SHORT = HttpSettings(http_exchange_timeout_seconds=0.3, http_close_timeout_seconds=0.1)


class Echo:
    """An application that answers with the request's body, and one that never answers."""

    def __init__(self) -> None:
        self.hanging = 0
        self.app = Starlette(
            routes=[
                Route("/echo", self.echo, methods=["GET", "POST"]),
                Route("/large", self.large, methods=["POST"]),
                Route("/hang", self.hang),
                Route("/fail", fail),
            ]
        )

    async def echo(self, request: Request) -> Response:
        return Response(await request.body())

    async def large(self, request: Request) -> Response:
        allow_body(request.scope, 5000)
        return await self.echo(request)

    async def hang(self, request: Request) -> Response:
        self.hanging += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.hanging -= 1
        return PlainTextResponse("never")


def fail(request: Request) -> Response:
    raise RuntimeError("on purpose")


@asynccontextmanager
async def serving(echo: Echo, options: HttpSettings | None = None) -> AsyncIterator[HttpServer]:
    server = await serve_http(echo.app, "127.0.0.1:0", options)
    try:
        yield server
    finally:
        await within(server.close(), "the server's end")


async def connect(server: HttpServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = server.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def cut_off(reader: asyncio.StreamReader) -> bytes:
    """Return the bytes that came until the server disconnected."""
    came = b""
    try:
        while part := await within(reader.read(65_536), "being cut off"):
            came += part
    except ConnectionError:
        pass
    return came


async def test_requests_are_answered_at_the_address() -> None:
    async with serving(Echo()) as server:
        assert not server.address.endswith(":0")
        assert await ask(server.address, "/echo", "POST", b"x" * 65_536) == (200, b"x" * 65_536)


async def test_signal_handlers_are_not_replaced() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with serving(Echo()):
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


async def test_an_address_in_use_is_an_error_at_once() -> None:
    async with serving(Echo()) as server:
        with pytest.raises(OSError, match="in use"):
            await serve_http(Echo().app, server.address)


async def test_a_body_that_is_too_large_is_refused() -> None:
    async with serving(Echo(), HttpSettings(http_max_body_bytes=1000)) as server:
        assert (await ask(server.address, "/echo", "POST", b"x" * 1000))[0] == 200
        assert (await ask(server.address, "/echo", "POST", b"x" * 1001))[0] == 413


async def test_a_path_may_allow_larger_bodies() -> None:
    async with serving(Echo(), HttpSettings(http_max_body_bytes=1000)) as server:
        assert (await ask(server.address, "/large", "POST", b"x" * 5000))[0] == 200
        assert (await ask(server.address, "/large", "POST", b"x" * 5001))[0] == 413
        assert (await ask(server.address, "/echo", "POST", b"x" * 1001))[0] == 413


async def test_larger_bodies_are_limited_together() -> None:
    """CHK-49: bodies that arrive slowly on many connections take a limited amount of memory."""
    settings = HttpSettings(http_max_body_bytes=1000, http_max_pending_body_bytes=4000)
    async with serving(Echo(), settings) as server:
        _, slow = await connect(server)
        slow.write(b"POST /large HTTP/1.1\r\nhost: x\r\ncontent-length: 5000\r\n\r\n" + b"x" * 4000)

        async def answers(status: int) -> bool:
            return (await ask(server.address, "/large", "POST", b"x" * 3000))[0] == status

        await until(lambda: answers(429), "the slow body counts")
        assert (await ask(server.address, "/large", "POST", b"x" * 1000))[0] == 200
        slow.close()
        await until(lambda: answers(200), "the slow body is released")


async def test_a_body_without_an_end_is_refused_when_it_is_too_large() -> None:
    """CHK-49: in chunked encoding, the size is not known before."""
    async with serving(Echo(), HttpSettings(http_max_body_bytes=1000)) as server:
        reader, writer = await connect(server)
        writer.write(b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write((b"400\r\n" + b"x" * 1024 + b"\r\n") * 10)
        assert b" 413 " in await within(reader.readline(), "the refusal")
        writer.close()


async def test_a_head_without_an_end_is_refused() -> None:
    """CHK-49: headers take a limited amount of memory."""
    async with serving(Echo()) as server:
        reader, writer = await connect(server)
        writer.write(b"GET /echo HTTP/1.1\r\nx: " + b"y" * 100_000)
        assert b" 400 " in await within(reader.readline(), "the refusal")
        writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /echo HTTP/1.1\r\nhost: x\r\n",
        b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nx",
        b"GET /hang HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
    ids=["silent", "slow head", "slow body", "slow answer"],
)
async def test_a_slow_client_is_disconnected(sent: bytes) -> None:
    """CHK-49: a connection without progress is closed."""
    echo = Echo()
    async with serving(echo, SHORT) as server:
        reader, writer = await connect(server)
        writer.write(sent)
        await cut_off(reader)
        writer.close()
        await until(lambda: server.connections == 0, "the connection is forgotten")
        await until(lambda: not echo.hanging, "the application is notified")


async def test_connections_above_the_limit_are_closed_and_others_served() -> None:
    """CHK-49"""
    async with serving(Echo(), HttpSettings(http_max_connections=3)) as server:
        connections = [await connect(server) for _ in range(3)]
        await until(lambda: server.connections == 3, "three are connected")
        for _ in range(20):
            reader, writer = await connect(server)
            assert await cut_off(reader) == b""
            writer.close()
        reader, writer = connections[0]
        writer.write(b"GET /echo HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b" 200 " in await within(reader.readline(), "an answer")
        for _, writer in connections:
            writer.close()


async def test_closing_does_not_wait_for_a_hanging_request() -> None:
    echo = Echo()
    async with serving(echo, HttpSettings(http_close_timeout_seconds=0.1)) as server:
        reader, writer = await connect(server)
        writer.write(b"GET /hang HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: echo.hanging == 1, "the request hangs")
    await cut_off(reader)
    writer.close()
    assert echo.hanging == 0


async def test_an_error_in_the_application_is_answered_without_details() -> None:
    async with serving(Echo()) as server:
        assert await ask(server.address, "/fail") == (500, b"Internal Server Error")
