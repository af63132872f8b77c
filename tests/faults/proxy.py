"""A TCP proxy that loses what it is told to lose."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self


class Proxy:
    """Stands between clients and one server. All methods are for the loop on which it was opened."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._writers: list[asyncio.StreamWriter] = []
        # Whether bytes in that direction vanish, and whether new connections are let in.
        self.loses_requests = False
        self.loses_answers = False
        self.closed_to_new = False
        # How many bytes vanished, and how many connections were let in.
        self.lost = 0
        self.let_in = 0

    @property
    def address(self) -> str:
        assert self._server is not None
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cut(self) -> None:
        """Breaks all connections."""
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()

    def heal(self) -> None:
        self.loses_requests = self.loses_answers = self.closed_to_new = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = None
        try:
            if self.closed_to_new:
                writer.transport.abort()
                return
            self.let_in += 1
            to_reader, to_writer = await asyncio.open_connection(*self._target)
            self._writers += [writer, to_writer]
            await asyncio.gather(
                self._pump(reader, to_writer, requests=True), self._pump(to_reader, writer, requests=False)
            )
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            del self._tasks[task]

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, requests: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self.loses_requests if requests else self.loses_answers:
                    self.lost += len(data)
                else:
                    writer.write(data)
                    await writer.drain()
        writer.transport.abort()
