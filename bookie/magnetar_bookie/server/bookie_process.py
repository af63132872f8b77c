"""Everything that one bookie process does, from its start to its end.

Before the bookie serves anybody, a loss of data is noted, its cookie is validated, and its limbo is narrowed. Then it
listens. Parts that need the metadata store (registration, garbage collection, repair of limbo, auto-recovery, scrubber)
run as long as one metadata session, and start again with the next. Clients are served without a session, too: fences
protect the ledgers, not sessions.

For a graceful shutdown, call `drain` and then cancel `run`. A draining bookie refuses new entries as READ_ONLY, so that
their writers choose another bookie at once, and know that the entries were not stored. Its registration is removed, so
that it is not chosen. Entries received before are written, synced and answered.

A failure of the disk or a refused start ends the process. Nothing else does: a part that fails is logged and restarted.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, NoReturn

from magnetar_bookie.auto_recovery.auto_recovery import AutoRecovery
from magnetar_bookie.auto_recovery.limbo_repair import repair_limbo
from magnetar_bookie.auto_recovery.replication_worker import RepairCounters
from magnetar_bookie.errors import BookieRefused
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata_store import LedgerMetadataStore
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.server.cookie_validation import validate_cookie
from magnetar_bookie.server.garbage_collector import GarbageCollector
from magnetar_bookie.server.read_only_reasons import SHUTDOWN
from magnetar_bookie.server.registration import Registration, follow_decommission_mark
from magnetar_bookie.server.scrubber import Scrubber
from magnetar_bookie.settings.auto_recovery import AutoRecoverySettings
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_bookie.settings.server import BookieServerSettings
from magnetar_bookie.storage.interface import LedgerStorage, StorageFailed
from magnetar_metadata.errors import MetadataError, SessionLost
from magnetar_metadata.store import MetadataStore, SessionState
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.tasks import OrderedTaskGroup
from magnetar_wire.transport import Transport

__all__ = ["BookieProcess", "SessionPart"]

_log = logging.getLogger(__name__)
_ANY_HOST: Final = ("0.0.0.0", "[::]")
_BOOKIE_ID: Final = re.compile(r"[A-Za-z0-9_~:-][A-Za-z0-9_.~:-]{0,99}")

# A part that runs as long as a metadata session. If it returns, it is done for that session.
SessionPart = Callable[[LedgerClient, Bookie], Coroutine[Any, Any, None]]


class BookieProcess:
    """One bookie, from its start to its end. The caller closes the storage after `run` has ended."""

    def __init__(
        self,
        bookie_id: str,
        storage: LedgerStorage,
        open_metadata: Callable[[], Awaitable[MetadataStore]],
        transport: Transport,
        address: str,
        clock: Clock,
        randomness: Randomness,
        settings: BookieServerSettings | None = None,
        client_settings: LedgerClientSettings | None = None,
        auto_recovery_settings: AutoRecoverySettings | None = None,
        session_parts: Sequence[SessionPart] | None = None,
        advertised_address: str = "",
        advertised_listeners: Sequence[tuple[str, str]] = (),
    ) -> None:
        """`session_parts` run besides registration and garbage collection; None: all others that there are.

        `advertised_address` is registered if it differs from the address to listen at, behind a proxy or in a
        container; port 0 in it means the port that the bookie listens at. `advertised_listeners` are further names and
        addresses, for readers in other networks. Brokers and other bookies use the first of them, which replaces
        `advertised_address`.
        """
        if not _BOOKIE_ID.fullmatch(bookie_id):
            raise BookieRefused(
                f"invalid bookie_id {bookie_id!r:.120}: use 1 … 100 letters, digits and _ . ~ : -, not "
                "beginning with a dot"
            )
        self.bookie = Bookie(bookie_id, storage, clock, settings)
        self.collector = GarbageCollector(self.bookie, clock, randomness)
        self.scrubber = Scrubber(self.bookie, clock)
        # Set when the bookie is registered for the first time.
        self.started = asyncio.Event()
        # The address to listen at; with the actual port as soon as the bookie listens.
        self.address = address
        self._advertised_address = advertised_listeners[0][1] if advertised_listeners else advertised_address
        self._advertised_listeners = tuple(advertised_listeners)
        # Set by the owner if it serves HTTP.
        self.http_address = ""
        # Parts of the present session.
        self._store: MetadataStore | None = None
        self._registration: Registration | None = None
        self.auto_recovery: AutoRecovery | None = None
        # Ledgers that are still in limbo; None: not counted yet.
        self.ledgers_in_limbo: int | None = None
        self.repairs = RepairCounters()
        self._is_draining = False
        self._open_metadata = open_metadata
        self._transport = transport
        self._clock = clock
        self._randomness = randomness
        self._client_settings = client_settings or LedgerClientSettings()
        self._auto_recovery_settings = auto_recovery_settings or AutoRecoverySettings()
        all_parts = (self._repair_limbo, self._run_auto_recovery, self._scrub)
        self._session_parts = all_parts if session_parts is None else session_parts

    async def run(self) -> None:
        """Run until cancelled. Raises `StorageFailed` or `BookieRefused`."""
        try:
            async with OrderedTaskGroup() as tasks:
                tasks.create_task(self._raise_disk_failure())
                await self._serve()
        except BaseExceptionGroup as errors:
            raise _choose_error(errors) from errors
        finally:
            await self.bookie.close()

    @property
    def advertised_address(self) -> str:
        """The registered address."""
        return self._replace_port_0(self._advertised_address) or self.address

    @property
    def advertised_listeners(self) -> tuple[tuple[str, str], ...]:
        """The registered addresses, by the names of their listeners."""
        return tuple((name, self._replace_port_0(address)) for name, address in self._advertised_listeners)

    @property
    def advertised_http_address(self) -> str:
        """The registered address of HTTP. A wildcard address is replaced by the host of `advertised_address`."""
        host, _, port = self.http_address.rpartition(":")
        return f"{self.advertised_address.rpartition(':')[0]}:{port}" if host in _ANY_HOST else self.http_address

    @property
    def is_registered(self) -> bool:
        """Writers and readers can find the bookie."""
        store, registration = self._store, self._registration
        return (
            store is not None
            and registration is not None
            and registration.is_current
            and store.session.state is SessionState.CONNECTED
        )

    @property
    def session_state(self) -> SessionState:
        return SessionState.LOST if self._store is None else self._store.session.state

    async def drain(self) -> None:
        """Refuse new entries, remove the registration, and return when all earlier entries are durable and answered.

        Raises `StorageFailed`. It may take as long as the disk, the metadata store and slow clients do, so use a
        timeout. `run` goes on until it is cancelled.
        """
        self._is_draining = True
        self.bookie.set_read_only(SHUTDOWN, True)
        if self._store is not None:
            await self._store.close()
        await self.bookie.drain()

    async def _raise_disk_failure(self) -> NoReturn:
        error = await self.bookie.wait_for_failure()
        raise StorageFailed(f"the disk of bookie {self.bookie.bookie_id} failed: {error}") from error

    async def _serve(self) -> None:
        await self.bookie.enter_limbo_after_loss()
        store = await self._open_validated_store()
        try:
            listener = await self._transport.listen(self.address, self.bookie)
        except BaseException:
            await store.close()
            raise
        self.address = listener.address
        try:
            while True:
                started = self._clock.monotonic()
                await self._run_session(store)
                if self._is_draining:
                    await asyncio.get_running_loop().create_future()
                if self._clock.monotonic() < started + self._retry_s:
                    await self._clock.sleep(self._retry_s)
                store = await self._open_store()
        finally:
            await listener.close()

    async def _open_validated_store(self) -> MetadataStore:
        """Open the metadata store, validate the cookie and narrow the limbo. Retries until the store answers."""
        while True:
            store = await self._open_store()
            try:
                await validate_cookie(self.bookie, store, self._clock, self._randomness)
                if self.bookie.are_all_in_limbo:
                    ledgers = LedgerMetadataStore(store, self._clock, self._randomness)
                    await self.bookie.narrow_limbo(await ledgers.last_ledger_id() + 1)
                return store
            except MetadataError as error:
                await store.close()
                _log.info("Bookie %s can't start yet, and tries again: %s", self.bookie.bookie_id, error)
            except BaseException:
                await store.close()
                raise
            await self._clock.sleep(self._retry_s)

    async def _open_store(self) -> MetadataStore:
        while True:
            try:
                return await self._open_metadata()
            except MetadataError as error:
                _log.info("Bookie %s can't reach the metadata store, and tries again: %s", self.bookie.bookie_id, error)
            await self._clock.sleep(self._retry_s)

    async def _run_session(self, store: MetadataStore) -> None:
        """Run all parts that need a metadata session, until the session is lost."""
        bookie, clock = self.bookie, self._clock
        if self._is_draining:
            return await store.close()
        client = LedgerClient(store, self._transport, clock, self._randomness, self._client_settings)
        http_address = self.advertised_http_address
        registration = Registration(
            bookie,
            self.advertised_address,
            store,
            clock,
            self._retry_s,
            self.started,
            http_address,
            self.advertised_listeners,
        )
        self._store, self._registration = store, registration
        try:
            async with OrderedTaskGroup() as tasks:
                tasks.create_task(self._keep_running("registration", registration.run))
                tasks.create_task(
                    self._keep_running(
                        "decommission mark", lambda: follow_decommission_mark(bookie, store, clock, self._retry_s)
                    )
                )
                tasks.create_task(self._keep_running("garbage collection", lambda: self.collector.run(client.ledgers)))
                tasks.create_task(self._run_session_parts(client, store))
                await store.session.wait_lost()
                tasks.cancel()
        finally:
            self._store = self._registration = self.auto_recovery = None
            await client.close()
            await store.close()

    async def _run_session_parts(self, client: LedgerClient, store: MetadataStore) -> None:
        try:
            await client.start()
        except SessionLost:
            return
        except Exception:  # noqa: BLE001 (after any error, the bookie goes on serving)
            _log.exception(
                "Bookie %s can't watch the other bookies in this metadata session, and opens another one",
                self.bookie.bookie_id,
            )
            await store.close()
            return
        async with OrderedTaskGroup() as tasks:
            for part in self._session_parts:
                name = getattr(part, "__name__", "part").strip("_")
                tasks.create_task(self._keep_running(name, partial(part, client, self.bookie)))

    async def _keep_running(self, name: str, part: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Restart the part when it fails, until the session is lost or the disk failed."""
        while True:
            try:
                await part()
                return
            except Exception as error:  # noqa: BLE001 (a bug of one part must not end the others)
                failures = list(_flatten(error)) if isinstance(error, ExceptionGroup) else [error]
                for failure in failures:
                    if isinstance(failure, StorageFailed):
                        self.bookie.fail(failure)
                if all(isinstance(failure, SessionLost | StorageFailed) for failure in failures):
                    return
                _log.exception("%s of bookie %s failed, and is restarted", name, self.bookie.bookie_id)
            await self._clock.sleep(self._retry_s)

    async def _repair_limbo(self, client: LedgerClient, bookie: Bookie) -> None:
        def set_left(ledgers: int) -> None:
            self.ledgers_in_limbo = ledgers

        await repair_limbo(bookie, client, self._auto_recovery_settings, set_left)

    async def _run_auto_recovery(self, client: LedgerClient, bookie: Bookie) -> None:
        self.auto_recovery = AutoRecovery(bookie.bookie_id, client, self._auto_recovery_settings, self.repairs)
        await self.auto_recovery.run()

    async def _scrub(self, client: LedgerClient, bookie: Bookie) -> None:
        await self.scrubber.run(client)

    def _replace_port_0(self, address: str) -> str:
        """Replace port 0 by the port that the bookie listens at."""
        host, colon, port = address.rpartition(":")
        return f"{host}:{self.address.rpartition(':')[2]}" if colon and port == "0" else address

    @property
    def _retry_s(self) -> float:
        return self.bookie.settings.metadata_retry_seconds


def _choose_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended the process: a failed disk before a refused start before all others."""
    leaves = list(_flatten(errors))
    for kind in (StorageFailed, BookieRefused):
        for leaf in leaves:
            if isinstance(leaf, kind):
                return leaf
    return leaves[0] if len(leaves) == 1 else errors


def _flatten(errors: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in errors.exceptions:
        found += _flatten(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
