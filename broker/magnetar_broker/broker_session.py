"""The parts of a broker in one session with the metadata store: ledgers, catalog, ownership and topics."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, Final

from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_broker.admin.admin_service import AdminService
from magnetar_broker.admin.dynamic_configuration import DynamicConfiguration
from magnetar_broker.admin.health import BrokerHealth
from magnetar_broker.catalog.applied_policies import default_policies, override_policies
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.client_streams import ClientStreams
from magnetar_broker.counters import BrokerCounters, DeliveryCounters, Traffic
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.entry_cache import EntryCache
from magnetar_broker.managed_ledger.namespace_leases import NamespaceLeaseSweeper
from magnetar_broker.managed_ledger.orphaned_ledgers import OrphanedLedgerDeleter
from magnetar_broker.ownership.advertised_addresses import AdvertisedAddresses
from magnetar_broker.ownership.bundle_ownership import BundleOwnership
from magnetar_broker.ownership.registration import LoadSampler
from magnetar_broker.peers import Peers
from magnetar_broker.schemas.schema_registry import SchemaRegistry
from magnetar_broker.schemas.schema_rules import SchemaRules
from magnetar_broker.settings.dynamic import DynamicSettings
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.system_topics import is_system_topic
from magnetar_broker.topic_policies.policy_cache import TopicPolicyCache
from magnetar_broker.topic_policies.policy_logs import PolicyLogs
from magnetar_broker.topics.housekeeping import Housekeeping
from magnetar_broker.topics.non_persistent.storage import NonPersistentTopicStorage
from magnetar_broker.topics.policy_refresh import PolicyRefresh
from magnetar_broker.topics.publish_budget import PublishBudget
from magnetar_broker.topics.topic import Topic
from magnetar_broker.topics.topic_schemas import SchemaAccess
from magnetar_broker.topics.topic_services import TopicServices
from magnetar_broker.topics.topic_storage import LedgerTopicStorage
from magnetar_broker.topics.topic_visits import TopicVisits
from magnetar_broker.topics.topics import Topics
from magnetar_metadata.store import MetadataStore, SessionState
from magnetar_protos.admin_pb2 import BrokerAnswer
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.clock import Clock
from magnetar_wire.randomness import Randomness
from magnetar_wire.topic_name import TopicName
from magnetar_wire.transport import Transport

__all__ = ["BrokerIdentity", "BrokerSession", "sample_topic"]

_log = logging.getLogger(__name__)
_MIB: Final = 1 << 20
# Pause before a background task that failed is restarted.
_RESTART_PAUSE_S: Final = 1.0
# Topics whose rates are sampled before other tasks run, and the pause for those.
_TOPICS_PER_TURN: Final = 100
_TURN_PAUSE_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The properties of a broker that stay the same in all of its sessions."""

    broker_id: str
    # A random id of the process.
    instance: bytes
    addresses: AdvertisedAddresses
    http_address: str
    # CPU time that the process has used so far.
    cpu_seconds: Callable[[], float]


