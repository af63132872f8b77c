"""What proxies do to the connections between a broker and its clients, and between a bookie and everybody.

What is lost one way never comes, nor what follows it on that connection; what is held comes later, all of it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from magnetar_wire.randomness import Randomness
from tests.faults.proxy import Proxy
from tests.faults.torture.fault import Fault, members
from tests.faults.torture.system import System

__all__ = ["FAULTS", "Cut", "Delay", "Hold", "OnConnections"]

_BREAKS_WITHIN_BYTES = 200_000


class OnConnections(Fault):
    """Of a proxy, or of several that stand for one way."""

    def targets(self, system: System) -> Sequence[str]:
        return [name for name in members(system, self.group) if self.proxies(system, name)]

    def proxies(self, system: System, target: str) -> Sequence[Proxy]:
        """Empty: it was removed in the meantime."""
        both = system.proxies, system.pulsar_proxies
        return [proxies[target] for proxies in both if target in proxies]

    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        seed = chance.random(), chance.random()
        for proxy in self.proxies(system, target):
            self.disturb(proxy, *seed)

    @abstractmethod
    def disturb(self, proxy: Proxy, much: float, way: float) -> None:
        """`much` and `way` are drawn: at least 0 and below 1."""

    async def heal(self, system: System, target: str) -> None:
        for proxy in self.proxies(system, target):
            proxy.heal()


class Cut(OnConnections):
    """Both ways, and closed to new connections."""

    def disturb(self, proxy: Proxy, much: float, way: float) -> None:
        proxy.closed_to_new = True
        proxy.cut()


class Break(OnConnections):
    """Break connections once, in the middle of something; new ones are accepted."""

    def disturb(self, proxy: Proxy, much: float, way: float) -> None:
        proxy.cut_after = int(much * _BREAKS_WITHIN_BYTES)


class Deaf(OnConnections):
    """It hears nothing, and is heard."""

    def disturb(self, proxy: Proxy, much: float, way: float) -> None:
        proxy.loses_requests = True


class Mute(OnConnections):
    """It hears, and is not heard."""

    def disturb(self, proxy: Proxy, much: float, way: float) -> None:
        proxy.loses_answers = True


class Hold(OnConnections):
    def disturb(self, proxy: Proxy, much: float, way: float) -> None:
        proxy.holds_requests = proxy.holds_answers = True


class HoldOneWay(OnConnections):
    def disturb(self, proxy: Proxy, much: float, way: float) -> None:
        proxy.holds_requests = way < 0.5
        proxy.holds_answers = not proxy.holds_requests


class Delay(OnConnections):
    def disturb(self, proxy: Proxy, much: float, way: float) -> None:
        proxy.delay_requests_s = proxy.delay_answers_s = 0.02 + 0.4 * much


class DelayOneWay(OnConnections):
    def disturb(self, proxy: Proxy, much: float, way: float) -> None:
        proxy.delay_requests_s, proxy.delay_answers_s = (
            (0.02 + 0.8 * much, 0.0) if way < 0.5 else (0.0, 0.02 + 0.8 * much)
        )


FAULTS = (
    Cut("CUT", "broker", weight=2, shortest_s=1.0, longest_s=10.0),
    Break("BREAK", "broker", weight=3, shortest_s=0.5, longest_s=3.0),
    Deaf("DEAF", "broker", weight=1, shortest_s=1.0, longest_s=12.0),
    Mute("MUTE", "broker", weight=1, shortest_s=1.0, longest_s=12.0),
    Hold("HOLD", "broker", weight=1, shortest_s=1.0, longest_s=8.0),
    HoldOneWay("HOLD_ONE_WAY", "broker", weight=1, shortest_s=1.0, longest_s=8.0),
    Delay("DELAY", "broker", weight=1, shortest_s=2.0, longest_s=8.0),
    DelayOneWay("DELAY_ONE_WAY", "broker", weight=1, shortest_s=2.0, longest_s=8.0),
    Cut("CUT", "bookie", weight=3, shortest_s=1.0, longest_s=10.0),
    Break("BREAK", "bookie", weight=3, shortest_s=0.5, longest_s=3.0),
    Deaf("DEAF", "bookie", weight=2, shortest_s=1.0, longest_s=10.0),
    Mute("MUTE", "bookie", weight=2, shortest_s=1.0, longest_s=10.0),
    Hold("HOLD", "bookie", weight=1, shortest_s=1.0, longest_s=8.0),
    HoldOneWay("HOLD_ONE_WAY", "bookie", weight=1, shortest_s=1.0, longest_s=8.0),
    Delay("DELAY", "bookie", weight=1, shortest_s=2.0, longest_s=8.0),
    DelayOneWay("DELAY_ONE_WAY", "bookie", weight=1, shortest_s=2.0, longest_s=8.0),
)
