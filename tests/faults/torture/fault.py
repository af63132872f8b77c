"""What can befall a system: each kind of fault is registered by a file in `faults/`, and is found by being there.

    FAULTS = (Kill(), Hang())

A fault strikes one target, which it names itself from what there is; it begins, lasts for as long as the schedule says,
and is healed. When `heal` has returned whoever was struck is there again and ready, or is being started and will be
waited for by name. Faults are struck from one coroutine each, several at a time; one target is struck by one at a time.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from magnetar_wire.randomness import Randomness

if TYPE_CHECKING:
    from tests.faults.torture.system import System

__all__ = ["Bears", "Fault"]


class Bears(enum.Enum):
    """What a system goes on in spite of."""

    # One part of a group may be struck so, and everybody can go on.
    ONE = "one of its kind at a time"
    # Nobody need go on until it is healed; and nothing may be lost.
    NOT = "not borne"


class Fault(ABC):
    # As it stands in the history: KILL, PAUSE …
    kind: ClassVar[str]
    # What it strikes: broker, bookie, zookeeper, client, place … Of borne faults one group's part is struck at a time.
    group: ClassVar[str]
    bears: ClassVar[Bears] = Bears.ONE
    # How often it comes among all, and how long it lasts.
    weight: ClassVar[int] = 1
    shortest_s: ClassVar[float] = 0.0
    longest_s: ClassVar[float] = 0.0
    # At most so often in a run; 0: as often as you like.
    at_most: ClassVar[int] = 0

    @abstractmethod
    def targets(self, system: System) -> Sequence[str]:
        """Whom it could strike now. None: it can't be done to this system."""

    @abstractmethod
    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        """Whatever is struck may be gone or struck down already: then nothing happens."""

    @abstractmethod
    async def heal(self, system: System, target: str) -> None: ...
