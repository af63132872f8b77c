"""What operators do: they recover, delete, make bookies read-only and decommission them, at the wrong moment."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from magnetar_testing.randomness import SeededRandomness
from tests.sim.world.admin import Admin
from tests.sim.world.bookie_host import BookieHost
from tests.sim.world.faults.injector import FaultGroup

if TYPE_CHECKING:
    from tests.sim.world.world import World

__all__ = ["OperatorFaults"]


class OperatorFaults(FaultGroup):
    def __init__(self, world: World, draw: SeededRandomness) -> None:
        super().__init__(world, draw)
        self._decommissioned = False

    def _order(self, what: str, whom: str, admin: Admin | None = None) -> None:
        (admin or self._draw.choice(self._world.admins)).order(what, whom)

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
        host = self._draw.choice([writer for writer in writers if writer.owner is not None] or writers)
        host.pause()
        self._later(4.0 + 14.0 * self._draw.random(), host.resume)
        for chain in world.chain_names:
            self._order("recover", chain)
            # The first ledgers of the chain are deleted, up to the one that somebody else writes by then.
            for seconds in range(1, 5):
                self._later(seconds + self._draw.random(), partial(self._order, "delete", chain))
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

    def delete_under_a_recovery(self) -> bool:
        """Somebody recovers a ledger and stands still in it; it is recovered without him, followed, and deleted."""
        world, draw = self._world, self._draw
        slow, quick = world.admins
        if not slow.runs:
            return False
        chain = draw.choice(world.chain_names)
        self._order("recover", chain, slow)
        # The requests are sent, and some are answered.
        self._later(0.002 + 0.02 * draw.random(), slow.pause)
        self._later(0.1, partial(self._order, "recover", chain, quick))
        for after_s in (1.0, 2.0, 3.0):
            self._later(after_s + draw.random(), partial(self._order, "delete", chain, quick))
        # By then the bookies may have dropped it.
        self._later(draw.choice((3.0, 12.0)) * (0.5 + draw.random()), slow.resume)
        return True

    def decommission(self) -> bool:
        bookie = self._who_leaves()
        if bookie is None:
            return False
        self._decommissioned = bookie.leaving = True
        if self._draw.random() < 0.3:
            self._order("decommission", bookie.name)
            return True
        self._keep_clients_from_hearing()
        # While the writers make new ledgers.
        for chain in self._world.chain_names:
            self._order("recover", chain)
        self._later(2 * self._draw.random(), partial(self._order, "decommission", bookie.name))
        return True

    def _keep_clients_from_hearing(self) -> None:
        """Metadata answers reach the clients late, so that some name the bookie before they have heard of the mark."""
        metadata = self._world.metadata
        for host in self._world.clients[: self._world.plan.writers]:
            store = host.store
            if host.runs and store is not None:
                metadata.lag(store)
                metadata.delay_answers(store, 0.2 + 0.6 * self._draw.random())
                self._later(5.0, partial(metadata.delay_answers, store, 0.001))

    def decommission_the_dead(self) -> bool:
        """It comes back late, if it may: until then tombstones name a bookie that nobody will hear of."""
        bookie = self._who_leaves()
        if bookie is None:
            return False
        bookie.kill()
        self._later(20.0 * (0.5 + self._draw.random()), partial(self._restart, bookie))
        self._decommissioned = bookie.leaving = True
        self._order("decommission", bookie.name)
        for chain in self._world.chain_names:
            self._order("delete", chain)
        return True

    def _who_leaves(self) -> BookieHost | None:
        if self._decommissioned:
            return None
        # Not one that may lose data: wiped and decommissioned it would be a new bookie, and rightly so.
        losers = [self._world.bookies[number] for number in self._world.plan.losers]
        return self._bookie([bookie for bookie in self._world.bookies if bookie not in losers])
