"""Lines are cut in one way or both, hosts cut off from all others, and messages late, lost or there twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar_testing.randomness import SeededRandomness
from tests.sim.world.faults.injector import FaultGroup

if TYPE_CHECKING:
    from tests.sim.world.world import World

__all__ = ["NetworkFaults"]


class NetworkFaults(FaultGroup):
    def __init__(self, world: World, draw: SeededRandomness) -> None:
        super().__init__(world, draw)
        options = world.network.options
        self._as_planned = (
            options.long_share,
            options.long_delay_s,
            options.loss_share,
            options.duplicate_share,
        )

    def _pair(self) -> tuple[str, str]:
        bookie = self._draw.choice(self._world.bookies)
        other = self._draw.choice([host for host in self._world.hosts if host is not bookie])
        return bookie.name, other.name

    def cut_pair(self) -> bool:
        self._cut(*self._pair(), both_ways=True)
        return True

    def cut_one_way(self) -> bool:
        one, other = self._pair()
        if self._draw.random() < 0.5:
            one, other = other, one
        self._cut(one, other, both_ways=False)
        return True

    def isolate_bookie(self) -> bool:
        return self._isolate(self._draw.choice(self._world.bookies))

    def isolate_client(self) -> bool:
        return self._isolate(self._draw.choice(self._world.clients))

    def bad_network(self) -> bool:
        options = self._world.network.options
        before = self._as_planned
        options.long_share, options.long_delay_s = 0.2 * self._draw.random(), 2 * self._draw.random()
        options.loss_share = self._draw.choice((0.0, 0.02))
        options.duplicate_share = self._draw.choice((0.0, 0.2))

        def heal() -> None:
            if not self._world.quiet:
                options.long_share, options.long_delay_s, options.loss_share, options.duplicate_share = before

        self._later(self._seconds(), heal)
        return True
