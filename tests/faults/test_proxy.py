"""The proxy disturbs one direction or both, and passes everything again after `heal`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.faults.proxy import Proxy
from tests.running import run, until, within


class _Ends:
    """A client and a server, with a proxy between them."""

    def __init__(self) -> None:
        self.proxy = Proxy("127.0.0.1", 1)
        self.arrived = b""
        self.near: asyncio.StreamWriter
        self.reader: asyncio.StreamReader
        self.far: asyncio.StreamWriter

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.far = writer
        with contextlib.suppress(OSError):
            while data := await reader.read(100):
                self.arrived += data
        writer.close()

    async def connect(self) -> None:
        self.reader, self.near = await asyncio.open_connection(*_host_and_port(self.proxy))
        self.near.write(b"first")
        await until(lambda: self.arrived == b"first", "it is let through")


@contextlib.asynccontextmanager
async def _ends() -> AsyncIterator[_Ends]:
    ends = _Ends()
    server = await asyncio.start_server(ends.serve, "127.0.0.1", 0)
    ends.proxy.target = server.sockets[0].getsockname()[:2]
    async with ends.proxy:
        await ends.connect()
        yield ends
        ends.near.close()
    server.close()


@pytest.mark.parametrize("how", ["delays", "holds", "loses"])
def test_fault_in_one_direction_leaves_the_other_open(how: str) -> None:
    async def requests() -> None:
        async with _ends() as ends:
            proxy = ends.proxy
            proxy.delay_requests_s = 3600.0 if how == "delays" else 0.0
            proxy.holds_requests, proxy.loses_requests = how == "holds", how == "loses"
            ends.near.write(b" second")
            ends.far.write(b"answer")
            assert await within(ends.reader.readexactly(6), "the answer") == b"answer"
            assert ends.arrived == b"first"
            if how == "loses":
                await until(lambda: proxy.lost == 7, "it is lost")
                proxy.heal()
                assert await within(ends.reader.read(), "the end of what lacks something") == b""
            else:
                proxy.heal()
                await until(lambda: ends.arrived == b"first second", "it comes when all has healed")

    async def answers() -> None:
        async with _ends() as ends:
            proxy = ends.proxy
            proxy.delay_answers_s = 3600.0 if how == "delays" else 0.0
            proxy.holds_answers, proxy.loses_answers = how == "holds", how == "loses"
            ends.far.write(b"answer")
            ends.near.write(b" second")
            await until(lambda: ends.arrived == b"first second", "it is let through")
            answer = asyncio.create_task(ends.reader.read(100))
            if how == "loses":
                await until(lambda: proxy.lost == 6, "it is lost")
            assert not answer.done()
            proxy.heal()
            assert await within(answer, "it comes, or the end") == (b"" if how == "loses" else b"answer")

    run(requests())
    run(answers())


async def test_healed_proxy_accepts_connections_again() -> None:
    async with _ends() as ends:
        assert (ends.proxy.connections, ends.proxy.let_in) == (1, 1)
        ends.proxy.closed_to_new = True
        ends.proxy.cut()
        with contextlib.suppress(ConnectionError):
            assert await within(ends.reader.read(), "the end of the connection") == b""
        assert ends.proxy.connections == 0
        with contextlib.suppress(ConnectionError):
            reader, writer = await asyncio.open_connection(*_host_and_port(ends.proxy))
            assert await within(reader.read(), "the end of a new connection") == b""
            writer.close()
        ends.proxy.heal()
        ends.near.close()
        ends.arrived = b""
        await ends.connect()
        assert (ends.proxy.connections, ends.proxy.let_in) == (1, 2)
        await ends.proxy.close()


def _host_and_port(proxy: Proxy) -> tuple[str, int]:
    host, _, port = proxy.address.rpartition(":")
    return host, int(port)
