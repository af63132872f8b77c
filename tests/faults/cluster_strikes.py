"""Does what the nemesis has decided to a cluster and its clients, and takes it back."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import Final

from magnetar.admin import Admin
from magnetar.exceptions import MagnetarException
from magnetar_wire.randomness import Randomness
from tests.faults.cluster_clients import Clients
from tests.faults.cluster_nemesis import Kind, Strike
from tests.faults.cluster_processes import ClusterProcesses
from tests.faults.proxy import Proxy

__all__ = ["Strikes"]

NAMESPACE: Final = "public/default"
_ASKED_S: Final = 10
_OF_CONNECTIONS: Final = (Kind.BREAK, Kind.DEAF, Kind.MUTE, Kind.HOLD)


class Strikes:
    def __init__(self, cluster: ClusterProcesses, clients: Clients, chance: Randomness) -> None:
        self._cluster = cluster
        self._chance = chance
        self._clients = clients
        # How often each kind of thing was done to each kind of part.
        self.done: Counter[str] = Counter()
        # What an administrator was told, and how often.
        self.refused: Counter[str] = Counter()

    async def strike(self, strike: Strike) -> None:
        """From its beginning to its end."""
        await asyncio.sleep(strike.at_s)
        try:
            await self.begin(strike)
            await asyncio.sleep(strike.for_s)
        finally:
            await self.end(strike)

    async def begin(self, strike: Strike) -> None:
        kind, target = strike.kind, strike.target
        self.done[f"{kind.name} {target.split('-')[0]}"] += 1
        if kind in (Kind.UNLOAD, Kind.SPLIT):
            await asyncio.to_thread(self._by_hand, kind, target)
        elif target in self._clients.lives:
            if kind is Kind.KILL:
                self._clients.kill(target)
            else:
                self._clients.signal(target, signal.SIGSTOP)
        elif kind in _OF_CONNECTIONS:
            self._strike_connections(kind, self._cluster.proxies[target])
        elif kind is Kind.KILL:
            await self._cluster.kill(target)
        elif kind is Kind.STOP:
            await self._cluster.stop(target)
        else:
            await self._cluster.pause(target)

    def _strike_connections(self, kind: Kind, proxy: Proxy) -> None:
        if kind is Kind.BREAK:
            proxy.cut_after = self._chance.below(100_000)
        elif kind is Kind.DEAF:
            proxy.loses_requests = True
        elif kind is Kind.MUTE:
            proxy.loses_answers = True
        else:
            proxy.holds_requests = proxy.holds_answers = True

    async def end(self, strike: Strike) -> None:
        kind, target = strike.kind, strike.target
        if target in self._clients.lives:
            self._clients.signal(target, signal.SIGCONT)
            await self._clients.begin(target)
        elif kind in _OF_CONNECTIONS:
            self._cluster.proxies[target].heal()
        elif kind not in (Kind.UNLOAD, Kind.SPLIT):
            await self._cluster.resume(target)
            # A hung one may have ended by itself, and one that begins may have to wait for others.
            await self._cluster.start(target)

    def _by_hand(self, kind: Kind, topic: str) -> None:
        """Whether it could be done or not: nobody is promised that while other things are struck."""
        try:
            with Admin(self._cluster.direct_url, operation_timeout_seconds=_ASKED_S) as admin:
                bundle = admin.topics.lookup(topic).bundle
                if kind is Kind.UNLOAD:
                    admin.namespaces.unload(NAMESPACE, bundle)
                else:
                    admin.namespaces.split_bundle(NAMESPACE, bundle)
        except MagnetarException as error:
            self.refused[f"{kind.name}: {type(error).__name__}"] += 1
