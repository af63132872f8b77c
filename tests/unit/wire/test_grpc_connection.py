"""A client's connection over gRPC, where the contract of transports says nothing."""

from __future__ import annotations

import asyncio
import socket

import pytest

from magnetar_wire.grpc_transport import GrpcTransport
from tests.running import run, until


def test_an_attempt_that_fails_when_nobody_waits_for_it_any_more_is_no_fault() -> None:
    """A stream that its owner ended meanwhile, as writers do with those to a bookie that failed."""

    async def scenario() -> None:
        transport = GrpcTransport()
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            connection = transport.connect(f"127.0.0.1:{nobody.getsockname()[1]}")
            asking = asyncio.create_task(connection.call("read", b"", timeout_s=5.0))
            while not (attempts := [task for task in asyncio.all_tasks() if "_connect()" in repr(task)]):
                await asyncio.sleep(0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            (attempt,) = attempts
            await until(attempt.done, "the attempt has failed")
        # An error in it would be logged as one that was never retrieved.
        assert attempt.exception() is None
        await connection.close()
        await transport.close()

    run(scenario())
