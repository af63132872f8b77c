"""What can befall a system: each kind of fault is registered by a file in `faults/`, and is found by being there.

    FAULTS = (Kill("KILL", "broker", weight=6, longest_s=10.0), Kill("KILL", "bookie", weight=6, longest_s=10.0))

A fault strikes one target, which it names itself from what there is; it begins, lasts for as long as the schedule says,
and is healed. When `heal` has returned whoever was struck is there again and ready, or is being started: it is over
when all of `waits_for` are ready. Faults are struck from one coroutine each, several at a time; one target is struck by
one at a time.
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

    # One part of a group may be struck so, and everybody can go on.
    ONE = "one of its kind at a time"
    # Nobody need go on until it is healed; and nothing may be lost.
    NOT = "not borne"


@dataclass(frozen=True, eq=False)
class Fault(ABC):
    # As it stands in the history: KILL, PAUSE … What befalls several groups has one kind, and is a fault for each.
    kind: str
    # Whoever is struck may end for it, now or later, as it is to do.
    may_end: ClassVar[bool] = False
    # What it strikes: broker, bookie, zookeeper, client, place … Of borne faults one group's part is struck at a time.
    group: str
    # How often it comes among all of its group, and how long it lasts.
    weight: int = 1
    shortest_s: float = 0.0
    longest_s: float = 0.0
    bears: Bears = Bears.ONE
    # At most so often in a run; 0: as often as you like.
    at_most: int = 0

    def targets(self, system: System) -> Sequence[str]:
        """Whom it could strike now. None: it can't be done to this system."""
        return members(system, self.group)

    @abstractmethod
    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        """Whatever is struck may be gone or struck down already: then nothing happens."""

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
        return system.places
    raise ValueError(f"there is no group {group!r}")
