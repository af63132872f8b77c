"""The simulated network keeps the contract of every transport."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from magnetar_wire.transport import ProbingTransport
from tests.contract.transport_contract import TransportContract
from tests.sim.chance import Chance
from tests.sim.loop import SimulatedLoop, new_loop
from tests.sim.network import SimulatedNetwork
from tests.sim.process import PROCESS


def run_simulated(main: Coroutine[Any, Any, None]) -> None:
    loop = new_loop()
    try:
        loop.run_until_complete(loop.process("one").spawn(main))
        assert not loop.failures
    finally:
        loop.close()


class TestSimulatedNetwork(TransportContract):
    @pytest.fixture(autouse=True)
    def _in_virtual_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(asyncio, "run", run_simulated)

    def make(self) -> ProbingTransport:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        return SimulatedNetwork(loop, Chance(1).stream("network")).transport(PROCESS.get())
