"""A disk on which nothing ends before the test moves the clock, so that what happens in between can be looked at."""

from __future__ import annotations

from magnetar_bookie.storage.interface import Changes
from magnetar_testing.clock import ManualClock
from magnetar_testing.randomness import SeededRandomness
from tests.running import until
from tests.sim.disk import DiskFaults, SimulatedDisk


def slow_disk(clock: ManualClock) -> SimulatedDisk:
    """A sync takes a second and a read as well: as long as nobody moves the clock, none ends."""
    return SimulatedDisk(clock, SeededRandomness(1), DiskFaults(1, 1, 1, stall_probability=1, stall_s=1))


async def written(disk: SimulatedDisk, count: int = 1) -> None:
    """Return when `count` more groups were written."""
    seen: list[Changes] = []
    disk.on_write = seen.append
    await until(lambda: len(seen) >= count, "a group is written")
    disk.on_write = None
