"""The HTTP server of a standalone. Its libraries take longer to import than all other parts take to start.

The socket listens from the start, and early requests wait in its backlog. A thread imports the libraries while messages
can be published already. It begins with the first request, or after a second, so that it doesn't slow down the first
messages after the start.
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

__all__ = ["LazyHttp"]

_log = logging.getLogger(__name__)
# Clients that wait for the start have sent their first messages by then.
_START_DELAY_S: Final = 1.0


class LazyHttp:
    def __init__(self, listening: socket.socket, address: str) -> None:
        # The requested host, and the actual port.
        self.address = address
        self._listening = listening
        self._serving: asyncio.Task[None] | None = None
        self._server: HttpServer | None = None
        self._attempted = asyncio.Event()
        self._close_parts: Callable[[], object] = lambda: None

    @classmethod
    async def listen(cls, address: str) -> LazyHttp:
        """Listen at the address. Raise `OSError`."""
        listening = await open_listening_socket(address)
        host, _, _ = address.rpartition(":")
        return cls(listening, f"{host}:{listening.getsockname()[1]}")

    def serve(self, broker: Broker, bookie: BookieProcess, folder: Path, settings: HttpSettings) -> None:
        """Begin to serve at the first request, or after a second."""
        work = self._serve(broker, bookie, folder, settings)
        self._serving = asyncio.get_running_loop().create_task(work, name="http")

    async def wait_attempted(self) -> None:
        """Wait until HTTP is served, or its start has failed."""
        await self._attempted.wait()

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
            await self._wait_first_request()
            make_app, serve = await asyncio.to_thread(_import_libraries)
            app, self._close_parts = make_app(broker, bookie, folder, self.address)
            self._server = await serve(app, self.address, settings, self._listening)
        except Exception:  # noqa: BLE001 (messages can be published without HTTP)
            _log.exception("HTTP could not be started")
        finally:
            self._attempted.set()

    async def _wait_first_request(self) -> None:
        loop, requested = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._listening, requested.set)
        try:
            async with asyncio.timeout(_START_DELAY_S):
                await requested.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(self._listening)


def _import_libraries() -> tuple[Callable[..., Any], Callable[..., Awaitable[Any]]]:
    # `_make_app` imports it, too, on the event loop. That is fast after this import.
    import magnetar_broker.http.routes  # noqa: F401
    from magnetar_wire.process.http_server import serve_http

    return _make_app, serve_http


def _make_app(broker: Broker, bookie: BookieProcess, folder: Path, address: str) -> tuple[Any, Callable[[], object]]:
    """Return the application, and a function that closes its parts."""
    from prometheus_client.core import Metric

    from magnetar_bookie.daemon.disk_use import DiskUse
    from magnetar_bookie.daemon.metrics import Metrics
    from magnetar_broker.http.metrics import BrokerMetrics
    from magnetar_broker.http.routes import BrokerHttp

    disk = DiskUse(folder)
    bookie_metrics = Metrics(bookie)

    async def collect_bookie_metrics() -> Iterable[Metric]:
        return list(bookie_metrics.collect(await disk.look()))

    metrics = BrokerMetrics(broker, broker.settings, broker.settings.cluster_name, collect_bookie_metrics)
    return BrokerHttp(broker, metrics, address).app, disk.close
