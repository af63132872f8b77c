"""A broker: its metadata session, listeners and lifecycle.

All that it serves belongs to one session with the metadata store (broker_session.py). When that session is over
(session_end.py), the broker no longer knows that it owns its topics. It unloads all of them at once and starts again
with another session. The listeners stay open. Until there is a session they answer SERVICE_NOT_READY, after which
clients look their topics up again.

Graceful shutdown: clients are notified, accepted entries are decided and answered, logs and cursors are closed, all
within a bounded time. The next opening of a topic recovers what was not closed by then, as after a crash.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NoReturn

from magnetar_bookie.errors import LedgerError
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_broker.admin.health import BrokerHealth
from magnetar_broker.broker_session import BrokerIdentity, BrokerSession
from magnetar_broker.counters import BrokerCounters
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.ownership.advertised_addresses import AdvertisedAddresses
from magnetar_broker.peers import NoPeers, PeerConnections, Peers
from magnetar_broker.server.context import ServerContext
from magnetar_broker.server.grpc.listener_scoped_service import ListenerScopedService
from magnetar_broker.server.grpc.service import BrokerService
from magnetar_broker.server.pulsar.connection import PulsarConnection
from magnetar_broker.server.pulsar.listener import PulsarListener
from magnetar_broker.server.pulsar.listener_context import ListenerContext
from magnetar_broker.session_end import is_trusted, wait_session_end
from magnetar_broker.settings.bounds import with_lag_bound
from magnetar_broker.settings.dynamic import DynamicSettings, describe_settings
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import MetadataStore
from magnetar_protos.admin_pb2 import BrokerAnswer
from magnetar_wire.clock import Clock
from magnetar_wire.configuration import Configuration
from magnetar_wire.process.version import read_version
from magnetar_wire.randomness import Randomness
from magnetar_wire.transport import Listener, ProbingTransport, Service, Transport

__all__ = ["INTERNAL", "Broker"]

_log = logging.getLogger(__name__)
# Name of the listener if only one is advertised.
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
        settings: BrokerServiceSettings | None = None,
        client_settings: LedgerClientSettings | None = None,
        advertised_address: str = "",
        broker_id: str = "",
        *,
        peer_transport: ProbingTransport | None = None,
        advertised: Sequence[tuple[str, str]] = (),
        named_listeners: Sequence[tuple[str, Transport, str]] = (),
        pulsar_listeners: Sequence[tuple[str, str]] = (),
        pulsar_advertised: Sequence[tuple[str, str]] = (),
        cpu_seconds: Callable[[], float] = time.process_time,
        process_settings: Configuration | None = None,
    ) -> None:
        """Create a broker, which `start` starts.

        - `listeners`: gRPC listeners, each a transport and an address; port 0: any free port.
        - `advertised`: names of listeners and the addresses at which clients reach them; port 0: that of the first
          listener. The first is the internal one, which other brokers use. Empty: one listener at
          `advertised_address`, or at the first listener's address.
        - `named_listeners`: further gRPC listeners, each with the name of an advertised one, whose addresses clients
        get there.
        - `pulsar_listeners`: listeners for Pulsar's protocol, each with the name of an advertised listener (empty: the
          internal one) and an address. `pulsar_advertised`: where clients reach them, as `advertised`.
        - `broker_id`: its name in the cluster, the same after each start. Empty: its internal address.
        - `process_settings`: all settings of its process, which administrators can read. None: `settings`.
        - `peer_transport`: how it reaches other brokers. None: not at all.
        """
        self.counters = BrokerCounters()
        # A random id of the process.
        self.instance = randomness.token(_INSTANCE_BYTES)
        # The advertised address of the HTTP server; set before the broker starts, if it has one.
        self.http_address = ""
        self._peers: Peers = PeerConnections(peer_transport) if peer_transport is not None else NoPeers()
        self._cpu_seconds = cpu_seconds
        self._advertised = list(advertised) or [(INTERNAL, advertised_address)]
        # The current session; None: there is none.
        self.session: BrokerSession | None = None
        # Its own copy: those that are dynamic change while it runs.
        self.settings = (settings or BrokerServiceSettings()).model_copy()
        self._process_settings = process_settings or self.settings
        self._dynamic = DynamicSettings(self.settings, self._process_settings)
        self._open_metadata = open_metadata
        self._bookie_transport = bookie_transport
        self.server = ServerContext(self._find_session, self.settings, clock, self.counters)
        self.service = BrokerService(self.server, self.instance)
        self._listen_at: list[tuple[Transport, str, Service]] = [
            (transport, address, self.service) for transport, address in listeners
        ]
        self._listen_at += [
            (transport, address, ListenerScopedService(self.service, name))
            for name, transport, address in named_listeners
        ]
        self._listeners: list[Listener] = []
        self._pulsar_at = list(pulsar_listeners)
        self._pulsar_advertised = list(pulsar_advertised)
        self.pulsar_context = ListenerContext(self.server)
        self.pulsar_listeners: list[PulsarListener] = []
        self._clock = clock
        self._randomness = randomness
        self._client_settings = with_lag_bound(client_settings or LedgerClientSettings(), self.settings)
        self._broker_id = broker_id
        self._started_ms = clock.time_ms()
        self._began = clock.monotonic()
        # Why the broker does not serve yet; empty: it serves.
        self.waits_for = "the broker has not started yet"
        self.health = BrokerHealth(
            lambda: self.session, lambda: self.broker_id, self.settings, clock, randomness, lambda: self.waits_for
        )
        self._is_closing = False
        self._session_follower: asyncio.Task[None] | None = None
        # Ends a lost session.
        self._session_end: asyncio.Task[None] | None = None

    def _find_session(self) -> BrokerSession | None:
        session = self.session
        if self._is_closing or session is None or not is_trusted(session.store, self._clock):
            return None
        return session

    @property
    def addresses(self) -> list[str]:
        """Addresses of its gRPC listeners."""
        return [listener.address for listener in self._listeners]

    @property
    def pulsar_addresses(self) -> list[str]:
        """Addresses of its listeners for Pulsar's protocol."""
        return [listener.address for listener in self.pulsar_listeners]

    @property
    def pulsar_connections(self) -> list[PulsarConnection]:
        return [connection for listener in self.pulsar_listeners for connection in listener.connections]

    @property
    def advertised(self) -> AdvertisedAddresses:
        """The addresses at which clients and other brokers reach it."""
        if not self._listeners:  # not started
            return AdvertisedAddresses(tuple(self._advertised), tuple(self._pulsar_advertised))
        return AdvertisedAddresses(
            _resolve_ports(self._listeners[0].address, self._advertised),
            _resolve_ports(self.pulsar_listeners[0].address, self._pulsar_advertised or [(INTERNAL, "")])
            if self.pulsar_listeners
            else (),
        )

    @property
    def advertised_address(self) -> str:
        """The address for clients that name no listener."""
        return self.advertised.internal

    @property
    def uptime_s(self) -> float:
        return self._clock.monotonic() - self._began

    @property
    def broker_id(self) -> str:
        return self._broker_id or self.advertised_address

    async def start(self) -> None:
        """Start the broker. Returns when it serves.

        Raises `NotReached` if it can't listen. If it is cancelled, the caller closes the broker.
        """
        for transport, address, service in self._listen_at:
            self._listeners.append(await transport.listen(address, service))
        for name, address in self._pulsar_at:
            listener = PulsarListener(self.pulsar_context, name)
            await listener.listen(address)
            self.pulsar_listeners.append(listener)
        await self._start_session()
        self._session_follower = asyncio.get_running_loop().create_task(self._follow_sessions(), name="broker")

    async def close(self) -> None:
        """Close the broker gracefully, within a bounded time."""
        self._is_closing = True
        if self._session_follower is not None:
            self._session_follower.cancel()
            await asyncio.wait([self._session_follower])
        if self._session_end is not None:
            await asyncio.wait([self._session_end])
        session, self.session = self.session, None
        await self.health.close()
        if session is not None:
            await self._end_session(session)
        for pulsar_listener in self.pulsar_listeners:
            await pulsar_listener.close()
        await self.server.topic_watches.close()
        for listener in self._listeners:
            await listener.close()
        if session is not None:
            await session.close()
        await self._peers.close()

    async def _end_session(self, session: BrokerSession) -> None:
        """End a session gracefully. If the metadata session is lost before, unload the rest at once."""
        ending = asyncio.get_running_loop().create_task(session.end())
        over = asyncio.get_running_loop().create_task(wait_session_end(session.store, self._clock))
        try:
            await asyncio.wait([ending, over], return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():
                lost = TopicUnloaded("its broker lost its metadata session while it shut down: look it up again")
                session.topics.abort(lost)
            await ending
        finally:
            for task in (ending, over):
                task.cancel()
            await asyncio.wait([ending, over])

    async def wait_failed(self) -> NoReturn:
        """Raise the error by which the broker can't go on, which is a bug."""
        assert self._session_follower is not None, "the broker has not been started"
        await asyncio.wait([self._session_follower])
        self._session_follower.result()
        raise AssertionError("a broker starts one session after another until it is closed")

    async def _follow_sessions(self) -> None:
        """Start another session whenever one is lost."""
        while True:
            session = self.session
            assert session is not None
            reason = await wait_session_end(session.store, self._clock)
            self.session = None
            self.waits_for = f"the session with the metadata store has ended: {reason}"
            _log.warning("All topics are closed, since the session with the metadata store has ended: %s", reason)
            # In a task of its own, which `close` awaits: cancelled halfway, parts of the session would go on.
            self._session_end = asyncio.get_running_loop().create_task(_abort_session(session), name="session end")
            await asyncio.wait([self._session_end])
            while self.session is None:
                try:
                    await self._start_session()
                except Exception:  # noqa: BLE001 (the broker must go on)
                    _log.exception("The broker could not open another session, and tries again")
                    await self._clock.sleep(self.settings.metadata_retry_seconds)

    async def _start_session(self) -> None:
        while True:
            try:
                store = await self._open_metadata()
            except MetadataError as error:
                self.waits_for = f"the metadata store can't be reached: {error}"
                _log.info("%s", self.waits_for)
                await self._clock.sleep(self.settings.metadata_retry_seconds)
                continue
            session = BrokerSession(
                store,
                self._bookie_transport,
                self._peers,
                BrokerIdentity(self.broker_id, self.instance, self.advertised, self.http_address, self._cpu_seconds),
                self._clock,
                self._randomness,
                self.settings,
                self._client_settings,
                self.counters,
                self.health,
                self._describe,
                self._dynamic,
                lambda: describe_settings(self._process_settings, self.settings),
            )
            try:
                await session.start()
            except (MetadataError, LedgerError, BrokerError) as error:
                await session.close()
                self.waits_for = f"the broker can't start in this session: {error}"
                _log.info("%s", self.waits_for)
                await self._clock.sleep(self.settings.metadata_retry_seconds)
                continue
            except BaseException:
                await session.close()
                raise
            self.session = session
            self.waits_for = ""
            return

    def _describe(self) -> BrokerAnswer:
        advertised = self.advertised
        return BrokerAnswer(
            version=read_version(),
            broker_id=self.broker_id,
            address=advertised.internal,
            pulsar_address=advertised.internal_pulsar,
            cluster=self.settings.cluster_name,
            started_ms=self._started_ms,
            advertises_reached_address=self.pulsar_context.advertises_reached_address,
            http_address=self.http_address,
        )


async def _abort_session(session: BrokerSession) -> None:
    """End a session that is lost."""
    problem = TopicUnloaded("its broker lost its metadata session: look it up again")
    for end in (session.abort(problem), session.close()):
        try:
            await end
        except Exception:  # noqa: BLE001 (the rest must end, and the broker goes on with another session)
            _log.exception("A lost session was not closed completely")


def _resolve_ports(listening: str, advertised: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, _with_port_of(listening, address)) for name, address in advertised)


def _with_port_of(listening: str, address: str) -> str:
    """Return `address` with the listener's port instead of port 0; empty: the listener's address."""
    host, _, port = address.rpartition(":")
    return f"{host}:{listening.rpartition(':')[2]}" if port == "0" else address or listening
