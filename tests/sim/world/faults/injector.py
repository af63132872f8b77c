"""The base class of groups of faults: choice of hosts, lengths, and steps that several faults share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from magnetar_testing.randomness import SeededRandomness
from tests.sim.world.bookie_host import BookieHost
from tests.sim.world.host import Host

if TYPE_CHECKING:
    from tests.sim.world.world import World

__all__ = ["FaultGroup"]


class FaultGroup:
    """A group of faults: each public method is one, and returns whether there was a target."""

    def __init__(self, world: World, draw: SeededRandomness) -> None:
        self._world = world
        self._draw = draw

    def _bookie(self, among: list[BookieHost] | None = None) -> BookieHost | None:
        running = [bookie for bookie in (among or self._world.bookies) if bookie.runs]
        return self._draw.choice(running) if running else None

    def _client(self) -> Host | None:
        running = [client for client in self._world.clients if client.runs]
        return self._draw.choice(running) if running else None

    def _later(self, seconds: float, callback: Callable[[], object]) -> None:
        self._world.metadata_later(seconds, callback)

    def _restart(self, host: Host) -> None:
        if host.runs or (isinstance(host, BookieHost) and host.refused):
            return
        if isinstance(host, BookieHost) or not self._world.quiet:
            host.start()

    def _kill(self, host: Host | None) -> bool:
        if host is None:
            return False
        host.kill()
        seconds = self._draw.choice((0.05, 0.5, 2.0, 8.0, 20.0)) * (0.5 + self._draw.random())
        self._later(seconds, lambda: self._restart(host))
        return True

    def _seconds(self) -> float:
        return self._draw.choice((0.2, 1.0, 3.0, 6.0)) * (0.5 + self._draw.random())

    def _cut(self, one: str, other: str, *, both_ways: bool) -> None:
        network = self._world.network
        network.cut(one, other, both_ways=both_ways)
        self._later(self._seconds(), lambda: network.heal(one, other))

    def _isolate(self, host: Host) -> bool:
        seconds, network = self._seconds(), self._world.network
        for other in self._world.hosts:
            if other is not host:
                network.cut(host.name, other.name)
                self._later(seconds, partial(network.heal, host.name, other.name))
        return True
