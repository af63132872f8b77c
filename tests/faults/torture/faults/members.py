"""Brokers and bookies come and go, as an administrator has them do. How many may is the system's to say: enough have to
be left for every entry to be stored as often as it is to be."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from magnetar_wire.randomness import Randomness
from tests.faults.torture.acts import say_act
from tests.faults.torture.fault import Fault, members
from tests.faults.torture.system import System

__all__ = ["FAULTS"]

_COPIED_S: Final = 60.0


class Add(Fault):
    """Add a broker or bookie. The target is the kind, since the name is known afterwards only."""

    def targets(self, system: System) -> Sequence[str]:
        return [self.group] if system.may_add(self.group) else []

    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        begun = time.monotonic()
        name = await (system.add_broker() if target == "broker" else system.add_bookie())
        say_act(system.recorder, "add", name, begun)

    async def heal(self, system: System, target: str) -> None:
        """Nothing to heal: it stays."""

    def waits_for(self, system: System, target: str) -> Sequence[str]:
        return members(system, self.group)


class Remove(Fault):
    """Remove a broker or bookie. The removal begins at the fault's end: a bookie's ledgers are copied before."""

    def targets(self, system: System) -> Sequence[str]:
        return [name for name in members(system, self.group) if system.may_remove(name)]

    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        begun = time.monotonic()
        why = await system.remove(target, _COPIED_S)
        say_act(system.recorder, "remove", target, begun, "refused" if why else "done", why)

    async def heal(self, system: System, target: str) -> None:
        """Nothing to heal: it stays out, or is in again."""


FAULTS = (
    Add("ADD_BROKER", "broker", weight=1),
    Remove("REMOVE_BROKER", "broker", weight=1),
    Add("ADD_BOOKIE", "bookie", weight=1),
    Remove("REMOVE_BOOKIE", "bookie", weight=1),
)
