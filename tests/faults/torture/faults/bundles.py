"""Unload a partition's bundle, to the least loaded broker or to a named one, or split it."""

from __future__ import annotations

from typing import Final

from magnetar.admin import AsyncAdmin
from magnetar_wire.randomness import Randomness
from tests.faults.torture.acts import administer
from tests.faults.torture.fault import Fault
from tests.faults.torture.system import System

__all__ = ["FAULTS"]

_NAMESPACE: Final = "public/default"


class Unload(Fault):
    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        destination = chance.choice([None, *system.brokers])

        async def unload(admin: AsyncAdmin) -> None:
            owner = await admin.topics.lookup(target)
            await admin.namespaces.unload(_NAMESPACE, owner.bundle, destination)

        await administer(system, "unload", target, unload)

    async def heal(self, system: System, target: str) -> None:
        """Nothing to heal."""


class Split(Fault):
    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        async def split(admin: AsyncAdmin) -> None:
            await admin.namespaces.split_bundle(_NAMESPACE, (await admin.topics.lookup(target)).bundle)

        await administer(system, "split", target, split)

    async def heal(self, system: System, target: str) -> None:
        """Nothing to heal."""


FAULTS = (
    Unload("UNLOAD", "place", weight=4),
    Split("SPLIT", "place", weight=1),
)
