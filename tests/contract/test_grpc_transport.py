from __future__ import annotations

import asyncio

import pytest

from magnetar_wire.grpc_transport import GrpcTransport
from magnetar_wire.transport import NotReached, ProbingTransport
from tests.contract.transport_contract import DEADLINE_S, Echo, TransportContract


class TestGrpcTransport(TransportContract):
    def make(self) -> ProbingTransport:
        return GrpcTransport()


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "0.0.0.0"])
async def test_addresses_are_of_either_version_or_names(host: str) -> None:
    transport = GrpcTransport()
    listener = await transport.listen(f"{host}:0", Echo())
    assert listener.address.startswith(f"{host}:")
    connection = transport.connect(listener.address)
    assert await connection.call("m", b"x", timeout_s=DEADLINE_S) == b"m:x"
    await connection.close()
    await listener.close()


@pytest.mark.parametrize("address", ["192.0.2.1:0", "no port", "no.such.host.invalid:1"])
async def test_listen_at_unusable_address_raises_not_reached(address: str) -> None:
    with pytest.raises(NotReached, match=address):
        await GrpcTransport().listen(address, Echo())


@pytest.mark.parametrize("steps", range(1, 7))
async def test_cancelled_listen_is_cancelled_and_releases_the_address(steps: int) -> None:
    """The loop may raise it at any moment: gRPC itself goes on as if nothing had happened, and a process that gets
    SIGTERM at that moment would not end.
    """
    transport = GrpcTransport()
    first = await transport.listen("127.0.0.1:0", Echo())
    await first.close()
    listening = asyncio.ensure_future(transport.listen(first.address, Echo()))
    for _ in range(steps):
        await asyncio.sleep(0)
    assert not listening.done()
    listening.cancel()
    await asyncio.wait([listening])
    assert listening.cancelled()
    again = await transport.listen(first.address, Echo())
    await again.close()


async def test_a_name_that_nobody_has_is_not_reached() -> None:
    connection = GrpcTransport().connect("no.such.host.invalid:1")
    with pytest.raises(NotReached):
        await connection.call("m", b"", timeout_s=DEADLINE_S)
    await connection.close()


async def test_long_rejection_is_truncated_to_header_limit() -> None:
    transport = GrpcTransport()
    listener = await transport.listen("127.0.0.1:0", Echo())
    connection = transport.connect(listener.address)
    with pytest.raises(Exception, match="not \u00fc\u00fc") as rejected:
        await connection.call("reject", ("\u00fc" * 100_000).encode(), timeout_s=DEADLINE_S)
    assert type(rejected.value).__name__ == "Rejected"
    await connection.close()
    await listener.close()
