"""Methods of `magnetar.admin` that check their arguments, choose between calls or convert responses in their own way.

All others are generated from the table of admin calls: `python client/generate_admin.py`, which also makes the
synchronous form of these.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

from magnetar.admin import _http_compositions as http
from magnetar.admin import _http_policies as http_policies
from magnetar.admin._group import AsyncGroup
from magnetar.admin._policy_values import policies_message
from magnetar.admin._values import StartPoint, partition_of, peeked, split_fields, start_at, value_of
from magnetar.admin.models import (
    BrokerInfo,
    Bundle,
    InternalStats,
    NamespacePolicies,
    OwnedBundle,
    PartitionedTopic,
    PartitionedTopicStats,
    PeekedMessage,
    SchemaCheck,
    TenantSettings,
    TopicOwner,
    TopicPolicies,
    TopicSchema,
    TopicStats,
)
from magnetar.exceptions import InvalidArgument, NotFound, TopicNotFound
from magnetar.schema import Schema, SchemaInfo
from magnetar_protos.catalog_pb2 import SchemaCompatibility
from magnetar_wire.message_id import MessageId

__all__ = [
    "WrittenBrokers",
    "WrittenNamespaces",
    "WrittenSchemas",
    "WrittenSubscriptions",
    "WrittenTenants",
    "WrittenTopics",
]


class WrittenTenants(AsyncGroup):
    async def create(self, tenant: str, settings: TenantSettings | None = None) -> None:
        """Create a tenant."""
        if self._calls.over_http:
            await http.create_tenant(self._calls, tenant, settings)
        else:
            await self._calls.call("create_tenant", tenant=tenant, settings=settings)


class WrittenNamespaces(AsyncGroup):
    async def create(
        self, namespace: str, policies: NamespacePolicies | None = None, bundles: int | None = None
    ) -> tuple[str, ...]:
        """Create a namespace. `bundles` is the number of its bundles; None: the brokers' default.

        Returns warnings, as `set_policies` does.
        """
        if bundles is not None and bundles < 1:
            raise InvalidArgument(f"bundles = {bundles}: a namespace has at least 1 bundle")
        if self._calls.over_http and policies is not None:
            return await http_policies.create_namespace(self._calls, namespace, policies_message(policies), bundles)
        answer = await self._calls.call("create_namespace", namespace=namespace, policies=policies, bundles=bundles)
        return tuple(answer.warnings)

    async def set_policies(self, namespace: str, policies: NamespacePolicies) -> tuple[str, ...]:
        """Replace all policies of a namespace.

        Returns a warning for each new policy that can't be met now, because too few bookies accept ledgers, and for
        each that is not in effect yet.
        """
        if self._calls.over_http:
            return await http_policies.replace_policies(self._calls, namespace, policies_message(policies))
        answer = await self._calls.call("update_namespace", namespace=namespace, policies=policies)
        return tuple(answer.warnings)

    async def change_policies(
        self, namespace: str, policies: NamespacePolicies, remove: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Set the policies that are not None, and remove those that are named in `remove`. The others stay as they are,
        also if they are changed at the same time.

        Returns warnings, as `set_policies` does.
        """
        if self._calls.over_http:
            return await http_policies.change_policies(self._calls, namespace, policies_message(policies), remove)
        answer = await self._calls.call("change_policies", namespace=namespace, set=policies, remove=remove)
        return tuple(answer.warnings)

    async def policy_warnings(self, namespace: str) -> tuple[str, ...]:
        """Return a warning for each policy of the namespace that is stored, and not yet in effect."""
        answer = await self._calls.call("namespace", namespace=namespace)
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
        if self._calls.over_http:
            return await http_policies.change_properties(self._calls, namespace, properties or {}, remove, remove_all)
        answer = await self._calls.call(
            "change_namespace_properties", namespace=namespace, set=properties, remove=remove, remove_all=remove_all
        )
        return dict(answer.properties)

    async def bundles(self, namespace: str) -> list[Bundle]:
        """List a namespace's bundles in the order of their ranges, with their owners."""
        answer = await self._calls.call("bundles", namespace=namespace)
        if self._calls.over_http:
            owners = await http.find_bundle_owners(self._calls, namespace)
            return [Bundle(one.bundle, owners.get(one.bundle, ""), "") for one in answer.bundles]
        return [value_of(Bundle, one) for one in answer.bundles]

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
        if self._calls.over_http:
            return await http.split_bundle(self._calls, namespace, bundle, fields)
        answer = await self._calls.call("split_bundle", namespace=namespace, bundle=bundle, **fields)
        return answer.lower, answer.upper


