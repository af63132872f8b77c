"""Administrators' calls on subscriptions: on a partitioned topic, on all its partitions.

A subscription that only some partitions have, since a call was broken off, is completed by `create` and deleted by
`delete`; the other calls change it where it is. Each partition's owner does its part (subscriptions_here.py).

**While a topic grows.** A growth announces the new partitions, copies the subscriptions of the first partition to them
until it finds no change there, and then tells clients (partitioned_topics.py, topic_calls.py). So a call changes the
first partition first, then reads how many partitions there are or are announced, and then changes the others. Either
the growth reads the first partition after that change and copies it; or it was announced before the call reads the
number, and has copied all that it will, so the call changes the new partitions, too.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from magnetar_broker.admin.names import topic_named
from magnetar_broker.admin.owner_calls import OwnerCalls
from magnetar_broker.admin.some_at_a_time import partly_done, some_at_a_time
from magnetar_broker.admin.subscriptions_here import no_subscription
from magnetar_broker.admin.topic_calls import TopicCalls
from magnetar_broker.core.policies import check_known
from magnetar_broker.errors import BrokerError
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.topic_name import TopicName

__all__ = ["SubscriptionCalls"]

_Request: TypeAlias = pb.SubscriptionRequest | pb.DeleteSubscriptionRequest | pb.SkipRequest | pb.ExpireRequest
A = TypeVar("A", pb.Done, pb.SkippedAnswer)


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
        if not await self._change_parts("create_subscription", request, pb.Done, ErrorCode.ALREADY_EXISTS):
            raise BrokerError(
                ErrorCode.ALREADY_EXISTS, f"{request.topic} has a subscription {request.subscription!r} already"
            )
        return pb.Done()

    async def delete_subscription(self, request: pb.DeleteSubscriptionRequest) -> pb.Done:
        await self._where_it_is("delete_subscription", request, pb.Done)
        return pb.Done()

    async def reset_subscription(self, request: pb.SubscriptionRequest) -> pb.Done:
        check_known(request, "reset_subscription")
        at = request.start.WhichOneof("at")
        if at == "place":
            await self._only_one(request.topic, "a message is in one of them: reset that one, or reset all to a time")
        if at is None:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "`start` is empty: say where the subscription is to go on")
        await self._where_it_is("reset_subscription", request, pb.Done)
        return pb.Done()

    async def skip(self, request: pb.SkipRequest) -> pb.SkippedAnswer:
        if request.all == (request.entries > 0):
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "skip a number of entries above 0, or all of them")
        if not request.all:
            await self._only_one(request.topic, "skip so many entries on one of them")
        return _sum_skipped(await self._where_it_is("skip", request, pb.SkippedAnswer))

    async def expire(self, request: pb.ExpireRequest) -> pb.SkippedAnswer:
        return _sum_skipped(await self._where_it_is("expire", request, pb.SkippedAnswer))

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

    async def _where_it_is(self, call: str, request: _Request, kind: type[A]) -> list[A]:
        """Change all parts of the topic that have the subscription. Raises SUBSCRIPTION_NOT_FOUND where none has."""
        answers = await self._change_parts(call, request, kind, ErrorCode.SUBSCRIPTION_NOT_FOUND)
        if not answers:
            raise no_subscription(request.topic, request.subscription)
        return answers

    async def _change_parts(self, call: str, request: _Request, kind: type[A], passed_over: ErrorCode) -> list[A]:
        """Return the answers of the changed parts. A part that refuses with the code `passed_over` is not changed."""

        async def change_part(part: TopicName) -> list[A]:
            of_part = type(request)()
            of_part.CopyFrom(request)  # type: ignore[arg-type]
            of_part.topic = str(part)
            try:
                return [await self._owners.of_topic(part, call, of_part, kind)]
            except BrokerError as error:
                if error.code != passed_over:
                    raise
                return []

        name = topic_named(request.topic)
        first = (await self._topics.names(name))[0]
        changed = await change_part(first)
        if first == name:
            return changed
        try:
            others = (await self._topics.partitions_with_announced(name))[1:]
            for answers in await some_at_a_time(others, change_part):
                changed += answers
            return changed
        except BrokerError as error:
            raise partly_done(error) from error


def _sum_skipped(answers: list[pb.SkippedAnswer]) -> pb.SkippedAnswer:
    return pb.SkippedAnswer(entries=sum(one.entries for one in answers))
