"""Disks fail, are slow or full, and lose what they held; and bookies are lost just after they have acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from magnetar_testing.randomness import SeededRandomness
from tests.sim.disk import DiskFaults
from tests.sim.process import Process
from tests.sim.world.bookie_host import BookieHost
from tests.sim.world.faults.injector import FaultGroup

if TYPE_CHECKING:
    from tests.sim.world.world import World

__all__ = ["DiskFaultsOfSeed"]

_ORDERLY = DiskFaults()


class _Trap:
    """Springs once, when an answer of this bookie to adds has arrived. A `Tap` of the network."""

    def __init__(self, bookie: str, springs: Callable[[], object]) -> None:
        self._bookie = bookie
        self._springs: Callable[[], object] | None = springs

    def request_sent(self, *_: object) -> None: ...

    def request_arrived(self, *_: object) -> None: ...

    def answer_sent(self, *_: object) -> None: ...

    def answer_arrived(self, *_: object) -> None: ...

    def message_sent(self, *_: object, served: bool) -> None: ...

    def message_arrived(self, source: Process, target: Process, method: str, message: bytes, *, served: bool) -> None:
        if served and source.name == self._bookie and self._springs is not None:
            springs, self._springs = self._springs, None
            springs()


class DiskFaultsOfSeed(FaultGroup):
    def __init__(self, world: World, draw: SeededRandomness) -> None:
        super().__init__(world, draw)
        self._wiped = False

    def fail_sync(self) -> bool:
        bookie = self._bookie()
        if bookie is None:
            return False
        bookie.disk.fail_next_sync()
        # Its process ends by itself; somebody starts it again.
        for after in (1.0, 5.0):
            self._later(after + self._draw.random() * 5, lambda: self._restart(bookie))
        return True

    def slow_disk(self) -> bool:
        bookie = self._draw.choice(self._world.bookies)
        slow = 0.05 + self._draw.random() * self._draw.choice((0.3, 2.0))
        bookie.disk.faults = replace(_ORDERLY, longest_sync_s=slow, longest_read_s=slow)
        self._later(self._seconds(), lambda: setattr(bookie.disk, "faults", bookie.usual_faults))
        return True

    def stuttering_disk(self) -> bool:
        """It stands still now and then, and at last a sync fails."""
        bookie = self._draw.choice(self._world.bookies)
        fails = self._draw.choice((0.0, 0.01, 0.05))
        bookie.disk.faults = replace(
            bookie.usual_faults, stall_probability=0.1, stall_s=2.0 * self._draw.random(), failed_sync_probability=fails
        )
        self._later(2 * self._seconds(), lambda: setattr(bookie.disk, "faults", bookie.usual_faults))
        for after in (4.0, 12.0):
            self._later(after + self._draw.random() * 5, lambda: self._restart(bookie))
        return True

    def stalled_disks(self) -> bool:
        """All of them at the same time, as those that share an overloaded volume: no bookie is spare. They answer,
        late."""
        world, draw = self._world, self._draw
        slow_s = draw.choice((0.3, 0.8, 1.5, 4.0))
        for bookie in world.bookies:
            bookie.disk.faults = replace(bookie.usual_faults, shortest_sync_s=slow_s / 2, longest_sync_s=slow_s)
            self._later(1.0 + 5 * draw.random(), partial(setattr, bookie.disk, "faults", bookie.usual_faults))
        return True

    def lose_who_acknowledged(self) -> bool:
        """One bookie acknowledges while the others are slow, and is lost right then: its acknowledgement must not
        count.
        """
        world = self._world
        one = self._bookie()
        if one is None:
            return False
        for bookie in world.bookies:
            if bookie is not one:
                slow_s = 0.2 + 0.6 * self._draw.random()
                bookie.disk.faults = replace(_ORDERLY, shortest_sync_s=slow_s / 4, longest_sync_s=slow_s)
                self._later(2.0, partial(setattr, bookie.disk, "faults", bookie.usual_faults))
        dies = self._draw.random() < 0.7

        def lose() -> None:
            if world.quiet:
                return
            if dies:
                self._kill(one)
            else:
                self._isolate(one)

        trap = _Trap(one.name, lambda: self._later(0.0, lose))
        world.network.taps.append(trap)
        self._later(2.0, lambda: world.network.taps.remove(trap))
        return True

    def full_disk(self) -> bool:
        bookie = self._draw.choice(self._world.bookies)
        bookie.disk.fill()
        if self._draw.random() < 0.5:
            self._later(2 * self._seconds(), lambda: setattr(bookie.disk, "capacity_bytes", None))
        return True

    def _loser(self) -> BookieHost | None:
        losers = [self._world.bookies[number] for number in self._world.plan.losers]
        return self._draw.choice(losers) if losers else None

    def bit_flip(self) -> bool:
        bookie = self._loser()
        if bookie is None:
            return False
        self._world.checker.disk_loses(bookie.name, bookie.disk.damage_any)
        return True

    def lossy_restart(self) -> bool:
        bookie = self._loser()
        if bookie is None or bookie.refused:
            return False
        if self._draw.random() < 0.5:
            self._kill(bookie)
        else:
            # So soon back that who writes to it has hardly noticed.
            bookie.kill()
            self._later(0.05 * self._draw.random(), partial(self._restart, bookie))
        # One that loses its first groups has lost who it is: that is `wipe`, which takes a spare bookie.
        count = min(1 + self._draw.below(20), bookie.disk.synced_groups - 4)
        if count <= 0:
            return False
        self._world.checker.disk_loses(bookie.name, lambda: bookie.disk.lose_synced(count))
        return True

    def wipe(self) -> bool:
        bookie = self._loser()
        if bookie is None or self._wiped or bookie.refused or bookie.disk.bookie_record is None:
            return False
        self._wiped = True
        bookie.kill()
        self._world.checker.disk_loses(bookie.name, bookie.disk.wipe)
        bookie.known.wiped = True
        self._later(self._seconds(), lambda: self._restart(bookie))
        return True
