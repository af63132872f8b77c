"""What can be asked, by what it is about: the asynchronous front, and what the synchronous one is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from magnetar.admin._calls import AdminCalls
from magnetar.admin._values import (
    StartPoint,
    active_broker,
    peeked,
    policies_message,
    split_request,
    start_at,
    value_of,
)
from magnetar.admin.models import (
    ActiveBroker,
    BrokerInfo,
    Bundle,
    Health,
    InternalStats,
    NamespacePolicies,
    OwnedBundle,
    PartitionedTopic,
    PeekedMessage,
    TenantSettings,
    TopicHome,
    TopicStats,
)
from magnetar.exceptions import InvalidArgument
from magnetar_protos import admin_pb2 as pb
from magnetar_wire.message_id import MessageId

__all__ = [
    "ActiveBrokers",
    "AsyncBrokers",
    "AsyncNamespaces",
    "AsyncSubscriptions",
    "AsyncTenants",
    "AsyncTopics",
    "Bundles",
    "Homes",
    "Names",
    "OwnedBundles",
    "Peeked",
]

# Within the classes `list` is a method.
Names: TypeAlias = list[str]
Peeked: TypeAlias = list[PeekedMessage]
Bundles: TypeAlias = list[Bundle]
OwnedBundles: TypeAlias = list[OwnedBundle]
Homes: TypeAlias = list[TopicHome]
ActiveBrokers: TypeAlias = list[ActiveBroker]


class AsyncTenants:
    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def list(self) -> Names:
        return await self._calls.names("tenants")

    async def get(self, tenant: str) -> TenantSettings:
        answer = await self._calls.look("tenant", pb.TenantRequest(tenant=tenant), pb.TenantAnswer)
        return value_of(TenantSettings, answer.settings)

    async def create(self, tenant: str, settings: TenantSettings | None = None) -> None:
        await self._calls.change("create_tenant", _tenant(tenant, settings))

    async def update(self, tenant: str, settings: TenantSettings) -> None:
        await self._calls.change("update_tenant", _tenant(tenant, settings))

    async def delete(self, tenant: str, force: bool = False) -> None:
        """One that has namespaces is refused, unless by force: then they go with all their topics."""
        await self._calls.change("delete_tenant", pb.DeleteRequest(name=tenant, force=force))


class AsyncNamespaces:
    """Namespaces are named `tenant/namespace`."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def list(self, tenant: str) -> Names:
        return await self._calls.names("namespaces", tenant)

    async def policies(self, namespace: str) -> NamespacePolicies:
        answer = await self._calls.look("namespace", pb.NamespaceRequest(namespace=namespace), pb.NamespaceAnswer)
        return value_of(NamespacePolicies, answer.policies)

    async def create(
        self, namespace: str, policies: NamespacePolicies | None = None, bundles: int | None = None
    ) -> tuple[str, ...]:
        """Create the namespace. `bundles` is the number of its bundles; None: the brokers' default.

        Returns warnings, as `set_policies` does.
        """
        if bundles is not None and bundles < 1:
            raise InvalidArgument(f"a namespace has 1 bundle or more, and not {bundles}")
        request = _namespace(namespace, policies or NamespacePolicies())
        request.bundles = bundles or 0
        return tuple((await self._calls.changed("create_namespace", request, pb.NamespaceChanged)).warnings)

    async def set_policies(self, namespace: str, policies: NamespacePolicies) -> tuple[str, ...]:
        """Replace all policies by these.

        Returns a warning for each that holds now and can't be met at present: too few bookies take ledgers.
        """
        request = _namespace(namespace, policies)
        return tuple((await self._calls.changed("update_namespace", request, pb.NamespaceChanged)).warnings)

    async def delete(self, namespace: str, force: bool = False) -> None:
        """One that has topics is refused, unless by force: then they go with it."""
        await self._calls.change("delete_namespace", pb.DeleteRequest(name=namespace, force=force))

    async def bundles(self, namespace: str) -> Bundles:
        """In the order of their ranges, and who has each."""
        request = pb.NamespaceRequest(namespace=namespace)
        answer = await self._calls.look("bundles", request, pb.BundlesAnswer)
        return [value_of(Bundle, bundle) for bundle in answer.bundles]

    async def unload(self, namespace: str, bundle: str | None = None, destination: str | None = None) -> None:
        """The bundle, or all of them, is let go of by its broker: its topics are closed, and found again at whichever
        has the least to do, or at `destination`, a broker's id."""
        if bundle is not None:
            request = pb.UnloadBundleRequest(namespace=namespace, bundle=bundle, destination=destination or "")
            await self._calls.change("unload_bundle", request)
        elif destination is not None:
            raise InvalidArgument("a destination goes with one bundle: name it")
        else:
            await self._calls.change("unload_namespace", pb.UnloadNamespaceRequest(namespace=namespace))

    async def split_bundle(
        self, namespace: str, bundle: str, algorithm: str | None = None, at: int | None = None
    ) -> tuple[str, str]:
        """Makes two of it, and returns them: of one size (`range_equally_divide`, the default), with as many topics
        (`topic_count_equally_divide`), or at the hash `at` (`specified_positions_divide`)."""
        request = split_request(namespace, bundle, algorithm, at)
        answer = await self._calls.changed("split_bundle", request, pb.SplitBundleAnswer)
        return answer.lower, answer.upper