class WrittenTopics(AsyncGroup):
    async def get_partitioned(self, topic: str) -> PartitionedTopic:
        """Return a partitioned topic's number of partitions, and its properties."""
        try:
            answer = await self._calls.call("partitioned_topic", topic=topic)
        except TopicNotFound as error:  # over HTTP both are the same
            raise NotFound(str(error)) from None
        if not answer.partitions:
            raise NotFound(f"there is no partitioned topic {topic}: it has no partitions")
        return value_of(PartitionedTopic, answer)

    async def policies(self, topic: str, applied: bool = False, only: Sequence[str] = ()) -> TopicPolicies:
        """Return a topic's policies, which override those of its namespace; `only`: these fields, not all.

        With `applied` each policy that the topic does not have is that of its namespace, or else of the brokers'
        settings.
        """
        return value_of(TopicPolicies, (await self._read_policies(topic, applied, only)).policies)

    async def policy_warnings(self, topic: str) -> tuple[str, ...]:
        """Return a warning for each policy of the topic that is stored, and not yet in effect."""
        return tuple((await self._read_policies(topic, False, ())).warnings)

    async def _read_policies(self, topic: str, applied: bool, only: Sequence[str]) -> Any:
        if self._calls.over_http:
            return await http_policies.read_topic_policies(self._calls, topic, applied, only)
        return await self._calls.call("topic_policies", topic=topic, applied=applied, only=only)

    async def change_policies(self, topic: str, policies: TopicPolicies, remove: Sequence[str] = ()) -> tuple[str, ...]:
        """Set the policies that are not None, and remove those that are named in `remove`. The others stay as they are.

        Returns a warning for each new policy that is not in effect yet, or can't be met now.
        """
        if self._calls.over_http:
            return await http_policies.change_topic_policies(self._calls, topic, policies_message(policies), remove)
        answer = await self._calls.call("change_topic_policies", topic=topic, set=policies, remove=remove)
        return tuple(answer.warnings)

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
        if self._calls.over_http:
            return value_of(TopicOwner, await http.look_up(self._calls, topic, listener_name))
        answer = await self._calls.call("lookup_topic", topic=topic, listener_name=listener_name)
        return value_of(TopicOwner, answer.owner)

    async def stats(
        self, topic: str, *, exclude_producers: bool = False, exclude_consumers: bool = False
    ) -> TopicStats:
        """Return a topic's statistics; of a partitioned topic the sums over its partitions."""
        fields = {"topic": topic, "exclude_producers": exclude_producers, "exclude_consumers": exclude_consumers}
        if self._calls.over_http:
            return value_of(TopicStats, await http.get_stats(self._calls, fields))
        return value_of(TopicStats, (await self._calls.call("topic_stats", **fields)).stats)

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
        for one in (answer.stats, *answer.partitions):
            http.complete_stats(one, one.topic or topic)
        by_number = sorted(answer.partitions, key=lambda one: (len(one.topic), one.topic))
        return PartitionedTopicStats(
            value_of(TopicStats, answer.stats), [value_of(TopicStats, one) for one in by_number]
        )

    async def _owners(self, topic: str, listener_name: str) -> Any:
        if self._calls.over_http:
            return await http.find_owners(self._calls, topic, listener_name)
        return await self._calls.call("topic_owners", topic=topic, listener_name=listener_name)


