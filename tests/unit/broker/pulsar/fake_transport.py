"""A connection's transport, without a socket: what is written waits until it is taken, as in a real one.

It asks the connection to pause and resume by the same marks, tells of the end in a turn of its own, and delivers
nothing while reading is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["FakeTransport"]


class FakeTransport(asyncio.Transport):
    def __init__(
        self, protocol: asyncio.BufferedProtocol, peer: tuple[str, int] = ("10.0.0.1", 1), here: Any = None
    ) -> None:
        super().__init__({"peername": peer, "sockname": here})
        self._connection = protocol
        self._high, self._low = 65_536, 16_384
        self._unread: list[bytes] = []
        self._unread_bytes = 0
        self._told_to_pause = False
        # What came while reading was held.
        self._kept: list[bytes] = []
        # Whoever reads what is written; None: nobody does.
        self.takes: Callable[[bytes], object] | None = None
        self.reading_held = False
        self.holds = 0
        self.closing = False
        self.lost = False
        # How often something was written.
        self.writes = 0

    # The client's side.

    def arrives(self, data: bytes) -> None:
        """From the client."""
        if not self.closing:
            self._kept.append(data)
            self._deliver()

    def _deliver(self) -> None:
        """As much as is read. The memory in which it lies is another connection's at once."""
        while self._kept and not self.reading_held and not self.closing:
            buffer = memoryview(self._connection.get_buffer(-1))
            data = self._kept.pop(0)
            if len(data) > len(buffer):
                self._kept.insert(0, data[len(buffer) :])
                data = data[: len(buffer)]
            buffer[: len(data)] = data
            self._connection.buffer_updated(len(data))
            buffer[: len(data)] = b"\xff" * len(data)

    def take(self) -> bytes:
        """What waits to be read."""
        data, self._unread, self._unread_bytes = b"".join(self._unread), [], 0
        if self._told_to_pause:
            self._told_to_pause = False
            self._connection.resume_writing()
        if self.closing:
            self._end(None)
        return data

    def cut(self) -> None:
        """The client's side is gone."""
        self._kept.clear()
        self.closing = True
        self._end(ConnectionResetError("the client is gone"))

    # The connection's side.

    def write(self, data: Any) -> None:
        assert not self.closing, "nobody may write any more"
        self.writes += 1
        if self.takes is not None:
            self.takes(bytes(data))
            return
        self._unread.append(bytes(data))
        self._unread_bytes += len(data)
        if self._unread_bytes > self._high and not self._told_to_pause:
            self._told_to_pause = True
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
        assert not self.reading_held, "reading is held already"
        self.reading_held = True
        self.holds += 1

    def resume_reading(self) -> None:
        assert self.reading_held, "reading is not held"
        self.reading_held = False
        asyncio.get_running_loop().call_soon(self._deliver)

    def is_reading(self) -> bool:
        return not self.reading_held and not self.closing

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        """Ends once all that was written is read."""
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
