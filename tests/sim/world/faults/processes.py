"""Processes are killed, all at once too, and stand still; writers are caught in ambushes."""

from __future__ import annotations

from tests.sim.world.ambush import ambush
from tests.sim.world.faults.injector import FaultGroup
from tests.sim.world.host import Host

__all__ = ["ProcessFaults"]


class ProcessFaults(FaultGroup):
    def kill_bookie(self) -> bool:
        return self._kill(self._bookie())

    def kill_client(self) -> bool:
        return self._kill(self._client())

    def stop_bookie(self) -> bool:
        """Restart it as an upgrade does: with SIGTERM, and a new start."""
        bookie = self._bookie()
        if bookie is None or not bookie.serves:
            return False
        process = bookie.process
        bookie.stop()
        self._later(5.0, lambda: bookie.kill() if bookie.process is process else None)
        for after in (0.3, 5.5):
            self._later(after + self._draw.random(), lambda: self._restart(bookie))
        return True

    def ambush(self, tries: int = 10) -> bool:
        """As soon as there is a writer to be caught."""
        world = self._world
        if ambush(world, self._draw):
            world.count("ambushed")
        elif tries and not world.quiet:
            self._later(0.2, lambda: self.ambush(tries - 1))
        return True

    def kill_all(self) -> bool:
        for host in self._world.hosts:
            if host.runs:
                self._kill(host)
        return True

    def _pause(self, host: Host | None) -> bool:
        if host is None:
            return False
        host.pause()
        seconds = self._draw.choice((0.3, 1.5, 3.0, 6.0, 12.0)) * (0.5 + self._draw.random())
        self._later(seconds, host.resume)
        return True

    def pause_bookie(self) -> bool:
        return self._pause(self._bookie())

    def pause_client(self) -> bool:
        return self._pause(self._client())