class BrokerSession:
    """Owns its metadata store, and closes it."""

    def __init__(
        self,
        store: MetadataStore,
        bookie_transport: Transport,
        peers: Peers,
        identity: BrokerIdentity,
        clock: Clock,
        randomness: Randomness,
        settings: BrokerServiceSettings,
        client_settings: LedgerClientSettings,
        counters: BrokerCounters,
        health: BrokerHealth,
        describe_broker: Callable[[], BrokerAnswer],
        dynamic_settings: DynamicSettings,
        describe_settings: Callable[[], dict[str, str]],
    ) -> None:
        self.store = store
        self.peers = peers
        self.client = LedgerClient(store, bookie_transport, clock, randomness, client_settings)
        self.cache = EntryCache(settings.cache_bytes, settings.managed_ledger_read_ahead_readers)
        self.catalog = Catalog(store, clock, randomness, settings, settings.cluster_name, settings.max_message_size)
        self.schemas = SchemaRegistry(self.client, clock, randomness, settings, self._find_policies)
        self._dynamic = DynamicConfiguration(store, self.catalog.nodes, clock, dynamic_settings)
        self.schema_access = SchemaAccess(self.schemas, self.find_schema_rules, self.read_schema_rules)
        services = TopicServices(self.client, clock, randomness, counters, settings, self.schema_access)
        storage = LedgerTopicStorage(services, self.cache, self._find_known_policies)
        non_persistent = NonPersistentTopicStorage(services)
        self._load = LoadSampler(clock, counters, lambda: len(self.topics), identity.cpu_seconds)
        self.ownership = BundleOwnership(
            store,
            self.catalog,
            peers,
            identity.addresses,
            identity.broker_id,
            identity.instance,
            self._load,
            clock,
            randomness,
            settings,
            counters,
            identity.http_address,
            lambda: settings.load_balancer_namespace_maximum_bundles,
        )
        self.topic_policies = TopicPolicyCache(
            lambda namespace, known: self.admin.topic_policy_rpc.fetch(namespace, known),
            self.catalog.find_incarnation,
            clock,
            settings.metadata_cache_ttl_seconds,
        )
        read_policies = self.topic_policies.get if self.catalog.has_topic_policies else None
        self.topics = Topics(
            storage, self.catalog, settings, clock, self.ownership, counters, read_policies, non_persistent
        )
        self.policy_logs = PolicyLogs(self.topics, self.catalog.find_incarnation, clock)
        self.ownership.set_topics(self.topics)
        # Memory of the entries that are published and not decided, of all clients.
        self.budget = PublishBudget(settings.max_message_publish_buffer_size_in_mb * _MIB)
        self.admin = AdminService(
            self.topics,
            self.catalog,
            self.ownership,
            self.peers,
            clock,
            self.client,
            health,
            describe_broker,
            lambda: store.session.state is SessionState.CONNECTED,
            self._dynamic,
            describe_settings,
            counters,
            self.policy_logs,
            lambda: default_policies(settings),
            self.schemas,
            self.read_schema_rules,
        )
        self._housekeeping = Housekeeping(self.topics, settings, clock, counters, self.admin.delete_empty_partitioned)
        self._policy_refresh = PolicyRefresh(self.topics.loaded, self._find_known_policies, settings, clock)
        self.topic_visits = TopicVisits(
            self.topics,
            self.catalog,
            self.ownership,
            self._find_known_policies,
            self._housekeeping.work_through,
            settings,
            clock,
            randomness,
        )
        sweep_interval_s = settings.managed_ledger_lease_sweep_interval_seconds
        self._orphaned_ledgers = OrphanedLedgerDeleter(self.client, clock, randomness, sweep_interval_s)
        self._namespace_leases = NamespaceLeaseSweeper(
            store,
            clock,
            randomness,
            sweep_interval_s,
            self.client.ledgers.undecodable_nodes,
            counters.count_lapsed_namespace_leases,
        )
        self._clock = clock
        self._settings = settings
        self._counters = counters
        self.client_streams = ClientStreams()
        self._background_tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start to serve. Raises `MetadataError`."""
        await self.client.start()
        await self._dynamic.start()
        await self.catalog.bootstrap()
        await self.ownership.start()
        loop = asyncio.get_running_loop()
        self._background_tasks = [
            loop.create_task(self._restart_on_error(self._housekeeping.run), name="housekeeping"),
            loop.create_task(self._restart_on_error(self.topic_visits.run), name="visits"),
            loop.create_task(self._restart_on_error(self._policy_refresh.run), name="policies"),
            loop.create_task(self._restart_on_error(self._sample_rates), name="rates"),
            loop.create_task(self._restart_on_error(self._orphaned_ledgers.run), name="orphaned ledgers"),
            loop.create_task(self._restart_on_error(self._namespace_leases.run), name="namespace leases"),
        ]

    async def end(self) -> None:
        """End the session gracefully, within a bounded time.

        First the broker stops to accept bundles. Then each bundle is released as soon as its topics are closed. Then
        the streams of clients end, when their clients were sent all results.
        """
        await self._stop_background_tasks()
        timeout_s = self._settings.broker_shutdown_timeout_seconds
        await _run_within(timeout_s, self.ownership.release_bundles(), "Releasing the bundles")
        closing = TopicUnloaded("its broker is shutting down: look it up again")
        await _run_within(timeout_s, self.topics.close(closing), "Closing the topics")
        await self.client_streams.end("the broker is shutting down")

    async def abort(self, problem: BrokerError) -> None:
        """End a session that is lost: close all topics at once."""
        self.topics.abort(problem)
        await self.ownership.close()
        await self._stop_background_tasks()
        await self.topics.wait_ended()
        await self.client_streams.end("the broker's metadata session has ended")

    async def close(self) -> None:
        """Release everything, after `end` or `abort`."""
        await self.admin.close()
        await self._dynamic.close()
        await self._stop_background_tasks()
        await self.topic_policies.close()
        await self.policy_logs.close()
        await self.schemas.close()
        await self.ownership.close()
        self._load.close()
        await self.client.close()
        await self.store.close()

    async def _restart_on_error(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception:  # noqa: BLE001 (the task must go on)
                _log.exception("A background task failed, and is restarted")
                await self._clock.sleep(_RESTART_PAUSE_S)

    async def _find_policies(self, name: TopicName, incarnation: str = "", since: float | None = None) -> Policies:
        """Return the policies of a topic, its own and its namespace's, at most a few seconds old. `incarnation`: if it
        is loaded. `since`: its namespace's are read afresh, its own after this time, if they can be read then. Raises
        `BrokerError`."""
        policies = (await self.catalog.get_namespace(name.namespace_name, fresh=since is not None)).node.policies
        if not self.catalog.has_topic_policies:
            return policies
        own = await self.topic_policies.get(name, incarnation, since)
        return override_policies(policies, own) if own.ListFields() else policies

    async def _find_known_policies(
        self, name: TopicName, incarnation: str = "", *, since: float | None = None
    ) -> Policies | None:
        """Like `_find_policies`. None: its own can't be read, and were not read before, or not since then."""
        policies = await self._find_policies(name, incarnation, since)
        is_known = not self.catalog.has_topic_policies or self.topic_policies.knows(name, since)
        return policies if is_known else None

    async def find_schema_rules(self, name: TopicName) -> SchemaRules:
        """Return the rules that a topic has for schemas, by policies that are at most a few seconds old, if they can be
        read (`is_known`). Any broker knows them. Raises `BrokerError`."""
        namespace = await self.catalog.get_policies(name.namespace_name)
        rules = SchemaRules.of(self._settings, namespace, await self.topics.read_own_policies(name))
        is_known = not self.catalog.has_topic_policies or self.topic_policies.knows(name)
        return dataclasses.replace(rules, is_known=is_known)

    async def read_schema_rules(self, name: TopicName) -> SchemaRules:
        """Return the rules by the policies as they are now; of a topic that does not exist, its namespace's. Raises
        `BrokerError`."""
        topic, own = name.base, Policies()
        namespace = await self.catalog.get_namespace(topic.namespace_name, fresh=True)
        if self.catalog.has_topic_policies and not is_system_topic(topic):
            try:
                own = await self.admin.topic_policy_rpc.read(topic, await self.catalog.find_incarnation(topic))
            except BrokerError as error:
                if error.code != ErrorCode.TOPIC_NOT_FOUND:
                    raise
        return SchemaRules.of(self._settings, namespace.node.policies, own)

    async def _sample_rates(self) -> None:
        """Sample the traffic of the broker and all loaded topics at intervals, for their rates."""
        while True:
            now = self._clock.monotonic()
            self._counters.received.sample(now)
            self._counters.delivered.sample(now)
            for number, topic in enumerate(self.topics.loaded(), 1):
                sample_topic(topic, self._clock.monotonic())
                if number % _TOPICS_PER_TURN == 0:
                    await self._clock.sleep(_TURN_PAUSE_S)
            await self._clock.sleep(self._settings.stats_update_frequency_in_secs)

    async def _stop_background_tasks(self) -> None:
        tasks, self._background_tasks = self._background_tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def sample_topic(topic: Topic, now: float) -> None:
    """Sample the traffic of a topic, its producers and its subscriptions."""
    for counters in _list_counters(topic):
        counters.sample(now)


def _list_counters(topic: Topic) -> Iterator[Traffic | DeliveryCounters]:
    yield topic.counters.received
    for producer in topic.producers.connected():
        yield producer.counters
    yield topic.subscriptions.deliveries.delivered
    yield from topic.subscriptions.counters()


async def _run_within(timeout_s: float, work: Coroutine[Any, Any, None], what: str) -> None:
    """Run `work`, and cancel it after `timeout_s`."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        await asyncio.wait([task], timeout=timeout_s)
    finally:
        if not task.done():
            _log.warning("%s is cancelled after %s s", what, timeout_s)
            task.cancel()
            await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("%s failed", what, exc_info=error)
