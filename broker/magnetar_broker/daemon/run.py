"""One broker as a process: its start, its shutdown, and its exit status.

It starts also while the metadata store and the bookies are unavailable. HTTP is served first, so that `/ready` reports
what the broker waits for. It becomes ready by itself.

**Graceful shutdown.** Each step has a timeout, so the whole has one (`Shutdown`), even if the event loop hangs
(`StopSignals`). The next opening of a topic recovers what was not closed by then, as after a kill. The caller of
`run_broker` ends the process with the status at once, by `os._exit`, because threads may hang.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_broker.broker import Broker
from magnetar_broker.http.metrics import BrokerMetrics
from magnetar_broker.http.routes import BrokerHttp
from magnetar_broker.settings.process import BrokerSettings
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_metadata.location import open_metadata
from magnetar_metadata.store import MetadataStore
from magnetar_wire.clock import Clock, SystemClock
from magnetar_wire.configuration import select_settings
from magnetar_wire.grpc_transport import GrpcSettings, GrpcTransport
from magnetar_wire.process.addresses import ANY_HOST
from magnetar_wire.process.event_loop import new_event_loop
from magnetar_wire.process.exit_status import ExitStatus
from magnetar_wire.process.http_server import HttpServer, HttpSettings, serve_http
from magnetar_wire.process.memory_tuning import freeze_objects_and_raise_gc_thresholds, keep_freed_memory
from magnetar_wire.process.open_files import raise_open_file_limit
from magnetar_wire.process.shutdown import Shutdown
from magnetar_wire.process.stop_signals import StopSignals
from magnetar_wire.randomness import Randomness, SystemRandomness
from magnetar_wire.transport import NotReached, ProbingTransport

__all__ = ["BrokerDaemon", "Parts", "run_broker"]

_log = logging.getLogger(__name__)
# Time for ending the session and notifying clients, in addition to the settings.
_END_SESSION_S: Final = 5.0
# Added to the timeouts of all steps, before the process is ended from outside the event loop.
_MARGIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the process that a broker uses."""

    # Connects to bookies and other brokers, and listens.
    transport: ProbingTransport
    open_metadata: Callable[[], Awaitable[MetadataStore]]
    clock: Clock
    randomness: Randomness


def run_broker(settings: BrokerSettings, signals: StopSignals) -> ExitStatus:
    """Run one broker until it ends. The caller ends the process with the status at once, because threads may hang."""
    keep_freed_memory()
    raise_open_file_limit()
    loop = new_event_loop()
    return loop.run_until_complete(_run(settings, signals))


async def _run(settings: BrokerSettings, signals: StopSignals) -> ExitStatus:
    clock = SystemClock()

    async def metadata() -> MetadataStore:
        return await open_metadata(settings.metadata, clock)

    parts = Parts(GrpcTransport(select_settings(GrpcSettings, settings)), metadata, clock, SystemRandomness())
    daemon = BrokerDaemon(settings, parts)
    loop = asyncio.get_running_loop()
    timeout_s = settings.broker_shutdown_timeout_seconds + 2 * settings.close_timeout_seconds + _END_SESSION_S
    signals.start(
        lambda: loop.call_soon_threadsafe(daemon.request_shutdown),
        timeout_s + settings.http_close_timeout_seconds + _MARGIN_S,
    )
    return await daemon.run()


