"""All connections are read to the same memory: what the event loops promise by that, with real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

import pytest
import uvloop

_PIECES: Final = 200
_SIZE: Final = 30_000


class _Reads(asyncio.BufferedProtocol):
    """Fills the one buffer with its own number's bytes, and finds them there."""

    def __init__(self, buffer: bytearray, reading: list[_Reads]) -> None:
        self.buffer = buffer
        # The protocol that was asked for a buffer, and was not notified of its content yet.
        self.reading = reading
        self.found: set[int] = set()
        self.bytes = 0
        self.lost = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> bytearray:
        assert self.reading in ([], [self]), "another connection is being read"
        self.reading[:] = [self]
        return self.buffer

    def buffer_updated(self, size_bytes: int) -> None:
        assert self.reading == [self]
        self.reading.clear()
        self.found.update(self.buffer[:size_bytes])
        self.bytes += size_bytes

    def eof_received(self) -> None:
        self.reading.clear()  # a read was begun; this reports it

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set_result(error)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_read_is_reported_before_another_connection_uses_the_buffer(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def go() -> None:
        loop, buffer, reading = asyncio.get_running_loop(), bytearray(65_536), list[_Reads]()
        readers, writers = [], []
        for _ in range(4):
            here, there = socket.socketpair()
            _, reader = await loop.create_connection(lambda: _Reads(buffer, reading), sock=here)
            _, writer = await asyncio.open_connection(sock=there)
            readers.append(reader)
            writers.append(writer)

        async def send(number: int) -> None:
            for _ in range(_PIECES):
                writers[number].write(bytes((number,)) * _SIZE)
                await writers[number].drain()
            writers[number].close()

        await asyncio.gather(*map(send, range(len(writers))))
        for number, reader in enumerate(readers):
            assert await reader.lost is None
            assert reader.found == {number}
            assert reader.bytes == _PIECES * _SIZE

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(go())
