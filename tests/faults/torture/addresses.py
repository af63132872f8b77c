"""Tells the judge under which addresses clients may reach each broker, whenever these are others."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from tests.faults.torture.beside import OnFailure, going_on
from tests.faults.torture.system import System

__all__ = ["telling_addresses"]

_AGAIN_S: Final = 0.3


@contextlib.asynccontextmanager
async def telling_addresses(system: System, failed: OnFailure) -> AsyncIterator[None]:
    said: dict[str, list[str]] = {}

    def tell() -> None:
        for broker, addresses in system.broker_addresses().items():
            if said.get(broker) != addresses:
                said[broker] = addresses
                system.recorder.say("broker", broker=broker, addresses=addresses)

    async def tell_on() -> None:
        while True:
            await asyncio.sleep(_AGAIN_S)
            tell()

    tell()
    async with going_on("brokers' addresses are told", tell_on, failed):
        yield
