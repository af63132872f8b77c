"""Admin calls on topics. Those with the scope TOPIC run at the owner, on one topic or one partition."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence

from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.admin.names import cut_page, parse_bundle, parse_domains, parse_namespace_name, parse_topic_name
from magnetar_broker.admin.topic_router import TopicRoute, check_single_part, routed, take_only
from magnetar_broker.admin.topic_stats import (
    describe_log,
    describe_topic,
    drop_clients,
    merge_partitions,
    merge_stats,
    reduce_partition,
    set_owner,
)
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.stored_sizes import count_bytes_after
from magnetar_broker.name_locks import NameLocks
from magnetar_broker.ownership.interface import Ownership
from magnetar_broker.ownership.namespace_bundles import decode_bundle_at
from magnetar_broker.schemas.schema_registry import SchemaRegistry
from magnetar_broker.system_topics import is_system_topic
from magnetar_broker.topic_properties import check_properties, encode_properties
from magnetar_broker.topics.client_positions import find_start
from magnetar_broker.topics.topic import Topic
from magnetar_broker.topics.topics import Topics
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode, StartAt
from magnetar_protos.ledger_pb2 import EntryPosition
from magnetar_protos.managed_ledger_pb2 import TopicState
from magnetar_wire.admin.policies import Level, find_missing_effects
from magnetar_wire.bundles import bundle_hash
from magnetar_wire.topic_name import TopicName

__all__ = ["TopicCalls", "check_not_system_topic"]


def merge_terminations(
    name: TopicName, answers: Sequence[pb.PartitionTerminationsAnswer]
) -> pb.PartitionTerminationsAnswer:
    merged = pb.PartitionTerminationsAnswer()
    for answer in answers:  # in the order of the partitions
        merged.partitions.extend(answer.partitions)
    return merged


class TopicCalls:
    def __init__(
        self,
        topics: Topics,
        catalog: Catalog,
        ownership: Ownership,
        describe_broker: Callable[[], pb.BrokerAnswer],
        forget_policies: Callable[[TopicName], Awaitable[None]],
        schemas: SchemaRegistry,
    ) -> None:
        """`forget_policies` removes the policies of a topic that was deleted."""
        self._forget_policies = forget_policies
        self._schemas = schemas
        # So that of several requests to create or delete a topic at the same time one succeeds.
        self._names: NameLocks[TopicName] = NameLocks()
        self._topics = topics
        self._catalog = catalog
        self._ownership = ownership
        self._describe_broker = describe_broker

    # ── any broker ──

    async def topics(self, request: pb.NamesRequest) -> pb.NamesAnswer:
        """List every topic that was created before the call, by any broker: a reader that has taken a lease on the
        namespace relies on that."""
        name = parse_namespace_name(request.within)
        await self._catalog.namespaces.get(name)
        await self._catalog.sync()
        domains = parse_domains(request.domain)
        names = await self._catalog.list_topics(name, include_system=request.include_system, domains=domains)
        if request.bundle:
            bundle = parse_bundle(request.bundle)
            names = [topic for topic in names if bundle_hash(TopicName.parse(topic)) in bundle]
        return cut_page(names, request)

    async def topic_owners(self, request: pb.TopicOwnersRequest) -> pb.TopicOwnersAnswer:
        name = parse_topic_name(request.topic)
        parts = await self._catalog.expand_partitions(name)
        namespace = await self._catalog.get_namespace(name.namespace_name, fresh=True)

        async def find_owner(part: TopicName) -> pb.TopicOwner:
            owner = await self._ownership.find_owner(part)
            return pb.TopicOwner(
                topic=str(part),
                broker_id=owner.broker_id,
                address=owner.addresses.find(request.listener_name),
                bundle=str(decode_bundle_at(namespace.node.bundle_starts, bundle_hash(part))),
            )

        owners = await map_bounded(parts, find_owner)
        return pb.TopicOwnersAnswer(owners=owners, partitions=0 if parts == [name] else len(parts))

    # ── the topic's owner ──

    async def _check_creation(self, request: pb.TopicRequest, parts: Sequence[TopicName]) -> None:
        name = parts[0]
        check_not_system_topic(name)
        check_properties(request.properties)
        await self._catalog.check_topic(name)
        if not name.is_partition and await self._catalog.partitioned.find(name, fresh=True) is not None:
            raise BrokerError(ErrorCode.ALREADY_EXISTS, f"there is a partitioned topic {name} already")

    @routed(TopicRoute(non_persistent=True, loads=False, check=_check_creation))
    async def create_topic(self, name: TopicName, request: pb.TopicRequest) -> pb.Done:
        async with self._names.hold(name):
            return await self._create_topic(name, request)

    async def _create_topic(self, name: TopicName, request: pb.TopicRequest) -> pb.Done:
        if await self._catalog.get_topic_state(name) == TopicState.LIVE:
            raise BrokerError(ErrorCode.ALREADY_EXISTS, f"there is a topic {name} already")
        await self._topics.create(name, encode_properties(request.properties))
        # First use by a client may have created it at the same time.
        if request.properties and await self._catalog.get_topic_properties(name) != dict(request.properties):
            raise BrokerError(ErrorCode.ALREADY_EXISTS, f"topic {name} was created by another request at the same time")
        return pb.Done()

    async def update_stored_properties(self, topic: Topic, request: pb.TopicPropertiesRequest) -> pb.Done:
        await topic.managed_ledger.change_properties(
            {**dict.fromkeys(request.removed), **encode_properties(request.properties)}
        )
        return pb.Done()

    async def _check_deletion(self, request: pb.DeleteRequest, parts: Sequence[TopicName]) -> None:
        name = parts[0]
        check_not_system_topic(name)
        if not name.is_partition and await self._catalog.partitioned.find(name, fresh=True) is not None:
            raise BrokerError(
                ErrorCode.CONFLICT, f"{name} is a partitioned topic: delete it as one, with all its partitions"
            )
        await self._check_exists(name)

    @routed(TopicRoute(non_persistent=True, loads=False, check=_check_deletion))
    async def delete_topic(self, name: TopicName, request: pb.DeleteRequest) -> pb.Done:
        async with self._names.hold(name):
            await self._check_exists(name)
            await self._topics.delete(name, force=request.force)
        if not request.with_namespace:  # else the events topic is deleted, too
            await self._forget_policies(name)
        return pb.Done()

    async def _check_exists(self, name: TopicName) -> None:
        if await self._catalog.get_topic_state(name) is None:
            raise BrokerError(ErrorCode.TOPIC_NOT_FOUND, f"there is no topic {name}")

    @routed(TopicRoute(non_persistent=True, loads=False))
    async def unload_topic(self, name: TopicName, request: pb.TopicRequest) -> pb.Done:
        await self._topics.unload(name)
        return pb.Done()

    @routed(TopicRoute(non_persistent=True, loads=False))
    async def check_unused(self, name: TopicName, request: pb.TopicRequest) -> pb.Done:
        topic = self._topics.get_loaded(name)
        if topic is not None and topic.in_use:
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} has producers or consumers: close them, or use force")
        return pb.Done()

    @routed(TopicRoute(loads=False))
    async def report_growth(self, name: TopicName, request: pb.PartitionsRequest) -> pb.Done:
        topic = self._topics.get_loaded(name)
        if topic is not None:
            topic.report_growth(request.partitions)
        return pb.Done()

    async def _check_not_system_topic(self, request: pb.TopicRequest, parts: Sequence[TopicName]) -> None:
        check_not_system_topic(parts[0])

    @routed(TopicRoute(check=_check_not_system_topic))
    async def truncate_topic(self, topic: Topic, request: pb.TopicRequest) -> pb.Done:
        for name in topic.subscriptions.names:
            try:
                await topic.subscriptions.skip_all(name)
            except BrokerError as error:
                if error.code != ErrorCode.SUBSCRIPTION_NOT_FOUND:
                    raise
                # It was deleted while others were skipped.
        await topic.managed_ledger.truncate(topic.deduplication.save_snapshot)  # what it would read is deleted
        topic.drop_trimmed_ledgers()
        return pb.Done()

    async def trim_topic(self, topic: Topic, request: pb.TopicRequest) -> pb.Done:
        if await topic.log.trim(topic.cursors.find_slowest_position):
            topic.drop_trimmed_ledgers()
        return pb.Done()

    @routed(TopicRoute(check=_check_not_system_topic))
    async def terminate_topic(self, topic: Topic, request: pb.TopicRequest) -> pb.TerminationAnswer:
        return pb.TerminationAnswer(last=await self._terminate(topic))

    async def _check_partitioned_termination(self, request: pb.TopicRequest, parts: Sequence[TopicName]) -> None:
        check_not_system_topic(parts[0])
        if parts[0] == parse_topic_name(request.topic):
            raise BrokerError(
                ErrorCode.NOT_ALLOWED, f"{parts[0]} has no partitions: terminate it as a topic without partitions"
            )

    @routed(TopicRoute(check=_check_partitioned_termination, merge=merge_terminations))
    async def terminate_partitioned(self, topic: Topic, request: pb.TopicRequest) -> pb.PartitionTerminationsAnswer:
        partition = topic.name.partition_index
        last = await self._terminate(topic)
        return pb.PartitionTerminationsAnswer(partitions=[pb.PartitionTermination(partition=partition, last=last)])

    async def _terminate(self, topic: Topic) -> EntryPosition:
        last = await topic.terminate()
        return EntryPosition(ledger_id=last.ledger_id, entry_id=last.entry_id)

    async def _check_stats(self, request: pb.TopicStatsRequest, parts: Sequence[TopicName]) -> None:
        name = parse_topic_name(request.topic)
        if request.without_partitions and parts != [name]:
            raise BrokerError(
                ErrorCode.TOPIC_NOT_FOUND,
                f"{name} has partitions: ask for the statistics of a partitioned topic, or of {name.partition(0)}",
            )

    @routed(TopicRoute(non_persistent=True, check=_check_stats, reduce=drop_clients, merge=merge_stats))
    async def topic_stats(self, topic: Topic, request: pb.TopicStatsRequest) -> pb.TopicStatsAnswer:
        return pb.TopicStatsAnswer(stats=await self._describe(topic, request))

    async def _check_partitioned(self, request: pb.TopicStatsRequest, parts: Sequence[TopicName]) -> None:
        if parts == [parse_topic_name(request.topic)]:
            raise BrokerError(
                ErrorCode.TOPIC_NOT_FOUND,
                f"there is no partitioned topic {parts[0]}: ask for the topic's own statistics",
            )

    @routed(TopicRoute(non_persistent=True, check=_check_partitioned, reduce=reduce_partition, merge=merge_partitions))
    async def partitioned_stats(self, topic: Topic, request: pb.TopicStatsRequest) -> pb.PartitionedStatsAnswer:
        answer = pb.PartitionedStatsAnswer(stats=await self._describe(topic, request))
        if request.per_partition or not request.HasField("per_partition"):
            answer.partitions.append(answer.stats)
        return answer

    async def _describe(self, topic: Topic, request: pb.TopicStatsRequest) -> pb.TopicStats:
        stats = await describe_topic(topic, request, topic.subscriptions.time_ms())
        set_owner(stats, self._describe_broker())
        # The namespace may be being deleted.
        with contextlib.suppress(BrokerError):
            policies = await self._catalog.get_policies(topic.name.namespace_name)
            own = await self._topics.read_own_policies(topic.name)
            missing = find_missing_effects(policies, Level.NAMESPACE)
            missing += find_missing_effects(own, Level.TOPIC, is_persistent=topic.name.is_persistent)
            stats.not_in_effect.extend(dict.fromkeys(missing))
        return stats

    async def _check_one_position(self, request: pb.BacklogSizeRequest, parts: Sequence[TopicName]) -> None:
        check_single_part("backlog_size of a position", parts)

    @routed(TopicRoute(check=_check_one_position, may_name_partition=True, merge=take_only))
    async def backlog_size(self, topic: Topic, request: pb.BacklogSizeRequest) -> pb.BacklogSizeAnswer:
        after = request.after
        start = await find_start(topic.log, StartAt(message_id=after))
        return pb.BacklogSizeAnswer(bytes=count_bytes_after(topic.log.ledger_list.ledgers, start.mark_delete))

    @routed(TopicRoute(non_persistent=True))
    async def internal_stats(self, topic: Topic, request: pb.TopicRequest) -> pb.InternalStatsAnswer:
        stats = describe_log(topic)
        # Without the metadata store, the owner still knows everything else of the topic.
        with contextlib.suppress(BrokerError):
            stats.schema_ledgers.extend(
                pb.LedgerStats(ledger_id=one.ledger_id, entries=1, bytes=one.stored_bytes, closed=True)
                for one in await self._schemas.describe(topic.name)
                if one.ledger_id
            )
        return pb.InternalStatsAnswer(stats=stats)


def check_not_system_topic(name: TopicName) -> None:
    """Raise `BrokerError` unless users may create, change and delete the topic."""
    if is_system_topic(name):
        raise BrokerError(
            ErrorCode.NOT_ALLOWED,
            f"{name} is a system topic: only brokers create, change and delete it, use another name",
        )
