"""The admin API over HTTP, on a standalone in a process of its own.

`admin.list_10000` is the time of one listing of a namespace with 10,000 topics. `admin.stats` compares requests for a
topic's statistics with requests for `GET /`, which runs no call: both by the same load generator, over connections that
stay open, in turns of about a second. The topic has a producer, a subscription with a consumer, and a backlog.

`MAGNETAR_BENCH_SCALE` shrinks the work: 0.01 shows in seconds that everything works, and no more.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from magnetar import aio
from magnetar.admin import AsyncAdmin
from magnetar_testing.standalone_process import StandaloneProcess
from tests.bench.harness import Result

SCALE: Final = float(os.environ.get("MAGNETAR_BENCH_SCALE", "1"))
TOPICS: Final = max(100, int(10_000 * SCALE))
TURNS: Final = 7 if SCALE >= 1 else 2
TURN_S: Final = 1.0 if SCALE >= 1 else 0.1
CONNECTIONS: Final = 8
# Topics that are created at the same time.
AT_ONCE: Final = 50


def benches() -> Iterator[Result]:
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("MAGNETAR_BENCH_FOLDER")) as folder,
        StandaloneProcess(Path(folder) / "data") as server,
        asyncio.Runner() as loop,
    ):
        yield loop.run(_list(server))
        yield loop.run(_stats(server))


async def _list(server: StandaloneProcess) -> Result:
    async with AsyncAdmin(server.service_url) as admin:
        await admin.namespaces.create("public/many")
        for first in range(0, TOPICS, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, TOPICS))
            await asyncio.gather(*(admin.topics.create(f"public/many/topic-{number}") for number in numbers))
    connection = await _Connection.open(server, "/admin/v2/persistent/public/many")
    seconds = []
    for _ in range(TURNS + 1):
        began = time.perf_counter()
        names = json.loads(await connection.ask())
        seconds.append(time.perf_counter() - began)
        assert len(names) == TOPICS, len(names)
    connection.close()
    print(f"admin.list_10000: {[round(each, 4) for each in seconds]} s", file=sys.stderr)
    # The first one opens the connection's way through the broker.
    return Result("admin.list_10000", statistics.median(seconds[1:]), "s", f"{TOPICS} topics", ceiling=1.0)


async def _stats(server: StandaloneProcess) -> Result:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(aio.Client(server.service_url))
        await client.subscribe("measured", "subscription")
        producer = await client.create_producer("measured")
        await asyncio.gather(*(producer.send(b"x" * 1024) for _ in range(100)))
        ratios, ours, bare = [], [], []
        for _ in range(TURNS):
            ours.append(await _request_rate(server, "/admin/v2/persistent/public/default/measured/stats"))
            bare.append(await _request_rate(server, "/"))
            ratios.append(ours[-1] / bare[-1])
    print(
        f"admin.stats: {statistics.median(ours):.0f} requests/s, GET / {statistics.median(bare):.0f}; "
        f"ratios {' '.join(f'{one:.2f}' for one in ratios)}",
        file=sys.stderr,
    )
    return Result("admin.stats", statistics.median(ratios), "ratio", "GET / of the same server", floor=0.3)


async def _request_rate(server: StandaloneProcess, path: str) -> float:
    """Return how many requests a second are answered on several connections."""
    connections = [await _Connection.open(server, path) for _ in range(CONNECTIONS)]
    began = time.perf_counter()
    counts = await asyncio.gather(*(one.ask_until(began + TURN_S) for one in connections))
    seconds = time.perf_counter() - began
    for one in connections:
        one.close()
    return sum(counts) / seconds


class _Connection:
    """Sends one request again and again on a connection: little work, so that the server is what is measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
        self._reader = reader
        self._writer = writer
        self._request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()

    @classmethod
    async def open(cls, server: StandaloneProcess, path: str) -> _Connection:
        host, _, port = server.http_url.removeprefix("http://").rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)), path)

    async def ask(self) -> bytes:
        """Return the body of the answer."""
        self._writer.write(self._request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return await self._reader.readexactly(size)

    async def ask_until(self, end: float) -> int:
        """Return the number of answers until then."""
        count = 0
        while time.perf_counter() < end:
            await self.ask()
            count += 1
        return count

    def close(self) -> None:
        self._writer.close()
