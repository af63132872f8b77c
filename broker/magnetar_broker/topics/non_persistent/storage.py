"""Opens and deletes non-persistent topics."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from magnetar_broker.catalog.applied_policies import override_policies
from magnetar_broker.errors import BrokerError, TopicUnloaded
from magnetar_broker.managed_ledger.topic_node import NewTopic
from magnetar_broker.schemas.schema_deletion import prepare_schema_deletion
from magnetar_broker.topics.dispatch.dispatch_rates import TopicDispatchRates
from magnetar_broker.topics.live_settings import LiveSettings
from magnetar_broker.topics.non_persistent.cursors import NonPersistentCursors
from magnetar_broker.topics.non_persistent.subscriptions import NonPersistentSubscriptions
from magnetar_broker.topics.non_persistent.topic_log import NonPersistentLog
from magnetar_broker.topics.non_persistent.topic_node import NonPersistentTopicNode
from magnetar_broker.topics.topic import Topic
from magnetar_broker.topics.topic_services import TopicServices, make_unfinished_deletion_error
from magnetar_metadata.errors import MetadataError
from magnetar_metadata.store import Change
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.topic_name import TopicName

__all__ = ["NonPersistentTopicStorage"]

_log = logging.getLogger(__name__)


class _NonPersistentTopic(Topic):
    __slots__ = ("_node",)

    _node: NonPersistentTopicNode

    def record_node(self, node: NonPersistentTopicNode) -> None:
        self._node = node

    async def close(self, problem: BrokerError) -> None:
        """Close the topic. If it is unloaded and unused, it is removed from the list of topics. A topic in use is still
        listed, since its clients reconnect and may not be allowed to create it again."""
        vanishes = isinstance(problem, TopicUnloaded) and self.ended is None and not self.in_use
        await super().close(problem)
        if vanishes:
            try:
                await self._node.release(self.log.owner_epoch)
            except MetadataError as error:
                _log.info("%s is still listed, until its session ends or it is used again: %s", self.name, error)


class NonPersistentTopicStorage:
    """The `TopicStorage` of non-persistent topics in one session of the metadata store."""

    def __init__(self, services: TopicServices) -> None:
        self._services = services
        self._client = services.client
        self._clock = services.clock
        self._randomness = services.randomness

    async def prefetch(self, name: TopicName) -> None:
        """Do nothing: opening needs a single read."""

    async def open(
        self,
        name: TopicName,
        *,
        policies: Policies,
        if_absent: NewTopic | None = None,
        own_policies: Awaitable[Policies] | None = None,
        prefetched: None = None,
        log_opened: Callable[[Topic], object] = lambda _: None,
    ) -> Topic:
        node = self._find_node(name)
        try:
            owner_epoch = await node.claim(if_absent)
        except MetadataError as error:
            raise BrokerError(ErrorCode.METADATA_ERROR, f"topic {name} can't be opened now: {error}") from error
        live = LiveSettings(self._services.settings, policies, are_known=own_policies is None)
        own = Policies()
        if own_policies is not None:
            own = await own_policies
            # `own` is also empty if the policies can't be read: the next refresh finds out (policy_refresh.py).
            live.update(override_policies(policies, own))
            live.are_known = False
        settings, clock, randomness = live.current, self._clock, self._randomness
        log = NonPersistentLog(name, owner_epoch, settings.managed_ledger_max_pending_bytes, clock)
        cursors = NonPersistentCursors(name, log, settings)
        rates = TopicDispatchRates(settings, clock, self._services.dispatch_limit, lambda: topic.counters.received)
        live.on_changed.append(rates.follow_rate_change)
        subscriptions = NonPersistentSubscriptions(name, log, cursors, settings, clock, randomness, rates=rates)
        topic = self._services.create_topic(_NonPersistentTopic, name, log, cursors, subscriptions, live, policies, own)
        topic.record_node(node)
        log.on_appended = lambda: subscriptions.offer(log.offered_messages)
        log_opened(topic)
        return topic

    async def claim(self, name: TopicName) -> bytes:
        try:
            return await self._find_node(name).claim()
        except MetadataError as error:
            raise BrokerError(ErrorCode.METADATA_ERROR, f"topic {name} can't be claimed now: {error}") from error

    async def delete(self, name: TopicName, owner_epoch: bytes | None = None, incarnation: str = "") -> None:
        async def delete_schema(is_being_deleted: Callable[[], Awaitable[bool]]) -> Sequence[Change]:
            if name.is_partition:
                return []
            return await prepare_schema_deletion(
                name, self._client, self._clock, self._randomness, is_being_deleted, create=False
            )

        try:
            await self._find_node(name).delete(owner_epoch, delete_schema)
        except MetadataError as error:
            raise make_unfinished_deletion_error(name, error) from error

    def _find_node(self, name: TopicName) -> NonPersistentTopicNode:
        return NonPersistentTopicNode(name, self._client.ledgers.store, self._randomness)
