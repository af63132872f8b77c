"""Control the launcher's cluster from a coroutine. Its acts block, and only one at a time may change a cluster: so one
thread does them, in the order of the requests. Further threads do what takes long, and what only reads.

A target may be down, removed or paused already: then nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from magnetar_cli.cluster import ClusterError, LocalCluster
from magnetar_cli.cluster.errors import NoCluster, NoSuchName, NotStarted, NotThere
from magnetar_cli.cluster.process import is_paused, send
from magnetar_cli.zookeeper_server import read_server_mode
from magnetar_metadata.location import ZooKeeperLocation, parse_location

__all__ = ["START_S", "Launcher"]

T = TypeVar("T")

# Other acts wait for these: a process that starts is awaited only where it must be ready.
START_S: Final = 0.2
_END_S: Final = 10.0
_LOOKERS: Final = 8


class Launcher:
    def __init__(self, folder: Path) -> None:
        self.local = LocalCluster(folder, die_with_parent=True)
        self._thread = ThreadPoolExecutor(1, "launcher")
        self._aside = ThreadPoolExecutor(_LOOKERS, "beside the launcher")

    async def do(self, act: Callable[[], T]) -> T:
        """By turns with all other acts."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, act)

    async def do_aside(self, act: Callable[[], T]) -> T:
        """While others are done."""
        return await asyncio.get_running_loop().run_in_executor(self._aside, act)

    async def close(self) -> None:
        try:
            # Everything to be checked was checked: no graceful end is needed.
            await self._if_there(lambda: self.local.down(timeout_s=0))
        finally:
            self._thread.shutdown()
            self._aside.shutdown()

    async def kill(self, *names: str) -> None:
        """Signal all at once, so that later ones do nothing any more that depends on earlier ones."""
        await self._at_once(names, signal.SIGKILL, self.local.kill)

    async def stop(self, name: str, timeout_s: float = _END_S) -> None:
        await self._if_there(lambda: self.local.stop(name, timeout_s=timeout_s))

    async def pause(self, *names: str) -> None:
        await self._at_once(names, signal.SIGSTOP, self.local.pause)

    async def resume(self, name: str) -> None:
        await self._if_there(lambda: self.local.resume(name))

    async def start(self, *names: str, timeout_s: float = START_S) -> str:
        """Those that stand still go on, too. Why they are not ready yet; empty: they are. They go on starting."""

        def start() -> str:
            try:
                self.local.start(*names, timeout_s=timeout_s)
            except ClusterError as error:
                return str(error)
            return ""

        return await self.do(start)

    async def launch(self, add: Callable[[], object]) -> None:
        """Adds somebody, who is waited for another time."""

        def launched() -> None:
            with contextlib.suppress(NotStarted):
                add()

        await self.do(launched)

    # ── looking ──

    def running(self, name: str) -> bool:
        try:
            return self.local.running(name)
        except (NoCluster, NoSuchName):
            return False

    def paused(self, name: str) -> bool:
        process = self.local.daemon_part(name).record.process
        return process is not None and is_paused(process)

    async def waits_for(self, name: str) -> str:
        """What keeps it from being ready; empty: it is."""

        def look() -> str:
            if not self.running(name):
                return f"{name} does not run"
            servers = self._zookeeper_ports()
            if name in servers:
                return "" if read_server_mode(servers[name]) else f"{name} does not serve yet"
            try:
                why = self.local.daemon_part(name).find_unready_reason()
            except NoSuchName as error:
                return str(error)
            return why and f"{name}: {why}"

        return await self.do_aside(look)

    def _zookeeper_ports(self) -> dict[str, int]:
        location = parse_location(self.local.metadata)
        assert isinstance(location, ZooKeeperLocation)
        ports = [int(host.rpartition(":")[2]) for host in location.hosts.split(",")]
        return dict(zip(self.local.zookeeper_names(), ports, strict=True))

    async def _at_once(self, names: Sequence[str], number: signal.Signals, act: Callable[[str], None]) -> None:
        """All signals, and then what is to be done and written down about each: with no other act in between."""

        def send_and_record() -> None:
            if len(names) > 1:
                self._signal(names, number)
            for name in names:
                self._tried(partial(act, name))

        await self.do(send_and_record)

    def _signal(self, names: Sequence[str], number: signal.Signals) -> None:
        """To brokers and bookies: ZooKeeper's servers have their turn afterwards."""
        for name in names:
            with contextlib.suppress(NoSuchName):
                if process := self.local.daemon_part(name).record.process:
                    send(process, number)

    async def _if_there(self, act: Callable[[], object]) -> None:
        await self.do(partial(self._tried, act))

    def _tried(self, act: Callable[[], object]) -> None:
        # Another fault was faster, or it has ended by itself, or was removed.
        with contextlib.suppress(NotThere, NoCluster, NoSuchName):
            act()
