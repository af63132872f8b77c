"""HTTP/2 by hand, for what no well-behaved library would send."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Final, Self

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA: Final = 0
HEADERS: Final = 1
SETTINGS: Final = 4
PING: Final = 6
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9
END_STREAM: Final = 1
END_HEADERS: Final = 4


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
    """A connection that has said hello, and sends whatever it is given."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self._writer = writer

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
