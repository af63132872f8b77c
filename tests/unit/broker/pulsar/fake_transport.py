"""A connection's transport without a socket: written bytes wait until the client takes them, as in a real one.

It pauses and resumes the connection's writing at the same marks, reports the end of the connection in a turn of its
own, and delivers nothing while reading is paused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["FakeTransport"]


class FakeTransport(asyncio.Transport):
    def __init__(
        self, protocol: asyncio.BufferedProtocol, peer: tuple[str, int] = ("10.0.0.1", 1), reached: Any = None
    ) -> None:
        super().__init__({"peername": peer, "sockname": reached})
        self._connection = protocol
        self._high, self._low = 65_536, 16_384
        self._unread: list[bytes] = []
        self._unread_bytes = 0
        self._writing_paused = False
        # Bytes that the client sent while reading was paused.
        self._undelivered: list[bytes] = []
        # Receives written bytes; None: they wait.
        self.takes: Callable[[bytes], object] | None = None
        self.is_reading_paused = False
        self.pauses = 0
        self.closing = False
        self.lost = False
        # Number of writes.
        self.writes = 0

    # The client's side.

    def arrives(self, data: bytes) -> None:
        """Receive bytes from the client."""
        if not self.closing:
            self._undelivered.append(data)
            self._deliver()

    def _deliver(self) -> None:
        """Deliver bytes unless reading is paused. Their memory is overwritten at once, as by another connection."""
        while self._undelivered and not self.is_reading_paused and not self.closing:
            buffer = memoryview(self._connection.get_buffer(-1))
            data = self._undelivered.pop(0)
            if len(data) > len(buffer):
                self._undelivered.insert(0, data[len(buffer) :])
                data = data[: len(buffer)]
            buffer[: len(data)] = data
            self._connection.buffer_updated(len(data))
            buffer[: len(data)] = b"\xff" * len(data)

    def take(self) -> bytes:
        """Return the bytes that wait for the client."""
        data, self._unread, self._unread_bytes = b"".join(self._unread), [], 0
        if self._writing_paused:
            self._writing_paused = False
            self._connection.resume_writing()
        if self.closing:
            self._end(None)
        return data

    def cut(self) -> None:
        """Break the connection from the client's side."""
        self._undelivered.clear()
        self.closing = True
        self._end(ConnectionResetError("the client is disconnected"))

    # The connection's side.

    def write(self, data: Any) -> None:
        assert not self.closing, "write after close"
        self.writes += 1
        if self.takes is not None:
            self.takes(bytes(data))
            return
        self._unread.append(bytes(data))
        self._unread_bytes += len(data)
        if self._unread_bytes > self._high and not self._writing_paused:
            self._writing_paused = True
            self._connection.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return self._unread_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        assert low is not None
        self._high, self._low = high, low

    def pause_reading(self) -> None:
        assert not self.is_reading_paused, "reading is paused already"
        self.is_reading_paused = True
        self.pauses += 1

    def resume_reading(self) -> None:
        assert self.is_reading_paused, "reading is not paused"
        self.is_reading_paused = False
        asyncio.get_running_loop().call_soon(self._deliver)

    def is_reading(self) -> bool:
        return not self.is_reading_paused and not self.closing

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        """Close once the client has taken all written bytes."""
        if not self.closing:
            self.closing = True
            if not self._unread_bytes:
                self._end(None)

    def abort(self) -> None:
        self.closing = True
        self._unread, self._unread_bytes = [], 0
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if not self.lost:
            self.lost = True
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, error)
