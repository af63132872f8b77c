"""What wakes kazoo's thread when a request waits.

kazoo writes a byte to a socket pair for each request, and its thread reads one byte for each that it takes. The pair is
full after about 270 bytes. Then the write blocks, until the thread takes a request. While the server is away it takes
none, and requests that have failed here still wait there: the event loop would stop until a server answers.
"""

from __future__ import annotations

import socket
import threading


class KazooWakeUp:
    """Both ends of the socket pair, as far as kazoo uses them. The bytes are counted, and one at most is in a socket:
    it is readable while the count is not 0, and `send` never blocks."""

    def __init__(self) -> None:
        self._reading, self._writing = socket.socketpair()
        self._lock = threading.Lock()
        self._count = 0
        self._closed = False

    def fileno(self) -> int:
        return self._reading.fileno()

    def send(self, _byte: bytes) -> int:
        with self._lock:
            if self._closed:
                raise OSError("closed")
            if self._count == 0:
                self._writing.send(b"\0")
            self._count += 1
        return 1

    def recv(self, _size: int) -> bytes:
        with self._lock:
            if self._count == 0:
                raise BlockingIOError("nothing was sent")
            self._count -= 1
            return self._reading.recv(1) if self._count == 0 else b"\0"

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._reading.close()
            self._writing.close()
