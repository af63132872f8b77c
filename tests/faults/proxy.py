"""A TCP proxy that loses, holds, delays and breaks off bytes, as the test sets it.

After lost bytes nothing more arrives on that connection: TCP has no holes. So a connection that lost something stays
silent that way until `heal`, which ends it. Held bytes arrive after `heal`, as after a network outage.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 65_536


@dataclass(slots=True, eq=False)
class _Pair:
    """One connection, with both its ends."""

    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    lost_requests: bool = False
    lost_answers: bool = False

    def abort(self) -> None:
        self.near.transport.abort()
        self.far.transport.abort()


class Proxy:
    """Stands between clients and one server. All methods are for the loop on which it was opened."""

    def __init__(self, host: str, port: int) -> None:
        # May be changed: connections made from then on go there.
        self.target = (host, port)
        # Where it listens, once it does.
        self.address = ""
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._pairs: dict[_Pair, None] = {}
        # Whether bytes in that direction vanish, or wait; and whether new connections are let in.
        self.loses_requests = False
        self.loses_answers = False
        self.holds_requests = False
        self.holds_answers = False
        self.closed_to_new = False
        # What each piece waits before it goes on, by its direction.
        self.delay_requests_s = 0.0
        self.delay_answers_s = 0.0
        # After this many more bytes, in both directions together, all connections break: in the middle of something.
        self.cut_after: int | None = None
        # How many bytes vanished, and how many connections were let in.
        self.lost = 0
        self.let_in = 0
        self._released = asyncio.Event()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._pairs)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """May be called again."""
        assert self._server is not None
        self._server.close()
        self.cut()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def cut(self) -> None:
        """Breaks all connections."""
        pairs, self._pairs = self._pairs, {}
        for pair in pairs:
            pair.abort()

    def heal(self) -> None:
        self.loses_requests = self.loses_answers = self.closed_to_new = False
        self.holds_requests = self.holds_answers = False
        self.delay_requests_s = self.delay_answers_s = 0.0
        self.cut_after = None
        for pair in list(self._pairs):
            if pair.lost_requests or pair.lost_answers:
                del self._pairs[pair]
                pair.abort()
        self._released.set()
        self._released = asyncio.Event()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks[task] = None
        try:
            if self.closed_to_new:
                writer.transport.abort()
                return
            self.let_in += 1
            to_reader, to_writer = await asyncio.open_connection(*self.target)
            pair = _Pair(writer, to_writer)
            self._pairs[pair] = None
            try:
                await asyncio.gather(
                    self._pump(pair, reader, to_writer, requests=True),
                    self._pump(pair, to_reader, writer, requests=False),
                )
            finally:
                self._pairs.pop(pair, None)
                pair.abort()
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            del self._tasks[task]

    async def _pump(
        self, pair: _Pair, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, requests: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                if delay_s := self.delay_requests_s if requests else self.delay_answers_s:
                    await self._wait(delay_s)
                while self.holds_requests if requests else self.holds_answers:
                    await self._released.wait()
                if self._loses(pair, requests):
                    self.lost += len(data)
                    continue
                if self.cut_after is not None and len(data) > self.cut_after:
                    writer.write(data[: self.cut_after])
                    await writer.drain()
                    self.cut_after = None
                    self.cut()
                    return
                if self.cut_after is not None:
                    self.cut_after -= len(data)
                writer.write(data)
                await writer.drain()
        pair.abort()

    async def _wait(self, delay_s: float) -> None:
        """No longer than until it heals."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._released.wait()

    def _loses(self, pair: _Pair, requests: bool) -> bool:
        if requests:
            pair.lost_requests = pair.lost_requests or self.loses_requests
            return pair.lost_requests
        pair.lost_answers = pair.lost_answers or self.loses_answers
        return pair.lost_answers
