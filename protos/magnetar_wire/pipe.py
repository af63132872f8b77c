"""One direction of a stream, between whoever puts messages in and whoever takes them out.

A pipe is bounded, in messages and in bytes; the message that passes the bound in bytes is still taken, so that one of
any size gets through. Many pipes may share a further bound (`SharedBytes`): above it each holds one message at a time,
so that those whose messages are taken go on while others' are not. A pipe ends once, regularly or with an error, and
what was put before the end is still got. Whoever is cancelled while waiting has put nothing and lost nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque

from magnetar_wire.transport import MAX_TRANSPORT_BYTES, Disconnected, TransportError

__all__ = ["Pipe", "PipedStream", "SharedBytes", "check_size"]


class SharedBytes:
    """What many pipes hold together."""

    __slots__ = ("max_bytes", "used_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0


class Pipe:
    def __init__(self, max_messages: int, max_bytes: int, shared: SharedBytes | None = None) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._shared = shared or SharedBytes(sys.maxsize)
        self._messages: deque[bytes] = deque()
        # The sum of their sizes.
        self._bytes = 0
        # How it ended: an error, or None for the regular end.
        self._ended = False
        self._error: TransportError | None = None
        # Who waits for room, and who for a message: one each.
        self._putting: asyncio.Future[None] | None = None
        self._getting: asyncio.Future[None] | None = None

    async def put(self, message: bytes) -> None:
        if self._putting is not None:
            raise RuntimeError("two tasks send to one stream: their order would be undefined")
        while self._full and not self._ended:
            self._putting = asyncio.get_running_loop().create_future()
            try:
                await self._putting
            finally:
                self._putting = None
        if self._ended:
            raise self._error or Disconnected("the stream has ended")
        self._messages.append(message)
        self._count(len(message))
        _wake(self._getting)

    @property
    def _full(self) -> bool:
        shared = self._shared
        return (
            len(self._messages) >= self._max_messages
            or self._bytes >= self._max_bytes
            or (shared.used_bytes >= shared.max_bytes and bool(self._messages))
        )

    def _count(self, size: int) -> None:
        self._bytes += size
        self._shared.used_bytes += size

    def drop(self) -> None:
        """What is in it will not be got any more."""
        self._messages.clear()
        self._count(-self._bytes)

    async def emptied(self) -> None:
        """Returns when all that was put has been got, or the pipe has ended."""
        while self._messages and not self._ended:
            self._putting = asyncio.get_running_loop().create_future()
            try:
                await self._putting
            finally:
                self._putting = None

    async def get(self) -> bytes | None:
        if self._getting is not None:
            raise RuntimeError("two tasks receive from one stream: each would get some of the messages")
        while not self._messages and not self._ended:
            self._getting = asyncio.get_running_loop().create_future()
            try:
                await self._getting
            finally:
                self._getting = None
        if self._messages:
            message = self._messages.popleft()
            self._count(-len(message))
            _wake(self._putting)
            return message
        if self._error is not None:
            raise self._error
        return None

    def finish(self) -> None:
        self._end(None)

    def breaks(self, error: TransportError) -> None:
        self._end(error)

    def _end(self, error: TransportError | None) -> None:
        """The first end counts."""
        if not self._ended:
            self._ended, self._error = True, error
            _wake(self._getting)
            _wake(self._putting)


class PipedStream:
    """What the ends of streams have in common: one pipe for what comes, and one for what goes."""

    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        self.in_process_api: object | None = None
        self._incoming = incoming
        self._outgoing = outgoing
        self._finished = False

    async def send(self, message: bytes) -> None:
        check_size(message)
        if self._finished:
            raise RuntimeError("a finished stream can't send")
        await self._outgoing.put(message)

    async def receive(self) -> bytes | None:
        return await self._incoming.get()

    def _break_pipes(self, error: TransportError) -> None:
        self._incoming.breaks(error)
        self._outgoing.breaks(error)


def check_size(message: bytes) -> None:
    if len(message) > MAX_TRANSPORT_BYTES:
        raise ValueError(f"the message has {len(message)} bytes, above the limit of {MAX_TRANSPORT_BYTES}")


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
