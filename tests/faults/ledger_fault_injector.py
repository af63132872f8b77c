"""Does what the nemesis has decided, and takes it back."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from magnetar_wire.randomness import Randomness
from tests.faults.nemesis import ZOOKEEPER, Injection, Kind
from tests.faults.proxy import Proxy
from tests.faults.torture_cluster import TortureCluster
from tests.faults.workload_processes import ChainRun, WorkloadProcess

__all__ = ["FaultInjector"]

_TAKE_OVER_S: Final = 20.0
# What stands in a bookie's flag file.
_DISK: Final = {
    Kind.SLOW_SYNC: "slow",
    Kind.FAIL_SYNC: "sync",
    Kind.FILL_DISK: "filled",
    Kind.FULL_DISK: "full",
}


class FaultInjector:
    def __init__(
        self,
        cluster: TortureCluster,
        chains: Mapping[str, ChainRun],
        writers_metadata: Mapping[str, Proxy],
        chance: Randomness,
    ) -> None:
        self._cluster = cluster
        self._chains = chains
        self._writers_metadata = writers_metadata
        self._chance = chance
        # A wiped bookie that started all the same, and the like.
        self.violations: list[str] = []

    async def inject(self, injection: Injection) -> None:
        """From its beginning to its end."""
        await asyncio.sleep(injection.at_s)
        try:
            await self._begin(injection)
            await asyncio.sleep(injection.for_s)
        finally:
            await self._end(injection)

    async def _begin(self, injection: Injection) -> None:
        kind, target, cluster = injection.kind, injection.target, self._cluster
        proxy = cluster.proxies.get(target)
        if kind is Kind.KILL:
            await cluster.kill(target)
        elif kind is Kind.TERMINATE:
            await cluster.stop(target)
        elif kind in (Kind.PAUSE, Kind.BLINK):
            await cluster.pause(target)
        elif kind in _DISK:
            cluster.flag(target).write_text(_DISK[kind])
        elif kind is Kind.WIPE:
            await self._wipe(target)
        elif kind is Kind.ROT:
            await cluster.rot(target, self._chance)
        elif kind in (Kind.BREAK_METADATA, Kind.CUT_METADATA):
            _cut(cluster.metadata_proxies[target], for_good=kind is Kind.CUT_METADATA)
        elif proxy is not None:
            self._disturb_connections(kind, proxy)
        elif kind is Kind.RESTART_ZOOKEEPER:
            await cluster.kill(ZOOKEEPER)
        elif kind is Kind.PAUSE_ZOOKEEPER:
            await cluster.pause(ZOOKEEPER)
        else:
            self._disturb_chain(kind, self._chains[target])

    def _disturb_connections(self, kind: Kind, proxy: Proxy) -> None:
        if kind is Kind.CUT:
            _cut(proxy, for_good=True)
        elif kind is Kind.BREAK:
            proxy.cut_after = self._chance.below(200_000)
        elif kind is Kind.LOSE_REQUESTS:
            proxy.loses_requests = True
        elif kind is Kind.LOSE_ANSWERS:
            proxy.loses_answers = True
        elif kind is Kind.HOLD:
            proxy.holds_requests = self._chance.random() < 0.7
            proxy.holds_answers = not proxy.holds_requests or self._chance.random() < 0.5
        else:
            assert kind is Kind.DELAY
            proxy.delay_requests_s = proxy.delay_answers_s = 0.02 + 0.4 * self._chance.random()

    def _disturb_chain(self, kind: Kind, run: ChainRun) -> None:
        if kind is Kind.CUT_WRITER:
            _cut(self._writers_metadata[run.name], for_good=True)
        elif kind is Kind.KILL_TAIL and run.tailer is not None:
            run.tailer.kill()
        elif kind is Kind.KILL_WRITER and run.writer is not None:
            run.writer.kill()
        elif kind is Kind.PAUSE_WRITER and run.writer is not None and run.writer.running:
            run.writer.pause()
            run.zombies.append(run.writer)
            run.start_writer()

    async def _wipe(self, target: str) -> None:
        output = await self._cluster.wipe(target)
        if f"the disk of bookie {target!r} is empty" not in output:
            self.violations.append(f"wiped: {target} was started with an empty disk, and: {output or 'it was ready'}")

    async def _end(self, injection: Injection) -> None:
        kind, target, cluster = injection.kind, injection.target, self._cluster
        if kind in (Kind.PAUSE, Kind.BLINK, Kind.PAUSE_ZOOKEEPER):
            await cluster.resume(target)
        elif kind in _DISK:
            cluster.flag(target).unlink(missing_ok=True)
        elif kind in (Kind.BREAK_METADATA, Kind.CUT_METADATA):
            cluster.metadata_proxies[target].heal()
        elif target in cluster.proxies:
            cluster.proxies[target].heal()
        elif target in self._chains:
            await self._end_on_chain(kind, self._chains[target])
        if target in cluster.proxies or target == ZOOKEEPER:
            # Most of these may have ended it.
            await cluster.start(target)

    async def _end_on_chain(self, kind: Kind, run: ChainRun) -> None:
        if kind is Kind.CUT_WRITER:
            self._writers_metadata[run.name].heal()
        elif kind is Kind.PAUSE_WRITER:
            # One that wakes before its chain was taken over is none.
            deadline = asyncio.get_running_loop().time() + _TAKE_OVER_S
            while not run.taken_over() and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(0.1)
            for zombie in run.zombies:
                zombie.resume()
                # It is to find out by itself that the chain is not its own, and may fight for it for a moment.
                asyncio.get_running_loop().call_later(2.0, _end_zombie, zombie)
        elif kind is Kind.KILL_TAIL and (run.tailer is None or not run.tailer.running):
            run.start_tail()
        if run.writer is None or not run.writer.running:
            run.start_writer()


def _cut(proxy: Proxy, *, for_good: bool) -> None:
    proxy.closed_to_new = for_good
    proxy.cut()


def _end_zombie(zombie: WorkloadProcess) -> None:
    if zombie.running:
        zombie.terminate()
