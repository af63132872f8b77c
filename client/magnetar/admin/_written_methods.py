"""Methods of `magnetar.admin` that check their arguments, choose between calls or convert responses in their own way.

All others are generated from the table of admin calls: `python client/generate_admin.py`, which also makes the
synchronous form of these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from magnetar.admin._group import AsyncGroup
from magnetar.admin._values import peeked, split_fields, value_of
from magnetar.admin.models import (
    InternalStats,
    NamespacePolicies,
    PartitionedTopic,
    PartitionedTopicStats,
    PeekedMessage,
    TenantSettings,
    TopicOwner,
    TopicStats,
)
from magnetar.exceptions import InvalidArgument, NotAllowedError, NotFound, SubscriptionNotFound
from magnetar_protos import admin_pb2 as pb
from magnetar_wire.message_id import MessageId
from magnetar_wire.topic_name import TopicName

__all__ = ["WrittenNamespaces", "WrittenSubscriptions", "WrittenTenants", "WrittenTopics"]

# Lookups of a topic's partitions over HTTP that are in flight at once.
_LOOKUPS_AT_ONCE: Final = 16


class WrittenTenants(AsyncGroup):
    async def create(self, tenant: str, settings: TenantSettings | None = None) -> None:
        """Create a tenant."""
        try:
            await self._calls.call("create_tenant", tenant=tenant, settings=settings)
        except NotAllowedError:
            if not self._calls.over_http or (settings is not None and settings.allowed_clusters):
                raise
            # To a broker of Pulsar, no cluster is not the same as all clusters.
            clusters = await self._calls.names("clusters")
            roles = () if settings is None else settings.admin_roles
            await self._calls.call("create_tenant", tenant=tenant, settings=TenantSettings(roles, clusters))


class WrittenNamespaces(AsyncGroup):
    async def create(
        self, namespace: str, policies: NamespacePolicies | None = None, bundles: int | None = None
    ) -> tuple[str, ...]:
        """Create a namespace. `bundles` is the number of its bundles; None: the brokers' default.

        Returns warnings, as `set_policies` does.
        """
        if bundles is not None and bundles < 1:
            raise InvalidArgument(f"bundles = {bundles}: a namespace has at least 1 bundle")
        answer = await self._calls.call("create_namespace", namespace=namespace, policies=policies, bundles=bundles)
        return tuple(answer.warnings)

    async def properties(self, namespace: str) -> dict[str, str]:
        """Return a namespace's properties."""
        answer = await self._calls.call("namespace_properties", namespace=namespace)
        return dict(answer.properties)

    async def change_properties(
        self,
        namespace: str,
        properties: Mapping[str, str] | None = None,
        remove: Sequence[str] = (),
        remove_all: bool = False,
    ) -> dict[str, str]:
        """Set properties, and remove those that are named in `remove`, or all others. Return the removed ones."""
        answer = await self._calls.call(
            "change_namespace_properties", namespace=namespace, set=properties, remove=remove, remove_all=remove_all
        )
        return dict(answer.properties)

    async def unload(self, namespace: str, bundle: str | None = None, destination: str | None = None) -> None:
        """Unload a bundle, or all bundles of the namespace, from their brokers.

        The topics are closed, and opened again by the broker with the least load, or by `destination`, a broker's id.
        """
        if bundle is not None:
            await self._calls.call("unload_bundle", namespace=namespace, bundle=bundle, destination=destination)
        elif destination is not None:
            raise InvalidArgument(f"destination = {destination!r} without a bundle: name the bundle that moves there")
        else:
            await self._calls.call("unload_namespace", namespace=namespace)

    async def split_bundle(
        self, namespace: str, bundle: str, algorithm: str | None = None, at: int | None = None
    ) -> tuple[str, str]:
        """Split a bundle into two and return them.

        They have ranges of equal size (`range_equally_divide`, the default), equal numbers of topics
        (`topic_count_equally_divide`), or meet at the hash `at` (`specified_positions_divide`).
        """
        fields = split_fields(algorithm, at)
        answer = await self._calls.call("split_bundle", namespace=namespace, bundle=bundle, **fields)
        return answer.lower, answer.upper


