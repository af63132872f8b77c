"""One direction of a stream, between the sender of messages and their receiver.

A pipe is limited in messages and in bytes. The message that passes the limit of bytes is still accepted, so that a
message of any size gets through. Many pipes may share a further limit (`SharedBytes`): above it each of them holds one
message at a time, so that pipes with an active receiver continue while others wait. A pipe ends once, regularly or with
an error, and messages from before the end are still received. A cancelled `put` has sent nothing, and a cancelled `get`
has lost nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque

from magnetar_wire.transport import MAX_TRANSPORT_BYTES, Disconnected, TransportError

__all__ = ["Pipe", "PipedStream", "SharedBytes", "check_message_size"]


class SharedBytes:
    """The number of bytes in several pipes together, and its limit."""

    __slots__ = ("max_bytes", "used_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0


class Pipe:
    """A queue of messages with a limit, one sender and one receiver."""

    def __init__(self, max_messages: int, max_bytes: int, shared: SharedBytes | None = None) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._shared = shared or SharedBytes(sys.maxsize)
        self._messages: deque[bytes] = deque()
        # The sum of the messages' sizes.
        self._bytes = 0
        # The end: with an error, or None for the regular end.
        self._ended = False
        self._error: TransportError | None = None
        # The pending `put` and the pending `get`, one each.
        self._putting: asyncio.Future[None] | None = None
        self._getting: asyncio.Future[None] | None = None

    async def put(self, message: bytes) -> None:
        """Append a message, and wait before that until there is capacity. Raise the pipe's error if it has ended."""
        if self._putting is not None:
            raise RuntimeError("two tasks send to one stream: their order would be undefined")
        messages, shared = self._messages, self._shared
        while not self._ended and (
            len(messages) >= self._max_messages
            or self._bytes >= self._max_bytes
            or (messages and shared.used_bytes >= shared.max_bytes)
        ):
            self._putting = asyncio.get_running_loop().create_future()
            try:
                await self._putting
            finally:
                self._putting = None
        if self._ended:
            raise self._error or Disconnected("the stream has ended")
        messages.append(message)
        self._bytes += len(message)
        shared.used_bytes += len(message)
        if self._getting is not None:
            _wake(self._getting)

    def discard_messages(self) -> None:
        """Discard all messages."""
        self._messages.clear()
        self._shared.used_bytes -= self._bytes
        self._bytes = 0

    async def wait_emptied(self) -> None:
        """Wait until all messages have been received, or the pipe has ended."""
        while self._messages and not self._ended:
            self._putting = asyncio.get_running_loop().create_future()
            try:
                await self._putting
            finally:
                self._putting = None

    async def get(self) -> bytes | None:
        """Return the next message, or None at the regular end. Raise the pipe's error if it ended with one."""
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
            self._bytes -= len(message)
            self._shared.used_bytes -= len(message)
            if self._putting is not None:
                _wake(self._putting)
            return message
        if self._error is not None:
            raise self._error
        return None

    def finish(self) -> None:
        """End the pipe regularly."""
        self._end(None)

    def fail(self, error: TransportError) -> None:
        """End the pipe with an error."""
        self._end(error)

    def _end(self, error: TransportError | None) -> None:
        """End the pipe. Only the first end counts."""
        if not self._ended:
            self._ended, self._error = True, error
            for waiting in (self._getting, self._putting):
                if waiting is not None:
                    _wake(waiting)


class PipedStream:
    """The common part of all ends of streams: one pipe for received messages, and one for sent ones."""

    def __init__(self, incoming: Pipe, outgoing: Pipe) -> None:
        self.in_process_api: object | None = None
        self._incoming = incoming
        self._outgoing = outgoing
        self._finished = False
        self.receive = incoming.get

    async def send(self, message: bytes) -> None:
        if len(message) > MAX_TRANSPORT_BYTES:
            check_message_size(message)
        if self._finished:
            raise RuntimeError("a finished stream can't send")
        await self._outgoing.put(message)

    def _fail_pipes(self, error: TransportError) -> None:
        self._incoming.fail(error)
        self._outgoing.fail(error)


def check_message_size(message: bytes) -> None:
    """Raise ValueError if a message is above the limit."""
    if len(message) > MAX_TRANSPORT_BYTES:
        raise ValueError(f"the message has {len(message)} bytes, above the limit of {MAX_TRANSPORT_BYTES}")


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
