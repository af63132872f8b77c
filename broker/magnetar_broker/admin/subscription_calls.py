"""What an administrator asks of subscriptions: on a partitioned topic, of all its partitions.

One that is there on some partitions only, since a call was broken off or a partition is new, is completed by `create`
and deleted by `delete`; the others do what they can where it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from magnetar_broker.admin.topic_calls import TopicCalls, topic_named
from magnetar_broker.core.policies import check_known
from magnetar_broker.core.position import Position
from magnetar_broker.errors import BrokerError
from magnetar_broker.topic.topic import Topic
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["SubscriptionCalls"]

_MAX_PEEKED_BYTES: Final = 6_291_456
_READ_ENTRIES: Final = 100


class SubscriptionCalls:
    def __init__(self, topics: TopicCalls, max_peeked_entries: int) -> None:
        self._topics = topics
        self._max_peeked_entries = max_peeked_entries

    async def names(self, topic: str) -> list[str]:
        """Of durable ones."""
        found: dict[str, None] = {}
        for part in await self._topics.parts(topic_named(topic)):
            found.update((one.name, None) for one in part.subscriptions.stats() if one.durable)
        return list(found)

    async def create_subscription(self, request: pb.SubscriptionRequest) -> pb.Done:
        check_known(request, "create_subscription")
        if not request.subscription:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "a subscription has a name, and this one is empty")
        properties = dict(request.properties)
        made, there = 0, 0
        for topic in await self._topics.parts(topic_named(request.topic)):
            try:
                await topic.subscriptions.create(request.subscription, request.start, properties)
                made += 1
            except BrokerError as error:
                if error.code != ErrorCode.ALREADY_EXISTS:
                    raise
                there += 1
        if there and not made:
            raise BrokerError(
                ErrorCode.ALREADY_EXISTS, f"{request.topic} has a subscription {request.subscription!r} already"
            )
        return pb.Done()

    async def delete_subscription(self, request: pb.DeleteSubscriptionRequest) -> pb.Done:
        await self._where_it_is(
            request.topic,
            request.subscription,
            lambda topic: topic.subscriptions.delete(request.subscription, force=request.force),
        )
        return pb.Done()

    async def reset_subscription(self, request: pb.SubscriptionRequest) -> pb.Done:
        check_known(request, "reset_subscription")
        name = topic_named(request.topic)
        start = request.start
        if start.WhichOneof("at") == "place" and len(await self._topics.names(name)) > 1:
            raise BrokerError(
                ErrorCode.NOT_ALLOWED,
                f"{name} has partitions, and a message is in one of them: reset that one, or reset all to a time",
            )
        if start.WhichOneof("at") is None:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "`start` is empty: say where the subscription is to go on")
        await self._where_it_is(
            request.topic, request.subscription, lambda topic: topic.subscriptions.reset(request.subscription, start)
        )
        return pb.Done()

    async def skip(self, request: pb.SkipRequest) -> pb.Done:
        name = topic_named(request.topic)
        if request.all == (request.entries > 0):
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "skip a number of entries above 0, or all of them")
        if not request.all and len(await self._topics.names(name)) > 1:
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} has partitions: skip so many entries on one of them")

        async def skip(topic: Topic) -> object:
            if request.all:
                return await topic.subscriptions.skip_all(request.subscription)
            return await topic.subscriptions.skip(request.subscription, request.entries)

        await self._where_it_is(request.topic, request.subscription, skip)
        return pb.Done()

    async def expire(self, request: pb.ExpireRequest) -> pb.Done:
        await self._where_it_is(
            request.topic,
            request.subscription,
            lambda topic: topic.subscriptions.expire(request.subscription, request.older_than_s),
        )
        return pb.Done()

    async def peek(self, request: pb.PeekRequest) -> pb.PeekAnswer:
        name = topic_named(request.topic)
        if not 1 <= request.entries <= self._max_peeked_entries:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"peek at 1 to {self._max_peeked_entries:,} entries, and not at {request.entries:,}",
            )
        if len(await self._topics.names(name)) > 1:
            raise BrokerError(ErrorCode.NOT_ALLOWED, f"{name} has partitions: peek at one of them")
        topic = await self._topics.one(name)
        cursor = topic.cursors.get(request.subscription)
        if cursor is None:
            raise no_subscription(str(name), request.subscription)
        answer = pb.PeekAnswer()
        size, start = 0, topic.log.first_after(cursor.mark_delete)
        while len(answer.entries) < request.entries:
            read = await topic.log.read(start, _READ_ENTRIES, _MAX_PEEKED_BYTES)
            for entry in read:
                start = Position(entry.position.ledger_id, entry.position.entry_id + 1)
                if cursor.acknowledged(entry.position) or len(answer.entries) == request.entries:
                    continue
                size += len(entry.stored)
                if answer.entries and size > _MAX_PEEKED_BYTES:
                    return answer
                done = cursor.acknowledged_messages(entry.position)
                answer.entries.add(
                    ledger_id=entry.position.ledger_id,
                    entry_id=entry.position.entry_id,
                    stored=entry.stored,
                    acknowledged=done.to_bytes((done.bit_length() + 7) // 8, "little"),
                )
            if not read:
                break
        return answer

    async def _where_it_is(self, topic: str, subscription: str, do: Callable[[Topic], Awaitable[object]]) -> None:
        """On all parts of the topic that have it. Raises SUBSCRIPTION_NOT_FOUND where none has."""
        done = 0
        for part in await self._topics.parts(topic_named(topic)):
            try:
                await do(part)
                done += 1
            except BrokerError as error:
                if error.code != ErrorCode.SUBSCRIPTION_NOT_FOUND:
                    raise
        if not done:
            raise no_subscription(topic, subscription)


def no_subscription(topic: str, subscription: str) -> BrokerError:
    return BrokerError(ErrorCode.SUBSCRIPTION_NOT_FOUND, f"{topic} has no subscription {subscription!r:.300}")
