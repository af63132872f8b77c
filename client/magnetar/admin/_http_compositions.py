"""Calls that take several requests over HTTP, because Pulsar's REST API has no single one for them.

They are not atomic: if one of the requests fails, those before it are done, and others may see what is between them.
Those on policies are in _http_policies.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from magnetar.admin._calls import AdminCalls
from magnetar.admin.models import TenantSettings
from magnetar.exceptions import InvalidArgument, NotAllowedError, NotFound, SubscriptionNotFound
from magnetar_protos import admin_pb2 as pb
from magnetar_wire.message_id import MessageId
from magnetar_wire.topic_name import TopicName

__all__ = [
    "complete_stats",
    "create_subscription",
    "create_tenant",
    "find_bundle_owners",
    "find_cluster",
    "find_owners",
    "get_stats",
    "list_owned_bundles",
    "look_up",
    "peek",
    "reset_subscription",
    "split_bundle",
]

# Lookups of a topic's partitions that are in flight at once.
_LOOKUPS_AT_ONCE: Final = 16


async def create_tenant(calls: AdminCalls, tenant: str, settings: TenantSettings | None) -> None:
    """Create a tenant. To a broker of Pulsar, no cluster is not the same as all clusters, and it refuses that."""
    try:
        await calls.call("create_tenant", tenant=tenant, settings=settings)
    except NotAllowedError:
        if settings is not None and settings.allowed_clusters:
            raise
        roles = () if settings is None else settings.admin_roles
        all_clusters = TenantSettings(roles, await calls.names("clusters"))
        await calls.call("create_tenant", tenant=tenant, settings=all_clusters)


async def split_bundle(calls: AdminCalls, namespace: str, bundle: str, fields: Mapping[str, int]) -> tuple[str, str]:
    """Split a bundle, and find its parts."""

    async def list_bundles() -> list[str]:
        return [one.bundle for one in (await calls.call("bundles", namespace=namespace)).bundles]

    before = await list_bundles()
    at = [fields["at"]] if fields["by"] == pb.SplitBy.SPLIT_BY_POSITION else []
    await calls.call("split_bundle", namespace=namespace, bundle=bundle, by=fields["by"], positions=at)
    parts = [one for one in await list_bundles() if one not in before]
    return (parts[0], parts[-1]) if parts else ("", "")


async def find_owners(calls: AdminCalls, topic: str, listener_name: str) -> pb.TopicOwnersAnswer:
    """Look up a topic, or each of its partitions."""
    found = await calls.call("topic_partitions", topic=topic)
    answer = pb.TopicOwnersAnswer(partitions=found.partitions)
    for first in range(0, max(found.partitions, 1), _LOOKUPS_AT_ONCE):
        last = min(first + _LOOKUPS_AT_ONCE, found.partitions)
        names = [str(TopicName.parse(topic).partition(index)) for index in range(first, last)] or [topic]
        answer.owners.extend(await asyncio.gather(*(look_up(calls, name, listener_name) for name in names)))
    return answer


async def look_up(calls: AdminCalls, topic: str, listener_name: str) -> pb.TopicOwner:
    """Return the owner of one topic. Its id is its HTTP address, as Pulsar's brokers have it, and its address
    is that for Pulsar's clients."""
    answer = await calls.call("lookup_topic", topic=topic, listener_name=listener_name, needs_pulsar=True)
    owner: pb.TopicOwner = answer.owner
    owner.topic = str(TopicName.parse(topic))
    owner.broker_id = owner.http_address
    owner.address = owner.pulsar_address
    owner.bundle = (await calls.call("topic_bundle", topic=topic)).bundle
    return owner


async def get_stats(calls: AdminCalls, fields: Mapping[str, Any]) -> Any:
    """Return the statistics of a topic, or the sums over its partitions, which have a path of their own."""
    partitions = (await calls.call("topic_partitions", topic=fields["topic"])).partitions
    name = "partitioned_stats" if partitions else "topic_stats"
    # Pulsar's brokers do not read the time of the oldest message unless it is requested.
    stats = (await calls.call(name, **fields, earliest_time_in_backlog=True)).stats
    complete_stats(stats, fields["topic"])
    stats.partitions = partitions
    return stats


