"""Servers against hostile clients: memory stays bounded, and other clients are served (CHK-49)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import pytest

from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.grpc_transport.wire import PIECE_BYTES
from magnetar_wire.transport import MAX_TRANSPORT_BYTES, Connection, Disconnected, Rejected
from tests.faults.grpc_process import GrpcChild, grpc_child
from tests.faults.raw_http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    RawConnection,
    frame,
    grpc_message,
    header,
    request_headers,
)
from tests.running import run, within

pytestmark = pytest.mark.slow

CALL = b"/magnetar.Transport/Call"
STREAM = b"/magnetar.Transport/Stream"
METHOD = (b"magnetar-method", b"m")
CHUNK = frame(DATA, 0, 1, bytes(16_384))
MEGABYTE = 1_000_000

Hostility = Callable[["Attackers", Connection], Awaitable[None]]


class Attackers:
    """Opens raw connections to one server, and closes them all in the end."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._opened: list[RawConnection] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for raw in self._opened:
            await raw.close()

    async def open(self, *, hello: bool = True) -> RawConnection:
        raw = await RawConnection.open(self._address, hello=hello)
        self._opened.append(raw)
        return raw


def others_are_served_during(hostility: Hostility, *, at_most_mb: int, **options: int) -> None:
    """An honest client's call is answered before, during (by `hostility`) and after."""

    async def scenario(child: GrpcChild) -> None:
        honest = GrpcTransport().connect(child.address)
        await served(honest)
        before = child.resident_bytes()
        async with Attackers(child.address) as attackers:
            await hostility(attackers, honest)
        await served(honest)
        grown = (child.resident_bytes() - before) // MEGABYTE
        assert grown <= at_most_mb
        await honest.close()

    with grpc_child(**options) as child:
        run(scenario(child))


async def served(honest: Connection) -> None:
    assert await honest.call("m", b"honest", timeout_s=60) == b"m:honest"


async def _served_though_broken_off(honest: Connection, request: bytes) -> None:
    """A request that is large is broken off, too, where the machine is so busy that it takes longer than its grace."""
    while True:
        with contextlib.suppress(Rejected, Disconnected):
            assert await honest.call("m", request, timeout_s=60) == b"m:" + request
            return


def test_garbage_and_unreadable_requests_hurt_nobody() -> None:
    """A path that is no UTF-8 ends grpc.aio's own server."""

    async def hostility(attackers: Attackers, honest: Connection) -> None:
        requests = [
            request_headers(path, METHOD)
            for path in (b"/\xff\xfe", b"/magnetar.Transport/\xff", b"", b"no slash", CALL + b"/more", b"/\x00")
        ]
        requests += [
            request_headers(CALL),
            request_headers(CALL, (b"magnetar-method", b"\xff\xfe%ff")),
            request_headers(CALL, METHOD, (b"\xff", b"\xff"), (b"grpc-encoding", b"\xc3\x28")),
            request_headers(CALL, METHOD, (b"grpc-timeout", b"\xffS")),
            request_headers(STREAM, METHOD, (b"user-agent", b"\xff" * 100)),
            header(b":path", CALL),
            b"\xff\xff\xff\xff\xff\xff\xff\xff",
        ]
        for request in requests:
            raw = await attackers.open()
            await raw.send(frame(HEADERS, END_HEADERS, 1, request))
            await raw.send(frame(DATA, END_STREAM, 1, grpc_message(b"x")))
            await served(honest)
        for garbage in (b"\x00" * 100_000, b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 100, b"PRI * HTTP/2.0\r\n"):
            raw = await attackers.open(hello=False)
            await raw.send(garbage)
            await served(honest)

    others_are_served_during(hostility, at_most_mb=30)


@pytest.mark.parametrize("path", [CALL, STREAM])
def test_a_message_over_the_limit_is_broken_off(path: bytes) -> None:
    """Only its beginning is read: the length that it claims is enough."""

    async def hostility(attackers: Attackers, honest: Connection) -> None:
        for _ in range(4):
            raw = await attackers.open()
            await raw.send(frame(HEADERS, END_HEADERS, 1, request_headers(path, METHOD)))
            await raw.send(frame(DATA, 0, 1, grpc_message(b"", size=PIECE_BYTES + 1)))
            status = await within(_read_until(raw, b"grpc-status"), "the refusal")
            assert b"grpc-status\x018" in status  # RESOURCE_EXHAUSTED
            await _send_on(raw, CHUNK, times=1_000)  # past every window
            await served(honest)

    others_are_served_during(hostility, at_most_mb=60)


def test_endless_metadata_takes_bounded_memory() -> None:
    """150 MB of it; what stays is buffers."""

    async def hostility(attackers: Attackers, honest: Connection) -> None:
        field = b"".join(header(b"x-%d" % number, bytes(1_000)) for number in range(15))
        for _ in range(5):
            raw = await attackers.open()
            await raw.send(frame(HEADERS, 0, 1, request_headers(CALL, METHOD)))
            await within(_send_on(raw, frame(CONTINUATION, 0, 1, field), times=2_000), "the server reads on")
            await served(honest)

    others_are_served_during(hostility, at_most_mb=200)


def test_thousands_of_streams_on_one_connection_are_too_many() -> None:
    async def hostility(attackers: Attackers, honest: Connection) -> None:
        raws = [await attackers.open() for _ in range(4)]
        for raw in raws:
            request = request_headers(STREAM, (b"magnetar-method", b"hang"))
            for stream in range(1, 10_001, 2):
                await raw.send(frame(HEADERS, END_HEADERS, stream, request))
            await served(honest)

    others_are_served_during(hostility, at_most_mb=100, grpc_max_streams_per_connection=500, grpc_max_long_streams=300)


