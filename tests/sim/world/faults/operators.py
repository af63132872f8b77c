"""What operators do: they recover, delete, make bookies read-only and decommission them, at the wrong moment."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from magnetar_wire.randomness import SeededRandomness
from tests.sim.world.faults.striker import Striker

if TYPE_CHECKING:
    from tests.sim.world.world import World

__all__ = ["OperatorFaults"]


class OperatorFaults(Striker):
    def __init__(self, world: World, draw: SeededRandomness) -> None:
        super().__init__(world, draw)
        self._decommissioned = False

    def _order(self, what: str, whom: str) -> None:
        self._draw.choice(self._world.admins).order(what, whom)

    def recover_a_ledger(self) -> bool:
        self._order("recover", self._draw.choice(self._world.chain_names))
        return True

    def fight_over_the_end(self) -> bool:
        """Two recover one ledger while it is written, and each of them, and the writers, miss another bookie."""
        world, chain = self._world, self._draw.choice(self._world.chain_names)
        for host in world.clients:
            if self._draw.random() < 0.6:
                self._cut(self._draw.choice(world.bookies).name, host.name, both_ways=self._draw.random() < 0.5)
        for admin in world.admins:
            self._later(0.05 * self._draw.random(), partial(admin.order, "recover", chain))
        return True

    def zombie_writer(self) -> bool:
        """A writer stands still while its ledgers are taken from it and deleted, and goes on as if nothing were."""
        world = self._world
        writers = [host for host in world.clients[: world.plan.writers] if host.runs]
        if not writers:
            return False
        host = self._draw.choice(writers)
        host.pause()
        self._later(4.0 + 12.0 * self._draw.random(), host.resume)
        for chain in world.chain_names:
            self._order("recover", chain)
            self._later(1.0 + self._draw.random(), partial(self._order, "delete", chain))
        return True

    def delete_a_ledger(self) -> bool:
        self._order("delete", self._draw.choice(self._world.chain_names))
        return True

    def read_only(self) -> bool:
        host = self._bookie()
        if host is None or not host.serves:
            return False
        assert host.process is not None
        bookie = host.bookie
        assert bookie is not None
        host.process.call_soon(setattr, bookie.bookie, "read_only", True)
        process = host.process
        self._later(2 * self._seconds(), lambda: process.call_soon(setattr, bookie.bookie, "read_only", False))
        return True

    def decommission(self) -> bool:
        if self._decommissioned:
            return False
        # Not one that may lose data: wiped and struck off it would be a new bookie, and rightly so.
        losers = [self._world.bookies[number] for number in self._world.plan.losers]
        bookie = self._bookie([bookie for bookie in self._world.bookies if bookie not in losers])
        if bookie is None:
            return False
        self._decommissioned = bookie.leaving = True
        self._order("decommission", bookie.name)
        return True
