"""A bookie's disk fails, is slow, or is full; and once in a run a bit flips that was stored.

What damaged bytes a bookie has others have sound: so there is never a second one (`System.damaged`). Nothing else here
takes away what was synced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from magnetar_wire.randomness import Randomness
from tests.faults.torture.fault import Fault
from tests.faults.torture.system import System

__all__ = ["FAULTS", "FlipBit", "OnDisk"]


@dataclass(frozen=True, eq=False)
class OnDisk(Fault):
    may_end: ClassVar[bool] = True
    # The shim's environment.
    how: str = ""

    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        system.disk(target).write_text(self.how)

    async def heal(self, system: System, target: str) -> None:
        system.disk(target).unlink(missing_ok=True)
        # It may have ended for it.
        await system.start(target)


class FlipBit(Fault):
    """It is killed for that: what it has in memory would hide it."""

    may_end: ClassVar[bool] = True

    def targets(self, system: System) -> Sequence[str]:
        return [name for name in system.bookies if system.damaged in ("", name)]

    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        which = await system.flip_bit(target, chance)
        system.recorder.say("flipped", bookie=target, which=which)

    async def heal(self, system: System, target: str) -> None:
        await system.start(target)


FAULTS = (
    OnDisk("FAIL_SYNC", "bookie", weight=2, shortest_s=0.5, longest_s=6.0, how="sync"),
    OnDisk("SLOW_SYNC", "bookie", weight=2, shortest_s=2.0, longest_s=8.0, how="slow"),
    OnDisk("FULL_DISK", "bookie", weight=1, shortest_s=1.0, longest_s=6.0, how="full"),
    OnDisk("FILL_DISK", "bookie", weight=2, shortest_s=2.0, longest_s=8.0, how="filled"),
    FlipBit("FLIP_BIT", "bookie", weight=2, shortest_s=0.5, longest_s=2.0, at_most=1),
)
