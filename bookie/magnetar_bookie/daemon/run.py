"""One bookie as a process: it combines the parts, runs them until a shutdown or a failure, and returns the exit status.

**A graceful shutdown** has a timeout for each of its steps, and so for the whole: `BookieProcess.drain`, the end of the
bookie, the close of the storage. If a step takes too long, the next one is done all the same. Clients without an answer
don't know the outcome of their requests; what was answered was durable before. A folder that was not closed is opened
like that of a process that was killed.

**A failure of the disk** ends the process without touching the disk again: it is unknown what is on it until it is
opened again. If the disk hangs, threads hang with it, and nothing waits for them. For the same reason the caller of
`run_bookie` ends the process by `os._exit`, with the status that it returns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from magnetar_bookie.daemon.disk_usage import DiskUsageMonitor
from magnetar_bookie.daemon.health import Health
from magnetar_bookie.daemon.http_routes import BookieHttp
from magnetar_bookie.errors import BookieRefused
from magnetar_bookie.server.bookie_process import BookieProcess
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_bookie.settings.process import BookieSettings
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_bookie.storage.interface import LedgerStorage, StorageFailed, StorageInUse
from magnetar_bookie.storage.rocksdb import StorageSettings, open_rocksdb
from magnetar_metadata.errors import InvalidLocation, StoreDamaged, StoreInUse
from magnetar_metadata.location import open_metadata
from magnetar_metadata.store import MetadataStore
from magnetar_wire.clock import Clock, SystemClock
from magnetar_wire.configuration import select_settings
from magnetar_wire.grpc_transport import GrpcSettings, GrpcTransport
from magnetar_wire.process.event_loop import new_event_loop
from magnetar_wire.process.exit_status import ExitStatus
from magnetar_wire.process.http_server import HttpServer, HttpSettings, serve_http
from magnetar_wire.process.loop_delay import LoopDelayMonitor
from magnetar_wire.process.memory_tuning import keep_freed_memory
from magnetar_wire.process.shutdown import Shutdown
from magnetar_wire.process.stop_signals import StopSignals
from magnetar_wire.randomness import SystemRandomness
from magnetar_wire.transport import NotReached, Transport

__all__ = ["BookieDaemon", "BookieParts", "run_bookie"]

_log = logging.getLogger(__name__)
# Added to the timeouts of all steps; after that the process is ended from outside the event loop.
_MARGIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class BookieParts:
    """The parts that a bookie needs."""

    open_storage: Callable[[], Awaitable[LedgerStorage]]
    transport: Transport
    open_metadata: Callable[[], Awaitable[MetadataStore]]
    clock: Clock


def run_bookie(settings: BookieSettings, signals: StopSignals) -> ExitStatus:
    """Runs one bookie until it ends. End the process with the status at once: threads may hang."""
    keep_freed_memory()
    loop = new_event_loop()
    status = loop.run_until_complete(_run(settings, signals))
    if status is ExitStatus.ENDED:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    return status


async def _run(settings: BookieSettings, signals: StopSignals) -> ExitStatus:
    clock = SystemClock()

    async def metadata() -> MetadataStore:
        try:
            return await open_metadata(settings.metadata, clock)
        except (InvalidLocation, StoreInUse, StoreDamaged) as error:
            raise BookieRefused(f"the metadata store can't be opened: {error}") from error

    async def storage() -> LedgerStorage:
        return await open_rocksdb(settings.data_folder, select_settings(StorageSettings, settings))

    parts = BookieParts(storage, GrpcTransport(select_settings(GrpcSettings, settings)), metadata, clock)
    daemon = BookieDaemon(settings, parts)
    loop = asyncio.get_running_loop()
    timeout_s = (
        settings.drain_timeout_seconds
        + 2 * settings.close_timeout_seconds
        + settings.http_close_timeout_seconds
        + _MARGIN_S
    )
    signals.start(lambda: loop.call_soon_threadsafe(daemon.shut_down), timeout_s)
    return await daemon.run()


class BookieDaemon:
    """A bookie with its HTTP server, from its start to its end."""

    def __init__(self, settings: BookieSettings, parts: BookieParts) -> None:
        self._settings = settings
        self._parts = parts
        self._clock = parts.clock
        self._shutdown = Shutdown(settings.close_timeout_seconds)
        # Set when HTTP is served.
        self.http_address = ""
        self.process: BookieProcess | None = None

    def shut_down(self) -> None:
        """Request a graceful shutdown."""
        self._shutdown.request()

    async def run(self) -> ExitStatus:
        """Run until a shutdown or a failure, which is logged. Return the exit status."""
        bookie_id = self._settings.bookie_id
        try:
            status = await self._open_and_run()
            if status is ExitStatus.ENDED:
                _log.info("Bookie %s has shut down gracefully", bookie_id)
            else:
                _log.critical("Bookie %s stops with exit status %d (%s)", bookie_id, status, status.name)
        except (BookieRefused, NotReached, StorageInUse) as error:
            status = ExitStatus.REFUSED
            _log.critical("Bookie %s does not start: %s: exit status %d", bookie_id, error, status)
        except StorageFailed as error:
            status = ExitStatus.DISK_FAILED
            _log.critical("Bookie %s stops with exit status %d: %s", bookie_id, status, error)
        except Exception:  # noqa: BLE001 (a bug: nobody else would log it)
            status = ExitStatus.BROKEN
            _log.critical("Bookie %s stops because of a bug with exit status %d", bookie_id, status, exc_info=True)
        return status

    async def _open_and_run(self) -> ExitStatus:
        settings = self._settings
        opening = asyncio.ensure_future(self._parts.open_storage())
        if not await self._shutdown.wait_done_first(opening):
            return await self._close_when_opened(opening)
        storage = opening.result()
        try:
            status = await self._run_on_storage(storage)
        except StorageFailed:
            raise  # without touching the disk again
        except BaseException:
            await self._shutdown.run_step(storage.close(), "closing the storage")
            raise
        if not await self._shutdown.run_step(storage.close(), "closing the storage"):
            _log.critical("The disk has not answered for %s s", settings.close_timeout_seconds)
            return ExitStatus.DISK_FAILED
        return status

    async def _run_on_storage(self, storage: LedgerStorage) -> ExitStatus:
        settings = self._settings
        process = self.process = BookieProcess(
            settings.bookie_id,
            storage,
            self._parts.open_metadata,
            self._parts.transport,
            settings.listen_address,
            self._clock,
            SystemRandomness(),
            select_settings(BookieServerSettings, settings),
            select_settings(LedgerClientSettings, settings),
            select_settings(AutoRecoverySettings, settings),
            advertised_listeners=settings.advertised,
        )
        loop_monitor = LoopDelayMonitor(self._clock)
        health = Health(process, settings, self._clock, loop_monitor)
        disk = DiskUsageMonitor(settings.data_folder)
        http: HttpServer | None = None
        try:
            http = await self._serve_http(process, health, disk)
            process.http_address = self.http_address
            return await self._serve(process)
        finally:
            await self._shutdown.run_step(health.close(), "closing the health check")
            loop_monitor.close()
            disk.close()
            if http is not None:
                await self._shutdown.run_step(http.close(), "closing HTTP")

    async def _serve(self, process: BookieProcess) -> ExitStatus:
        serving = asyncio.get_running_loop().create_task(process.run(), name="bookie")
        log_task = asyncio.get_running_loop().create_task(self._log_when_registered(process))
        try:
            if await self._shutdown.wait_done_first(serving):
                serving.result()
                raise AssertionError("a bookie that is not cancelled runs until it fails")
            draining = asyncio.get_running_loop().create_task(process.drain(), name="draining")
            ends: list[asyncio.Task[Any]] = [draining, serving]
            await asyncio.wait(ends, timeout=self._settings.drain_timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
            if not draining.done():
                draining.cancel()
                if not serving.done():
                    _log.warning(
                        "The graceful shutdown did not finish within %s s", self._settings.drain_timeout_seconds
                    )
            elif (error := draining.exception()) is not None:
                _log.warning("The graceful shutdown failed: %s: %s", type(error).__name__, error)
            if serving.done():
                serving.result()
        finally:
            log_task.cancel()
        serving.cancel()
        await asyncio.wait([serving], timeout=self._settings.close_timeout_seconds)
        if not serving.done():
            # The metadata store hangs, or a client does. Nothing more is written.
            _log.warning("The service did not stop within %s s", self._settings.close_timeout_seconds)
            await self._shutdown.run_step(process.bookie.close(), "closing the bookie")
        elif not serving.cancelled():
            serving.result()
        return ExitStatus.ENDED

    async def _serve_http(self, process: BookieProcess, health: Health, disk: DiskUsageMonitor) -> HttpServer | None:
        if not self._settings.http_address:
            return None
        http = BookieHttp(process, health, disk, self._clock)
        try:
            server = await serve_http(
                http.app, self._settings.http_address, select_settings(HttpSettings, self._settings)
            )
        except OSError as error:
            raise BookieRefused(
                f"HTTP can't be served at {self._settings.http_address}: {error.strerror or error}: set http_address "
                "to another one"
            ) from error
        http.address = self.http_address = server.address
        _log.info("HTTP listens at %s", server.address)
        return server

    async def _log_when_registered(self, process: BookieProcess) -> None:
        await process.started.wait()
        _log.info(
            "Bookie %s serves at %s, and is registered with the address %s",
            process.bookie.bookie_id,
            process.address,
            process.advertised_address,
        )

    async def _close_when_opened(self, opening: asyncio.Future[LedgerStorage]) -> ExitStatus:
        """Shut down while the storage is being opened."""
        await asyncio.wait([opening], timeout=self._settings.close_timeout_seconds)
        if opening.done() and await self._shutdown.run_step(opening.result().close(), "closing the storage"):
            return ExitStatus.ENDED
        _log.critical("Opening the storage did not finish within another %s s", self._settings.close_timeout_seconds)
        return ExitStatus.DID_NOT_END
