"""Admin calls on partitioned topics as a whole. Rules of their nodes are in catalog/partitioned_topics.py.

A topic that grows gives its new partitions the subscriptions of its first one. topic_router.py explains how this and a
change of a subscription at the same time leave all partitions alike.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from magnetar_broker.admin.deletions import Deletions
from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.admin.names import (
    cut_page,
    parse_domains,
    parse_namespace_name,
    parse_persistent_name,
    parse_topic_name,
)
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.admin.subscription_calls import read_subscriptions
from magnetar_broker.admin.topic_calls import check_not_system_topic
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.topic_properties import check_properties
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode, StartAt
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import TopicName

__all__ = ["PartitionedTopicCalls"]

_log = logging.getLogger(__name__)
# After these seconds no further partition is created in advance: a client's call must not time out.
_CREATION_S: Final = 10.0
# Copies are repeated as long as subscriptions are created or deleted at the same time, at most this often.
_MAX_ROUNDS: Final = 100


class PartitionedTopicCalls:
    def __init__(
        self,
        catalog: Catalog,
        owner_rpc: OwnerRpc,
        deletions: Deletions,
        clock: Clock,
        forget_policies: Callable[[TopicName], Awaitable[None]],
    ) -> None:
        """`forget_policies` removes the policies of a topic that was deleted."""
        self._forget_policies = forget_policies
        self._catalog = catalog
        self._owner_rpc = owner_rpc
        self._deletions = deletions
        self._clock = clock

    async def partitioned_topics(self, request: pb.NamesRequest) -> pb.NamesAnswer:
        name = parse_namespace_name(request.within)
        await self._catalog.namespaces.get(name)
        await self._catalog.sync()
        domains = parse_domains(request.domain)
        names = await self._catalog.list_partitioned_topics(
            name, include_system=request.include_system, domains=domains
        )
        return cut_page(names, request)

    async def create_partitioned(self, request: pb.PartitionsRequest) -> pb.Done:
        name = parse_topic_name(request.topic)
        check_not_system_topic(name)
        check_properties(request.properties)
        await self._catalog.check_topic(name.base)
        await self._catalog.partitioned.create(name, request.partitions, request.properties)
        try:
            await self._create_partitions([name.partition(index) for index in range(request.partitions)])
        except BrokerError as error:
            # The topic is created nevertheless.
            _log.info("not all partitions of %s were created, they will be when they are used: %s", name, error)
        return pb.Done()

    async def create_missed_partitions(self, request: pb.TopicRequest) -> pb.Done:
        name = parse_topic_name(request.topic)
        check_not_system_topic(name)
        await self._create_partitions(await self._catalog.partitioned.list_announced(name))
        return pb.Done()

    async def _create_partitions(self, parts: Sequence[TopicName]) -> None:
        """Create the partitions that do not exist, so that they are listed. Each would also be created when it is
        first used: so this ends after `_CREATION_S`. Those of a non-persistent topic exist only while they are used."""
        parts = [part for part in parts if part.is_persistent]
        deadline = self._clock.monotonic() + _CREATION_S

        async def create(part: TopicName) -> None:
            if self._clock.monotonic() < deadline and await self._catalog.get_topic_state(part) is None:
                with _ignore(ErrorCode.ALREADY_EXISTS):
                    request = pb.TopicRequest(topic=str(part))
                    await self._owner_rpc.call_topic_owner(part, "create_topic", request, repeat=True)

        await map_bounded(parts, create)

    async def topic_partitions(self, request: pb.TopicPartitionsRequest) -> pb.PartitionedTopicAnswer:
        name = parse_topic_name(request.topic)
        if not await self._catalog.resolve_partitions(name, create=request.create):
            return pb.PartitionedTopicAnswer()
        node = await self._catalog.partitioned.get(name)
        return pb.PartitionedTopicAnswer(partitions=node.partitions, properties=node.properties)

    async def compaction_status(self, request: pb.TopicRequest) -> pb.CompactionStatusAnswer:
        name = parse_persistent_name(request.topic)
        if await self._catalog.resolve_partitions(name, create=False):
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} has partitions: name one, from {name.partition(0)} on")
        return pb.CompactionStatusAnswer(status="NOT_RUN")

    async def partitioned_internal_stats(self, request: pb.TopicRequest) -> pb.PartitionedInternalStatsAnswer:
        name = parse_topic_name(request.topic)
        node = await self._catalog.partitioned.get(name)

        async def read(part: TopicName) -> pb.PartitionInternalStats:
            answer: pb.InternalStatsAnswer = await self._owner_rpc.call_topic_owner(
                part, "internal_stats", pb.TopicRequest(topic=str(part))
            )
            return pb.PartitionInternalStats(topic=str(part), stats=answer.stats)

        stats = await map_bounded([name.partition(index) for index in range(node.partitions)], read)
        return pb.PartitionedInternalStatsAnswer(partitions=node.partitions, properties=node.properties, stats=stats)

    async def topic_properties(self, request: pb.TopicRequest) -> pb.TopicPropertiesAnswer:
        return pb.TopicPropertiesAnswer(
            properties=await self._catalog.get_topic_properties(parse_persistent_name(request.topic))
        )

    async def update_topic_properties(self, request: pb.TopicPropertiesRequest) -> pb.Done:
        name = parse_persistent_name(request.topic)
        check_not_system_topic(name)
        if await self._catalog.resolve_partitions(name, create=False):
            await self._catalog.partitioned.update_properties(name, request.properties, request.removed)
        else:
            await self._owner_rpc.call_topic_owner(name, "update_stored_properties", request)
        return pb.Done()

    async def partitioned_topic(self, request: pb.TopicRequest) -> pb.PartitionedTopicAnswer:
        node = await self._catalog.partitioned.get(parse_topic_name(request.topic))
        return pb.PartitionedTopicAnswer(partitions=node.partitions, properties=node.properties)

    async def grow_partitioned(self, request: pb.PartitionsRequest) -> pb.Done:
        name = parse_topic_name(request.topic)
        check_not_system_topic(name)
        await self._catalog.partitioned.grow(name, request.partitions, lambda new: self._copy_subscriptions(name, new))
        await self._report_growth(name, request.partitions)
        return pb.Done()

    async def _report_growth(self, name: TopicName, partitions: int) -> None:
        """Notify the producers and consumers of the first partition. Those that are not reached count the partitions
        from time to time."""
        first = name.partition(0)
        report = pb.PartitionsRequest(topic=str(first), partitions=partitions)
        try:
            await self._owner_rpc.call_topic_owner(first, "report_growth", report)
        except BrokerError as error:
            _log.info("the growth of %s was not reported to its clients: %s", name, error)

    async def delete_partitioned(self, request: pb.DeleteRequest) -> pb.Done:
        name = parse_topic_name(request.name)
        check_not_system_topic(name)
        found = None if name.is_partition else await self._catalog.partitioned.find(name, fresh=True)
        if found is None and await self._catalog.get_topic_state(name) is not None:
            raise BrokerError(ErrorCode.CONFLICT, f"{name} is a topic without partitions: delete it as one")
        if found is not None and not request.force:
            parts = [name.partition(index) for index in range(found.node.partitions)]
            await map_bounded(parts, self._check_unused)
        await self._deletions.delete_partitioned(name, force=request.force)
        await self._forget_policies(name)
        return pb.Done()

    async def _check_unused(self, part: TopicName) -> None:
        await self._owner_rpc.call_topic_owner(part, "check_unused", pb.TopicRequest(topic=str(part)))

    async def _copy_subscriptions(self, name: TopicName, new: Sequence[TopicName]) -> None:
        """Create the subscriptions on the new partitions, at their first message.

        Subscriptions that are created or deleted in the meantime are copied, too: at the end the first partition has
        just those that the new ones were given. Raises `BrokerError`.
        """
        if not new or not name.is_persistent:  # then clients subscribe to them when they notice the growth
            return
        await map_bounded(new, self._read_subscriptions)  # it creates the partition
        copied: dict[str, pb.DurableSubscription] = {}
        for _ in range(_MAX_ROUNDS):
            found = {one.subscription: one for one in await self._read_subscriptions(name.partition(0))}
            created = [one for one in found.values() if one.subscription not in copied]
            deleted = [subscription for subscription in copied if subscription not in found]
            if not created and not deleted:
                return
            await map_bounded(new, partial(self._copy_to, created, deleted))
            copied = found
        raise BrokerError(
            ErrorCode.UNKNOWN_ERROR,
            f"subscriptions of {name} were created or deleted {_MAX_ROUNDS} times while it grew, so its new partitions "
            "are not shown to clients: grow it again",
        )

    async def _read_subscriptions(self, name: TopicName) -> Sequence[pb.DurableSubscription]:
        return await read_subscriptions(self._owner_rpc, name)

    async def _copy_to(
        self, created: Sequence[pb.DurableSubscription], deleted: Sequence[str], partition: TopicName
    ) -> None:
        """Create and delete the subscriptions on a partition.

        The calls are repeated if their results are unknown. So errors that report the change as made are ignored.
        """
        call = self._owner_rpc.call_topic_owner
        for one in created:
            creation = pb.SubscriptionRequest(
                topic=str(partition),
                subscription=one.subscription,
                start=StartAt(earliest=True),
                properties=one.properties,
            )
            with _ignore(ErrorCode.ALREADY_EXISTS):
                await call(partition, "create_subscription", creation, repeat=True)
        for subscription in deleted:
            deletion = pb.DeleteSubscriptionRequest(topic=str(partition), subscription=subscription)
            with _ignore(ErrorCode.SUBSCRIPTION_NOT_FOUND):
                await call(partition, "delete_subscription", deletion, repeat=True)


@contextmanager
def _ignore(code: ErrorCode) -> Iterator[None]:
    try:
        yield
    except BrokerError as error:
        if error.code != code:
            raise
