"""One broker as a process: made of its parts, run until it is told to end or can't go on, and what its end says.

It starts whether or not the metadata store and the bookies are there. HTTP is served first, so that `/ready` says what
it waits for; it becomes ready by itself.

**Ending in peace** has a bound for each of its steps, so that the whole has one (`Shutdown`), and holds where the event
loop stands still, too (`StopSignals`). What is not done by then is what the next opening of each topic recovers, as
after a kill. Whoever calls `run_broker` ends the process with the status at once, by `os._exit`: threads may hang.
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
# The session's end and telling clients take a moment besides what is set.
_TELLING_S: Final = 5.0
# What is added to the bounds of all steps, before the process is ended from outside the event loop.
_MARGIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What a broker stands on."""

    # To bookies and other brokers, and for whoever comes.
    transport: ProbingTransport
    open_metadata: Callable[[], Awaitable[MetadataStore]]
    clock: Clock
    randomness: Randomness


def run_broker(settings: BrokerSettings, signals: StopSignals) -> ExitStatus:
    """Runs one broker until it ends. End the process with the status at once: threads may hang."""
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
    bound_s = settings.broker_shutdown_timeout_seconds + 2 * settings.close_timeout_seconds + _TELLING_S
    signals.start(
        lambda: loop.call_soon_threadsafe(daemon.end), bound_s + settings.http_close_timeout_seconds + _MARGIN_S
    )
    return await daemon.run()


class BrokerDaemon:
    """A broker with its HTTP, from its start to its end."""

    def __init__(self, settings: BrokerSettings, parts: Parts) -> None:
        self._settings = settings
        self._parts = parts
        self._shutdown = Shutdown(settings.close_timeout_seconds)
        # When it is served.
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
        )

    def end(self) -> None:
        """It is to end in peace."""
        self._shutdown.request()

    async def run(self) -> ExitStatus:
        """Until it is told to end, or can't go on. Whatever happens is logged."""
        broker_id = self._settings.broker_id
        try:
            status = await self._live()
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

    async def _live(self) -> ExitStatus:
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
                self._say_so()
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
        more_s = self._settings.broker_shutdown_timeout_seconds + _TELLING_S
        return await self._shutdown.run_step(self.broker.close(), "closing the broker", more_s)

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
        told = dict(settings.advertised[:1]).values() or settings.listen_addresses
        self.broker.http_address = _told_to_others(server.address, next(iter(told)))
        _log.info("HTTP listens at %s", server.address)
        return server

    def _say_so(self) -> None:
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


def _told_to_others(http_address: str, address: str) -> str:
    """One that stands for all of this machine's addresses is told as that of the service."""
    host, _, port = http_address.rpartition(":")
    return f"{address.rpartition(':')[0]}:{port}" if host in ANY_HOST else http_address
