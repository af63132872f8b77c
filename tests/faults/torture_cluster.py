"""A local cluster with a proxy of the test's own on every connection, and disks that can be made to fail.

A bookie advertises the address of its proxy, and reaches the metadata store through another one; so does each chain's
writer. The rest is the launcher's cluster: real processes, and a ZooKeeper.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

from magnetar_wire.randomness import Randomness
from tests.faults.proxy import Proxy
from tests.faults.torture.bookie_disk import failing_disk, flip_bit
from tests.faults.torture.launcher import Launcher
from tests.faults.torture.quick import QUICK_BOOKIES, SESSION_TIMEOUT_S

__all__ = ["QUICK_BOOKIES", "SESSION_TIMEOUT_S", "TortureCluster"]

T = TypeVar("T")

_START_S: Final = 5.0
_WIPED_S: Final = 60.0
# Longer than a bookie takes to drain.
_END_S: Final = 30.0


class TortureCluster:
    def __init__(self, folder: Path, bookies: int, **settings: Any) -> None:
        self.folder = folder
        self.names = [f"b{number}" for number in range(1, bookies + 1)]
        self._settings = {**QUICK_BOOKIES, **settings}
        self._launcher = Launcher(folder / "cluster")
        self._local = self._launcher.local
        self._exits = AsyncExitStack()
        # By bookie: between it and its callers, and between it and the metadata store.
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
            await self._launcher.close()
        finally:
            await self._exits.aclose()

    async def do(self, act: Callable[[], T]) -> T:
        """In the launcher's thread."""
        return await self._launcher.do(act)

    async def add(self) -> str:
        """One bookie more; its name."""
        name = f"b{len(self.names) + 1}"
        await self._add(name)
        self.names.append(name)
        return name

    async def _add(self, name: str) -> None:
        shim = await self.do(lambda: failing_disk(self.folder))
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
        return self._launcher.running(name)

    def pid(self, name: str) -> int | None:
        return self._local.bookie(name).pid

    def log(self, name: str) -> Path:
        return self._local.log(name)

    async def kill(self, name: str) -> None:
        await self._launcher.kill(name)

    async def stop(self, name: str) -> None:
        await self._launcher.stop(name, timeout_s=_END_S)

    async def pause(self, name: str) -> None:
        await self._launcher.pause(name)

    async def resume(self, name: str) -> None:
        await self._launcher.resume(name)

    async def start(self, name: str, timeout_s: float = _START_S) -> str:
        """Why it is not ready yet; empty: it is. It goes on starting."""
        return await self._launcher.start(name, timeout_s=timeout_s)

    async def rot(self, name: str, chance: Randomness) -> None:
        """Kills it, and flips a bit of what it has recorded."""
        await self.kill(name)
        data_folder = self._local.bookie(name).data_folder
        await self.do(lambda: flip_bit(data_folder, chance))

    async def wipe(self, name: str) -> str:
        """Start it without its data, and return them; return its output."""
        data = self._local.bookie(name).data_folder
        aside = data.with_name("aside")
        await self.kill(name)
        await self.do(lambda: data.rename(aside))
        # It is to end by itself. The launcher does other things in the meantime, such as starting what it waits for.
        deadline = asyncio.get_running_loop().time() + _WIPED_S
        while (answer := await self.start(name, 2.0)) and "has ended" not in answer:
            if asyncio.get_running_loop().time() > deadline:
                break

        def undo() -> None:
            if self._local.bookie(name).running:
                self._local.kill(name)
            shutil.rmtree(data, ignore_errors=True)
            aside.rename(data)

        await self.do(undo)
        return answer


def _with_session_timeout(netloc: str, location: str, session_timeout_s: float = SESSION_TIMEOUT_S) -> str:
    parts = urlsplit(location)
    return urlunsplit(parts._replace(netloc=netloc, query=f"session_timeout_seconds={session_timeout_s}"))
