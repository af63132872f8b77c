"""What all faults of the service's world are made with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.world.faults.injector import FaultGroup
from tests.sim.world.host import Host

if TYPE_CHECKING:
    from tests.sim.service.broker_host import BrokerHost
    from tests.sim.service.plan import TopicPlan
    from tests.sim.service.world import ServiceWorld

__all__ = ["ServiceStriker"]


class ServiceStriker(FaultGroup):
    _world: ServiceWorld

    def _one(self, hosts: list[BrokerHost]) -> BrokerHost | None:
        running = [host for host in hosts if host.runs]
        return self._draw.choice(running) if running else None

    def _broker(self) -> BrokerHost | None:
        return self._one(self._world.brokers)

    def _application(self) -> Host | None:
        running = [host for host in self._world.applications if host.runs]
        return self._draw.choice(running) if running else None

    def _topic(self) -> TopicPlan:
        return self._draw.choice(self._world.service.topics)

    def _order(self, what: str) -> bool:
        self._world.operator.order(what, self._topic())
        return True

    def _order_in_time(self, what: str) -> None:
        if not self._world.quiet:
            self._order(what)

    def _pause(self, host: Host | None, *seconds: float) -> bool:
        if host is None:
            return False
        host.pause()
        self._later(self._draw.choice(seconds) * (0.5 + self._draw.random()), host.resume)
        return True
