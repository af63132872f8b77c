"""Opens topics from their stored parts, and deletes them.

First the log is opened, which recovers its last ledger, and then the cursors. The topic accepts messages as soon as the
log is open. If a later part can't be opened, or the opening is cancelled, the parts that are open are abandoned.

A topic gets its policies, its own and its namespace's, when it is opened: its own are waited for when the log is
recovered, which needs none. From then on its settings follow them (live_settings.py). They are read at once, at most a
few seconds old, where that matters: `persistence` for each ledger (ledger_striping.py), `auto_subscription_creation`
for each subscription that would be created.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from magnetar_bookie.read.striping import Striping
from magnetar_broker.catalog.applied_policies import override_policies
from magnetar_broker.cursors.cursor_nodes import CursorNodes
from magnetar_broker.cursors.cursor_table import CursorTable
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.entry_cache import EntryCache
from magnetar_broker.managed_ledger.managed_ledger import ManagedLedger
from magnetar_broker.managed_ledger.prefetched_topic import PrefetchedTopic, prefetch_topic
from magnetar_broker.managed_ledger.topic_node import BeingDeleted, NewTopic, TopicNode
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_broker.topics.dispatch.dispatch_rates import TopicDispatchRates
from magnetar_broker.topics.live_settings import FindPolicies, LiveSettings
from magnetar_broker.topics.subscriptions import Subscriptions
from magnetar_broker.topics.topic import Topic
from magnetar_broker.topics.topic_deletion import delete_topic, finish_deletion
from magnetar_broker.topics.topic_services import TopicServices, make_unfinished_deletion_error
from magnetar_metadata.errors import MetadataError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.topic_name import TopicName

__all__ = ["LedgerTopicStorage"]


class LedgerTopicStorage:
    """The `TopicStorage` of one session of the metadata store."""

    def __init__(
        self,
        services: TopicServices,
        cache: EntryCache,
        find_policies: FindPolicies,
    ) -> None:
        self._services = services
        self._client = services.client
        self._clock = services.clock
        self._randomness = services.randomness
        self._cache = cache
        self._find_policies = find_policies

    async def prefetch(self, name: TopicName) -> PrefetchedTopic:
        return await prefetch_topic(self._client.ledgers.store, name)

    async def open(
        self,
        name: TopicName,
        *,
        policies: Policies,
        if_absent: NewTopic | None = None,
        own_policies: Awaitable[Policies] | None = None,
        prefetched: PrefetchedTopic | None = None,
        log_opened: Callable[[Topic], object] = lambda _: None,
    ) -> Topic:
        client, clock, randomness = self._client, self._clock, self._randomness
        live = LiveSettings(self._services.settings, policies, are_known=own_policies is None)
        settings, own, incarnation = live.current, Policies(), ""

        async def find_settings() -> BrokerServiceSettings:
            nonlocal own
            if own_policies is not None:
                own = await own_policies
                live.update(override_policies(policies, own))
                # They may be none because they can't be read. Else `_find_policies` has them cached.
                live.are_known = False
                with suppress(BrokerError):
                    await read_settings()
            return settings

        async def read_settings() -> BrokerServiceSettings:
            present = await self._find_policies(name, incarnation)
            if present is not None:
                live.update(present)
            return settings

        async def read_now() -> bool:
            try:
                present = await self._find_policies(name, incarnation, since=clock.monotonic())
            except BrokerError:
                return False
            if present is not None:
                live.update(present)
            return present is not None

        live.read_now = read_now

        async def read_striping() -> Striping:
            return (await read_settings()).striping

        nodes = CursorNodes(name, client, clock, randomness)

        async def claim_cursors(node: TopicNode) -> None:
            nonlocal incarnation
            incarnation = node.ledger_list.incarnation
            await nodes.claim(
                node.ledger_list.incarnation,
                lambda: node.ownership_checks,
                prefetched.cursors if prefetched is not None else None,
            )

        log = await ManagedLedger.open(
            name,
            client,
            self._cache,
            settings,
            clock,
            randomness,
            finish_deletion=partial(finish_deletion, name, client=client, clock=clock, randomness=randomness),
            if_absent=if_absent,
            prefetched=prefetched,
            on_claimed=claim_cursors,
            on_lost_entry=self._services.counters.count_lost_entry,
            find_settings=find_settings,
            read_striping=read_striping,
            are_policies_known=lambda: live.are_known,
        )
        cursors = CursorTable(log, client, settings, clock, randomness, nodes)
        log.retention.find_needed = cursors.find_internal_position
        rates = TopicDispatchRates(settings, clock, self._services.dispatch_limit, lambda: topic.counters.received)
        live.on_changed.append(rates.follow_rate_change)
        subscriptions = Subscriptions(name, log, cursors, settings, clock, randomness, read_settings, rates)
        topic = self._services.create_topic(Topic, name, log, cursors, subscriptions, live, policies, own)
        try:
            log_opened(topic)
            await cursors.open_all()
            topic.deduplication.start()
        except BaseException as error:
            topic.abandon(
                TopicUnloaded(f"{name} could not be opened: {str(error) or 'it was unloaded in the meantime'}")
            )
            raise
        return topic

    async def claim(self, name: TopicName) -> bytes:
        node = TopicNode(name, self._client, self._clock, self._randomness)
        try:
            try:
                await node.claim()
            except BeingDeleted as deleted:
                (incarnation,) = deleted.args
                await finish_deletion(name, incarnation, self._client, self._clock, self._randomness)
                raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"{name} was deleted") from None
        except MetadataError as error:
            raise BrokerError(ErrorCode.METADATA_ERROR, f"topic {name} can't be claimed now: {error}") from error
        return node.owner_epoch

    async def delete(self, name: TopicName, owner_epoch: bytes | None = None, incarnation: str = "") -> None:
        try:
            await delete_topic(name, self._client, self._clock, self._randomness, owner_epoch, incarnation)
        except MetadataError as error:
            raise make_unfinished_deletion_error(name, error) from error
