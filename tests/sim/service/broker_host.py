"""A broker: the production's, with what it has written watched by the ledgers' checker. It has nothing of its own that
outlives its process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from magnetar_broker.broker import Broker
from magnetar_broker.broker_session import BrokerSession
from tests.fake_ownership import FakeOwnership
from tests.sim.service.watched_ledgers import watch_ledgers
from tests.sim.world.host import Host
from tests.sim.world.lag_watch import AddsWatch

if TYPE_CHECKING:
    from tests.sim.service.world import ServiceWorld

__all__ = ["BrokerHost"]


class _WatchedBroker(Broker):
    """Each of its sessions is watched before it serves."""

    watches: BrokerHost
    _session: BrokerSession | None = None

    @property
    def session(self) -> BrokerSession | None:
        return self._session

    @session.setter
    def session(self, session: BrokerSession | None) -> None:
        self._session, self.watches.adds = session, None
        if session is not None:
            self.watches.begins(session)


class BrokerHost(Host):
    world: ServiceWorld

    def __init__(self, world: ServiceWorld, name: str) -> None:
        super().__init__(world, name)
        self.broker: Broker | None = None

    @property
    def address(self) -> str:
        return f"{self.name}:6652"

    @property
    def may_start(self) -> bool:
        return self in self.world.staying and not self.world.over

    @property
    def session(self) -> BrokerSession | None:
        return self.broker.session if self.runs and self.broker is not None else None

    @property
    def serves(self) -> bool:
        return self.session is not None

    def start(self) -> None:
        self.broker = None
        super().start()

    async def main(self) -> None:
        world = self.world
        broker = _WatchedBroker.__new__(_WatchedBroker)
        broker.watches = self
        broker.__init__(  # type: ignore[misc]
            self.open_metadata,
            self.transport,
            [(self.transport, self.address)],
            self.clock,
            self.chance,
            world.service.options,
            world.plan.client,
            broker_id=self.name,
            peer_transport=self.transport,
            cpu_seconds=lambda: 0.0,
        )
        self.broker = broker
        await broker.start()
        await asyncio.get_running_loop().create_future()

    def begins(self, session: BrokerSession) -> None:
        self.world.count("broker sessions")
        watch_ledgers(session.client, self.world)
        self.adds = AddsWatch(session.client, self.world.checker)
        if self.world.service.everybody_owns:
            # Ownership is a hint: where it is wrong the ledgers' fences decide.
            everything = FakeOwnership.of_everything([("internal", self.address)], self.name)
            for name in ("find_owner", "check_owned", "ensure_owned", "verify_owned", "reverify"):
                setattr(session.ownership, name, getattr(everything, name))

    def stop(self) -> None:
        """As SIGTERM does. Where it takes too long somebody kills it."""
        if self.serves and self.process is not None and self.broker is not None:
            self.world.trace.line(self.name, "is to end gracefully")
            self.process.spawn(self._leave(self.broker), name=f"{self.name} leaves")

    async def _leave(self, broker: Broker) -> None:
        await broker.close()
        self.world.count("a broker ended gracefully")
        self.kill()
