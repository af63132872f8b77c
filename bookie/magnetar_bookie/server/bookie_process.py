"""Everything that one bookie process does, for as long as it lives.

It begins with what must be settled before anybody is served: a loss on the disk is noted, the bookie's identity made
sure of, its limbo narrowed. Then it listens. What needs the metadata store (the registration, garbage, leading ledgers
out of limbo, auto-recovery) lives with one session, and begins anew with another when that is lost. The service goes on
meanwhile: what it takes part in is guarded by fences, and not by sessions.

Who ends it in peace calls `leave` first, and then cancels `run`. Leaving, the bookie refuses new entries as READ_ONLY,
which has their writers choose another at once and tells them that it was not done, and its registration goes, so that
nobody chooses it; what was taken before is written, synced and answered.

The disk's failure ends the process, and so does a refusal to start. Nothing else does: a part that breaks off is
reported and begins anew.
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
from magnetar_bookie.core.counters import RepairCounters
from magnetar_bookie.errors import BookieRefused
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.ledger.ledger_metadata_store import LedgerMetadataStore
from magnetar_bookie.server.bookie import Bookie
from magnetar_bookie.server.collector import GarbageCollector
from magnetar_bookie.server.identity import establish_identity
from magnetar_bookie.server.limbo import narrow_limbo, note_loss
from magnetar_bookie.server.read_only import STOPPING
from magnetar_bookie.server.registration import Registration, follow_leaving
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

__all__ = ["BookieProcess", "WithSession"]

_log = logging.getLogger(__name__)
_ANY_HOST: Final = ("0.0.0.0", "[::]")
_BOOKIE_ID: Final = re.compile(r"[A-Za-z0-9_~:-][A-Za-z0-9_.~:-]{0,99}")

# What lives with a metadata session. A part that returns is done for that session.
WithSession = Callable[[LedgerClient, Bookie], Coroutine[Any, Any, None]]


class BookieProcess:
    """The storage is the caller's to close, when `run` has ended."""

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
        with_session: Sequence[WithSession] | None = None,
        advertised_address: str = "",
        advertised_listeners: Sequence[tuple[str, str]] = (),
    ) -> None:
        """`with_session`: what lives with a session besides registration and garbage; None: all that there is.

        `advertised_address` is what others are told, where that is not the address at which it listens: behind a proxy
        or in a container. Port 0 in it stands for the one at which it listens. `advertised_listeners` are the same by
        name, for readers elsewhere; brokers and other bookies use the first, in the place of `advertised_address`.
        """
        if not _BOOKIE_ID.fullmatch(bookie_id):
            raise BookieRefused(
                f"invalid bookie_id {bookie_id!r:.120}: use 1 … 100 letters, digits and _ . ~ : -, not "
                "beginning with a dot"
            )
        self.bookie = Bookie(bookie_id, storage, clock, settings)
        self.collector = GarbageCollector(self.bookie, clock, randomness)
        self.scrubber = Scrubber(self.bookie, clock)
        # It has been registered for the first time: writers can find it.
        self.started = asyncio.Event()
        # Where it listens, when it does, and what others are told.
        self.address = address
        self._advertised_address = advertised_listeners[0][1] if advertised_listeners else advertised_address
        self._advertised_listeners = tuple(advertised_listeners)
        # Where it answers over HTTP, if whoever runs it has it do so.
        self.http_address = ""
        # Of the present session.
        self._store: MetadataStore | None = None
        self._registration: Registration | None = None
        self.auto_recovery: AutoRecovery | None = None
        # Ledgers that the present way out of limbo has left; None: it was not counted yet.
        self.ledgers_in_limbo: int | None = None
        self.repairs = RepairCounters()
        self._leaving = False
        self._open_metadata = open_metadata
        self._transport = transport
        self._clock = clock
        self._randomness = randomness
        self._client_settings = client_settings or LedgerClientSettings()
        self._auto_recovery_settings = auto_recovery_settings or AutoRecoverySettings()
        usual = (self._limbo_repair, self._auto_recovery, self._scrubbing)
        self._with_session = usual if with_session is None else with_session

    async def run(self) -> None:
        """Raises `StorageFailed` or `BookieRefused`; ends otherwise when it is cancelled."""
        try:
            async with OrderedTaskGroup() as tasks:
                tasks.create_task(self._end_with_the_disk())
                await self._serve()
        except BaseExceptionGroup as errors:
            raise _decisive(errors) from errors
        finally:
            await self.bookie.close()

    @property
    def advertised_address(self) -> str:
        """What others are told."""
        return self._with_port(self._advertised_address) or self.address

    @property
    def advertised_listeners(self) -> tuple[tuple[str, str], ...]:
        """What others are told who name a listener."""
        return tuple((name, self._with_port(address)) for name, address in self._advertised_listeners)

    @property
    def advertised_http_address(self) -> str:
        """Where others may ask over HTTP; an address that stands for all of this machine's is told as the service's."""
        host, _, port = self.http_address.rpartition(":")
        return f"{self.advertised_address.rpartition(':')[0]}:{port}" if host in _ANY_HOST else self.http_address

    @property
    def registered(self) -> bool:
        """Writers and readers can find it, and choose it unless it is read-only."""
        store, registration = self._store, self._registration
        return (
            store is not None
            and registration is not None
            and registration.stands
            and store.session.state is SessionState.CONNECTED
        )

    @property
    def session_state(self) -> SessionState:
        return SessionState.LOST if self._store is None else self._store.session.state

    async def leave(self) -> None:
        """Takes no new entries, is registered no more, and returns when all that it took is durable and answered.

        Raises `StorageFailed`. May take as long as the disk, the metadata store and slow clients do: bound it. `run`
        goes on until it is cancelled.
        """
        self._leaving = True
        self.bookie.set_read_only(STOPPING, True)
        if self._store is not None:
            await self._store.close()
        await self.bookie.settled()

    async def _end_with_the_disk(self) -> NoReturn:
        error = await self.bookie.wait_failed()
        raise StorageFailed(f"the disk of bookie {self.bookie.bookie_id} failed: {error}") from error

    async def _serve(self) -> None:
        await note_loss(self.bookie)
        store = await self._settled()
        try:
            listener = await self._transport.listen(self.address, self.bookie)
        except BaseException:
            await store.close()
            raise
        self.address = listener.address
        try:
            while True:
                began = self._clock.monotonic()
                await self._live_with(store)
                if self._leaving:
                    await asyncio.get_running_loop().create_future()
                if self._clock.monotonic() < began + self._retry_s:
                    await self._clock.sleep(self._retry_s)
                store = await self._new_store()
        finally:
            await listener.close()

    async def _settled(self) -> MetadataStore:
        """A store with which identity and limbo were settled."""
        while True:
            store = await self._new_store()
            try:
                await establish_identity(self.bookie, store, self._clock, self._randomness)
                await narrow_limbo(self.bookie, LedgerMetadataStore(store, self._clock, self._randomness))
                return store
            except MetadataError as error:
                await store.close()
                _log.info("Bookie %s can't start yet, and tries again: %s", self.bookie.bookie_id, error)
            except BaseException:
                await store.close()
                raise
            await self._clock.sleep(self._retry_s)

    async def _new_store(self) -> MetadataStore:
        while True:
            try:
                return await self._open_metadata()
            except MetadataError as error:
                _log.info("Bookie %s can't reach the metadata store, and tries again: %s", self.bookie.bookie_id, error)
            await self._clock.sleep(self._retry_s)

    async def _live_with(self, store: MetadataStore) -> None:
        """Returns when the session is lost."""
        bookie, clock = self.bookie, self._clock
        if self._leaving:
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
                tasks.create_task(self._kept_up("registration", registration.run))
                tasks.create_task(self._kept_up("leaving", lambda: follow_leaving(bookie, store, clock, self._retry_s)))
                tasks.create_task(self._kept_up("garbage", lambda: self.collector.run(client.ledgers)))
                tasks.create_task(self._maintain(client, store))
                await store.session.wait_lost()
                tasks.cancel()
        finally:
            self._store = self._registration = self.auto_recovery = None
            await client.close()
            await store.close()

    async def _maintain(self, client: LedgerClient, store: MetadataStore) -> None:
        try:
            await client.start()
        except SessionLost:
            return
        except Exception:  # noqa: BLE001 (whatever it is, the service goes on)
            _log.exception(
                "Bookie %s can't watch the other bookies in this metadata session, and opens another one",
                self.bookie.bookie_id,
            )
            await store.close()
            return
        async with OrderedTaskGroup() as tasks:
            for part in self._with_session:
                name = getattr(part, "__name__", "part").strip("_")
                tasks.create_task(self._kept_up(name, partial(part, client, self.bookie)))

    async def _kept_up(self, name: str, part: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begins the part anew when it breaks off, until the session is lost or the disk failed."""
        while True:
            try:
                await part()
                return
            except Exception as error:  # noqa: BLE001 (one part's trouble must not take the service down)
                failures = list(_leaves(error)) if isinstance(error, ExceptionGroup) else [error]
                for failure in failures:
                    if isinstance(failure, StorageFailed):
                        self.bookie.fail(failure)
                if all(isinstance(failure, SessionLost | StorageFailed) for failure in failures):
                    return
                _log.exception("%s of bookie %s failed, and is restarted", name, self.bookie.bookie_id)
            await self._clock.sleep(self._retry_s)

    async def _limbo_repair(self, client: LedgerClient, bookie: Bookie) -> None:
        def left(ledgers: int) -> None:
            self.ledgers_in_limbo = ledgers

        await repair_limbo(bookie, client, self._auto_recovery_settings, left)

    async def _auto_recovery(self, client: LedgerClient, bookie: Bookie) -> None:
        self.auto_recovery = AutoRecovery(bookie.bookie_id, client, self._auto_recovery_settings, self.repairs)
        await self.auto_recovery.run()

    async def _scrubbing(self, client: LedgerClient, bookie: Bookie) -> None:
        await self.scrubber.run(client)

    def _with_port(self, address: str) -> str:
        """The address with the port at which it listens, where it has port 0."""
        host, colon, port = address.rpartition(":")
        return f"{host}:{self.address.rpartition(':')[2]}" if colon and port == "0" else address

    @property
    def _retry_s(self) -> float:
        return self.bookie.settings.metadata_retry_seconds


def _decisive(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Why it ended: the disk before anything else, then the refusal to start, then whatever was first."""
    leaves = list(_leaves(errors))
    for kind in (StorageFailed, BookieRefused):
        for leaf in leaves:
            if isinstance(leaf, kind):
                return leaf
    return leaves[0] if len(leaves) == 1 else errors


def _leaves(errors: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in errors.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
