"""Servers that answer requests of HTTP with given bytes, whether these are valid or not."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

__all__ = ["HttpServer", "http_answer", "running_server"]

# What one connection is answered with: bytes, or a function that writes them itself.
Reply = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


def http_answer(status: int, value: Any = None, *headers: str) -> bytes:
    body = b"" if value is None else json.dumps(value).encode()
    lines = [f"HTTP/1.1 {status} -", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class HttpServer:
    def __init__(self, replies: list[Reply]) -> None:
        """`replies`: one for each connection; the last one again and again."""
        self.address = ""
        # The requests' first lines.
        self.requests: list[str] = []
        self.bodies: list[bytes] = []
        self.arrived = asyncio.Event()
        self.replies = replies
        self._tasks: set[asyncio.Task[Any]] = set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            length = sum(int(line.split(": ")[1]) for line in head if line.startswith("Content-Length: "))
            self.bodies.append(await reader.readexactly(length))
            self.requests.append(head[0].removesuffix(" HTTP/1.1"))
            self.arrived.set()
            reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
            if isinstance(reply, bytes):
                writer.write(reply)
                await writer.drain()
            else:
                await reply(writer)
        writer.close()

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpServer]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)


@asynccontextmanager
async def running_server(*replies: Reply, tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpServer]:
    async with HttpServer(list(replies)).running(tls) as server:
        yield server
