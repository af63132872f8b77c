"""Administrative calls about subscriptions, answered by the broker that serves their topic."""

from __future__ import annotations

from typing import Final

from magnetar_broker.admin.here_calls import HereCall
from magnetar_broker.admin.topics_here import TopicsHere
from magnetar_broker.core.position import Position
from magnetar_broker.errors import BrokerError, UnreadableEntry
from magnetar_broker.topic.topic import Topic
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode

__all__ = ["SubscriptionsHere", "no_subscription"]

_MAX_PEEKED_BYTES: Final = 6_291_456
_READ_ENTRIES: Final = 100


class SubscriptionsHere:
    def __init__(self, topics: TopicsHere) -> None:
        self._topics = topics

    def calls(self) -> dict[str, HereCall]:
        on_topic = self._topics.on_topic
        return {
            "durable_subscriptions": on_topic(pb.TopicRequest, pb.DurableSubscriptionsAnswer, self._durable),
            "create_subscription": on_topic(pb.SubscriptionRequest, pb.Done, self._create),
            "delete_subscription": on_topic(pb.DeleteSubscriptionRequest, pb.Done, self._delete),
            "reset_subscription": on_topic(pb.SubscriptionRequest, pb.Done, self._reset),
            "skip": on_topic(pb.SkipRequest, pb.SkippedAnswer, self._skip),
            "expire": on_topic(pb.ExpireRequest, pb.SkippedAnswer, self._expire),
            "peek": on_topic(pb.PeekRequest, pb.PeekAnswer, self._peek),
        }

    async def _durable(self, topic: Topic, request: pb.TopicRequest) -> pb.DurableSubscriptionsAnswer:
        answer = pb.DurableSubscriptionsAnswer()
        for one in topic.subscriptions.stats():
            if one.durable:
                answer.subscriptions.add(subscription=one.name, properties=one.properties)
        return answer

    async def _create(self, topic: Topic, request: pb.SubscriptionRequest) -> pb.Done:
        await topic.subscriptions.create(request.subscription, request.start, dict(request.properties))
        return pb.Done()

    async def _delete(self, topic: Topic, request: pb.DeleteSubscriptionRequest) -> pb.Done:
        await topic.subscriptions.delete(request.subscription, force=request.force)
        return pb.Done()

    async def _reset(self, topic: Topic, request: pb.SubscriptionRequest) -> pb.Done:
        await topic.subscriptions.reset(request.subscription, request.start)
        return pb.Done()

    async def _skip(self, topic: Topic, request: pb.SkipRequest) -> pb.SkippedAnswer:
        if request.all:
            skipped = await topic.subscriptions.skip_all(request.subscription)
        else:
            skipped = await topic.subscriptions.skip(request.subscription, request.entries)
        return pb.SkippedAnswer(entries=skipped)

    async def _expire(self, topic: Topic, request: pb.ExpireRequest) -> pb.SkippedAnswer:
        return pb.SkippedAnswer(entries=await topic.subscriptions.expire(request.subscription, request.older_than_s))

    async def _peek(self, topic: Topic, request: pb.PeekRequest) -> pb.PeekAnswer:
        cursor = await topic.subscriptions.wait_for_cursor(request.subscription)
        answer = pb.PeekAnswer()
        size, start = 0, topic.log.first_after(cursor.mark_delete)
        while len(answer.entries) < request.entries:
            try:
                read = await topic.log.read(start, _READ_ENTRIES, _MAX_PEEKED_BYTES)
            except UnreadableEntry as error:
                read, start = None, error.position.next
            if topic.cursors.get(request.subscription) is not cursor:
                raise no_subscription(str(topic.name), request.subscription)  # it was deleted while entries were read
            if read is None:
                continue
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


def no_subscription(topic: str, subscription: str) -> BrokerError:
    return BrokerError(ErrorCode.SUBSCRIPTION_NOT_FOUND, f"{topic} has no subscription {subscription!r:.300}")