class BrokerDaemon:
    """A broker and its HTTP server, from start to shutdown."""

    def __init__(self, settings: BrokerSettings, parts: Parts) -> None:
        self._settings = settings
        self._parts = parts
        self._shutdown = Shutdown(settings.close_timeout_seconds)
        # Set when HTTP is served.
        self.http_address = ""
        self.broker = Broker(
            parts.open_metadata,
            parts.transport,
            [(parts.transport, address) for address in settings.listen_addresses],
            parts.clock,
            parts.randomness,
            select_settings(BrokerServiceSettings, settings),
            select_settings(LedgerClientSettings, settings),
            broker_id=settings.broker_id,
            peer_transport=parts.transport,
            advertised=settings.advertised,
            named_listeners=[(name, parts.transport, address) for name, address in settings.bound],
            pulsar_listeners=[*(("", address) for address in settings.pulsar_listen_addresses), *settings.pulsar_bound],
            pulsar_advertised=settings.pulsar_advertised,
            process_settings=settings,
        )

    def request_shutdown(self) -> None:
        """Begin a graceful shutdown."""
        self._shutdown.request()

    async def run(self) -> ExitStatus:
        """Run until a shutdown is requested or the broker fails. Log the outcome."""
        broker_id = self._settings.broker_id
        try:
            status = await self._run()
            if status is ExitStatus.ENDED:
                _log.info("Broker %s has shut down gracefully", broker_id)
            else:
                _log.critical("Broker %s stops with exit status %d (%s)", broker_id, status, status.name)
        except NotReached as error:
            status = ExitStatus.REFUSED
            _log.critical("Broker %s does not start: %s: exit status %d", broker_id, error, status)
        except Exception:  # noqa: BLE001 (the last line of defence)
            status = ExitStatus.BROKEN
            _log.critical("Broker %s stops because of a bug with exit status %d", broker_id, status, exc_info=True)
        return status

    async def _run(self) -> ExitStatus:
        http = await self._serve_http()
        try:
            return await self._serve()
        finally:
            if http is not None:
                await self._shutdown.run_step(http.close(), "closing HTTP")

    async def _serve(self) -> ExitStatus:
        broker = self.broker
        try:
            starting = asyncio.get_running_loop().create_task(broker.start(), name="starting")
            if await self._shutdown.wait_done_first(starting):
                starting.result()
                freeze_objects_and_raise_gc_thresholds()
                self._log_addresses()
                failed = asyncio.get_running_loop().create_task(broker.wait_failed(), name="failed")
                if await self._shutdown.wait_done_first(failed):
                    failed.result()
                failed.cancel()
            else:
                starting.cancel()
                await asyncio.wait([starting])
        except BaseException:
            await self._close()
            raise
        return ExitStatus.ENDED if await self._close() else ExitStatus.DID_NOT_END

    async def _close(self) -> bool:
        extra_s = self._settings.broker_shutdown_timeout_seconds + _END_SESSION_S
        return await self._shutdown.run_step(self.broker.close(), "closing the broker", extra_s)

    async def _serve_http(self) -> HttpServer | None:
        settings = self._settings
        if not settings.http_address:
            return None
        metrics = BrokerMetrics(self.broker, self.broker.settings, settings.cluster_name)
        http = BrokerHttp(self.broker, metrics)
        try:
            server = await serve_http(http.app, settings.http_address, select_settings(HttpSettings, settings))
        except OSError as error:
            raise NotReached(
                f"HTTP can't be served at {settings.http_address}: {error.strerror or error}: set http_address to "
                "another one"
            ) from error
        self.http_address = http.address = server.address
        addresses = dict(settings.advertised[:1]).values() or settings.listen_addresses
        self.broker.http_address = _advertised_http_address(server.address, next(iter(addresses)))
        _log.info("HTTP listens at %s", server.address)
        return server

    def _log_addresses(self) -> None:
        broker = self.broker
        addresses = ", ".join([*broker.addresses, *(f"pulsar://{address}" for address in broker.pulsar_addresses)])
        if broker.session is None or broker.session.ownership.waits_for:
            _log.info("Broker %s listens at %s, and is not registered yet", broker.broker_id, addresses)
            return
        _log.info(
            "Broker %s serves at %s, and is registered with the address %s",
            broker.broker_id,
            addresses,
            broker.advertised_address,
        )


def _advertised_http_address(http_address: str, address: str) -> str:
    """Return the address of the HTTP server for others: with the host of `address` if it listens at all addresses."""
    host, _, port = http_address.rpartition(":")
    return f"{address.rpartition(':')[0]}:{port}" if host in ANY_HOST else http_address
