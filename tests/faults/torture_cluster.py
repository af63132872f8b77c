"""A local cluster whose every connection goes through a proxy of the test's own, and whose disks fail when told to.

A bookie tells others the address of its proxy, and reaches the metadata store by another one; so does each chain's
writer. All of it is the launcher's cluster otherwise: real processes, and a ZooKeeper. The launcher's acts block, and
the kernel ends what was started when the thread that started it ends: so they are done by one thread that stays.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

from magnetar_cli.cluster import ClusterError, LocalCluster
from magnetar_wire.randomness import Randomness
from tests.faults.proxy import Proxy

__all__ = ["QUICK_BOOKIES", "SESSION_TIMEOUT_S", "TortureCluster"]

T = TypeVar("T")

SESSION_TIMEOUT_S: Final = 4.0
# Production's bookies but for their patience.
QUICK_BOOKIES: Final[dict[str, Any]] = {
    "add_entry_timeout_s": 3.0,
    "read_entry_timeout_s": 3.0,
    "speculative_read_timeout_ms": 500,
    "bookie_quarantine_time_s": 3.0,
    "recovery_timeout_s": 20.0,
    "lost_bookie_recovery_delay_s": 8.0,
    "lost_bookie_replacement_delay_s": 3.0,
    "open_ledger_rereplication_grace_period_s": 8.0,
    "auditor_scan_interval_s": 3.0,
    "auditor_periodic_check_interval_s": 20.0,
    "auditor_check_pause_s": 0.1,
    "intent_grace_period_s": 10.0,
    "rw_rereplicate_backoff_s": 0.5,
    "rw_rereplicate_backoff_max_s": 5.0,
    "inventory_timeout_s": 10.0,
    "garbage_interval_s": 3.0,
    "disk_check_interval_s": 1.0,
    "grpc_keepalive_time_ms": 3000,
    "grpc_keepalive_timeout_ms": 3000,
}
_START_S: Final = 5.0
_WIPED_S: Final = 60.0


class TortureCluster:
    def __init__(self, folder: Path, bookies: int, **settings: Any) -> None:
        self.folder = folder
        self.names = [f"b{number}" for number in range(1, bookies + 1)]
        self._settings = {**QUICK_BOOKIES, **settings}
        self._thread = ThreadPoolExecutor(1)
        self._local = LocalCluster(folder / "cluster", die_with_parent=True)
        self._exits = AsyncExitStack()
        # By bookie: between it and whoever calls it, and between it and the metadata store.
        self.proxies: dict[str, Proxy] = {}
        self.metadata_proxies: dict[str, Proxy] = {}

    async def __aenter__(self) -> Self:
        try:
            await self.do(lambda: self._local.up(bookies=0, settings=self._settings))
            for name in self.names:
                await self._add(name)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        try:
            await self.do(self._down)
        finally:
            await self._exits.aclose()
            self._thread.shutdown()

    def _down(self) -> None:
        try:
            # All that is to be seen was seen: nobody waits for them to end in peace.
            self._local.down(timeout_s=0)
        except ClusterError as error:
            if "no cluster" not in str(error).lower():
                raise

    async def do(self, act: Callable[[], T]) -> T:
        """In the launcher's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, act)

    async def add(self) -> str:
        """One bookie more; its name."""
        name = f"b{len(self.names) + 1}"
        await self._add(name)
        self.names.append(name)
        return name

    async def _add(self, name: str) -> None:
        shim = await self.do(lambda: _shim(self.folder))
        proxy = self.proxies[name] = await self._exits.enter_async_context(Proxy("127.0.0.1", 1))
        location, self.metadata_proxies[name] = await self.metadata_by_proxy()
        environment = {
            "MAGNETAR_METADATA": location,
            "LD_PRELOAD": str(shim),
            "FAILING_DISK": str(self.flag(name)),
        }

        def add() -> str:
            bookie = self._local.add(name, environment=environment, advertised_address=proxy.address)
            return bookie.address

        host, _, port = (await self.do(add)).rpartition(":")
        proxy.target = host, int(port)

    def metadata(self) -> str:
        """Straight to the store."""
        return _with_session_timeout(urlsplit(self._local.metadata).netloc, self._local.metadata)

    async def metadata_by_proxy(self, session_timeout_s: float = SESSION_TIMEOUT_S) -> tuple[str, Proxy]:
        """A way to the metadata store that can be cut."""
        straight = await self.do(lambda: self._local.metadata)
        host, _, port = urlsplit(straight).netloc.rpartition(":")
        proxy = await self._exits.enter_async_context(Proxy(host, int(port)))
        return _with_session_timeout(proxy.address, straight, session_timeout_s), proxy

    def flag(self, name: str) -> Path:
        """What stands in this file is what the bookie's disk does."""
        return self.folder / f"disk-of-{name}"

    def running(self, name: str) -> bool:
        return self._local.bookie(name).running

    def pid(self, name: str) -> int | None:
        return self._local.bookie(name).pid

    def log(self, name: str) -> Path:
        return self._local.log(name)

    async def kill(self, name: str) -> None:
        await self.do(lambda: self._local.kill(name) if self._runs(name) else None)

    async def stop(self, name: str) -> None:
        await self.do(lambda: self._local.stop(name) if self._runs(name) else None)

    async def pause(self, name: str) -> None:
        await self.do(lambda: self._local.pause(name) if self._runs(name) else None)

    async def resume(self, name: str) -> None:
        await self.do(lambda: self._local.resume(name) if self._runs(name) else None)

    def _runs(self, name: str) -> bool:
        return name == "zookeeper" or self._local.bookie(name).running

    async def start(self, name: str, timeout_s: float = _START_S) -> str:
        """Why it is not ready yet; empty: it is. It goes on starting."""

        def start() -> str:
            try:
                self._local.start(name, timeout_s=timeout_s)
            except ClusterError as error:
                return str(error)
            return ""

        return await self.do(start)

    async def rot(self, name: str, chance: Randomness) -> None:
        """Kills it, and flips a bit of what it has recorded."""
        await self.kill(name)
        folder = self._local.bookie(name).data_folder / "records"

        def flip() -> None:
            files = [path for path in sorted(folder.glob("*.log")) if path.stat().st_size]
            if not files:
                return
            with chance.choice(files).open("r+b") as file:
                at = chance.below(file.seek(0, os.SEEK_END))
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ (1 << chance.below(8))]))

        await self.do(flip)

    async def wipe(self, name: str) -> str:
        """Starts it without its data, and gives them back; returns what it said of that."""
        data = self._local.bookie(name).data_folder
        aside = data.with_name("aside")
        await self.kill(name)
        await self.do(lambda: data.rename(aside))
        # It is to end by itself. The launcher has other things to do meanwhile, such as starting what it waits for.
        deadline = asyncio.get_running_loop().time() + _WIPED_S
        while (said := await self.start(name, 2.0)) and "has ended" not in said:
            if asyncio.get_running_loop().time() > deadline:
                break

        def undo() -> None:
            if self._local.bookie(name).running:
                self._local.kill(name)
            shutil.rmtree(data, ignore_errors=True)
            aside.rename(data)

        await self.do(undo)
        return said

    async def ask(self, name: str, path: str) -> tuple[int | None, Any]:
        return await self.do(lambda: self._local.bookie(name).ask(path))


def _with_session_timeout(netloc: str, location: str, session_timeout_s: float = SESSION_TIMEOUT_S) -> str:
    parts = urlsplit(location)
    return urlunsplit(parts._replace(netloc=netloc, query=f"session_timeout_s={session_timeout_s}"))


def _shim(folder: Path) -> Path:
    """The library that makes disks fail."""
    built = folder / "failing_disk.so"
    if not built.exists():
        compiler = shutil.which("gcc")
        if compiler is None:
            raise ClusterError("gcc is needed for failing disks")
        source = Path(__file__).with_name("failing_disk.c")
        folder.mkdir(parents=True, exist_ok=True)
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", os.fspath(built), os.fspath(source), "-ldl"]
        subprocess.run(command, check=True)
    return built