def complete_stats(stats: Any, topic: str) -> None:
    """Set what Pulsar's brokers leave out: the topic's name, and the number of messages in a backlog."""
    stats.topic = stats.topic or str(TopicName.parse(topic))
    for subscription in stats.subscriptions:
        subscription.backlog_messages = max(subscription.backlog_messages, subscription.backlog_entries)


async def find_cluster(calls: AdminCalls) -> str:
    """Return the brokers' cluster. A broker of Pulsar may know others, and lists the brokers of its own only."""
    for cluster in await calls.names("clusters"):
        try:
            if (await calls.call("brokers", cluster=cluster)).brokers:
                return cluster
        except NotFound:
            continue
    raise NotFound("no cluster has brokers")


async def list_owned_bundles(calls: AdminCalls, broker_id: str | None) -> Sequence[Any]:
    """Return the bundles of a broker. Which one answers is not known over HTTP, unless there is one only."""
    cluster = await find_cluster(calls)
    if broker_id is None:
        brokers = [one.broker_id for one in (await calls.call("brokers")).brokers]
        if len(brokers) > 1:
            raise InvalidArgument(f"which broker answers is not known over HTTP: name one of {', '.join(brokers[:10])}")
        (broker_id,) = brokers
    answer = await calls.call("owned_bundles", cluster=cluster, broker_id=broker_id)
    bundles: Sequence[Any] = answer.bundles
    return bundles


async def find_bundle_owners(calls: AdminCalls, namespace: str) -> Mapping[str, str]:
    """Return the brokers that own bundles of the namespace, by the bundles."""
    cluster = await find_cluster(calls)
    brokers: Sequence[Any] = (await calls.call("brokers")).brokers
    owners: dict[str, str] = {}
    for broker in brokers:
        owned = await calls.call("owned_bundles", cluster=cluster, broker_id=broker.broker_id)
        owners |= {one.bundle: broker.broker_id for one in owned.bundles if one.namespace == namespace}
    return owners


async def create_subscription(calls: AdminCalls, topic: str, subscription: str, fields: Mapping[str, Any]) -> None:
    """Create a subscription that begins at a time: at the first message, and move it there."""
    at_first = {**fields, "start": MessageId.earliest}
    await calls.call("create_subscription", topic=topic, subscription=subscription, **at_first)
    await calls.call("reset_subscription", topic=topic, subscription=subscription, start=fields["start"])


async def reset_subscription(calls: AdminCalls, topic: str, fields: Mapping[str, Any]) -> None:
    """Move a subscription. Pulsar's brokers move that of a partitioned topic to a time only, so to its first or last
    message each partition is moved on its own."""
    at = fields["start"].WhichOneof("at")
    found = await calls.call("topic_partitions", topic=topic) if at in ("earliest", "latest") else None
    if found is None or not found.partitions:
        await calls.call("reset_subscription", topic=topic, **fields)
        return
    for index in range(found.partitions):
        await calls.call("reset_subscription", topic=str(TopicName.parse(topic).partition(index)), **fields)


async def peek(calls: AdminCalls, topic: str, subscription: str, entries: int) -> list[Any]:
    """Return the oldest entries of a backlog, each from a request of its own. Pulsar's brokers do not report which
    messages of it are acknowledged, and create a subscription that is missing."""
    if subscription not in await calls.names("subscriptions", within=topic):
        raise SubscriptionNotFound(f"{topic} has no subscription {subscription!r}")
    found: list[Any] = []
    for first in range(1, entries + 1):
        try:
            answer = await calls.call("peek", topic=topic, subscription=subscription, entries=1, first=first)
        except NotFound:
            break
        found += answer.entries
    return found