def test_connections_beyond_the_limit_are_closed() -> None:
    async def hostility(attackers: Attackers, honest: Connection) -> None:
        raws = [await attackers.open() for _ in range(300)]
        closed = [asyncio.create_task(raw.wait_closed_by_server()) for raw in raws]
        done = 0
        async with asyncio.timeout(60):
            while done < 250:
                done = sum(task.done() for task in closed)
                await asyncio.sleep(0.01)
        await served(honest)
        for task in closed:
            task.cancel()
        await asyncio.wait(closed)

    others_are_served_during(hostility, at_most_mb=60, grpc_max_connections=50)


def test_half_sent_requests_keep_nobody_out() -> None:
    """More of them than are received at a time; each sends all but the last bytes of a large one, and stops."""

    async def hostility(attackers: Attackers, honest: Connection) -> None:
        raws = []
        for _ in range(60):
            raw = await attackers.open()
            await raw.send(frame(HEADERS, END_HEADERS, 1, request_headers(CALL, METHOD)))
            await raw.send(frame(DATA, 0, 1, grpc_message(b"", size=PIECE_BYTES)))
            for _ in range(3):
                await raw.send(CHUNK)
            raws.append(raw)
            await served(honest)

    others_are_served_during(hostility, at_most_mb=60, grpc_max_receiving=4, grpc_receiving_grace_ms=10)


@pytest.mark.parametrize("path", [CALL, STREAM])
@pytest.mark.parametrize("in_pieces", [True, False])
def test_large_messages_that_never_end_take_a_bounded_share_of_memory(path: bytes, in_pieces: bool) -> None:
    """Forty clients send all but the end of the largest message, as fast as the server takes it, and stop: 376 MB."""
    whole = bytes(MAX_TRANSPORT_BYTES - 1_000)
    if in_pieces:
        count = len(whole) // PIECE_BYTES
        upload = grpc_message(bytes(PIECE_BYTES)) * count + grpc_message(bytes(1_000), size=2_000)
    else:
        upload = grpc_message(whole, size=MAX_TRANSPORT_BYTES)

    async def hostility(attackers: Attackers, honest: Connection) -> None:
        uploads = []
        for _ in range(40):
            raw = await attackers.open()
            await raw.send(frame(HEADERS, END_HEADERS, 1, request_headers(path, METHOD)))
            uploads.append(asyncio.create_task(raw.upload(1, upload)))
        large = bytes(3_000_000)
        await within(_served_though_broken_off(honest, large), "an honest call gets its turn")
        ended = await within(asyncio.gather(*uploads), "each was taken in whole, or broken off")
        assert in_pieces or not any(ended)
        stream = honest.open_stream("echo")
        await stream.send(large)
        assert await within(stream.receive(), "an honest message gets its turn") == large

    others_are_served_during(hostility, at_most_mb=200, grpc_max_receiving=4, grpc_receiving_grace_ms=50)


def test_a_message_of_too_many_pieces_is_broken_off() -> None:
    async def hostility(attackers: Attackers, honest: Connection) -> None:
        for path in (CALL, STREAM):
            raw = await attackers.open()
            await raw.send(frame(HEADERS, END_HEADERS, 1, request_headers(path, METHOD)))
            upload = grpc_message(bytes(PIECE_BYTES)) * 200
            assert not await within(raw.upload(1, upload), "the server breaks it off")
            await served(honest)

    others_are_served_during(hostility, at_most_mb=60)


def test_unread_streams_take_bounded_memory() -> None:
    """Whole messages, the largest, that the service leaves where they are."""

    async def hostility(attackers: Attackers, honest: Connection) -> None:
        count = MAX_TRANSPORT_BYTES // PIECE_BYTES
        upload = grpc_message(bytes(PIECE_BYTES)) * count + grpc_message(b"end")
        uploads = []
        for _ in range(40):
            raw = await attackers.open()
            await raw.send(frame(HEADERS, END_HEADERS, 1, request_headers(STREAM, (b"magnetar-method", b"hang"))))
            uploads.append(asyncio.create_task(raw.upload(1, upload)))
        ended = await within(asyncio.gather(*uploads), "each was taken in whole, or broken off")
        assert any(ended)
        await served(honest)

    others_are_served_during(
        hostility, at_most_mb=200, grpc_max_receiving=4, grpc_receiving_grace_ms=50, grpc_processing_grace_ms=50
    )


def test_a_client_that_does_not_shake_hands_is_dropped() -> None:
    async def hostility(attackers: Attackers, honest: Connection) -> None:
        silent = [await attackers.open(hello=False) for _ in range(20)]
        await served(honest)
        for raw in silent:
            await within(raw.wait_closed_by_server(), "the server gives a silent client up")

    others_are_served_during(hostility, at_most_mb=30, grpc_handshake_timeout_ms=200)


async def _send_on(raw: RawConnection, data: bytes, *, times: int) -> None:
    try:
        for _ in range(times):
            await raw.send(data)
    except ConnectionError:
        return


async def _read_until(raw: RawConnection, text: bytes) -> bytes:
    seen = b""
    while text not in seen:
        data = await raw.reader.read(65536)
        assert data, "the server hung up"
        seen += data
    return seen
