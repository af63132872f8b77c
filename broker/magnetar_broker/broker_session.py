"""What a broker serves with one metadata session: the ledgers, the catalog, the topics, and who is at them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from magnetar_bookie.client.ledger_client import LedgerClient
from magnetar_bookie.client.options import LedgerClientOptions
from magnetar_broker.admin.admin_service import AdminService
from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.admin.health import BrokerHealth
from magnetar_broker.admin.rates import sample_rates
from magnetar_broker.core.counters import BrokerCounters
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.entry_cache import EntryCache
from magnetar_broker.managed_ledger.leased_remains import RemainsSweeper
from magnetar_broker.managed_ledger.namespace_leases import NamespaceLeaseSweeper
from magnetar_broker.options import BrokerOptions
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_broker.ownership.interface import Advertised
from magnetar_broker.ownership.load import BrokerLoad
from magnetar_broker.peers import PeersLike
from magnetar_broker.server.grpc.bundle_claims import BundleClaims
from magnetar_broker.server.grpc.consume_stream import ConsumeSession
from magnetar_broker.server.grpc.lookup import Finding
from magnetar_broker.server.grpc.produce_stream import ProduceSession
from magnetar_broker.server.outbox_budget import OutboxBudget
from magnetar_broker.topic.housekeeping import Housekeeping
from magnetar_broker.topic.publish_budget import PublishBudget
from magnetar_broker.topic.storage import StoredTopics
from magnetar_broker.topic.topic import Topic
from magnetar_broker.topic.topics import Topics
from magnetar_metadata.store import MetadataStore, SessionState
from magnetar_protos.admin_pb2 import BrokerAnswer
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import Peer, Stream, Transport

__all__ = ["BrokerIdentity", "BrokerSession"]

_log = logging.getLogger(__name__)
_MIB: Final = 1 << 20
# How long ending waits for clients to take what they are told.
_TELLING_S: Final = 2.0
# Before what broke off begins anew.
_KEEPING_PAUSE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """What a broker is over all its lives."""

    broker_id: str
    # Of the process, drawn at random.
    instance: bytes
    advertised: Advertised
    http_address: str
    # What the process has used so far.
    cpu_seconds: Callable[[], float]


class BrokerSession:
    """Is the `Serving` of BrokerService. The store is its own, and is closed with it."""

    def __init__(
        self,
        store: MetadataStore,
        bookie_transport: Transport,
        peers: PeersLike,
        me: BrokerIdentity,
        clock: Clock,
        randomness: Randomness,
        options: BrokerOptions,
        client_options: LedgerClientOptions,
        counters: BrokerCounters,
        health: BrokerHealth,
        about: Callable[[], BrokerAnswer],
        outboxes: OutboxBudget,
    ) -> None:
        self.store = store
        self.peers = peers
        self.client = LedgerClient(store, bookie_transport, clock, randomness, client_options)
        self.cache = EntryCache(options.cache_bytes, options.managed_ledger_read_ahead_readers)
        self.catalog = Catalog(store, clock, randomness, options, options.cluster_name)
        storage = StoredTopics(
            self.client,
            self.cache,
            clock,
            randomness,
            counters,
            options,
            options,
            options,
            options,
            self.catalog.policies,
        )
        self._load = BrokerLoad(clock, counters, lambda: len(self.topics), me.cpu_seconds)
        self.ownership = BundleOwnership(
            store,
            self.catalog,
            peers,
            me.advertised,
            me.broker_id,
            me.instance,
            self._load,
            clock,
            randomness,
            options,
            counters,
            me.http_address,
            options.load_balancer_namespace_maximum_bundles,
        )
        self.topics = Topics(storage, self.catalog, options, clock, self.ownership, counters)
        self.ownership.serve(self.topics)
        self.finding = Finding(
            self.topics, self.catalog, self.ownership, counters, options.max_concurrent_lookup_request
        )
        self.claiming = BundleClaims(self.ownership)
        self.budget = PublishBudget(options.max_message_publish_buffer_size_in_mb * _MIB)
        self._admin = AdminService(
            self.topics,
            self.catalog,
            self.ownership,
            self.peers,
            clock,
            self.client,
            health,
            about,
            lambda: store.session.state is SessionState.CONNECTED,
        )
        self._housekeeping = Housekeeping(self.topics, options, clock, counters)
        sweep_interval_s = options.managed_ledger_remains_sweep_interval_s
        self._remains = RemainsSweeper(self.client, clock, randomness, sweep_interval_s)
        self._namespace_leases = NamespaceLeaseSweeper(
            store,
            clock,
            randomness,
            sweep_interval_s,
            self.client.ledgers.foreign,
            counters.count_lapsed_namespace_leases,
        )
        self._clock = clock
        self._options = options
        self._counters = counters
        self._outboxes = outboxes
        # Sessions with clients, oldest first, and what serves each.
        self._sessions: dict[ProduceSession | ConsumeSession, asyncio.Task[Any]] = {}
        self._keeping: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Raises `MetadataError`."""
        await self.client.start()
        await self.catalog.bootstrap()
        await self.ownership.start()
        loop = asyncio.get_running_loop()
        self._keeping = [
            loop.create_task(self._keep(self._housekeeping.run), name="housekeeping"),
            loop.create_task(self._keep(self._sample_rates), name="rates"),
            loop.create_task(self._keep(self._remains.run), name="leased remains"),
            loop.create_task(self._keep(self._namespace_leases.run), name="namespace leases"),
        ]

    async def end(self) -> None:
        """In peace, within a bounded time. First nobody gives this broker anything any more; then each bundle is free
        for others as soon as its topics are closed; then those who were at them end, when they have been told."""
        await self._stop_keeping()
        bound_s = self._options.broker_shutdown_timeout_s
        await _within(self.ownership.release_all(), bound_s, "the bundles")
        await _within(self.topics.close(TopicUnloaded("its broker is ending: look it up again")), bound_s, "the topics")
        await self._end_sessions()

    async def give_up(self, problem: BrokerError) -> None:
        """Everything, at once."""
        self.topics.give_up(problem)
        await self.ownership.close()
        await self._stop_keeping()
        await self.topics.wait_ended()
        await self._end_sessions()

    async def _end_sessions(self) -> None:
        """They know this life's topics: their clients open other streams, and what serves those knows the next one's.
        Whoever does not take what it is told within a moment is cut off."""
        serving = dict(self._sessions)
        for session in serving:
            session.end()
        if serving:
            _, left = await asyncio.wait(list(serving.values()), timeout=_TELLING_S)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)

    async def close(self) -> None:
        """When nothing is served any more."""
        await self._stop_keeping()
        await self.ownership.close()
        self._load.close()
        await self.client.close()
        await self.store.close()

    @property
    def sessions(self) -> int:
        """Streams of clients."""
        return len(self._sessions)

    async def _keep(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception:  # noqa: BLE001 (whatever it is, the topics are still to be looked after)
                _log.exception("housekeeping broke off, and begins anew")
                await self._clock.sleep(_KEEPING_PAUSE_S)

    async def _sample_rates(self) -> None:
        interval_s = self._options.stats_update_frequency_in_secs
        await sample_rates(self.topics.loaded, self._counters, interval_s, self._clock)

    async def _stop_keeping(self) -> None:
        keeping, self._keeping = self._keeping, []
        for task in keeping:
            task.cancel()
        if keeping:
            await asyncio.wait(keeping)

    # ── Serving ──

    async def admin(self, method: str, request: bytes) -> bytes:
        return await self._admin.serve(method, request)

    async def here(self, method: str, request: bytes) -> bytes:
        return await self._admin.serve_broker(method, request)

    async def produce(self, peer: Peer, stream: Stream) -> None:
        await self._serve(ProduceSession(stream, self._find_to_publish, self.budget, self._options, peer.address))

    async def _find_to_publish(self, name: TopicName, incarnation: str, create: bool) -> Topic:
        return await self.topics.find(name, incarnation, create, to_publish=True)

    async def consume(self, peer: Peer, stream: Stream) -> None:
        await self._serve(
            ConsumeSession(
                stream,
                self.topics.find,
                peer=peer,
                options=self._options,
                budget=self._outboxes,
                counters=self._counters,
            )
        )

    async def _serve(self, session: ProduceSession | ConsumeSession) -> None:
        serving = asyncio.current_task()
        assert serving is not None
        self._sessions[session] = serving
        try:
            await session.serve()
        finally:
            del self._sessions[session]


async def _within(work: Coroutine[Any, Any, None], timeout_s: float, what: str) -> None:
    """Where it is not done by then it is broken off."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        await asyncio.wait([task], timeout=timeout_s)
    finally:
        if not task.done():
            _log.warning("%s had not ended after %s s", what, timeout_s)
            task.cancel()
            await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("%s did not end in peace", what, exc_info=error)
