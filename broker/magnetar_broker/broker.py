"""A broker, whole: made of a metadata store, a way to the bookies, and addresses to listen at.

What it serves lives with one metadata session (`life.py`). When that is over (`session_end.py`), nobody can say any
more that what the broker knows of its topics is so: all are given up at once, and it begins anew with another session;
clients are told SERVICE_NOT_READY, and find their topics again. The listeners stay; meanwhile they refuse everything.

Ending in peace: clients learn of it, what was taken is decided and told, logs and cursors are closed; all within a
bound. Whatever is not done by then is what the next opening recovers, as after a kill.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from magnetar_bookie.client.options import LedgerClientOptions
from magnetar_bookie.errors import LedgerError
from magnetar_broker.admin.health import BrokerHealth
from magnetar_broker.core.counters import BrokerCounters
from magnetar_broker.errors import BrokerError, TopicGivenUp
from magnetar_broker.life import BrokerLife
from magnetar_broker.options import BrokerOptions
from magnetar_broker.service.broker_service import BrokerService
from magnetar_broker.session_end import session_over
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import MetadataStore
from magnetar_protos.admin_pb2 import BrokerAnswer
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.transport import Listener, Transport
from magnetar_wire.version import magnetar_version

__all__ = ["Broker"]

_log = logging.getLogger(__name__)


class Broker:
    def __init__(
        self,
        open_metadata: Callable[[], Awaitable[MetadataStore]],
        bookie_transport: Transport,
        listeners: Sequence[tuple[Transport, str]],
        clock: Clock,
        randomness: Randomness,
        options: BrokerOptions | None = None,
        client_options: LedgerClientOptions | None = None,
        advertised_address: str = "",
        broker_id: str = "",
    ) -> None:
        """`listeners`: each a transport and an address on it, port 0 any free one; the first is what clients are told,
        unless `advertised_address` says otherwise. Port 0 in that is the first one's. `broker_id` is its name among the
        cluster's brokers, the same after each start; empty: the address that clients are told."""
        self.counters = BrokerCounters()
        self.service = BrokerService(lambda: None if self._closing else self.life)
        # Of the present session; None: there is none.
        self.life: BrokerLife | None = None
        self.options = options or BrokerOptions()
        self._open_metadata = open_metadata
        self._bookie_transport = bookie_transport
        self._listen_at = list(listeners)
        self._listeners: list[Listener] = []
        self._clock = clock
        self._randomness = randomness
        self._client_options = client_options or LedgerClientOptions()
        self._advertised_address = advertised_address
        self._broker_id = broker_id
        self._started_ms = clock.time_ms()
        self.health = BrokerHealth(lambda: self.life, lambda: self.broker_id, self.options, clock, randomness)
        self._closing = False
        self._following: asyncio.Task[None] | None = None

    @property
    def addresses(self) -> list[str]:
        """Where it listens."""
        return [listener.address for listener in self._listeners]

    @property
    def advertised_address(self) -> str:
        """What clients are told."""
        host, _, port = self._advertised_address.rpartition(":")
        first = self._listeners[0].address
        if port == "0":
            return f"{host}:{first.rpartition(':')[2]}"
        return self._advertised_address or first

    @property
    def broker_id(self) -> str:
        return self._broker_id or self.advertised_address

    async def start(self) -> None:
        """Returns when it serves. Raises `NotReached` where it can't listen; whoever is cancelled closes it."""
        for transport, address in self._listen_at:
            self._listeners.append(await transport.listen(address, self.service))
        await self._new_life()
        self._following = asyncio.get_running_loop().create_task(self._follow(), name="broker")

    async def close(self) -> None:
        """In peace, within a bounded time."""
        self._closing = True
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        life, self.life = self.life, None
        await self.health.close()
        if life is not None:
            await life.end()
        for listener in self._listeners:
            await listener.close()
        if life is not None:
            await life.close()

    async def _follow(self) -> None:
        """Has one life after another."""
        while True:
            life = self.life
            assert life is not None
            because = await session_over(life.store, self._clock)
            self.life = None
            _log.warning("all topics are given up, as the session with the metadata store is over: %s", because)
            try:
                await life.give_up(TopicGivenUp("its broker has lost its metadata session: look it up again"))
                await life.close()
            except Exception:  # noqa: BLE001 (whatever it is, the broker goes on with another life)
                _log.exception("what was lost did not end as it should")
            while self.life is None:
                try:
                    await self._new_life()
                except Exception:  # noqa: BLE001 (likewise)
                    _log.exception("the broker could not begin anew, and tries again")
                    await self._clock.sleep(self.options.metadata_retry_s)

    async def _new_life(self) -> None:
        while True:
            try:
                store = await self._open_metadata()
            except MetadataError as error:
                _log.info("the metadata store is not reached: %s", error)
                await self._clock.sleep(self.options.metadata_retry_s)
                continue
            life = BrokerLife(
                store,
                self._bookie_transport,
                self.advertised_address,
                self._clock,
                self._randomness,
                self.options,
                self._client_options,
                self.counters,
                self.health,
                self._about,
            )
            try:
                await life.start()
            except (MetadataError, LedgerError, BrokerError) as error:
                await life.close()
                _log.info("the broker can't begin with this session: %s", error)
                await self._clock.sleep(self.options.metadata_retry_s)
                continue
            except BaseException:
                await life.close()
                raise
            self.life = life
            return

    def _about(self) -> BrokerAnswer:
        return BrokerAnswer(
            version=magnetar_version(),
            address=self.advertised_address,
            cluster=self.options.cluster_name,
            started_ms=self._started_ms,
        )
