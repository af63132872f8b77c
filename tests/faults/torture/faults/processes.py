"""Kill, terminate and pause processes. The target is started again.

A pause is longer than a metadata session, so that others take over what its owner still believes to have when it goes
on. A blink is shorter than timeouts.
"""

from __future__ import annotations

import asyncio

from magnetar_wire.randomness import Randomness
from tests.faults.torture.fault import Fault
from tests.faults.torture.system import System

__all__ = ["FAULTS", "Kill", "Pause"]


class Kill(Fault):
    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        await system.kill(target)

    async def heal(self, system: System, target: str) -> None:
        await system.start(target)


class KillStarting(Kill):
    """Kill a process, start it, and kill it again before it is ready: perhaps in the middle of recovery."""

    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        await system.kill(target)
        await system.start(target, timeout_s=0.0)
        await asyncio.sleep(1.5 * chance.random())
        await system.kill(target)


class Stop(Kill):
    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        await system.stop(target)


class Pause(Fault):
    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        await system.pause(target)

    async def heal(self, system: System, target: str) -> None:
        await system.resume(target)
        # It may have been killed besides.
        await system.start(target)


class KillClient(Fault):
    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        await system.clients.kill(target)

    async def heal(self, system: System, target: str) -> None:
        await system.clients.begin(target)


class PauseClient(Fault):
    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        await system.clients.pause(target)

    async def heal(self, system: System, target: str) -> None:
        await system.clients.resume(target)
        await system.clients.begin(target)


FAULTS = (
    Kill("KILL", "broker", weight=6, longest_s=10.0),
    KillStarting("KILL_STARTING", "broker", weight=1, longest_s=2.0),
    Stop("STOP", "broker", weight=3, longest_s=5.0),
    Pause("PAUSE", "broker", weight=3, shortest_s=6.0, longest_s=12.0),
    Pause("BLINK", "broker", weight=3, shortest_s=0.2, longest_s=2.5),
    Kill("KILL", "bookie", weight=6, longest_s=10.0),
    KillStarting("KILL_STARTING", "bookie", weight=1, longest_s=2.0),
    Stop("STOP", "bookie", weight=3, longest_s=6.0),
    Pause("PAUSE", "bookie", weight=3, shortest_s=6.0, longest_s=12.0),
    Pause("BLINK", "bookie", weight=3, shortest_s=0.2, longest_s=2.5),
    KillClient("KILL", "client", weight=3, longest_s=2.0),
    PauseClient("PAUSE", "client", weight=1, shortest_s=3.0, longest_s=9.0),
    PauseClient("BLINK", "client", weight=1, shortest_s=0.2, longest_s=2.0),
)
