"""A machine of the simulated cluster: at most one process at a time runs on it, under one name.

Two hosts may be partners: the parts of one process, as a standalone's broker and bookie are. They start, are paused and
die together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar_metadata.store import MetadataStore
from magnetar_testing.metadata.store import MemoryStore
from magnetar_testing.randomness import SeededRandomness
from tests.sim.clock import SimulatedClock
from tests.sim.network import SimulatedTransport
from tests.sim.process import Process
from tests.sim.world.lag_watch import AddsWatch

if TYPE_CHECKING:
    from tests.sim.world.world import World

__all__ = ["Host"]


class Host:
    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.runs_started = 0
        self.process: Process | None = None
        # The newest session of the present run.
        self.store: MemoryStore | None = None
        # The watch of the present run's adds, where it writes ledgers.
        self.adds: AddsWatch | None = None
        self.skew_ms = 0
        self._paused_at = 0.0
        self.partner: Host | None = None
        self._unit: object | None = None

    def join(self, partner: Host) -> None:
        """Makes the two the parts of one process. Neither has started yet."""
        self.partner, partner.partner = partner, self
        self._unit = partner._unit = object()

    @property
    def may_start(self) -> bool:
        """Whether it starts with its partner."""
        return True

    @property
    def runs(self) -> bool:
        return self.process is not None and not self.process.dead

    def start(self) -> None:
        """Start a new run."""
        assert not self.runs
        self.runs_started += 1
        self.store = self.adds = None
        self.process = self.world.loop.process(self.name)
        self.process.unit = self._unit
        self.clock = SimulatedClock(self.world.loop, self.skew_ms)
        self.chance: SeededRandomness = self.world.chance.stream(self.name, self.runs_started)
        self.transport: SimulatedTransport = self.world.network.transport(self.process)
        self.world.trace.line(self.name, f"starts, run {self.runs_started}")
        self.process.spawn(self.main(), name=self.name)
        if self.partner is not None:
            self._start_with(self.process, self.partner)

    def _start_with(self, process: Process, partner: Host) -> None:
        process.on_end.append(lambda: partner.kill() if partner.runs else None)
        if partner.process is not None and partner.runs:
            if partner.process.paused:
                self.pause()
        elif partner.may_start:
            partner.start()

    async def main(self) -> None:
        raise NotImplementedError

    async def open_metadata(self) -> MetadataStore:
        assert self.process is not None
        await self.clock.sleep(0.001 + 0.01 * self.chance.random())
        self.store = self.world.metadata.open(self.process, 0.0003 + 0.002 * self.chance.random())
        return self.store

    def kill(self) -> None:
        if self.runs:
            assert self.process is not None
            self.world.trace.line(self.name, "is killed")
            self.process.kill()

    def pause(self) -> None:
        if self.runs:
            assert self.process is not None
            self.world.trace.line(self.name, "is paused")
            self.process.pause()
            self._stands_still(self.process)
            if self.store is not None:
                self.world.metadata.cut_silently(self.store, answers=False)
            partner = self.partner
            if partner is not None and partner.process is not None and not partner.process.paused:
                partner.pause()

    def _stands_still(self, process: Process) -> None:
        """Those who talk with it notice, if it lasts."""
        network, began = self.world.network, self.world.loop.now

        def notice() -> None:
            if process.paused and self._paused_at == began:
                network.loses_touch(process)

        self._paused_at = began
        if network.keeps_alive:
            self.world.metadata_later(network.learns_after(silent=True), notice)

    def resume(self) -> None:
        process = self.process
        if process is not None and process.paused:
            self.world.trace.line(self.name, "goes on")
            process.resume()
            if self.store is not None:
                process.call_soon(self.world.metadata.heal, self.store)
            if self.partner is not None:
                self.partner.resume()
