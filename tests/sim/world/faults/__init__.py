"""What goes wrong, and when: drawn from the seed, one fault after another during the active time.

A file per group of faults. A fault's name in the plan is that of its method, in words.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar_metadata.store import SessionState
from tests.sim.disk import DiskFaults
from tests.sim.world.faults.disks import DiskFaultsOfSeed
from tests.sim.world.faults.injector import FaultGroup
from tests.sim.world.faults.metadata import MetadataFaults
from tests.sim.world.faults.network import NetworkFaults
from tests.sim.world.faults.operators import OperatorFaults
from tests.sim.world.faults.processes import ProcessFaults

if TYPE_CHECKING:
    from tests.sim.world.world import World

__all__ = ["Faults"]

_ORDERLY = DiskFaults()


class Faults:
    def __init__(self, world: World) -> None:
        self._world = world
        draw = self._draw = world.chance.stream("faults")
        self.metadata = MetadataFaults(world, draw)
        self._groups: list[FaultGroup] = [
            ProcessFaults(world, draw),
            NetworkFaults(world, draw),
            self.metadata,
            DiskFaultsOfSeed(world, draw),
            OperatorFaults(world, draw),
        ]

    def add(self, group: FaultGroup) -> None:
        """Faults of another world."""
        self._groups.append(group)

    async def inject_all(self, active_s: float) -> None:
        world, draw = self._world, self._draw
        clock = world.bookies[0].disk.clock
        ends = clock.monotonic() + active_s
        while True:
            pause_s = world.plan.fault_interval_s * (0.1 + 1.8 * draw.random())
            left_s = ends - clock.monotonic()
            if world.entries_left <= 0:
                left_s = min(left_s, 5.0)
            await clock.sleep(min(pause_s, max(left_s, 0.0)))
            if pause_s >= left_s or not world.plan.faults:
                return
            self._one(draw.choice(world.plan.faults))

    def _one(self, kind: str) -> None:
        world = self._world
        name = kind.replace(" ", "_").replace("-", "_").replace("'", "")
        method: Callable[[], bool] = next(getattr(group, name) for group in self._groups if hasattr(group, name))
        world.trace.line("world", f"FAULT {kind}")
        if method():
            world.count(f"fault: {kind}")

    def heal(self) -> None:
        """All of it."""
        world = self._world
        world.network.heal_all()
        options = world.network.options
        options.loss_share = options.long_share = options.duplicate_share = 0.0
        self.metadata.heal()
        for bookie in world.bookies:
            bookie.disk.faults = _ORDERLY
            bookie.disk.capacity_bytes = None
            bookie.disk.fails_next_sync = False
        for host in world.hosts:
            host.resume()
            if host.runs and host.store is not None and host.store.session.state is not SessionState.LOST:
                world.metadata.delay_answers(host.store, 0.001)
                assert host.process is not None
                host.process.call_soon(world.metadata.heal, host.store)
