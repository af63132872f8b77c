"""Standalone's HTTP, whose libraries take longer to import than all the rest takes to start.

The address is taken at the start; whoever asks at once waits there until it is served, which a thread prepares while
messages go through already. It begins when somebody asks, or after a moment by itself: the first messages after a start
are not to share the processor with it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from magnetar_bookie.server.bookie_process import BookieProcess
from magnetar_broker.broker import Broker
from magnetar_wire.process.listening_socket import open_listening_socket
from magnetar_wire.process.settings import HttpSettings

if TYPE_CHECKING:
    from magnetar_wire.process.http_server import HttpServer

__all__ = ["LateHttp"]

_log = logging.getLogger(__name__)
# Long enough for clients that wait for the start, short enough for nobody to find it missing.
_BY_ITSELF_S: Final = 1.0


class LateHttp:
    def __init__(self, listening: socket.socket, address: str) -> None:
        # Where: what was asked for, with the port that was chosen.
        self.address = address
        self._listening = listening
        self._serving: asyncio.Task[None] | None = None
        self._server: HttpServer | None = None
        self._tried = asyncio.Event()
        self._close_parts: Callable[[], object] = lambda: None

    @classmethod
    async def listen(cls, address: str) -> LateHttp:
        """Raises `OSError` where it can't listen there."""
        listening = await open_listening_socket(address)
        host, _, _ = address.rpartition(":")
        return cls(listening, f"{host}:{listening.getsockname()[1]}")

    def serve(self, broker: Broker, bookie: BookieProcess, folder: Path, settings: HttpSettings) -> None:
        """From now on, as soon as it is asked for, or in a moment."""
        work = self._serve(broker, bookie, folder, settings)
        self._serving = asyncio.get_running_loop().create_task(work, name="http")

    async def wait_tried(self) -> None:
        """Until it is served, or can't be."""
        await self._tried.wait()

    async def close(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])
        if self._server is not None:
            await self._server.close()
        self._close_parts()
        self._listening.close()

    async def _serve(self, broker: Broker, bookie: BookieProcess, folder: Path, settings: HttpSettings) -> None:
        try:
            await self._somebody_asks()
            make, serve = await asyncio.to_thread(_import)
            app, self._close_parts = make(broker, bookie, folder, self.address)
            self._server = await serve(app, self.address, settings, self._listening)
        except Exception:  # noqa: BLE001 (messages go through without it)
            _log.exception("HTTP could not be started")
        finally:
            self._tried.set()

    async def _somebody_asks(self) -> None:
        loop, asked = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._listening, asked.set)
        try:
            async with asyncio.timeout(_BY_ITSELF_S):
                await asked.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(self._listening)


def _import() -> tuple[Callable[..., Any], Callable[..., Awaitable[Any]]]:
    # Not needed by name; imported here, and not on the event loop.
    import magnetar_broker.http.routes  # noqa: F401
    from magnetar_wire.process.http_server import serve_http

    return _made, serve_http


def _made(broker: Broker, bookie: BookieProcess, folder: Path, address: str) -> tuple[Any, Callable[[], object]]:
    """The application, and what closes its parts."""
    from prometheus_client.core import Metric

    from magnetar_bookie.daemon.disk_usage import DiskUsageMonitor
    from magnetar_bookie.daemon.metrics import Metrics
    from magnetar_broker.http.metrics import BrokerMetrics
    from magnetar_broker.http.routes import BrokerHttp

    disk = DiskUsageMonitor(folder)
    of_bookie = Metrics(bookie)

    async def others() -> Iterable[Metric]:
        return list(of_bookie.collect(await disk.measure()))

    metrics = BrokerMetrics(broker, broker.settings, broker.settings.cluster_name, others)
    return BrokerHttp(broker, metrics, address).app, disk.close
