"""Clients whose connections are there at one end only: a proxy that swallows bytes, a server that is paused."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from magnetar import InitialPosition, aio
from magnetar_testing.standalone_process import StandaloneProcess
from magnetar_wire.grpc_transport import GrpcSettings, GrpcTransport
from tests.faults.proxy import Proxy
from tests.running import until, within

pytestmark = pytest.mark.slow

MODES = ("requests", "answers", "both")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with StandaloneProcess(tmp_path_factory.mktemp("half-open") / "data") as started:
        yield started


class ThroughProxy:
    """A transport that reaches every address through one proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._transport = GrpcTransport(GrpcSettings(grpc_keepalive_time_ms=1_000, grpc_keepalive_timeout_ms=1_000))

    def connect(self, address: str) -> Any:
        return self._transport.connect(self._proxy.address)

    async def listen(self, address: str, service: Any) -> Any:
        raise NotImplementedError


class Pair:
    """A producer and a consumer of one topic, behind a proxy of their own."""

    def __init__(self, topic: str, proxy: Proxy, client: aio.Client) -> None:
        self.topic = topic
        self.proxy = proxy
        self.client = client
        self.sent = 0
        self.pending: list[asyncio.Task[Any]] = []
        self.read: list[bytes] = []

    async def open(self) -> None:
        self.producer = await self.client.create_producer(self.topic, send_timeout_millis=0)
        self.consumer = await self.client.subscribe(self.topic, "s", initial_position=InitialPosition.Earliest)
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        """What has a receipt is acknowledged for good, and must not come again."""
        async for message in self.consumer:
            self.read.append(message.data())
            await self.consumer.acknowledge(message, receipt=True)

    def send(self, count: int) -> None:
        for _ in range(count):
            self.pending.append(asyncio.create_task(self.producer.send(b"%d" % self.sent)))
            self.sent += 1

    async def settled(self) -> None:
        """All that was sent has its receipt, and is read: each message once, but for what was in the reader's hands."""
        await within(asyncio.gather(*self.pending), "all receipts")
        expected = [b"%d" % number for number in range(self.sent)]
        await until(lambda: expected[-1] in self.read, "all is read")
        assert list(dict.fromkeys(self.read)) == expected

    def is_cut_off(self) -> bool:
        return not (self.producer.is_connected() or self.consumer.is_connected())

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading])
        await self.client.close()


@asynccontextmanager
async def pairs(server: StandaloneProcess, names: tuple[str, ...]) -> AsyncIterator[dict[str, Pair]]:
    host, _, port = server.service_url.removeprefix("magnetar://").partition(":")
    async with AsyncExitStack() as stack:
        made = {}
        for name in names:
            proxy = await stack.enter_async_context(Proxy(host, int(port)))
            client = aio.Client(server.service_url, _transport=ThroughProxy(proxy), operation_timeout_seconds=3_600)
            made[name] = Pair(f"half-open-{name}", proxy, client)
            await made[name].open()
            made[name].send(10)
        for pair in made.values():
            await pair.settled()
        yield made
        for pair in made.values():
            await pair.close()


async def test_a_half_open_connection_is_found_though_nobody_uses_it_and_nothing_is_lost(
    server: StandaloneProcess,
) -> None:
    """PRD-9, CHK-33: bytes vanish one way, the other way, or both. An idle client notices by itself; messages sent in
    the meantime wait, in order; when the network is back everything goes on.
    """
    async with pairs(server, MODES) as made:
        for mode, pair in made.items():
            pair.proxy.loses_requests = mode in ("requests", "both")
            pair.proxy.loses_answers = mode in ("answers", "both")
        for mode, pair in made.items():
            await until(pair.is_cut_off, f"it is found that {mode} vanish")
        for pair in made.values():
            pair.send(20)
        for pair in made.values():
            pair.proxy.heal()
        for pair in made.values():
            await pair.settled()


async def test_resumed_broker_delivers_nothing_on_abandoned_streams(server: StandaloneProcess) -> None:
    """CHK-52: what the resumed broker still has to say on streams that were left reaches nobody: no message comes
    twice into one opening, and what has a receipt never again."""
    async with pairs(server, ("paused", "quick")) as made:
        paused, quick = made["paused"], made["quick"]
        server.signal(signal.SIGSTOP)
        try:
            for pair in made.values():
                pair.send(50)
            await until(paused.is_cut_off, "it is found that the broker stands still")
        finally:
            server.signal(signal.SIGCONT)
        for pair in (paused, quick):
            await pair.settled()
            pair.send(5)
            await pair.settled()
