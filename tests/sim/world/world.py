"""The cluster of one seed, and the course of its run: an active time with faults, then a quiet end.

active   writers compete for the chains, readers read, during faults
quiet    everything heals and starts again; the last writer takes each chain over, writes and closes it; then the
         run waits until the system is whole, and the last checks are made
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from magnetar_metadata.store import SessionState
from tests.sim.chance import Chance
from tests.sim.invariants import Checker
from tests.sim.loop import new_loop
from tests.sim.network import SimulatedNetwork
from tests.sim.process import Process
from tests.sim.trace import Trace
from tests.sim.world.admin import Admin
from tests.sim.world.bookie_host import BookieHost
from tests.sim.world.chain_writer import ChainWriter
from tests.sim.world.client_hosts import ReaderHost
from tests.sim.world.faults import Faults
from tests.sim.world.host import Host
from tests.sim.world.metadata import SimulatedMetadata
from tests.sim.world.plan import fill_up, plan

__all__ = ["World"]

# Between two looks at what is unanswered.
_LOOK_S = 0.05


class World:
    def __init__(self, seed: int, write: Callable[[str], object] | None = None, faults: Sequence[str] = ()) -> None:
        """`faults`: only these, and often."""
        self.seed = seed
        self.chance = Chance(seed)
        self.plan = plan(self.chance, faults)
        fill_up(self.plan, self.chance.stream("saturation"))
        self.loop = new_loop()
        self.trace = Trace(self.loop, write)
        self.checker = Checker(lambda: self.loop.elapsed_s)
        self.checker.on_violation = lambda violation: self.failed(self.loop.current_process, "it must not", violation)
        self.counts: dict[str, int] = {}
        self.metadata = SimulatedMetadata(self.loop, self.plan.session_timeout_s, self._metadata_changed)
        self.network = SimulatedNetwork(self.loop, self.chance.stream("network"), self.plan.network)
        self.network.on_mistake = self._mistake
        self.network.taps.append(self.checker)
        if self.trace.on:
            self.network.taps.append(self.trace)
        self.network.counts = self.counts
        self.loop.on_failure = self.failed
        # What ended the run, the first of it.
        self.failure: BaseException | None = None
        self.entries_left = self.plan.entries
        self.quiet = False
        self.chain_names = [f"chain{number}" for number in range(self.plan.chains)]
        skew = self.chance.stream("skew")
        self.bookies = [BookieHost(self, f"b{number}") for number in range(self.plan.bookies)]
        self.clients: list[ChainWriter] = [
            *(ChainWriter(self, f"w{number}") for number in range(self.plan.writers)),
            *(ReaderHost(self, f"r{number}") for number in range(self.plan.readers)),
        ]
        # Two, so that two recover a ledger at once though nobody else does.
        self.admins = [Admin(self, "admin0"), Admin(self, "admin1")]
        self.clients += self.admins
        self.hosts: list[Host] = [*self.bookies, *self.clients]
        for host in self.hosts:
            host.skew_ms = skew.below(120_000) - 60_000
        self.faults = Faults(self)

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + times

    def acked(self, ledger_id: int, entry_id: int) -> None:
        self.count("entries acknowledged")
        self.checker.acked(ledger_id, entry_id)

    @property
    def looked(self) -> dict[str, int]:
        """How often which check looked at something."""
        return self.checker.history.looked

    def run(self) -> None:
        """Raises what went wrong."""
        self.loop.run_until_complete(self._whole())

    async def _whole(self) -> None:
        from tests.sim.world.ending import end

        clock, draw = self.bookies[0].disk.clock, self.chance.stream("start")
        self.trace.line("world", f"seed {self.seed}: {self.plan}")
        for host in self.hosts:
            host.start()
            await clock.sleep(0.05 * draw.random())
        self.loop.outside.spawn(self._keep_metadata_connected())
        self.loop.outside.spawn(self.watch_unanswered())
        await clock.sleep(0.5)
        await self.faults.inject_all(self.plan.active_s)
        await end(self)

    async def _keep_metadata_connected(self) -> None:
        """What a client of the metadata store does by itself: it connects again."""
        clock, draw = self.bookies[0].disk.clock, self.chance.stream("reconnect")
        while True:
            await clock.sleep(0.25)
            for host in self.hosts:
                store = host.store
                if store is None or not host.runs or store.session.state is not SessionState.SUSPENDED:
                    continue
                if host.name in self.faults.metadata.down or draw.random() < 0.5:
                    continue
                assert host.process is not None
                # What was held may arrive before the client is connected again, or after.
                if draw.random() < 0.5:
                    self.metadata.release(store)
                    host.process.call_soon(self.metadata.resume, store)
                else:
                    host.process.call_soon(self.metadata.resume, store)
                    self.metadata_later(draw.random(), partial(self.metadata.release, store))

    async def watch_unanswered(self) -> None:
        """Look at how much of what processes have sent to bookies is unanswered."""
        clock, options = self.bookies[0].disk.clock, self.plan.client
        while True:
            await clock.sleep(_LOOK_S)
            for host in self.hosts:
                if host.runs and host.adds is not None:
                    host.adds.check_unanswered(options.max_pending_entries)

    def metadata_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        self.loop.call_at(self.loop.now + delay_s, callback, context=self.loop.outside.context)

    def _metadata_changed(self, path: str, value: bytes | None, by: Process) -> None:
        if self.trace.on:
            shown = "deleted" if value is None else f"{len(value)} bytes"
            self.trace.line("metadata", f"{path} is {shown}, by {by.name}")
        self.checker.metadata_changed(path, value, by)

    def _mistake(self, process: Process, method: str, error: Exception) -> None:
        self.failed(process, f"{method} failed", error)

    def failed(self, process: Process, message: str, error: BaseException | None) -> None:
        self.trace.line(process.name, f"FAILED: {message}: {type(error).__name__}: {error}")
        if self.failure is None:
            self.failure = error if error is not None else AssertionError(message)
            self.failure.add_note(f"in process {process.name} at {self.loop.elapsed_s:.4f} s: {message}")
        self.loop.stop()
