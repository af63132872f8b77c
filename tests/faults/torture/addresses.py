"""Record the addresses at which clients may reach each broker, whenever they change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from tests.faults.torture.beside import OnFailure, going_on
from tests.faults.torture.system import System

__all__ = ["recording_addresses"]

_AGAIN_S: Final = 0.3


@contextlib.asynccontextmanager
async def recording_addresses(system: System, failed: OnFailure) -> AsyncIterator[None]:
    recorded: dict[str, list[str]] = {}

    def record() -> None:
        for broker, addresses in system.broker_addresses().items():
            if recorded.get(broker) != addresses:
                recorded[broker] = addresses
                system.recorder.say("broker", broker=broker, addresses=addresses)

    async def record_changes() -> None:
        while True:
            await asyncio.sleep(_AGAIN_S)
            record()

    record()
    async with going_on("brokers' addresses are recorded", record_changes, failed):
        yield
