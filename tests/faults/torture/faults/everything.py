"""Faults that stop the system: of all parts of a kind, or of so many that no entry can be stored. Nothing with a
receipt may be lost by them.

Chance alone seldom produces the sequences that break protocols. So there is an ambush: some bookies get nothing for a
moment that is shorter than timeouts; then all brokers are killed at once, and a bookie that got everything. The next
owners find the bookies that got nothing, and the dead one's copies are missing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from magnetar_wire.randomness import Randomness
from tests.faults.torture.fault import Bears, Fault, members
from tests.faults.torture.system import System

__all__ = ["FAULTS"]

_ALL: Final = "all"
# Separates the names of targets that get the fault together.
_AND: Final = "+"


@dataclass(frozen=True, eq=False)
class OnAll(Fault):
    """A fault of all parts of some groups at once."""

    groups: tuple[str, ...] = ()

    def targets(self, system: System) -> Sequence[str]:
        return [_ALL] if self._together(system) else []

    def _together(self, system: System) -> list[str]:
        return [name for group in self.groups for name in members(system, group)]

    def waits_for(self, system: System, target: str) -> Sequence[str]:
        return system.names


class KillAll(OnAll):
    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        await system.kill(*self._together(system))

    async def heal(self, system: System, target: str) -> None:
        await system.start(*self._together(system))


class PauseAll(OnAll):
    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        await system.pause(*self._together(system))

    async def heal(self, system: System, target: str) -> None:
        await system.start(*self._together(system))


@dataclass(frozen=True, eq=False)
class DisksOfAll(OnAll):
    may_end: ClassVar[bool] = True
    how: str = ""

    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        for name in self._together(system):
            system.disk(name).write_text(self.how)

    async def heal(self, system: System, target: str) -> None:
        for name in self._together(system):
            system.disk(name).unlink(missing_ok=True)
        await system.start(*self._together(system))


class PauseTwo(Fault):
    """Pause two bookies: too many for an entry with three copies."""

    def targets(self, system: System) -> Sequence[str]:
        return [_AND.join(pair) for pair in itertools.combinations(system.bookies, 2)]

    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        await system.pause(*target.split(_AND))

    async def heal(self, system: System, target: str) -> None:
        await system.start(*target.split(_AND))

    def waits_for(self, system: System, target: str) -> Sequence[str]:
        return target.split(_AND)


class Ambush(Fault):
    """The ambush. Its target is the bookie that gets everything."""

    def targets(self, system: System) -> Sequence[str]:
        return system.bookies

    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        others = [name for name in system.bookies if name != target]
        chance.shuffle(others)
        deaf = [system.proxies[name] for name in others[: 1 + chance.below(len(others))]]
        for proxy in deaf:
            proxy.loses_requests = True
        await asyncio.sleep(0.5 + 2.0 * chance.random())
        await system.kill(target, *system.brokers)
        # They hear again when nobody is left to repeat anything.
        for proxy in deaf:
            proxy.heal()

    async def heal(self, system: System, target: str) -> None:
        await system.start(target, *system.brokers)

    def waits_for(self, system: System, target: str) -> Sequence[str]:
        return [target, *system.brokers]


_NOT: Final = Bears.NOT
FAULTS = (
    KillAll("KILL_ALL_BOOKIES", "everything", 2, 0.0, 6.0, _NOT, groups=("bookie",)),
    KillAll("KILL_ALL_BROKERS", "everything", 2, 0.0, 6.0, _NOT, groups=("broker",)),
    KillAll("KILL_EVERYTHING", "everything", 2, 0.0, 6.0, _NOT, groups=("zookeeper", "bookie", "broker")),
    PauseAll("PAUSE_ALL_BROKERS", "everything", 1, 5.0, 10.0, _NOT, groups=("broker",)),
    PauseAll("PAUSE_EVERYTHING", "everything", 1, 1.0, 8.0, _NOT, groups=("zookeeper", "bookie", "broker")),
    PauseTwo("PAUSE_TWO_BOOKIES", "everything", 2, 1.0, 12.0, _NOT),
    DisksOfAll("FAIL_ALL_SYNCS", "everything", 1, 0.5, 6.0, _NOT, groups=("bookie",), how="sync"),
    DisksOfAll("FULL_DISKS", "everything", 1, 1.0, 6.0, _NOT, groups=("bookie",), how="full"),
    Ambush("AMBUSH", "everything", 3, 1.0, 6.0, _NOT),
)
