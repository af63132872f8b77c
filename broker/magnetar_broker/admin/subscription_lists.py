"""List the durable subscriptions of topics, at their owners."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_broker.admin.catalog import Catalog
from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.admin.name_pages import cut_page
from magnetar_broker.admin.names import parse_topic_name
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_protos import admin_pb2 as pb
from magnetar_wire.topic_name import TopicName

__all__ = ["SubscriptionLists", "read_subscriptions"]


class SubscriptionLists:
    def __init__(self, catalog: Catalog, owner_rpc: OwnerRpc) -> None:
        self._catalog = catalog
        self._owner_rpc = owner_rpc

    async def subscriptions(self, request: pb.NamesRequest) -> pb.NamesAnswer:
        async def read(part: TopicName) -> Sequence[pb.DurableSubscription]:
            return await read_subscriptions(self._owner_rpc, part)

        parts = await self._catalog.parts(parse_topic_name(request.within))
        found = {one.subscription: None for subscriptions in await map_bounded(parts, read) for one in subscriptions}
        return cut_page(found, request, self._catalog.settings.admin_max_names)


async def read_subscriptions(owner_rpc: OwnerRpc, name: TopicName) -> Sequence[pb.DurableSubscription]:
    """Return the durable subscriptions of a topic or partition. A partition that does not exist yet is created."""
    request = pb.TopicRequest(topic=str(name))
    answer: pb.DurableSubscriptionsAnswer = await owner_rpc.call_topic_owner(name, "durable_subscriptions", request)
    return answer.subscriptions