class AsyncTopics:
    """Topics, with and without partitions. A partition is a topic too, `<name>-partition-<i>`."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def list(self, namespace: str, include_system_topic: bool = False) -> Names:
        """Partitions among them; not the partitioned topics that they belong to."""
        return await self._calls.names("topics", namespace, include_system=include_system_topic)

    async def list_partitioned(self, namespace: str, include_system_topic: bool = False) -> Names:
        return await self._calls.names("partitioned_topics", namespace, include_system=include_system_topic)

    async def create(self, topic: str) -> None:
        """Without partitions."""
        await self._calls.change("create_topic", pb.TopicRequest(topic=topic))

    async def delete(self, topic: str, force: bool = False) -> None:
        """One to which somebody is connected is refused, unless by force."""
        await self._calls.change("delete_topic", pb.DeleteRequest(name=topic, force=force))

    async def truncate(self, topic: str) -> None:
        """All messages that there are by now go, acknowledged or not; what a lease holds, when it ends."""
        await self._calls.change("truncate_topic", pb.TopicRequest(topic=topic))

    async def unload(self, topic: str) -> None:
        """The broker lets go of it; whoever uses it next has it loaded again."""
        await self._calls.change("unload_topic", pb.TopicRequest(topic=topic))

    async def lookup(self, topic: str, listener_name: str = "") -> TopicHome:
        """Who serves it. A partitioned topic is refused: its partitions are served by one broker each."""
        answer = await self._homes(topic, listener_name)
        if answer.partitions:
            raise InvalidArgument(f"{topic} has {answer.partitions:,} partitions: use lookup_partitioned")
        return value_of(TopicHome, answer.homes[0])

    async def lookup_partitioned(self, topic: str, listener_name: str = "") -> dict[str, TopicHome]:
        """Who serves each of its partitions, by their names."""
        answer = await self._homes(topic, listener_name)
        if not answer.partitions:
            raise InvalidArgument(f"{topic} has no partitions: use lookup")
        return {home.topic: value_of(TopicHome, home) for home in answer.homes}

    async def homes(self, topic: str, listener_name: str = "") -> Homes:
        """Who serves it, or each of its partitions in their order."""
        answer = await self._homes(topic, listener_name)
        return [value_of(TopicHome, home) for home in answer.homes]

    async def _homes(self, topic: str, listener_name: str) -> pb.TopicHomesAnswer:
        request = pb.TopicHomesRequest(topic=topic, listener_name=listener_name)
        return await self._calls.look("topic_homes", request, pb.TopicHomesAnswer)

    async def stats(self, topic: str) -> TopicStats:
        answer = await self._calls.look("topic_stats", pb.TopicRequest(topic=topic), pb.TopicStatsAnswer)
        return value_of(TopicStats, answer.stats)

    async def internal_stats(self, topic: str) -> InternalStats:
        answer = await self._calls.look("internal_stats", pb.TopicRequest(topic=topic), pb.InternalStatsAnswer)
        return value_of(InternalStats, answer.stats)

    async def create_partitioned(
        self, topic: str, partitions: int, properties: Mapping[str, str] | None = None
    ) -> None:
        await self._calls.change(
            "create_partitioned", pb.PartitionsRequest(topic=topic, partitions=partitions, properties=properties or {})
        )

    async def get_partitioned(self, topic: str) -> PartitionedTopic:
        request = pb.TopicRequest(topic=topic)
        answer = await self._calls.look("partitioned_topic", request, pb.PartitionedTopicAnswer)
        return value_of(PartitionedTopic, answer)

    async def update_partitioned(self, topic: str, partitions: int) -> None:
        """Grows it to so many. Its subscriptions get the new ones from their first message."""
        await self._calls.change("grow_partitioned", pb.PartitionsRequest(topic=topic, partitions=partitions))

    async def delete_partitioned(self, topic: str, force: bool = False) -> None:
        """With all its partitions."""
        await self._calls.change("delete_partitioned", pb.DeleteRequest(name=topic, force=force))


class AsyncSubscriptions:
    """Of a topic; of a partitioned one, on all its partitions."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def list(self, topic: str) -> Names:
        """The durable ones."""
        return await self._calls.names("subscriptions", topic)

    async def create(
        self,
        topic: str,
        subscription: str,
        start: StartPoint = MessageId.latest,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        request = pb.SubscriptionRequest(
            topic=topic, subscription=subscription, start=start_at(start), properties=properties or {}
        )
        await self._calls.change("create_subscription", request)

    async def delete(self, topic: str, subscription: str, force: bool = False) -> None:
        """One that has consumers is refused, unless by force."""
        request = pb.DeleteSubscriptionRequest(topic=topic, subscription=subscription, force=force)
        await self._calls.change("delete_subscription", request)

    async def reset(self, topic: str, subscription: str, to: StartPoint) -> None:
        """Has it go on at that place, back or forth: with that message, if it is one's id."""
        request = pb.SubscriptionRequest(topic=topic, subscription=subscription, start=start_at(to))
        await self._calls.change("reset_subscription", request)

    async def skip(self, topic: str, subscription: str, entries: int) -> int:
        """Acknowledge the oldest entries of the backlog, and return their number: fewer where the backlog is shorter.

        A batch is one entry.
        """
        request = pb.SkipRequest(topic=topic, subscription=subscription, entries=entries)
        return (await self._calls.changed("skip", request, pb.SkippedAnswer)).entries

    async def skip_all(self, topic: str, subscription: str) -> int:
        """Acknowledge the whole backlog, and return its number of entries."""
        request = pb.SkipRequest(topic=topic, subscription=subscription, all=True)
        return (await self._calls.changed("skip", request, pb.SkippedAnswer)).entries

    clear_backlog = skip_all

    async def expire(self, topic: str, subscription: str, older_than_s: int) -> int:
        """Acknowledge the entries that a broker received longer ago than that, and return their number."""
        request = pb.ExpireRequest(topic=topic, subscription=subscription, older_than_s=older_than_s)
        return (await self._calls.changed("expire", request, pb.SkippedAnswer)).entries

    async def peek(self, topic: str, subscription: str, entries: int = 1) -> Peeked:
        """The messages of the oldest entries that are not acknowledged, which they stay."""
        request = pb.PeekRequest(topic=topic, subscription=subscription, entries=entries)
        answer = await self._calls.look("peek", request, pb.PeekAnswer)
        return [message for entry in answer.entries for message in peeked(entry)]


class AsyncBrokers:
    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def list(self) -> ActiveBrokers:
        """Those that take topics, by their ids."""
        answer = await self._calls.look("brokers", pb.BrokersRequest(), pb.BrokersAnswer)
        return [active_broker(one) for one in answer.brokers]

    async def bundles(self, broker_id: str | None = None) -> OwnedBundles:
        """What that broker has; None: the one that is reached."""
        request = pb.OwnedBundlesRequest(broker_id=broker_id or "")
        answer = await self._calls.look("owned_bundles", request, pb.OwnedBundlesAnswer)
        return [value_of(OwnedBundle, one) for one in answer.bundles]

    async def info(self) -> BrokerInfo:
        """Of the broker that was reached."""
        return value_of(BrokerInfo, await self._calls.look("broker", pb.BrokerRequest(), pb.BrokerAnswer))

    async def health(self) -> Health:
        """It writes a message and reads it back."""
        return value_of(Health, await self._calls.look("health", pb.HealthRequest(), pb.HealthAnswer))


def _tenant(tenant: str, settings: TenantSettings | None) -> pb.TenantRequest:
    settings = settings or TenantSettings()
    message = pb.TenantSettings(admin_roles=settings.admin_roles, allowed_clusters=settings.allowed_clusters)
    return pb.TenantRequest(tenant=tenant, settings=message)


def _namespace(namespace: str, policies: NamespacePolicies) -> pb.NamespaceRequest:
    return pb.NamespaceRequest(namespace=namespace, policies=policies_message(policies))
