"""The cluster that is tortured: the launcher's processes, with a proxy on every connection that faults disturb.

    clients ──▶ proxy ──▶ broker ──▶ proxy ──▶ bookie
                            └──▶ proxies ◀──┘
                                    └──▶ ZooKeeper's servers, one proxy for each and each caller

A broker has two proxies, for the SDK's clients and for those of Pulsar's protocol, and advertises their addresses to
clients that name the listener `external`, and its own to others. A bookie advertises its proxy. Both get the address of
the metadata store from their environment, which overrides their files. Bookies run with a shim that makes their disks
fail.

Who is added gets a name that nobody had. Who is removed leaves the lists when it is out.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit, urlunsplit

from magnetar_bookie.auto_recovery.decommission import cancel_decommission, read_decommission_progress
from magnetar_bookie.auto_recovery.errors import NotLeaving
from magnetar_bookie.errors import LedgerError
from magnetar_cli.cluster import ClusterError, NoSuchName
from magnetar_cli.cluster.daemon_parts import BrokerPart
from magnetar_cli.ledger_connection import open_ledger_client, shorten_connect_timeout
from magnetar_metadata.errors import MetadataError
from magnetar_wire.randomness import Randomness
from tests.faults.checker.recorder import Recorder
from tests.faults.proxy import Proxy
from tests.faults.torture.bookie_disk import failing_disk, flip_bit
from tests.faults.torture.launcher import START_S, Launcher
from tests.faults.torture.quick import QUICK_BOOKIES, QUICK_BROKERS, SESSION_TIMEOUT_S
from tests.faults.torture.system import System

__all__ = ["Cluster"]

_LISTENER: Final = "external"
_READY_S: Final = 120.0
# As many of each kind come besides those of the beginning.
_MOST_ADDED: Final = 2
# An entry has three copies.
_FEWEST_BOOKIES: Final = 3
_FEWEST_BROKERS: Final = 2
_AGAIN_S: Final = 0.5


class Cluster(System):
    def __init__(
        self,
        folder: Path,
        recorder: Recorder,
        *,
        brokers: int = 3,
        bookies: int = 4,
        zookeepers: int = 1,
        broker_settings: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are bookies'."""
        super().__init__(recorder)
        self.folder = folder
        self.brokers = [f"broker-{number}" for number in range(1, brokers + 1)]
        self.bookies = [f"bookie-{number}" for number in range(1, bookies + 1)]
        self.zookeepers = []
        self.listener_name = _LISTENER
        self.proxies = {}
        self.pulsar_proxies = {}
        self.metadata_proxies = {}
        self.launcher = Launcher(folder / "cluster")
        self._local = self.launcher.local
        self._servers = zookeepers
        self._first_brokers, self._first_bookies = tuple(self.brokers), tuple(self.bookies)
        self._numbers = {"broker": itertools.count(brokers + 1), "bookie": itertools.count(bookies + 1)}
        self._added = {"broker": 0, "bookie": 0}
        self._leaving: set[str] = set()
        # The number of acts that are about to start it: it doesn't run yet, and has not ended by itself.
        self._starting: Counter[str] = Counter()
        # As they were last seen: the launcher forgets who is taken out before it leaves the lists here.
        self._addresses: dict[str, str] = {}
        self._settings = {**QUICK_BOOKIES, **settings}
        self._broker_settings = {**QUICK_BROKERS, **(broker_settings or {})}
        # Of those who were taken out: their logs.
        self._left_logs = folder / "left"
        self._exits = AsyncExitStack()

    # ── all of it ──

    async def __aenter__(self) -> Self:
        try:
            await self.launcher.do(
                lambda: self._local.up(
                    bookies=0,
                    brokers=0,
                    zookeepers=self._servers,
                    settings=self._settings,
                    broker_settings=self._broker_settings,
                    session_timeout_s=SESSION_TIMEOUT_S,
                )
            )
            self.zookeepers = self._local.zookeeper_names()
            # All at once: each takes its time to load.
            for name in self.bookies:
                await self._launch_bookie(name)
            for name in self.brokers:
                await self._launch_broker(name)
            if why := await self.start(*self.bookies, *self.brokers, timeout_s=_READY_S):
                raise ClusterError(why)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        try:
            await self.launcher.close()
        finally:
            await self._exits.aclose()

    @property
    def service_url(self) -> str:
        return "magnetar://" + ",".join(self.proxies[name].address for name in self.brokers)

    @property
    def direct_url(self) -> str:
        return "magnetar://" + ",".join(self._addresses[name] for name in self.brokers)

    @property
    def metadata(self) -> str:
        return self._local.metadata

    def broker_addresses(self) -> dict[str, list[str]]:
        return {name: [self.proxies[name].address, self._addresses[name]] for name in self.brokers}

    def logs(self) -> list[Path]:
        left = sorted(self._left_logs.glob("*.log"))
        return [*(self._local.log(name) for name in (*self.bookies, *self.brokers)), *left]

    # ── processes ──

    def running(self, name: str) -> bool:
        return self.launcher.running(name)

    async def kill(self, *names: str) -> None:
        self._down_by_fault.update(names)
        await self.launcher.kill(*names)

    async def stop(self, name: str) -> None:
        self._down_by_fault.add(name)
        await self.launcher.stop(name)

    async def pause(self, *names: str) -> None:
        await self.launcher.pause(*names)

    async def resume(self, name: str) -> None:
        await self.launcher.resume(name)

    async def start(self, *names: str, timeout_s: float = START_S) -> str:
        there = [name for name in names if name in self.names]
        self._down_by_fault.difference_update(there)
        self._starting.update(there)
        try:
            why = await self.launcher.start(*there, timeout_s=timeout_s) if there else ""
        finally:
            self._starting.subtract(there)
        for name in there:
            self._aim(name)
        return why

    async def ready(self, name: str) -> str:
        if name not in self.names or name in self._leaving:
            return ""
        if name in self._down_by_fault:
            return f"{name} is down"
        if self._starting[name]:
            return f"{name} is being started"
        if not self.running(name):
            self.ended_by_themselves[name] += 1
            return await self.start(name)
        return await self.launcher.waits_for(name)

    # ── disks ──

    def disk(self, name: str) -> Path:
        return self.folder / f"disk-of-{name}"

    async def flip_bit(self, name: str, chance: Randomness) -> str:
        if name not in self.bookies or self.damaged not in ("", name):
            return ""

        def flip() -> str:
            # In one act, or somebody might start it in between.
            bookie = self._local.bookie(name)
            if bookie.running:
                bookie.kill()
            return flip_bit(bookie.data_folder, chance)

        self.damaged = name
        self._down_by_fault.add(name)
        return await self.launcher.do(flip)

    # ── members ──

    def may_add(self, kind: str) -> bool:
        return self._added[kind] < _MOST_ADDED

    def may_remove(self, name: str) -> bool:
        if name in self._leaving:
            return False
        if name in self.bookies:
            return len([one for one in self.bookies if one not in self._leaving]) > _FEWEST_BOOKIES
        # Clients that begin name those of the beginning.
        first = [one for one in self.brokers if one in self._first_brokers and one not in self._leaving]
        fewest_first = min(_FEWEST_BROKERS, len(self._first_brokers) - 1)
        enough = len([one for one in self.brokers if one not in self._leaving]) > _FEWEST_BROKERS
        return name in self.brokers and enough and (name not in first or len(first) > fewest_first)

    async def add_broker(self) -> str:
        name = self._next("broker")
        await self._launch_broker(name)
        self.brokers.append(name)
        return name

    async def add_bookie(self) -> str:
        name = self._next("bookie")
        await self._launch_bookie(name)
        self.bookies.append(name)
        return name

    def _next(self, kind: str) -> str:
        self._added[kind] += 1
        return f"{kind}-{next(self._numbers[kind])}"

    async def remove(self, name: str, timeout_s: float) -> str:
        if not self.may_remove(name):
            return f"too few would be left without {name}"
        self._leaving.add(name)
        try:
            # Its folder goes with it, and a second link keeps its log.
            self._left_logs.mkdir(parents=True, exist_ok=True)
            os.link(self._local.log(name), log := self._left_logs / f"{name}.log")
            while why := await self._taken_out(name, timeout_s):
                if name in self.brokers or await self._stays(name):
                    log.unlink()
                    return why
        finally:
            self._leaving.discard(name)
        (self.brokers if name in self.brokers else self.bookies).remove(name)
        del self._addresses[name]
        there = [proxies.pop(name) for proxies in (self.proxies, self.pulsar_proxies) if name in proxies]
        for proxy in (*there, *self.metadata_proxies.pop(name)):
            await proxy.close()
        return ""

    async def _taken_out(self, name: str, timeout_s: float) -> str:
        """Why it isn't decommissioned; empty: it is. A fault may affect the metadata store: then this is retried."""
        now = asyncio.get_running_loop().time
        deadline = now() + timeout_s
        while True:
            left_s = max(0.0, deadline - now())
            try:
                await self.launcher.do_aside(partial(self._local.remove, name, timeout_s=left_s))
            except MetadataError as error:
                if now() >= deadline:
                    return str(error) or repr(error)
                await asyncio.sleep(_AGAIN_S)
            except (ClusterError, LedgerError) as error:
                return str(error) or repr(error)
            else:
                return ""

    async def _stays(self, bookie: str) -> bool:
        """Cancel its decommission, which would go on otherwise. False: it was removed for good."""
        while True:
            try:
                async with open_ledger_client(shorten_connect_timeout(self.metadata)) as client:
                    progress = await read_decommission_progress(client, bookie)
                    if progress is not None and not progress.done:
                        await cancel_decommission(client, bookie)
                    return progress is None or not progress.done
            except (MetadataError, NotLeaving):  # it is away for a moment; or was quicker
                await asyncio.sleep(_AGAIN_S)

    # ── proxies ──

    async def _launch_bookie(self, name: str) -> None:
        shim = await self.launcher.do(lambda: failing_disk(self.folder))
        proxy = self.proxies[name] = await self._proxy("127.0.0.1", 1)
        environment = {
            **await self._metadata_by_proxy(name),
            "LD_PRELOAD": str(shim),
            "FAILING_DISK": str(self.disk(name)),
        }
        add = partial(self._local.add, name, environment=environment, timeout_s=0, advertised_address=proxy.address)
        await self.launcher.launch(add)
        self._aim(name)

    async def _launch_broker(self, name: str) -> None:
        proxy = self.proxies[name] = await self._proxy("127.0.0.1", 1)
        of_pulsar = self.pulsar_proxies[name] = await self._proxy("127.0.0.1", 1)
        outside = f"{_LISTENER}:magnetar://{proxy.address},{_LISTENER}:pulsar://{of_pulsar.address}"
        listeners = f"internal:magnetar://127.0.0.1:0,{outside}"
        environment = await self._metadata_by_proxy(name)
        add = partial(
            self._local.add_broker, name, environment=environment, timeout_s=0, advertised_listeners=listeners
        )
        await self.launcher.launch(add)
        self._aim(name)

    def _aim(self, name: str) -> None:
        """At where it listens, which is another port where somebody had taken its own before it was ready."""
        if name not in self.proxies:
            return
        with contextlib.suppress(NoSuchName):  # it has just been taken out
            part = self._local.daemon_part(name)
            self.proxies[name].target = _host_and_port(part.address)
            self._addresses[name] = part.address
            if isinstance(part, BrokerPart):
                self.pulsar_proxies[name].target = _host_and_port(part.pulsar_address)

    async def _metadata_by_proxy(self, name: str) -> dict[str, str]:
        location = urlsplit(self.metadata)
        proxies = []
        for server in location.netloc.split(","):
            host, _, port = server.rpartition(":")
            proxies.append(await self._proxy(host, int(port)))
        self.metadata_proxies[name] = tuple(proxies)
        hosts = ",".join(proxy.address for proxy in proxies)
        return {"MAGNETAR_METADATA": urlunsplit(location._replace(netloc=hosts))}

    async def _proxy(self, host: str, port: int) -> Proxy:
        return await self._exits.enter_async_context(Proxy(host, port))


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
