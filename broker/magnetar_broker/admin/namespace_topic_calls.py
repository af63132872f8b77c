"""Admin calls that do something on all topics of a namespace, or of one of its bundles.

A topic or partition that can't do it does not keep the others from it. The error is raised afterwards: as it is if
nothing was changed anywhere, else as one whose outcome is unknown, since a part was done.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.admin.names import parse_bundle, parse_namespace_name
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError
from magnetar_broker.ownership.namespace_bundles import is_bundle
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.bundles import BundleRange, bundle_hash
from magnetar_wire.topic_name import NamespaceName, TopicDomain, TopicName

__all__ = ["NamespaceTopicCalls"]

_UNKNOWN_OUTCOMES: Final = (
    ErrorCode.UNKNOWN_ERROR,
    ErrorCode.METADATA_ERROR,
    ErrorCode.PERSISTENCE_ERROR,
    ErrorCode.INTERNAL_ERROR,
)


class NamespaceTopicCalls:
    def __init__(self, catalog: Catalog, owner_rpc: OwnerRpc) -> None:
        self._catalog = catalog
        self._owner_rpc = owner_rpc

    async def clear_namespace_backlog(self, request: pb.NamespaceSubscriptionRequest) -> pb.NamespaceTopicsAnswer:
        async def clear(topic: TopicName) -> AsyncIterator[bool]:
            names = [request.subscription] if request.subscription else await self._list_subscriptions(topic)
            for name in names:
                skip = pb.SkipRequest(topic=str(topic), subscription=name, all=True)
                yield await self._change(topic, "skip", skip)

        return await self._change_topics(request, clear)

    async def unsubscribe_namespace(self, request: pb.NamespaceSubscriptionRequest) -> pb.NamespaceTopicsAnswer:
        if not request.subscription:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "the subscription's name is empty: give its name")

        async def unsubscribe(topic: TopicName) -> AsyncIterator[bool]:
            deletion = pb.DeleteSubscriptionRequest(topic=str(topic), subscription=request.subscription)
            yield await self._change(topic, "delete_subscription", deletion)

        return await self._change_topics(request, unsubscribe)

    async def topic_hashes(self, request: pb.TopicHashesRequest) -> pb.TopicHashesAnswer:
        namespace = parse_namespace_name(request.namespace)
        bundle = await self._find_bundle(namespace, request.bundle)
        wanted = {name if "://" in name else f"persistent://{namespace}/{name}" for name in request.topics}
        answer = pb.TopicHashesAnswer(namespace=str(namespace), bundle=str(bundle))
        for topic in await self._list_topics(namespace, bundle):
            if not wanted or str(topic) in wanted:
                answer.topics.add(topic=str(topic), hash=bundle_hash(topic))
        return answer

    async def _change_topics(
        self, request: pb.NamespaceSubscriptionRequest, change: Callable[[TopicName], AsyncIterator[bool]]
    ) -> pb.NamespaceTopicsAnswer:
        """`change` yields for each subscription of the topic whether it was changed."""
        namespace = parse_namespace_name(request.namespace)
        bundle = await self._find_bundle(namespace, request.bundle) if request.bundle else None
        topics = await self._list_topics(namespace, bundle)
        changed, errors = 0, list[BrokerError]()

        async def try_change(topic: TopicName) -> None:
            nonlocal changed
            try:
                async for is_changed in change(topic):
                    changed += is_changed
            except BrokerError as error:
                errors.append(error)

        await map_bounded(topics, try_change)
        if not errors:
            return pb.NamespaceTopicsAnswer(subscriptions=changed)
        if not changed:
            # One whose outcome is unknown goes first: the others did nothing.
            raise min(errors, key=lambda error: error.code not in _UNKNOWN_OUTCOMES)
        raise BrokerError(
            ErrorCode.UNKNOWN_ERROR,
            f"it was done on {changed:,} subscriptions of {len(topics):,} topics, and failed on {len(errors):,} "
            f"topics, for example: {errors[0]}",
        )

    async def _change(
        self, topic: TopicName, call: str, request: pb.SkipRequest | pb.DeleteSubscriptionRequest
    ) -> bool:
        """Return whether the subscription was changed: a topic may not have it, or not exist any more."""
        try:
            await self._owner_rpc.call_topic_owner(topic, call, request)
        except BrokerError as error:
            if error.code not in (ErrorCode.SUBSCRIPTION_NOT_FOUND, ErrorCode.TOPIC_NOT_FOUND):
                raise
            return False
        return True

    async def _list_subscriptions(self, topic: TopicName) -> list[str]:
        request = pb.TopicRequest(topic=str(topic))
        try:
            found = await self._owner_rpc.call_topic_owner(topic, "durable_subscriptions", request)
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_NOT_FOUND:
                raise
            return []
        return [one.subscription for one in found.subscriptions]

    async def _find_bundle(self, namespace: NamespaceName, text: str) -> BundleRange:
        bundle = parse_bundle(text)
        starts = (await self._catalog.namespaces.get(namespace)).node.bundle_starts
        if not is_bundle(starts, bundle):
            raise BrokerError(ErrorCode.NOT_FOUND, f"namespace {namespace} has no bundle {bundle}", about="bundle")
        return bundle

    async def _list_topics(self, namespace: NamespaceName, bundle: BundleRange | None) -> list[TopicName]:
        await self._catalog.namespaces.get(namespace)
        await self._catalog.sync()
        names = await self._catalog.list_topics(namespace, domains=[TopicDomain.PERSISTENT])
        topics = [TopicName.parse(name) for name in names]
        return [topic for topic in topics if bundle is None or bundle_hash(topic) in bundle]
