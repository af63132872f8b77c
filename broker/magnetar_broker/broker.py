"""A broker, whole: made of a metadata store, a way to the bookies, and addresses to listen at.

What it serves lives with one metadata session (`broker_session.py`). When that is over (`session_end.py`), nobody can
say any more that what the broker knows of its topics is so: all are given up at once, and it begins anew with another
session; clients are told SERVICE_NOT_READY, and find their topics again. The listeners stay; meanwhile they refuse
everything.

Ending in peace: clients learn of it, what was taken is decided and told, logs and cursors are closed; all within a
bound. Whatever is not done by then is what the next opening recovers, as after a kill.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NoReturn

from magnetar_bookie.client.options import LedgerClientOptions
from magnetar_bookie.errors import LedgerError
from magnetar_broker.admin.health import BrokerHealth
from magnetar_broker.broker_session import BrokerIdentity, BrokerSession
from magnetar_broker.core.counters import BrokerCounters
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.lag_bound import with_lag_bound
from magnetar_broker.options import BrokerOptions
from magnetar_broker.ownership.interface import Advertised
from magnetar_broker.peers import NoPeers, Peers, PeersLike
from magnetar_broker.server.grpc.listener_scoped_service import ListenerScopedService
from magnetar_broker.server.grpc.service import BrokerService
from magnetar_broker.server.outbox_budget import OutboxBudget
from magnetar_broker.server.pulsar.connection import PulsarConnection
from magnetar_broker.server.pulsar.listener import PulsarListener
from magnetar_broker.server.pulsar.listener_context import Door
from magnetar_broker.session_end import session_over
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import MetadataStore
from magnetar_protos.admin_pb2 import BrokerAnswer
from magnetar_wire.clock import Clock
from magnetar_wire.process.version import read_version
from magnetar_wire.randomness import Randomness
from magnetar_wire.transport import Listener, ProbingTransport, Service, Transport

__all__ = ["INTERNAL", "Broker"]

_log = logging.getLogger(__name__)
# What the listener is called where only one is advertised.
INTERNAL: Final = "internal"
_INSTANCE_BYTES: Final = 16


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
        *,
        peer_transport: ProbingTransport | None = None,
        advertised: Sequence[tuple[str, str]] = (),
        named_listeners: Sequence[tuple[str, Transport, str]] = (),
        pulsar_listeners: Sequence[tuple[str, str]] = (),
        pulsar_advertised: Sequence[tuple[str, str]] = (),
        cpu_seconds: Callable[[], float] = time.process_time,
    ) -> None:
        """`listeners`: each a transport and an address on it, port 0 any free one. `advertised` are the names of
        listeners, and where clients reach each; the first is the internal one, by which other brokers reach it. Port 0
        there is the first listener's. None: one listener, at `advertised_address`, or else where the first one listens.
        `named_listeners` are further ones, each by the name of an advertised one: who comes there is told that one's.
        `pulsar_listeners`: where it listens for clients of Pulsar's protocol, by the name of an advertised listener
        (empty: the internal one) and address; `pulsar_advertised` is where such clients are told to reach it, as
        `advertised`. `broker_id` is its name among the cluster's brokers, the same after each start; empty: its
        internal address. `peer_transport` is how it reaches other brokers; None: not at all."""
        self.counters = BrokerCounters()
        # Of this process, as far as others can tell processes apart.
        self.instance = randomness.token(_INSTANCE_BYTES)
        self.service = BrokerService(self._serving, self.instance)
        # Where HTTP is served, as others are told; set before it starts, if at all.
        self.http_address = ""
        self._peers: PeersLike = Peers(peer_transport) if peer_transport is not None else NoPeers()
        self._cpu_seconds = cpu_seconds
        self._advertised = list(advertised) or [(INTERNAL, advertised_address)]
        # Of the present session; None: there is none.
        self.session: BrokerSession | None = None
        self.options = options or BrokerOptions()
        self._open_metadata = open_metadata
        self._bookie_transport = bookie_transport
        self._listen_at: list[tuple[Transport, str, Service]] = [
            (transport, address, self.service) for transport, address in listeners
        ]
        self._listen_at += [
            (transport, address, ListenerScopedService(self.service, name))
            for name, transport, address in named_listeners
        ]
        self._listeners: list[Listener] = []
        self._outboxes = OutboxBudget(self.options.max_queued_bytes_of_all_streams)
        self._pulsar_at = list(pulsar_listeners)
        self._pulsar_advertised = list(pulsar_advertised)
        self.door = Door(self._serving, self.options, clock, self.counters, self._outboxes)
        self.pulsar_listeners: list[PulsarListener] = []
        self._clock = clock
        self._randomness = randomness
        self._client_options = with_lag_bound(client_options or LedgerClientOptions(), self.options)
        self._broker_id = broker_id
        self._started_ms = clock.time_ms()
        self._began = clock.monotonic()
        # What it has to do before it serves, in words; empty: it serves.
        self.waits_for = "the broker has not started yet"
        self.health = BrokerHealth(
            lambda: self.session, lambda: self.broker_id, self.options, clock, randomness, lambda: self.waits_for
        )
        self._closing = False
        self._following: asyncio.Task[None] | None = None
        # The life of before, as far as it has not ended.
        self._giving_up: asyncio.Task[None] | None = None

    def _serving(self) -> BrokerSession | None:
        return None if self._closing else self.session

    @property
    def addresses(self) -> list[str]:
        """Where it listens."""
        return [listener.address for listener in self._listeners]

    @property
    def pulsar_addresses(self) -> list[str]:
        """Where it listens for clients of Pulsar's protocol."""
        return [listener.address for listener in self.pulsar_listeners]

    @property
    def pulsar_connections(self) -> list[PulsarConnection]:
        return [connection for listener in self.pulsar_listeners for connection in listener.connections]

    @property
    def advertised(self) -> Advertised:
        """What others are told of where it is reached."""
        if not self._listeners:  # it has not been started
            return Advertised(tuple(self._advertised), tuple(self._pulsar_advertised))
        return Advertised(
            _as_chosen(self._listeners[0].address, self._advertised),
            _as_chosen(self.pulsar_listeners[0].address, self._pulsar_advertised or [(INTERNAL, "")])
            if self.pulsar_listeners
            else (),
        )

    @property
    def advertised_address(self) -> str:
        """What clients are told who name no listener."""
        return self.advertised.internal

    @property
    def uptime_s(self) -> float:
        return self._clock.monotonic() - self._began

    @property
    def broker_id(self) -> str:
        return self._broker_id or self.advertised_address

    async def start(self) -> None:
        """Returns when it serves. Raises `NotReached` where it can't listen; whoever is cancelled closes it."""
        for transport, address, service in self._listen_at:
            self._listeners.append(await transport.listen(address, service))
        for name, address in self._pulsar_at:
            listener = PulsarListener(self.door, name)
            await listener.listen(address)
            self.pulsar_listeners.append(listener)
        await self._new_life()
        self._following = asyncio.get_running_loop().create_task(self._follow(), name="broker")

    async def close(self) -> None:
        """In peace, within a bounded time."""
        self._closing = True
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        if self._giving_up is not None:
            await asyncio.wait([self._giving_up])
        life, self.session = self.session, None
        await self.health.close()
        if life is not None:
            await self._end(life)
        for pulsar_listener in self.pulsar_listeners:
            await pulsar_listener.close()
        await self.door.watches.close()
        for listener in self._listeners:
            await listener.close()
        if life is not None:
            await life.close()
        await self._peers.close()

    async def _end(self, life: BrokerSession) -> None:
        """In peace; where the session is over before that, what is left is given up at once, as at any other time."""
        ending = asyncio.get_running_loop().create_task(life.end())
        over = asyncio.get_running_loop().create_task(session_over(life.store, self._clock))
        try:
            await asyncio.wait([ending, over], return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():
                life.topics.give_up(
                    TopicUnloaded("its broker lost its metadata session while it shut down: look it up again")
                )
            await ending
        finally:
            for task in (ending, over):
                task.cancel()
            await asyncio.wait([ending, over])

    async def wait_failed(self) -> NoReturn:
        """Raises what it was, when it can't go on: a bug."""
        assert self._following is not None, "the broker has not been started"
        await asyncio.wait([self._following])
        self._following.result()
        raise AssertionError("a broker opens one session after another until it is closed")

    async def _follow(self) -> None:
        """Has one life after another."""
        while True:
            life = self.session
            assert life is not None
            because = await session_over(life.store, self._clock)
            self.session = None
            self.waits_for = f"the session with the metadata store has ended: {because}"
            _log.warning("All topics are closed, since the session with the metadata store has ended: %s", because)
            # Whole, even if the broker is closed meanwhile: what is left would go on, its session among it.
            self._giving_up = asyncio.get_running_loop().create_task(_give_up(life), name="end of a broker session")
            await asyncio.wait([self._giving_up])
            while self.session is None:
                try:
                    await self._new_life()
                except Exception:  # noqa: BLE001 (likewise)
                    _log.exception("The broker could not open another session, and tries again")
                    await self._clock.sleep(self.options.metadata_retry_s)

    async def _new_life(self) -> None:
        while True:
            try:
                store = await self._open_metadata()
            except MetadataError as error:
                self.waits_for = f"the metadata store can't be reached: {error}"
                _log.info("%s", self.waits_for)
                await self._clock.sleep(self.options.metadata_retry_s)
                continue
            life = BrokerSession(
                store,
                self._bookie_transport,
                self._peers,
                BrokerIdentity(self.broker_id, self.instance, self.advertised, self.http_address, self._cpu_seconds),
                self._clock,
                self._randomness,
                self.options,
                self._client_options,
                self.counters,
                self.health,
                self._about,
                self._outboxes,
            )
            try:
                await life.start()
            except (MetadataError, LedgerError, BrokerError) as error:
                await life.close()
                self.waits_for = f"the broker can't start in this session: {error}"
                _log.info("%s", self.waits_for)
                await self._clock.sleep(self.options.metadata_retry_s)
                continue
            except BaseException:
                await life.close()
                raise
            self.session = life
            self.waits_for = ""
            return

    def _about(self) -> BrokerAnswer:
        return BrokerAnswer(
            version=read_version(),
            broker_id=self.broker_id,
            address=self.advertised_address,
            pulsar_address=self.advertised.internal_pulsar,
            cluster=self.options.cluster_name,
            started_ms=self._started_ms,
        )


async def _give_up(life: BrokerSession) -> None:
    problem = TopicUnloaded("its broker lost its metadata session: look it up again")
    for end in (life.give_up(problem), life.close()):
        try:
            await end
        except Exception:  # noqa: BLE001 (whatever it is, the rest ends, and the broker goes on with another life)
            _log.exception("A lost session was not closed completely")


def _as_chosen(listening: str, advertised: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, _with_port_of(listening, address)) for name, address in advertised)


def _with_port_of(listening: str, address: str) -> str:
    """`address` with the port that was chosen, where it has port 0; all of where it listens, if it is empty."""
    host, _, port = address.rpartition(":")
    return f"{host}:{listening.rpartition(':')[2]}" if port == "0" else address or listening
