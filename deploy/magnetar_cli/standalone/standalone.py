"""Metadata store, bookie and broker in one process: the production classes, wired with what costs nothing here.

    clients ──gRPC──► Broker ──in process──► BookieProcess ──► <folder>/bookie     (RocksDB, log files)
               │        └────── sessions ────────┴───────────► <folder>/metadata   (embedded)
               └── reads of entries ─────────────┘                                 (entry_reads.py)

The two stores are opened at the same time. Broker and bookie have a session each on the one embedded metadata store.
The failure of either store, which is the disk's, is the end of it all: `wait_failed` tells. Nothing touches the disk
again then, since nobody knows what is on it before it is opened anew: such a process is ended and not closed.

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
from magnetar_cli.standalone.entry_reads import ListensForBoth
from magnetar_cli.standalone.late_http import LateHttp
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
    def __init__(self, settings: StandaloneSettings) -> None:
        self.settings = settings
        # From `start` on.
        self.folder: DataFolder | None = None
        self.broker: Broker | None = None
        self.bookie: BookieProcess | None = None
        self.storage: RocksStorage | None = None
        self._clock = SystemClock()
        self._randomness = SystemRandomness()
        self._database: EmbeddedDatabase | None = None
        self._bookie_running: asyncio.Task[None] | None = None
        # A session of nobody's: it is lost when the metadata store fails.
        self._witness: MetadataStore | None = None
        # What did not end when it was closed: it hangs, most likely with the disk.
        self.hanging: list[str] = []
        self._http: LateHttp | None = None

    @property
    def grpc_url(self) -> str:
        assert self.broker is not None, "the standalone has not been started"
        return f"magnetar://{self.broker.advertised_address}"

    @property
    def pulsar_url(self) -> str:
        assert self.broker is not None, "the standalone has not been started"
        return f"pulsar://{self.broker.advertised.pulsar_at('')}"

    @property
    def http_url(self) -> str:
        return f"http://{_reachable(self._http.address)}" if self._http else ""

    async def start(self) -> None:
        """Returns when a message can go through.

        Raises `FolderTaken`, `NotReached` and `OSError` where an address is taken, and what the stores raise where they
        can't be opened. Whatever it raises, it has closed what it had begun.
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
        """Raises what it was, when it can't go on: `StorageFailed` where the disk failed."""
        assert self._bookie_running is not None, "the standalone has not been started"
        assert self._witness is not None
        lost = asyncio.get_running_loop().create_task(self._witness.session.wait_lost())
        try:
            await asyncio.wait([self._bookie_running, lost], return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
        if self._bookie_running.done():
            self._bookie_running.result()
        raise StorageFailed("the disk of the metadata store failed: see the log")

    async def wait_http(self) -> None:
        """Until HTTP is served, or can't be."""
        assert self._http is not None, "the standalone has not been started"
        await self._http.wait_tried()

    async def close(self) -> None:
        """In peace: clients are told, what was taken is decided, stores are closed. Each part within a bounded time."""
        if self._http is not None:
            await self._within(self._http.close(), "closing HTTP")
            self._http = None
        if self.broker is not None:
            await self._within(self.broker.close(), "closing the broker", self.settings.broker_shutdown_timeout_seconds)
            self.broker = None
        if self.bookie is not None and self._bookie_running is not None:
            if not self._bookie_running.done():
                await self._within(self.bookie.leave(), "stopping the bookie")
            self._bookie_running.cancel()
            await asyncio.wait([self._bookie_running], timeout=self.settings.close_timeout_seconds)
            if not self._bookie_running.done():
                self.hanging.append("the bookie")
            self.bookie = None
        if self.storage is not None:
            await self._within(self.storage.close(), "closing the bookie's storage")
            self.storage = None
        if self._database is not None:
            await self._within(self._database.close(), "closing the metadata store")
            self._database = None
        if self.folder is not None:
            self.folder.close()
            self.folder = None

    async def _start(self) -> None:
        settings = self.settings
        if settings.ephemeral:
            remove_abandoned()
            self.folder = DataFolder.ephemeral_one()
        else:
            self.folder = DataFolder.open(settings.data_folder.absolute())
        try:
            self._http = await LateHttp.listen(f"{settings.host}:{settings.http_port}")
        except OSError as error:
            raise NotReached(f"HTTP can't be served at {settings.host}:{settings.http_port}: {error}") from error
        await self._open_stores(self.folder)
        assert self._database is not None
        assert self.storage is not None
        connect = self._database.connect
        self._witness = connect()

        async def session() -> MetadataStore:
            return connect()

        within = InProcessTransport(self._clock)
        grpc = GrpcTransport(select_settings(GrpcSettings, self.settings))

        def listening(address: str) -> Bookie:
            """The bookie begins as soon as it is known where it is reached."""
            host, _, port = (self._advertised_address or address).rpartition(":")
            told = f"{host}:{address.rpartition(':')[2] if port == '0' else port}"
            self.bookie = self._make_bookie(session, within, told)
            self._bookie_running = asyncio.get_running_loop().create_task(self.bookie.run(), name="bookie")
            return self.bookie.bookie

        self.broker = Broker(
            session,
            within,
            [(ListensForBoth(grpc, listening), f"{settings.host}:{settings.grpc_port}")],
            self._clock,
            self._randomness,
            select_settings(BrokerServiceSettings, self.settings),
            select_settings(LedgerClientSettings, self.settings),
            self._advertised_address,
            broker_id=_BROKER,
            pulsar_listeners=[("", f"{settings.host}:{settings.pulsar_port}")],
            pulsar_advertised=self._pulsar_advertised,
        )
        self.broker.pulsar_context.advertises_reached_address = self.pulsar_at_any_address
        await self.broker.start()
        assert self.bookie is not None
        assert self._bookie_running is not None
        await self._bookie_started(self.bookie, self._bookie_running)
        self._http.serve(self.broker, self.bookie, self.folder.path, select_settings(HttpSettings, self.settings))
        self.folder.tell({"grpc": self.grpc_url, "pulsar": self.pulsar_url, "http": self.http_url})

    @property
    def _advertised_address(self) -> str:
        """What clients are told; empty: where it listens."""
        return self.settings.advertised_address or ("127.0.0.1:0" if self.settings.host in _ANY_HOST else "")

    @property
    def pulsar_at_any_address(self) -> bool:
        """Pulsar's clients are told the address that they came to."""
        said = self.settings.advertised_address or self.settings.pulsar_advertised_address
        return self.settings.host in _ANY_HOST and not said

    @property
    def _pulsar_advertised(self) -> list[tuple[str, str]]:
        """On the same host, unless it is said where."""
        host = self._advertised_address.rpartition(":")[0]
        told = self.settings.pulsar_advertised_address or (f"{host}:0" if host else "")
        return [(INTERNAL, told)] if told else []

    def _make_bookie(
        self, session: Callable[[], Awaitable[MetadataStore]], within: Transport, address: str
    ) -> BookieProcess:
        assert self.storage is not None
        return BookieProcess(
            _BOOKIE,
            self.storage,
            session,
            within,
            address,
            self._clock,
            self._randomness,
            select_settings(BookieServerSettings, self.settings),
            select_settings(LedgerClientSettings, self.settings),
            select_settings(AutoRecoverySettings, self.settings),
        )

    async def _open_stores(self, folder: DataFolder) -> None:
        """Both at the same time; whichever was opened is closed again where the other can't be."""

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

    async def _bookie_started(self, bookie: BookieProcess, running: asyncio.Task[None]) -> None:
        started = asyncio.get_running_loop().create_task(bookie.started.wait())
        try:
            await asyncio.wait([started, running], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        finally:
            started.cancel()

    async def _within(self, work: Coroutine[Any, Any, None], what: str, more_s: float = 0.0) -> None:
        """Where it is not done within the time for closing, it is left as it is: it may hang with the disk."""
        task = asyncio.get_running_loop().create_task(work)
        timeout_s = self.settings.close_timeout_seconds + more_s
        await asyncio.wait([task], timeout=timeout_s)
        if not task.done():
            _log.warning("%s did not finish within %s s", what, timeout_s)
            self.hanging.append(what)
        elif not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("%s failed: %s: %s", what, type(error).__name__, error)


def _reachable(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if host in _ANY_HOST else address