class WrittenBrokers(AsyncGroup):
    async def bundles(self, broker_id: str | None = None) -> list[OwnedBundle]:
        """List the bundles that a broker owns; None: the broker that answers."""
        if self._calls.over_http:
            bundles = await http.list_owned_bundles(self._calls, broker_id)
        else:
            bundles = (await self._calls.call("owned_bundles", broker_id=broker_id)).bundles
        return [value_of(OwnedBundle, one) for one in bundles]

    async def info(self) -> BrokerInfo:
        """Describe the broker that answers. Over HTTP only its version and its cluster are known."""
        answer = await self._calls.call("broker")
        if self._calls.over_http:
            return BrokerInfo(None, answer.version, None, None, await http.find_cluster(self._calls), None, None)
        return value_of(BrokerInfo, answer)


class WrittenSubscriptions(AsyncGroup):
    async def create(
        self,
        topic: str,
        subscription: str,
        start: StartPoint = MessageId.latest,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a subscription. Messages from `start` on are retained until it acknowledges them. If `start` is the id
        of a message of a partition, the subscription is created on that partition only."""
        fields = {"start": start_at(start, False), "partition": partition_of(start), "properties": properties}
        if self._calls.over_http and not isinstance(start, MessageId):
            await http.create_subscription(self._calls, topic, subscription, fields)
        else:
            await self._calls.call("create_subscription", topic=topic, subscription=subscription, **fields)

    async def reset(self, topic: str, subscription: str, to: StartPoint, excluded: bool = False) -> None:
        """Move a subscription's cursor back or forth. If `to` is a message's id, that message is the next one; with
        `excluded` it is the one after it. On a partitioned topic, only the message's partition is moved."""
        fields = {"subscription": subscription, "start": start_at(to, excluded), "partition": partition_of(to)}
        if self._calls.over_http:
            await http.reset_subscription(self._calls, topic, fields)
        else:
            await self._calls.call("reset_subscription", topic=topic, **fields)

    async def peek(self, topic: str, subscription: str, entries: int = 1) -> list[PeekedMessage]:
        """Return the messages of the oldest entries that are not acknowledged, without acknowledging them."""
        if self._calls.over_http:
            found = await http.peek(self._calls, topic, subscription, entries)
        else:
            answer = await self._calls.call("peek", topic=topic, subscription=subscription, entries=entries)
            found = answer.entries
        return [message for entry in found for message in peeked(entry)]


class WrittenSchemas(AsyncGroup):
    async def list(self, topic: str) -> builtins.list[TopicSchema]:
        """List all versions of a topic's schema that are not deleted, oldest first; none: it has no schema."""
        found: builtins.list[TopicSchema] = []
        while True:
            answer = await self._calls.call("schemas", topic=topic, after=found[-1].version if found else None)
            found += [value_of(TopicSchema, one) for one in answer.schemas]
            if not answer.more or not answer.schemas:
                return found

    async def upload(self, topic: str, schema: SchemaInfo | Schema[Any] | type[Any]) -> int:
        """Add a version to a topic's schema, unless it has one with this definition. Return its number.

        The schema has to be compatible with the earlier versions, by the topic's policies; else IncompatibleSchema is
        raised. Whether producers and consumers may add versions does not count. A topic that does not exist is created,
        if first use by a client would create it.
        """
        return int((await self._calls.call("upload_schema", topic=topic, schema=schema)).version)

    async def check(self, topic: str, schema: SchemaInfo | Schema[Any] | type[Any]) -> SchemaCheck:
        """Check whether a schema could become the topic's next version, without adding it."""
        answer = await self._calls.call("check_schema", topic=topic, schema=schema)
        return SchemaCheck(answer.is_compatible, answer.reason, SchemaCompatibility.Name(answer.strategy))

    async def find_version(self, topic: str, schema: SchemaInfo | Schema[Any] | type[Any]) -> int | None:
        """Return the version of the topic's schema that has this definition; None: there is none."""
        return _read_version(await self._calls.call("find_schema_version", topic=topic, schema=schema))

    async def delete(self, topic: str, force: bool = False) -> int | None:
        """Delete a topic's schema. Return the version that marks the deletion.

        With `force` the definitions of all versions are removed, so that messages can't be decoded by them any more,
        and None is returned.
        """
        return _read_version(await self._calls.call("delete_schema", topic=topic, force=force))


def _read_version(answer: Any) -> int | None:
    return int(answer.version) if answer.HasField("version") else None
