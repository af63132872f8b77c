"""Faults of the metadata store's servers, and of the connections to them: one caller's at a time.

If a caller is disconnected for less than its session's length, it goes on with what it has; for longer, others take
that over, and it notices when it is back. Bytes that were held for so long arrive at a session that is over.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_wire.randomness import Randomness
from tests.faults.proxy import Proxy
from tests.faults.torture.fault import Bears
from tests.faults.torture.faults.connections import Cut, Deaf, Delay, Hold, Mute, OnConnections
from tests.faults.torture.faults.processes import Kill, Pause
from tests.faults.torture.system import System

__all__ = ["FAULTS"]


class _OnMetadata(OnConnections):
    def proxies(self, system: System, target: str) -> Sequence[Proxy]:
        return system.metadata_proxies.get(target, ())


class BreakMetadata(_OnMetadata):
    """Once: it reconnects at once."""

    def disturb(self, proxy: Proxy, much: float, way: float) -> None:
        proxy.cut()


class CutMetadata(_OnMetadata, Cut):
    pass


class DelayMetadata(_OnMetadata, Delay):
    pass


class HoldMetadata(_OnMetadata, Hold):
    pass


class DeafToMetadata(_OnMetadata, Mute):
    """Its requests arrive, and it never hears what became of them. The store is at the far end: that one is mute."""


class MuteToMetadata(_OnMetadata, Deaf):
    """It hears of all that happens, and none of its requests arrive."""


class CutAllMetadata(CutMetadata):
    """Brokers and bookies alike: nobody's session need last."""

    def targets(self, system: System) -> Sequence[str]:
        return ["everybody"] if system.metadata_proxies else []

    async def begin(self, system: System, target: str, chance: Randomness) -> None:
        for name in list(system.metadata_proxies):
            await super().begin(system, name, chance)

    async def heal(self, system: System, target: str) -> None:
        for name in list(system.metadata_proxies):
            await super().heal(system, name)

    def waits_for(self, system: System, target: str) -> Sequence[str]:
        return system.names


FAULTS = (
    Kill("KILL", "zookeeper", weight=3, longest_s=6.0),
    Pause("PAUSE", "zookeeper", weight=1, shortest_s=5.0, longest_s=8.0),
    Pause("BLINK", "zookeeper", weight=2, shortest_s=0.2, longest_s=2.0),
    BreakMetadata("BREAK_METADATA", "broker", weight=2, shortest_s=0.1, longest_s=1.0),
    CutMetadata("CUT_METADATA", "broker", weight=2, shortest_s=1.0, longest_s=10.0),
    HoldMetadata("HOLD_METADATA", "broker", weight=1, shortest_s=1.0, longest_s=10.0),
    DelayMetadata("DELAY_METADATA", "broker", weight=1, shortest_s=2.0, longest_s=8.0),
    DeafToMetadata("DEAF_TO_METADATA", "broker", weight=1, shortest_s=1.0, longest_s=10.0),
    MuteToMetadata("MUTE_TO_METADATA", "broker", weight=1, shortest_s=1.0, longest_s=10.0),
    BreakMetadata("BREAK_METADATA", "bookie", weight=1, shortest_s=0.1, longest_s=1.0),
    CutMetadata("CUT_METADATA", "bookie", weight=2, shortest_s=1.0, longest_s=10.0),
    HoldMetadata("HOLD_METADATA", "bookie", weight=1, shortest_s=1.0, longest_s=10.0),
    DelayMetadata("DELAY_METADATA", "bookie", weight=1, shortest_s=2.0, longest_s=8.0),
    DeafToMetadata("DEAF_TO_METADATA", "bookie", weight=1, shortest_s=1.0, longest_s=10.0),
    MuteToMetadata("MUTE_TO_METADATA", "bookie", weight=1, shortest_s=1.0, longest_s=10.0),
    CutAllMetadata("CUT_ALL_METADATA", "everything", shortest_s=1.0, longest_s=10.0, bears=Bears.NOT),
)
