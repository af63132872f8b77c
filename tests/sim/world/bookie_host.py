"""A bookie: its disk outlives its processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar_bookie.errors import BookieRefused
from magnetar_bookie.server.bookie_process import BookieProcess
from magnetar_bookie.storage.interface import StorageFailed
from tests.sim.clock import SimulatedClock
from tests.sim.disk import DiskFaults, SimulatedDisk
from tests.sim.world.host import Host

if TYPE_CHECKING:
    from tests.sim.world.world import World

__all__ = ["BookieHost"]


class BookieHost(Host):
    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        draw = world.chance.stream("disk", name)
        # Where disks differ, adds are pending for long, acknowledged by some and not by others.
        slow_s = draw.choice((0.005, 0.005, 0.005, 0.05, 0.3)) if world.plan.uneven_disks else 0.005
        self.usual_faults = DiskFaults(longest_sync_s=slow_s, longest_read_s=slow_s / 5)
        self.disk = SimulatedDisk(SimulatedClock(world.loop), draw, self.usual_faults)
        self.known = world.checker.watch_disk(name, self.disk)
        self.bookie: BookieProcess | None = None
        # Why it will not start again.
        self.refused: str | None = None
        self.leaving = False
        self.read_only = False

    @property
    def may_start(self) -> bool:
        return self.refused is None

    @property
    def serves(self) -> bool:
        return self.runs and self.bookie is not None and self.bookie.started.is_set()

    async def main(self) -> None:
        world = self.world
        assert self.process is not None
        process = self.process
        storage = self.disk.open()
        bookie = self.bookie = BookieProcess(
            self.name,
            storage,
            self.open_metadata,
            self.transport,
            f"{self.name}:3181",
            self.clock,
            self.chance,
            world.plan.bookie,
            world.plan.client,
            world.plan.auto_recovery,
        )
        try:
            await bookie.run()
        except StorageFailed as error:
            world.trace.line(self.name, f"ends: {error}")
            world.count("a bookie ended by its disk")
        except BookieRefused as error:
            world.trace.line(self.name, f"refuses: {type(error).__name__}")
            world.count(f"refused: {type(error).__name__}")
            self.refused = str(error)
        process.kill()

    def stop(self) -> None:
        """As SIGTERM does. It may take long, where the disk or the metadata store does: then somebody kills it."""
        if self.serves and self.process is not None and self.bookie is not None:
            self.world.trace.line(self.name, "is to end gracefully")
            self.process.spawn(self._leave(self.bookie), name=f"{self.name} leaves")

    async def _leave(self, bookie: BookieProcess) -> None:
        try:
            await bookie.drain()
        except StorageFailed:
            return  # its process ends by that
        self.world.count("a bookie ended gracefully")
        self.kill()

    def kill(self) -> None:
        super().kill()
        self.disk.crash()
