from __future__ import annotations

import asyncio

import pytest

from magnetar_testing.clock import ManualClock
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.transport import DeadlinePassed, ProbingTransport
from tests.contract.transport_contract import Echo, TransportContract


class TestInProcessTransport(TransportContract):
    def make(self) -> ProbingTransport:
        return InProcessTransport()


async def test_call_deadline_uses_transport_clock() -> None:
    clock, service = ManualClock(), Echo()
    transport = InProcessTransport(clock)
    listener = await transport.listen("a:0", service)
    call = asyncio.create_task(transport.connect(listener.address).call("hang", b"", timeout_s=3600.0))
    await service.waiting.wait()
    clock.advance(3600.0)
    with pytest.raises(DeadlinePassed):
        await call
    await listener.close()


async def test_port_zero_avoids_explicitly_requested_ports() -> None:
    transport = InProcessTransport()
    await transport.listen("a:1", Echo())
    assert (await transport.listen("a:0", Echo())).address == "a:2"
