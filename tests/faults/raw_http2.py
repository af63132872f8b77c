"""A raw HTTP/2 client, for frames that no well-behaved library would send."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Final, Self

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA: Final = 0
HEADERS: Final = 1
RST_STREAM: Final = 3
SETTINGS: Final = 4
PING: Final = 6
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9
ACK: Final = 1
END_STREAM: Final = 1
END_HEADERS: Final = 4
_INITIAL_WINDOW: Final = 4


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def header(name: bytes, value: bytes) -> bytes:
    """One header field: literal, not indexed, no Huffman coding."""
    return b"\x00" + _length(len(name)) + name + _length(len(value)) + value


def request_headers(path: bytes, *more: tuple[bytes, bytes]) -> bytes:
    fields = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path),
        (b":authority", b"a"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        *more,
    ]
    return b"".join(header(name, value) for name, value in fields)


def grpc_message(payload: bytes, size: int | None = None) -> bytes:
    """What goes before a message, and the message: `size` may lie."""
    return b"\x00" + struct.pack(">I", len(payload) if size is None else size) + payload


class RawConnection:
    """A connection after its preface that sends any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer
        self._initial_window = 65_535

    @classmethod
    async def open(cls, address: str, *, hello: bool = True) -> Self:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        connection = cls(reader, writer)
        if hello:
            await connection.send(PREFACE + frame(SETTINGS, 0, 0, b""))
        return connection

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def upload(self, stream: int, data: bytes | memoryview) -> bool:
        """Sends it as the server's windows allow. False: the server broke the stream off, or hung up."""
        data, windows = memoryview(data), {0: 65_535, stream: 65_535}
        try:
            while data:
                capacity = min(16_384, *windows.values())
                if capacity <= 0:
                    if not await self._follow(stream, windows):
                        return False
                    continue
                part, data = data[:capacity], data[capacity:]
                await self.send(frame(DATA, 0, stream, bytes(part)))
                for window in windows:
                    windows[window] -= len(part)
        except (ConnectionError, asyncio.IncompleteReadError):
            return False
        return True

    async def _follow(self, stream: int, windows: dict[int, int]) -> bool:
        """Reads a frame and does what has to be done about it."""
        head = await self.reader.readexactly(9)
        size, kind, flags, number = int.from_bytes(head[:3], "big"), head[3], head[4], int.from_bytes(head[5:], "big")
        payload = await self.reader.readexactly(size)
        if kind == WINDOW_UPDATE and number in windows:
            windows[number] += int.from_bytes(payload, "big")
        elif kind == SETTINGS and not flags & ACK:
            for key, value in struct.iter_unpack(">HI", payload):
                if key == _INITIAL_WINDOW:
                    windows[stream] += value - self._initial_window
                    self._initial_window = value
            await self.send(frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            await self.send(frame(PING, ACK, 0, payload))
        return not (kind == RST_STREAM or (kind == HEADERS and flags & END_STREAM))

    async def wait_closed_by_server(self) -> None:
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass

    async def close(self) -> None:
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def _length(number: int) -> bytes:
    """An HPACK integer with a prefix of 7 bits."""
    if number < 127:
        return bytes([number])
    encoded, number = bytearray([127]), number - 127
    while number >= 128:
        encoded.append(number % 128 + 128)
        number //= 128
    return bytes([*encoded, number])