class WrittenTopics(AsyncGroup):
    async def get_partitioned(self, topic: str) -> PartitionedTopic:
        """Return a partitioned topic's number of partitions, and its properties."""
        answer = await self._calls.call("partitioned_topic", topic=topic)
        if not answer.partitions:
            raise NotFound(f"there is no partitioned topic {topic}: it has no partitions")
        return value_of(PartitionedTopic, answer)

    async def messages_at(self, topic: str, message_id: MessageId) -> list[PeekedMessage]:
        """Return the messages of a stored entry, acknowledged or not: several if it is a batch.

        The topic has no partitions, or is one. Raises `NotFound` if the entry is not stored (any more).
        """
        answer = await self._calls.call(
            "message_at", topic=topic, ledger_id=message_id.ledger_id(), entry_id=message_id.entry_id()
        )
        return list(peeked(answer.entry))

    async def examine_messages(self, topic: str, start: str = "latest", number: int = 1) -> list[PeekedMessage]:
        """Return the messages of the entry with this number, counted from 1 at the `earliest` or `latest` one.

        The topic has no partitions, or is one.
        """
        answer = await self._calls.call("examine_message", topic=topic, start=start, number=number)
        return list(peeked(answer.entry))

    async def partitioned_internal_stats(self, topic: str) -> dict[str, InternalStats]:
        """Return the ledgers, cursors and leases of each partition of a partitioned topic, by the partitions' names."""
        answer = await self._calls.call("partitioned_internal_stats", topic=topic)
        return {one.topic: value_of(InternalStats, one.stats) for one in answer.stats}

    async def lookup(self, topic: str, listener_name: str = "") -> TopicOwner:
        """Return the owner of a topic. A partitioned topic is refused: each partition has its own."""
        answer = await self._owners(topic, listener_name)
        if answer.partitions:
            raise InvalidArgument(f"{topic} has {answer.partitions:,} partitions: use lookup_partitioned")
        return value_of(TopicOwner, answer.owners[0])

    async def lookup_partitioned(self, topic: str, listener_name: str = "") -> dict[str, TopicOwner]:
        """Return the owner of each partition, by the partitions' names."""
        answer = await self._owners(topic, listener_name)
        if not answer.partitions:
            raise InvalidArgument(f"{topic} has no partitions: use lookup")
        return {owner.topic: value_of(TopicOwner, owner) for owner in answer.owners}

    async def owners(self, topic: str, listener_name: str = "") -> list[TopicOwner]:
        """Return the owner of a topic, or of each of its partitions in their order."""
        answer = await self._owners(topic, listener_name)
        return [value_of(TopicOwner, one) for one in answer.owners]

    async def lookup_addresses(self, topic: str, listener_name: str = "") -> TopicOwner:
        """Return the owner of a topic with all its addresses, those for Pulsar's clients and for HTTP, too."""
        return value_of(TopicOwner, await self._lookup(topic, listener_name))

    async def stats(
        self, topic: str, *, exclude_producers: bool = False, exclude_consumers: bool = False
    ) -> TopicStats:
        """Return a topic's statistics; of a partitioned topic the sums over its partitions."""
        answer = await self._calls.call(
            "topic_stats",
            topic=topic,
            exclude_producers=exclude_producers,
            exclude_consumers=exclude_consumers,
            # Pulsar's brokers do not read it unless it is requested.
            earliest_time_in_backlog=self._calls.over_http,
        )
        answer.stats.topic = answer.stats.topic or topic  # Pulsar's brokers leave it out
        return value_of(TopicStats, answer.stats)

    async def partitioned_stats(
        self,
        topic: str,
        per_partition: bool = True,
        *,
        exclude_producers: bool = False,
        exclude_consumers: bool = False,
    ) -> PartitionedTopicStats:
        """Return the statistics of a partitioned topic, and with `per_partition` those of each partition."""
        answer = await self._calls.call(
            "partitioned_stats",
            topic=topic,
            per_partition=per_partition,
            exclude_producers=exclude_producers,
            exclude_consumers=exclude_consumers,
            # Pulsar's brokers do not read it unless it is requested.
            earliest_time_in_backlog=self._calls.over_http,
        )
        answer.stats.topic = answer.stats.topic or topic
        by_number = sorted(answer.partitions, key=lambda one: int(one.topic.rpartition("-")[2]))
        return PartitionedTopicStats(
            value_of(TopicStats, answer.stats), [value_of(TopicStats, one) for one in by_number]
        )

    async def _owners(self, topic: str, listener_name: str) -> Any:
        if not self._calls.over_http:
            return await self._calls.call("topic_owners", topic=topic, listener_name=listener_name)
        found = await self._calls.call("topic_partitions", topic=topic)
        answer = pb.TopicOwnersAnswer(partitions=found.partitions)
        for first in range(0, max(found.partitions, 1), _LOOKUPS_AT_ONCE):
            last = min(first + _LOOKUPS_AT_ONCE, found.partitions)
            names = [str(TopicName.parse(topic).partition(index)) for index in range(first, last)] or [topic]
            answer.owners.extend(await asyncio.gather(*(self._lookup(name, listener_name) for name in names)))
        return answer

    async def _lookup(self, topic: str, listener_name: str) -> Any:
        """Return the owner of one topic. Over HTTP its id is the HTTP address, which Pulsar's brokers have as their id,
        and its address is that for Pulsar's clients."""
        fields = {"topic": topic, "listener_name": listener_name}
        if not self._calls.over_http:
            return (await self._calls.call("lookup_topic", **fields)).owner
        owner = (await self._calls.call("lookup_topic", **fields, needs_pulsar=True)).owner
        owner.topic = str(TopicName.parse(topic))
        owner.broker_id = owner.http_address
        owner.address = owner.pulsar_address
        owner.bundle = (await self._calls.call("topic_bundle", topic=topic)).bundle
        return owner


class WrittenSubscriptions(AsyncGroup):
    async def peek(self, topic: str, subscription: str, entries: int = 1) -> list[PeekedMessage]:
        """Return the messages of the oldest entries that are not acknowledged, without acknowledging them."""
        if self._calls.over_http:
            return await self._peek_one_by_one(topic, subscription, entries)
        answer = await self._calls.call("peek", topic=topic, subscription=subscription, entries=entries)
        return [message for entry in answer.entries for message in peeked(entry)]

    async def _peek_one_by_one(self, topic: str, subscription: str, entries: int) -> list[PeekedMessage]:
        """A request of HTTP returns one entry. Pulsar's brokers do not say which messages of it are acknowledged."""
        found: list[PeekedMessage] = []
        for first in range(1, entries + 1):
            try:
                answer = await self._calls.call("peek", topic=topic, subscription=subscription, entries=1, first=first)
            except NotFound:
                if first == 1:
                    await self._check_subscription(topic, subscription)
                break
            found += [message for entry in answer.entries for message in peeked(entry)]
        return found

    async def _check_subscription(self, topic: str, subscription: str) -> None:
        """Raise `SubscriptionNotFound` unless there is one: over HTTP it is missing in the same way as a message."""
        if subscription not in await self._calls.names("subscriptions", within=topic):
            raise SubscriptionNotFound(f"{topic} has no subscription {subscription!r}")
