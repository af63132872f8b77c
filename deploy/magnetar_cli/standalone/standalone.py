"""Metadata store, bookie and broker in one process: the production classes, which call each other directly.

    clients ──gRPC──► Broker ──in process──► BookieProcess ──► <folder>/bookie     (RocksDB, log files)
               │        └────── sessions ────────┴───────────► <folder>/metadata   (embedded)
               └── reads of entries ─────────────┘                                 (entry_reads.py)

The two stores are opened concurrently. Broker and bookie have a session each with the embedded metadata store. If the
disk of either store fails, `wait_failed` raises. The disk must not be used then until the folder is opened again, since
its contents are unknown: the process must exit without `close`.

    async with Standalone(StandaloneSettings(ephemeral=True, grpc_port=0, pulsar_port=0, http_port=0)) as standalone:
        standalone.grpc_url, standalone.pulsar_url
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NoReturn, Self

from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.server.bookie_process import BookieProcess
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_bookie.storage.interface import StorageFailed
from magnetar_bookie.storage.rocksdb import RocksStorage, StorageSettings, open_rocksdb
from magnetar_broker.broker import INTERNAL, Broker
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_cli.standalone.data_folder import DataFolder, remove_abandoned
from magnetar_cli.standalone.entry_reads import SharedListenerTransport
from magnetar_cli.standalone.lazy_http import LazyHttp
from magnetar_cli.standalone.settings import StandaloneSettings
from magnetar_metadata.embedded.store import EmbeddedDatabase
from magnetar_metadata.store import MetadataStore
from magnetar_wire.clock import SystemClock
from magnetar_wire.configuration import select_settings
from magnetar_wire.grpc_transport import GrpcSettings, GrpcTransport
from magnetar_wire.in_process_transport import InProcessTransport
from magnetar_wire.process.settings import HttpSettings
from magnetar_wire.randomness import SystemRandomness
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.transport import NotReached, Transport

__all__ = ["Standalone"]

_log = logging.getLogger(__name__)
_BOOKIE: Final = "standalone"
_BROKER: Final = "standalone"
_ANY_HOST: Final = ("0.0.0.0", "[::]", "::", "")


class Standalone:
    """A standalone server, as a context manager."""

    def __init__(self, settings: StandaloneSettings) -> None:
        self.settings = settings
        # None before `start`.
        self.folder: DataFolder | None = None
        self.broker: Broker | None = None
        self.bookie: BookieProcess | None = None
        self.storage: RocksStorage | None = None
        self._clock = SystemClock()
        self._randomness = SystemRandomness()
        self._database: EmbeddedDatabase | None = None
        self._bookie_running: asyncio.Task[None] | None = None
        # A session that only detects failures: it is lost when the metadata store fails.
        self._failure_session: MetadataStore | None = None
        # Parts that did not close in time, probably because the disk hangs.
        self.hanging: list[str] = []
        self._http: LazyHttp | None = None

    @property
    def grpc_url(self) -> str:
        assert self.broker is not None, "the standalone has not been started"
        return f"magnetar://{self.broker.advertised_address}"

    @property
    def pulsar_url(self) -> str:
        assert self.broker is not None, "the standalone has not been started"
        return f"pulsar://{self.broker.advertised.find_pulsar('')}"

    @property
    def http_url(self) -> str:
        return f"http://{_reachable_address(self._http.address)}" if self._http else ""

    async def start(self) -> None:
        """Return when messages can be published.

        Raise `FolderTaken`; `NotReached` or `OSError` if an address is in use; and the errors of the stores if they
        can't be opened. After an error, all parts that were started are closed.
        """
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def wait_failed(self) -> NoReturn:
        """Wait until the standalone has failed, and raise the error: `StorageFailed` if the disk failed."""
        assert self._bookie_running is not None, "the standalone has not been started"
        assert self._failure_session is not None
        lost = asyncio.get_running_loop().create_task(self._failure_session.session.wait_lost())
        try:
            await asyncio.wait([self._bookie_running, lost], return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
        if self._bookie_running.done():
            self._bookie_running.result()
        raise StorageFailed("the disk of the metadata store failed: see the log")

    async def wait_http(self) -> None:
        """Wait until HTTP is served, or its start has failed."""
        assert self._http is not None, "the standalone has not been started"
        await self._http.wait_attempted()

    async def close(self) -> None:
        """Shut down gracefully: complete requests in flight, notify clients, close the stores. Each step has a
        timeout."""
        if self._http is not None:
            await self._run_with_timeout(self._http.close(), "closing HTTP")
            self._http = None
        if self.broker is not None:
            await self._run_with_timeout(
                self.broker.close(), "closing the broker", self.settings.broker_shutdown_timeout_seconds
            )
            self.broker = None
        if self.bookie is not None and self._bookie_running is not None:
            if not self._bookie_running.done():
                await self._run_with_timeout(self.bookie.drain(), "stopping the bookie")
            self._bookie_running.cancel()
            await asyncio.wait([self._bookie_running], timeout=self.settings.close_timeout_seconds)
            if not self._bookie_running.done():
                self.hanging.append("the bookie")
            self.bookie = None
        if self.storage is not None:
            await self._run_with_timeout(self.storage.close(), "closing the bookie's storage")
            self.storage = None
        if self._database is not None:
            await self._run_with_timeout(self._database.close(), "closing the metadata store")
            self._database = None
        if self.folder is not None:
            self.folder.close()
            self.folder = None

    async def _start(self) -> None:
        settings = self.settings
        if settings.ephemeral:
            remove_abandoned()
            self.folder = DataFolder.create_ephemeral()
        else:
            self.folder = DataFolder.open(settings.data_folder.absolute())
        try:
            self._http = await LazyHttp.listen(f"{settings.host}:{settings.http_port}")
        except OSError as error:
            raise NotReached(f"HTTP can't be served at {settings.host}:{settings.http_port}: {error}") from error
        await self._open_stores(self.folder)
        assert self._database is not None
        assert self.storage is not None
        connect = self._database.connect
        self._failure_session = connect()

        async def session() -> MetadataStore:
            return connect()

        in_process = InProcessTransport(self._clock)
        grpc = GrpcTransport(select_settings(GrpcSettings, self.settings))

        def start_bookie(address: str) -> Bookie:
            """Start the bookie, which is registered with the listener's address."""
            host, _, port = (self._advertised_address or address).rpartition(":")
            advertised = f"{host}:{address.rpartition(':')[2] if port == '0' else port}"
            self.bookie = self._make_bookie(session, in_process, advertised)
            self._bookie_running = asyncio.get_running_loop().create_task(self.bookie.run(), name="bookie")
            return self.bookie.bookie

        self.broker = Broker(
            session,
            in_process,
            [(SharedListenerTransport(grpc, start_bookie), f"{settings.host}:{settings.grpc_port}")],
            self._clock,
            self._randomness,
            select_settings(BrokerServiceSettings, self.settings),
            select_settings(LedgerClientSettings, self.settings),
            self._advertised_address,
            broker_id=_BROKER,
            pulsar_listeners=[("", f"{settings.host}:{settings.pulsar_port}")],
            pulsar_advertised=self._pulsar_advertised,
            process_settings=self.settings,
        )
        self.broker.pulsar_context.advertises_reached_address = self.pulsar_at_any_address
        self.broker.http_address = self._advertised_http_address
        await self.broker.start()
        assert self.bookie is not None
        assert self._bookie_running is not None
        await self._wait_bookie_started(self.bookie, self._bookie_running)
        self._http.serve(self.broker, self.bookie, self.folder.path, select_settings(HttpSettings, self.settings))
        self.folder.write_urls({"grpc": self.grpc_url, "pulsar": self.pulsar_url, "http": self.http_url})

    @property
    def _advertised_address(self) -> str:
        """The address that clients get. Empty: the one at which it listens."""
        return self.settings.advertised_address or ("127.0.0.1:0" if self.settings.host in _ANY_HOST else "")

    @property
    def _advertised_http_address(self) -> str:
        """The address of the HTTP server for clients: with the host of `advertised_address`, if that is set."""
        assert self._http is not None
        reachable, host = _reachable_address(self._http.address), self.settings.advertised_address.rpartition(":")[0]
        return f"{host}:{reachable.rpartition(':')[2]}" if host else reachable

    @property
    def pulsar_at_any_address(self) -> bool:
        """Whether lookups of Pulsar's clients return the address to which the client connected."""
        is_set = self.settings.advertised_address or self.settings.pulsar_advertised_address
        return self.settings.host in _ANY_HOST and not is_set

    @property
    def _pulsar_advertised(self) -> list[tuple[str, str]]:
        """The addresses that Pulsar's clients get: by default on the same host."""
        host = self._advertised_address.rpartition(":")[0]
        address = self.settings.pulsar_advertised_address or (f"{host}:0" if host else "")
        return [(INTERNAL, address)] if address else []

    def _make_bookie(
        self, session: Callable[[], Awaitable[MetadataStore]], transport: Transport, address: str
    ) -> BookieProcess:
        assert self.storage is not None
        return BookieProcess(
            _BOOKIE,
            self.storage,
            session,
            transport,
            address,
            self._clock,
            self._randomness,
            select_settings(BookieServerSettings, self.settings),
            select_settings(LedgerClientSettings, self.settings),
            select_settings(AutoRecoverySettings, self.settings),
        )

    async def _open_stores(self, folder: DataFolder) -> None:
        """Open both stores concurrently. If one can't be opened, `start` closes the other."""

        async def metadata() -> None:
            self._database = await EmbeddedDatabase.open(folder.path / "metadata", self._clock)

        async def ledgers() -> None:
            self.storage = await open_rocksdb(folder.path / "bookie", select_settings(StorageSettings, self.settings))

        try:
            async with OrderedTaskGroup() as tasks:
                tasks.create_task(metadata())
                tasks.create_task(ledgers())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _wait_bookie_started(self, bookie: BookieProcess, running: asyncio.Task[None]) -> None:
        started = asyncio.get_running_loop().create_task(bookie.started.wait())
        try:
            await asyncio.wait([started, running], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            started.cancel()

    async def _run_with_timeout(self, work: Coroutine[Any, Any, None], name: str, more_s: float = 0.0) -> None:
        """Wait for the work. After the timeout it is left running, since it may hang with the disk."""
        task = asyncio.get_running_loop().create_task(work)
        timeout_s = self.settings.close_timeout_seconds + more_s
        await asyncio.wait([task], timeout=timeout_s)
        if not task.done():
            _log.warning("%s did not finish within %s s", name, timeout_s)
            self.hanging.append(name)
        elif not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("%s failed: %s: %s", name, type(error).__name__, error)


def _reachable_address(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if host in _ANY_HOST else address
