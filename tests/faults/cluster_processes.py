"""The processes of a cluster that is tortured: the launcher's, struck from a coroutine; and the proxies between brokers
and clients. Brokers reach each other without those: clients name another listener.

The launcher's acts block, and the kernel ends what was started when the thread that started it ends: so they are done
by one thread that stays. Whatever is struck may be gone or paused already: then nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from magnetar_cli.cluster import ClusterError, LocalCluster
from magnetar_cli.cluster.errors import NoCluster, NotStarted, NotThere
from tests.faults.cluster_workload import LISTENER
from tests.faults.proxy import Proxy
from tests.faults.torture_cluster import QUICK_BOOKIES

__all__ = ["SESSION_TIMEOUT_S", "ClusterProcesses"]

T = TypeVar("T")

SESSION_TIMEOUT_S: Final = 4.0
# Production's brokers but for their patience, and with ledgers that roll, and are trimmed, within the minute.
QUICK_BROKERS: Final[dict[str, Any]] = {
    "managed_ledger_max_entries_per_ledger": 400,
    "managed_ledger_min_ledger_rollover_time_minutes": 0,
    "managed_ledger_cursor_max_entries_per_ledger": 200,
    "add_entry_timeout_s": 3.0,
    "read_entry_timeout_s": 3.0,
    "speculative_read_timeout_ms": 500,
    "bookie_quarantine_time_s": 3.0,
    "lost_bookie_replacement_delay_s": 3.0,
    "recovery_timeout_s": 20.0,
}
# Other acts wait meanwhile: nobody waits for one that starts until all is to be healed.
_START_S: Final = 0.2
_END_S: Final = 10.0


class ClusterProcesses:
    def __init__(self, folder: Path, brokers: int = 3, bookies: int = 3, zookeepers: int = 3) -> None:
        self.brokers = [f"broker-{number}" for number in range(1, brokers + 1)]
        self.bookies = [f"bookie-{number}" for number in range(1, bookies + 1)]
        self.zookeepers = [f"zookeeper-{number}" for number in range(1, zookeepers + 1)]
        # Where clients find it through proxies, if they name LISTENER; where it is without; and where its metadata are.
        self.url = self.direct_url = self.metadata = ""
        # By broker: between it and its clients.
        self.proxies: dict[str, Proxy] = {}
        self._exits = AsyncExitStack()
        self._thread = ThreadPoolExecutor(1)
        self._local = LocalCluster(folder, die_with_parent=True)

    async def __aenter__(self) -> Self:
        try:
            await self._do(
                lambda: self._local.up(
                    bookies=len(self.bookies),
                    brokers=0,
                    zookeepers=len(self.zookeepers),
                    settings=QUICK_BOOKIES,
                    broker_settings=QUICK_BROKERS,
                    session_timeout_s=SESSION_TIMEOUT_S,
                )
            )
            await self._add_brokers()
        except BaseException:
            await self.close()
            raise
        self.url = "magnetar://" + ",".join(proxy.address for proxy in self.proxies.values())
        self.direct_url, self.metadata = self._local.service_url, self._local.metadata
        return self

    async def _add_brokers(self) -> None:
        """Each with a proxy of its own, all of them at once."""
        for name in self.brokers:
            proxy = self.proxies[name] = await self._exits.enter_async_context(Proxy("127.0.0.1", 1))
            listeners = f"internal:magnetar://127.0.0.1:0,{LISTENER}:magnetar://{proxy.address}"
            await self._do(partial(self._add_broker, name, listeners))
        await self._do(lambda: self._local.start(*self.brokers))
        for name, proxy in self.proxies.items():
            host, _, port = self._local.broker(name).address.rpartition(":")
            proxy.target = host, int(port)

    def _add_broker(self, name: str, listeners: str) -> None:
        with contextlib.suppress(NotStarted):  # it is waited for when all have begun
            self._local.add_broker(name, advertised_listeners=listeners, timeout_s=0)

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        try:
            await self._if_there(lambda: self._local.down(timeout_s=0))
        finally:
            await self._exits.aclose()
            self._thread.shutdown()

    @property
    def names(self) -> list[str]:
        """In the order in which they are started again."""
        return [*self.zookeepers, *self.bookies, *self.brokers]

    def logs(self) -> list[Path]:
        """Of what is written in Python."""
        return [self._local.log(name) for name in (*self.bookies, *self.brokers)]

    async def kill(self, name: str) -> None:
        await self._if_there(lambda: self._local.kill(name))

    async def stop(self, name: str) -> None:
        await self._if_there(lambda: self._local.stop(name, timeout_s=_END_S))

    async def pause(self, name: str) -> None:
        await self._if_there(lambda: self._local.pause(name))

    async def resume(self, name: str) -> None:
        await self._if_there(lambda: self._local.resume(name))

    async def start(self, *names: str, timeout_s: float = _START_S) -> str:
        """Those that stand still go on, too. Why they are not ready yet; empty: they are. They go on starting."""

        def start() -> str:
            try:
                self._local.start(*names, timeout_s=timeout_s)
            except ClusterError as error:
                return str(error)
            return ""

        return await self._do(start)

    async def _if_there(self, act: Callable[[], object]) -> None:
        def tried() -> None:
            # Another strike was faster, or it has ended by itself.
            with contextlib.suppress(NotThere, NoCluster):
                act()

        await self._do(tried)

    async def _do(self, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, act)
