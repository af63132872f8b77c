"""How soon a query that starts fails if no broker can be reached."""

from __future__ import annotations

import asyncio
import socket

import pytest

from magnetar.exceptions import OperationNotSupported
from magnetar_spark.broker_requests import await_first_answer
from magnetar_spark.errors import NobodyAnswers
from magnetar_spark.options.source_options import SourceOptions, parse_batch_options
from magnetar_wire.grpc_transport.grpc_library import grpc
from tests.running import until


def options(port: int) -> SourceOptions:
    return parse_batch_options({"url": f"magnetar://127.0.0.1:{port}", "topic": "t"})


def a_socket() -> socket.socket:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    return bound


async def test_where_nobody_is_the_work_is_not_waited_for() -> None:
    ended = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with a_socket() as bound:  # and nobody listens
        port = bound.getsockname()[1]
        with pytest.raises(
            NobodyAnswers, match=rf"no broker has answered for .* listens at .*{port}\. Is .*'url', .* 6652"
        ):
            await await_first_answer(options(port), waits(), check_after_s=0.01, check_timeout_s=0.3)
    assert ended == [True]


async def test_non_broker_server_is_distinguished_from_a_slow_broker() -> None:
    """SPK-1: gRPC reports it as a failed request, which a broker may meet too."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        with pytest.raises(NobodyAnswers, match=rf"127.0.0.1:{port} answers in HTTP/2, as gRPC does, but not as a "):
            await await_first_answer(options(port), asyncio.Event().wait(), check_after_s=0.01, check_timeout_s=0.3)
    finally:
        await server.stop(None)


async def test_non_broker_magnetar_server_is_reported_at_once() -> None:
    """SPK-1: a bookie's port, say"""

    async def refused() -> None:
        raise OperationNotSupported("a bookie has no method 'admin.plan'")

    with pytest.raises(
        NobodyAnswers, match=r"127\.0\.0\.1:1 does not support .*a bookie has no method.* address of brokers"
    ):
        await await_first_answer(options(1), refused())


async def test_where_somebody_is_slow_the_work_is_waited_for() -> None:
    connected, done = [], asyncio.Event()

    async def waits() -> int:
        await done.wait()
        return 7

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(True)
        await done.wait()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        waiting = asyncio.ensure_future(
            await_first_answer(options(port), waits(), check_after_s=0.01, check_timeout_s=60.0)
        )
        await until(lambda: bool(connected), "the address was checked")
        done.set()
        assert await waiting == 7


async def test_immediate_results_and_errors_are_passed_through() -> None:
    async def seven() -> int:
        return 7

    async def fails() -> int:
        raise ValueError("its own")

    assert (await await_first_answer(options(1), seven())) == 7
    with pytest.raises(ValueError, match="its own"):
        await await_first_answer(options(1), fails())
