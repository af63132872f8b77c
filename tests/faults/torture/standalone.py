"""The standalone of a torture: one process with everything in it, and a proxy between it and its clients.

It has one broker, neither bookies nor a ZooKeeper, and no brokers can be added or removed.

Its ports are chosen before it listens at them, and another process may take one in between, or while it is down. A
standalone that refuses to start is started again with other ports; the proxies lead clients there.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Final, NoReturn, Self

import psutil

from magnetar_cli.cluster.ports import LOOPBACK, free_port
from magnetar_cli.http_request import format_reasons, request_http
from magnetar_testing.standalone_process import StandaloneProcess
from magnetar_wire.process.exit_status import ExitStatus
from magnetar_wire.randomness import Randomness
from tests.faults.checker.recorder import Recorder
from tests.faults.proxy import Proxy
from tests.faults.torture.quick import QUICK_LISTENERS, SMALL_LEDGERS
from tests.faults.torture.system import System

__all__ = ["Standalone"]

# Its broker's id.
_NAME: Final = "standalone"
_STARTS: Final = 5
_READY_S: Final = 60.0
_END_S: Final = 10.0
_LOOK_S: Final = 0.05
# Of the log of a process that ended by itself: they are in the report.
_LAST_LINES: Final = 10


class Standalone(System):
    def __init__(self, folder: Path, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.folder = folder
        self.brokers, self.bookies, self.zookeepers = [_NAME], [], []
        # Their targets are set with the ports.
        self.proxies = {_NAME: Proxy(LOOPBACK, 0)}
        self.pulsar_proxies = {_NAME: Proxy(LOOPBACK, 0)}
        self.metadata_proxies = {}
        self.server = StandaloneProcess(folder / "data")
        self.server.python_options = ("-W", "error")
        self._choose_ports()
        # The process that got the last signal: a concurrent start does not know that it is about to end.
        self._signalled_pid = 0

    async def __aenter__(self) -> Self:
        proxies = [await one.__aenter__() for one in (self.proxies[_NAME], self.pulsar_proxies[_NAME])]
        try:
            grpc, pulsar = [proxy.address for proxy in proxies]
            addresses = {"advertised_address": grpc, "pulsar_advertised_address": pulsar}
            self.server.settings = {**SMALL_LEDGERS, **QUICK_LISTENERS, **addresses}
            for _ in range(_STARTS):
                why = await self.start(_NAME, timeout_s=_READY_S)
                if not self._has_refused():
                    break
            if why:
                raise RuntimeError(why)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await asyncio.to_thread(self.server.close)
        finally:
            for proxies in (self.proxies, self.pulsar_proxies):
                await proxies[_NAME].close()

    @property
    def service_url(self) -> str:
        return f"magnetar://{self.proxies[_NAME].address}"

    @property
    def direct_url(self) -> str:
        return self.server.service_url

    @property
    def metadata(self) -> str:
        """For who opens it while the server does not run: one process has it at a time."""
        return f"embedded://{self.server.folder.absolute() / 'metadata'}"

    def broker_addresses(self) -> dict[str, list[str]]:
        return {_NAME: [self.proxies[_NAME].address, self.server.service_url.removeprefix("magnetar://")]}

    def logs(self) -> list[Path]:
        return [self.server.log]

    # ── its process ──

    def running(self, name: str) -> bool:
        return name == _NAME and self.server.process is not None and self.server.process.poll() is None

    async def kill(self, *names: str) -> None:
        self._down_by_fault.update(names)
        for name in names:
            self._send_signal(name, signal.SIGKILL)
        await self._ended()

    async def stop(self, name: str) -> None:
        self._down_by_fault.add(name)
        self._send_signal(name, signal.SIGTERM)
        self._signal(name, signal.SIGCONT)
        if not await self._ended(_END_S):
            await self.kill(name)

    async def pause(self, *names: str) -> None:
        for name in names:
            self._signal(name, signal.SIGSTOP)
            # The signal is in flight still.
            while self.running(name) and psutil.Process(self.server.pid).status() != psutil.STATUS_STOPPED:
                await asyncio.sleep(0.001)

    async def resume(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    async def start(self, *names: str, timeout_s: float = 0.2) -> str:
        """Those that stand still go on, too. Why they are not ready yet; empty: they are. They go on starting."""
        if _NAME not in names:
            return ""
        self._down_by_fault.discard(_NAME)
        if self.running(_NAME):
            self._signal(_NAME, signal.SIGCONT)
        else:
            await self._ended()
            if self._has_refused():
                self._choose_ports()
            self.server.spawn()
        deadline = asyncio.get_running_loop().time() + timeout_s
        while why := await self._waits_for():
            if not self.running(_NAME) or asyncio.get_running_loop().time() >= deadline:
                return why
            await asyncio.sleep(_LOOK_S)
        return ""

    async def ready(self, name: str) -> str:
        if name != _NAME:
            return ""
        if name in self._down_by_fault:
            return f"{name} is down"
        if not self.running(name):
            if self.server.pid != self._signalled_pid and not self._has_refused():
                self.ended_by_themselves[name] += 1
                log = self.server.logged.splitlines()[-_LAST_LINES:]
                self.known_of_ends[name] = "\n".join([f"exit status {self.server.wait()}; its log ends so:", *log])
            return await self.start(name)
        return await self._waits_for()

    def _choose_ports(self) -> None:
        grpc = free_port()
        pulsar = free_port([grpc])
        http = free_port([grpc, pulsar])
        self.proxies[_NAME].target = LOOPBACK, grpc
        self.pulsar_proxies[_NAME].target = LOOPBACK, pulsar
        self.server.service_url, self.server.http_url = f"magnetar://{LOOPBACK}:{grpc}", f"http://{LOOPBACK}:{http}"
        self.server.pulsar_url = f"pulsar://{LOOPBACK}:{pulsar}"

    def _has_refused(self) -> bool:
        """Whether it did not start, most likely because a port is taken."""
        return self.server.process is not None and self.server.process.poll() == ExitStatus.REFUSED

    async def _waits_for(self) -> str:
        if not self.running(_NAME):
            return f"{_NAME} has ended: see {self.server.log}"
        status, answer = await asyncio.to_thread(request_http, self.server.http_url.removeprefix("http://"), "/ready")
        if status == 200:
            return ""
        return f"{_NAME}: {'it does not answer yet' if status is None else format_reasons(answer)}"

    def _send_signal(self, name: str, number: signal.Signals) -> None:
        if self.running(name):
            self._signalled_pid = self.server.pid
            self._signal(name, number)

    def _signal(self, name: str, number: signal.Signals) -> None:
        if self.running(name):
            self.server.signal(number)

    async def _ended(self, timeout_s: float = _READY_S) -> bool:
        """Whether it did in time; what is left of the process is taken away."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self.running(_NAME):
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(0.01)
        if self.server.process is not None:
            self.server.wait()
        return True

    # ── what it has not got ──

    def disk(self, name: str) -> Path:
        self._has_none(name)

    async def flip_bit(self, name: str, chance: Randomness) -> str:
        self._has_none(name)

    def may_add(self, kind: str) -> bool:
        return False

    def may_remove(self, name: str) -> bool:
        return False

    async def add_broker(self) -> str:
        self._has_none("another broker")

    async def add_bookie(self) -> str:
        self._has_none("a bookie")

    async def remove(self, name: str, timeout_s: float) -> str:
        self._has_none(name)

    def _has_none(self, what: str) -> NoReturn:
        raise NotImplementedError(f"a standalone has no {what}")
