"""The error for an address at which no broker answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator

import pytest

from magnetar._connections.endpoint_check import PULSAR_CONNECT, describe_endpoint, describe_endpoints, describe_reply
from magnetar_protos.pulsar_pb2 import BaseCommand, CommandConnect

CONNECTED = b"\0\0\0\x08\0\0\0\x04\x08\x03\x1a\0"


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "here:1 answers in HTTP, as a broker's port for its HTTP API does (8080 by"),
        (
            CONNECTED,
            "here:1 answers in Pulsar's protocol, as a broker's port for Pulsar's clients does (6650 by default)",
        ),
        (b"\0\0\x12\x04\0\0\0\0\0\0\x03", "here:1 answers in HTTP/2, as gRPC does, but not as a broker"),
        (b"<!DOCTYPE HTML>\n<html>", "here:1 answers in HTTP, "),
        (
            b"\0\0\0\x15\0\0\0\x11\x08\x03\x1a\x0d\x0a\x0bmagnetar-1!",
            "here:1 answers in Pulsar's protocol, as a broker's port for Pulsar's clients does (6650 by default), and "
            "calls itself 'magnetar-1!'",
        ),
        (b"\x15\x03\x01\0\x02\x02\x46", "here:1 expects TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "here:1 answers in another protocol, which begins with b'SSH-2.0-OpenSSH_9.6"),
        (b"\0", "here:1 answers in another protocol, which begins with b'\\x00'"),
        (b"", "here:1 accepts connections and sends nothing"),
    ],
)
def test_protocol_is_identified_from_the_reply(reply: bytes, expected: str) -> None:
    """SPK-1"""
    assert describe_reply("here:1", reply).startswith(expected)


def test_a_server_that_may_be_a_slow_broker_is_passed_over() -> None:
    assert describe_reply("here:1", b"\0\0\x12\x04\0\0\0\0\0\0\x03", failed=False) == ""
    assert describe_reply("here:1", b"HTTP/1.1 400", failed=False).startswith("here:1 answers in HTTP, ")


def test_a_server_of_which_nothing_was_requested_may_be_a_broker() -> None:
    """A URL with another scheme may have the right port."""
    expected = describe_reply("here:1", b"\0\0\x12\x04\0\0\0\0\0\0\x03", failed=None)
    assert expected == "here:1 looks like a broker's own port: write magnetar://here:1"


def test_no_reply_is_too_strange() -> None:
    for length in range(200):
        assert len(describe_reply("here:1", os.urandom(length))) < 200
        command = b"\x08\x03\x1a" + os.urandom(length)
        frame = (len(command) + 4).to_bytes(4) + len(command).to_bytes(4) + command
        assert len(describe_reply("here:1", frame)) < 400


def test_the_request_of_pulsars_protocol_is_one() -> None:
    """WIRE-1: CONNECT, as Pulsar's clients send it first"""
    assert int.from_bytes(PULSAR_CONNECT[:4]) == len(PULSAR_CONNECT) - 4
    assert int.from_bytes(PULSAR_CONNECT[4:8]) == len(PULSAR_CONNECT) - 8
    command = BaseCommand.FromString(PULSAR_CONNECT[8:])
    connect = CommandConnect(client_version="probe", protocol_version=19)
    assert command == BaseCommand(type=BaseCommand.CONNECT, connect=connect)


@contextlib.asynccontextmanager
async def server_that_answers(replies: dict[bytes, bytes]) -> AsyncIterator[str]:
    """To a request that begins so; it closes connections with any other."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            request = await reader.read(64)
            writer.write(next((reply for begin, reply in replies.items() if request.startswith(begin)), b""))
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_addresses_are_probed_with_both_protocols() -> None:
    """SPK-1: the port of HTTP, that of Pulsar's clients, one that no process has, a name that there is not"""
    async with (
        server_that_answers({b"PRI ": b"HTTP/1.1 400 Bad Request\r\n"}) as http,
        server_that_answers({b"\0\0\0": CONNECTED}) as pulsar,
        server_that_answers({}) as closes,
    ):
        assert "answers in HTTP, " in await describe_endpoint(http)
        assert "answers in Pulsar's protocol" in await describe_endpoint(pulsar)
        assert "sends nothing" in await describe_endpoint(closes)
        both = await describe_endpoints([http, pulsar] * 4)
        assert both.count("answers in") == 5
        assert both.endswith("; 3 more")
    with socket.socket() as bound:  # and nobody listens
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        assert await describe_endpoint(address) == f"no process listens at {address}"
    # No resolver is called for this one.
    assert await describe_endpoint("a..b:6652") == "the host name of a..b:6652 can't be resolved: it is not a host name"


async def test_a_silent_server_is_not_waited_for() -> None:
    ended = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert "sends nothing" in await describe_endpoint(f"127.0.0.1:{port}", timeout_s=0.1)
        ended.set()


async def test_a_host_that_does_not_answer_is_not_waited_for() -> None:
    """SPK-1: the system drops connections to a socket whose queue is full, as a firewall does."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        expected = await describe_endpoint(address, timeout_s=0.2)
        assert expected == f"{address} can't be reached: it did not accept a connection within 0.2 s"
