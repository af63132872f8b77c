"""What an administrator asks of subscriptions: on a partitioned topic, of all its partitions.

One that is there on some partitions only, since a call was broken off or a partition is new, is completed by `create`
and deleted by `delete`; the others do what they can where it is. Each is done by the partition's own broker
(subscriptions_here.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from magnetar_broker.admin.names import topic_named
from magnetar_broker.admin.owner_calls import OwnerCalls
from magnetar_broker.admin.some_at_a_time import on_each_part, some_at_a_time
from magnetar_broker.admin.subscriptions_here import no_subscription
from magnetar_broker.admin.topic_calls import TopicCalls
from magnetar_broker.core.policies import check_known
from magnetar_broker.errors import BrokerError
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.topic_name import TopicName

__all__ = ["SubscriptionCalls"]

_Request: TypeAlias = pb.SubscriptionRequest | pb.DeleteSubscriptionRequest | pb.SkipRequest | pb.ExpireRequest


class SubscriptionCalls:
    def __init__(self, topics: TopicCalls, owners: OwnerCalls, max_peeked_entries: int) -> None:
        self._topics = topics
        self._owners = owners
        self._max_peeked_entries = max_peeked_entries

    async def names(self, topic: str) -> list[str]:
        """Of durable ones."""
        found: dict[str, None] = {}
        parts = await self._topics.names(topic_named(topic))
        for subscriptions in await some_at_a_time(parts, self._topics.durable_subscriptions):
            found.update((one.subscription, None) for one in subscriptions)
        return list(found)

    async def create_subscription(self, request: pb.SubscriptionRequest) -> pb.Done:
        check_known(request, "create_subscription")
        if not request.subscription:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "a subscription has a name, and this one is empty")
        parts = await self._topics.names(topic_named(request.topic))
        if not await self._where("create_subscription", parts, request, ErrorCode.ALREADY_EXISTS):
            raise BrokerError(
                ErrorCode.ALREADY_EXISTS, f"{request.topic} has a subscription {request.subscription!r} already"
            )
        return pb.Done()

    async def delete_subscription(self, request: pb.DeleteSubscriptionRequest) -> pb.Done:
        return await self._where_it_is("delete_subscription", request)

    async def reset_subscription(self, request: pb.SubscriptionRequest) -> pb.Done:
        check_known(request, "reset_subscription")
        at = request.start.WhichOneof("at")
        if at == "place":
            await self._only_one(request.topic, "a message is in one of them: reset that one, or reset all to a time")
        if at is None:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "`start` is empty: say where the subscription is to go on")
        return await self._where_it_is("reset_subscription", request)

    async def skip(self, request: pb.SkipRequest) -> pb.Done:
        if request.all == (request.entries > 0):
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "skip a number of entries above 0, or all of them")
        if not request.all:
            await self._only_one(request.topic, "skip so many entries on one of them")
        return await self._where_it_is("skip", request)

    async def expire(self, request: pb.ExpireRequest) -> pb.Done:
        return await self._where_it_is("expire", request)

    async def peek(self, request: pb.PeekRequest) -> pb.PeekAnswer:
        if not 1 <= request.entries <= self._max_peeked_entries:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"peek at 1 to {self._max_peeked_entries:,} entries, and not at {request.entries:,}",
            )
        name = await self._only_one(request.topic, "peek at one of them")
        request.topic = str(name)
        return await self._owners.of_topic(name, "peek", request, pb.PeekAnswer, harmless=True)

    async def _only_one(self, topic: str, instead: str) -> TopicName:
        """The topic, or its one partition."""
        name = topic_named(topic)
        parts = await self._topics.names(name)
        if len(parts) > 1:
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} has partitions: {instead}")
        return parts[0]

    async def _where_it_is(self, call: str, request: _Request) -> pb.Done:
        """On all parts of the topic that have it. Raises SUBSCRIPTION_NOT_FOUND where none has."""
        parts = await self._topics.names(topic_named(request.topic))
        if not await self._where(call, parts, request, ErrorCode.SUBSCRIPTION_NOT_FOUND):
            raise no_subscription(request.topic, request.subscription)
        return pb.Done()

    async def _where(
        self,
        call: str,
        parts: Sequence[TopicName],
        request: _Request,
        passed_over: ErrorCode,
    ) -> int:
        """On how many it was done; those that refuse it with that code are passed over."""

        async def ask(part: TopicName) -> int:
            of_part = type(request)()
            of_part.CopyFrom(request)  # type: ignore[arg-type]
            of_part.topic = str(part)
            try:
                await self._owners.of_topic(part, call, of_part, pb.Done)
            except BrokerError as error:
                if error.code != passed_over:
                    raise
                return 0
            return 1

        return sum(await on_each_part(parts, ask))
