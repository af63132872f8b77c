"""The base class of faults. Each kind is registered by a file in `faults/`, which is found by its folder.

    FAULTS = (Kill("KILL", "broker", weight=6, longest_s=10.0), Kill("KILL", "bookie", weight=6, longest_s=10.0))

A fault has one target, which it chooses itself; it begins, lasts for as long as the schedule says, and is healed. When
`heal` has returned, the target is ready again, or is being started: the fault is over when all of `waits_for` are
ready. Each fault has a coroutine of its own, several at a time; a target has one fault at a time.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from magnetar_wire.randomness import Randomness

if TYPE_CHECKING:
    from tests.faults.torture.system import System

__all__ = ["Bears", "Fault", "members"]


class Bears(enum.Enum):
    """What a system goes on in spite of."""

    # One part of a group may have it, and all clients can go on.
    ONE = "one of its kind at a time"
    # Nobody need go on until it is healed; and nothing may be lost.
    NOT = "not borne"


@dataclass(frozen=True, eq=False)
class Fault(ABC):
    # The name in the history: KILL, PAUSE … A fault of several groups has one kind, and one object for each group.
    kind: str
    # The target's process may end because of it, now or later, as it should.
    may_end: ClassVar[bool] = False
    # What its targets are: broker, bookie, zookeeper, client, place (a partition) … Borne rounds have one target per
    # group.
    group: str
    # How often it comes among all of its group, and how long it lasts.
    weight: int = 1
    shortest_s: float = 0.0
    longest_s: float = 0.0
    bears: Bears = Bears.ONE
    # At most so often in a run; 0: as often as you like.
    at_most: int = 0

    def targets(self, system: System) -> Sequence[str]:
        """The possible targets. None: this system can't have it."""
        return members(system, self.group)

    @abstractmethod
    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        """Begin the fault. Nothing happens if the target is down or removed already."""

    @abstractmethod
    async def heal(self, system: System, target: str) -> None: ...

    def waits_for(self, system: System, target: str) -> Sequence[str]:
        """Which processes have to be ready before it is over (`System.ready`)."""
        return [target] if target in system.names else []


def members(system: System, group: str) -> Sequence[str]:
    if group == "broker":
        return system.brokers
    if group == "bookie":
        return system.bookies
    if group == "zookeeper":
        return system.zookeepers
    if group == "client":
        return system.clients.roles
    if group == "place":
        return system.partition_names
    raise ValueError(f"there is no group {group!r}")
