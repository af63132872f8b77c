"""Admin calls on subscriptions: on a partitioned topic, on all its partitions.

A subscription that only some partitions have, since a call did not finish, is completed by `create_subscription` and
deleted by `delete_subscription`. The other calls change it where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from magnetar_broker.admin.backlog_analysis import analyze_backlog
from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.admin.names import cut_page, parse_topic_name
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.admin.topic_router import TopicRoute, check_single_part, routed
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.errors import BrokerError, UnreadableEntry
from magnetar_broker.position import Position
from magnetar_broker.settings.administration import CatalogSettings
from magnetar_broker.topics.client_positions import find_start
from magnetar_broker.topics.topic import Topic
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_wire.clock import Clock
from magnetar_wire.topic_name import TopicName

__all__ = ["SubscriptionCalls", "SubscriptionLists", "read_subscriptions"]

_MAX_PEEKED_BYTES: Final = 6_291_456
# How far into the backlog an entry is found by its number.
_MAX_FIRST: Final = 100_000
_READ_ENTRIES: Final = 100
_Named: TypeAlias = pb.SubscriptionRequest | pb.DeleteSubscriptionRequest | pb.SkipRequest | pb.ExpireRequest


def _no_subscription(request: _Named) -> BrokerError:
    return _not_found(request.topic, request.subscription)


def _not_found(topic: str, subscription: str) -> BrokerError:
    return BrokerError(ErrorCode.SUBSCRIPTION_NOT_FOUND, f"{topic} has no subscription {subscription!r:.300}")


def _subscription_exists(request: pb.SubscriptionRequest) -> BrokerError:
    return BrokerError(
        ErrorCode.ALREADY_EXISTS, f"{request.topic} has a subscription {request.subscription!r:.300} already"
    )


def _merge_properties(
    name: TopicName, answers: Sequence[pb.SubscriptionPropertiesAnswer]
) -> pb.SubscriptionPropertiesAnswer:
    merged = pb.SubscriptionPropertiesAnswer()
    for answer in reversed(answers):  # the first partition's count
        merged.properties.update(answer.properties)
    return merged


def _sum_analyses(name: TopicName, answers: Sequence[pb.AnalyzeBacklogAnswer]) -> pb.AnalyzeBacklogAnswer:
    return pb.AnalyzeBacklogAnswer(
        entries=sum(one.entries for one in answers),
        messages=sum(one.messages for one in answers),
        lost_entries=sum(one.lost_entries for one in answers),
        aborted=any(one.aborted for one in answers),
    )


def _sum_skipped(name: TopicName, answers: Sequence[pb.SkippedAnswer]) -> pb.SkippedAnswer:
    return pb.SkippedAnswer(entries=sum(one.entries for one in answers))


class SubscriptionCalls:
    """Handlers at the topic's owner, for one topic or one partition."""

    def __init__(self, settings: CatalogSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    @routed(TopicRoute(non_persistent=True))
    async def durable_subscriptions(self, topic: Topic, request: pb.TopicRequest) -> pb.DurableSubscriptionsAnswer:
        answer = pb.DurableSubscriptionsAnswer()
        for one in topic.subscriptions.stats():
            if one.durable or not topic.name.is_persistent:
                answer.subscriptions.add(subscription=one.name, properties=one.properties)
        return answer

    async def _check_creation(self, request: pb.SubscriptionRequest, parts: Sequence[TopicName]) -> None:
        if not request.subscription:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "the subscription's name is empty: give it a name")
        if request.replicated:
            raise BrokerError(
                ErrorCode.UNSUPPORTED, "replicated subscriptions are not supported: create it without `replicated`"
            )
        if request.start.WhichOneof("at") == "message_id":
            check_single_part("create_subscription at a message's position", parts)

    @routed(TopicRoute(creates=True, check=_check_creation, skipped=_subscription_exists, may_name_partition=True))
    async def create_subscription(self, topic: Topic, request: pb.SubscriptionRequest) -> pb.Done:
        await topic.subscriptions.create(request.subscription, request.start, dict(request.properties))
        return pb.Done()

    @routed(TopicRoute(non_persistent=True, skipped=_no_subscription))
    async def delete_subscription(self, topic: Topic, request: pb.DeleteSubscriptionRequest) -> pb.Done:
        await topic.subscriptions.delete(request.subscription, force=request.force)
        return pb.Done()

    async def _check_reset(self, request: pb.SubscriptionRequest, parts: Sequence[TopicName]) -> None:
        at = request.start.WhichOneof("at")
        if at is None:
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "`start` is empty: give the subscription's new position")
        if at == "message_id":
            check_single_part("reset_subscription to a message's position", parts)

    @routed(TopicRoute(check=_check_reset, skipped=_no_subscription, may_name_partition=True))
    async def reset_subscription(self, topic: Topic, request: pb.SubscriptionRequest) -> pb.Done:
        await topic.subscriptions.reset(request.subscription, request.start)
        return pb.Done()

    async def _check_skip(self, request: pb.SkipRequest, parts: Sequence[TopicName]) -> None:
        if request.all == (request.entries > 0):
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"entries = {request.entries}, all = {request.all}: give either a number above 0, or all",
            )
        if not request.all:
            check_single_part("skip with a number of entries", parts)

    @routed(TopicRoute(check=_check_skip, skipped=_no_subscription, merge=_sum_skipped))
    async def skip(self, topic: Topic, request: pb.SkipRequest) -> pb.SkippedAnswer:
        if request.all:
            skipped = await topic.subscriptions.skip_all(request.subscription)
        else:
            skipped = await topic.subscriptions.skip(request.subscription, request.entries)
        return pb.SkippedAnswer(entries=skipped)

    async def _check_expiry(self, request: pb.ExpireRequest, parts: Sequence[TopicName]) -> None:
        if request.HasField("first_left"):
            check_single_part("expire up to a message's position", parts)
            if request.older_than_s:
                raise BrokerError(ErrorCode.INVALID_ARGUMENT, "give either a position or an age, not both")

    @routed(TopicRoute(check=_check_expiry, skipped=_no_subscription, may_name_partition=True, merge=_sum_skipped))
    async def expire(self, topic: Topic, request: pb.ExpireRequest) -> pb.SkippedAnswer:
        if request.HasField("first_left"):
            expired = await topic.subscriptions.expire_before(request.subscription, request.first_left)
        else:
            expired = await topic.subscriptions.expire(request.subscription, request.older_than_s)
        return pb.SkippedAnswer(entries=expired)

    async def _check_expiry_of_all(self, request: pb.ExpireRequest, parts: Sequence[TopicName]) -> None:
        if request.subscription or request.HasField("first_left"):
            raise BrokerError(ErrorCode.INVALID_ARGUMENT, "expire_all takes an age, for all subscriptions of the topic")

    @routed(TopicRoute(check=_check_expiry_of_all, merge=_sum_skipped))
    async def expire_all(self, topic: Topic, request: pb.ExpireRequest) -> pb.SkippedAnswer:
        expired = 0
        for name in topic.subscriptions.names:
            try:
                expired += await topic.subscriptions.expire(name, request.older_than_s)
            except BrokerError as error:
                if error.code != ErrorCode.SUBSCRIPTION_NOT_FOUND:
                    raise
                # It was deleted while others were expired.
        return pb.SkippedAnswer(entries=expired)

    @routed(TopicRoute(non_persistent=True, skipped=_no_subscription, merge=_merge_properties))
    async def subscription_properties(
        self, topic: Topic, request: pb.SubscriptionRequest
    ) -> pb.SubscriptionPropertiesAnswer:
        return pb.SubscriptionPropertiesAnswer(properties=topic.subscriptions.get_properties(request.subscription))

    @routed(TopicRoute(non_persistent=True, skipped=_no_subscription))
    async def set_subscription_properties(self, topic: Topic, request: pb.SubscriptionRequest) -> pb.Done:
        await topic.subscriptions.set_properties(request.subscription, dict(request.properties))
        return pb.Done()

    async def _check_analysis(self, request: pb.SubscriptionRequest, parts: Sequence[TopicName]) -> None:
        if request.start.WhichOneof("at") == "message_id":
            check_single_part("analyze_backlog from a message's position", parts)

    @routed(TopicRoute(check=_check_analysis, skipped=_no_subscription, may_name_partition=True, merge=_sum_analyses))
    async def analyze_backlog(self, topic: Topic, request: pb.SubscriptionRequest) -> pb.AnalyzeBacklogAnswer:
        cursor = await topic.subscriptions.wait_for_cursor(request.subscription)
        after = cursor.mark_delete
        if request.HasField("start"):
            after = max(after, (await find_start(topic.log, request.start)).mark_delete)
        ends_at = self._clock.monotonic() + self._settings.subscription_backlog_scan_max_time_ms / 1000
        return await analyze_backlog(
            topic.log,
            cursor,
            after,
            self._settings.subscription_backlog_scan_max_entries,
            lambda: self._clock.monotonic() >= ends_at,
        )

    async def _check_peek(self, request: pb.PeekRequest, parts: Sequence[TopicName]) -> None:
        maximum = self._settings.admin_max_peeked_entries
        if not 1 <= request.entries <= maximum:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT,
                f"entries = {request.entries:,} is not between 1 and {maximum:,} (admin_max_peeked_entries)",
            )
        if request.first > _MAX_FIRST:
            raise BrokerError(
                ErrorCode.INVALID_ARGUMENT, f"first = {request.first:,} is above the limit of {_MAX_FIRST:,}"
            )

    @routed(TopicRoute(check=_check_peek))
    async def peek(self, topic: Topic, request: pb.PeekRequest) -> pb.PeekAnswer:
        cursor = await topic.subscriptions.wait_for_cursor(request.subscription)
        answer = pb.PeekAnswer()
        before = cursor.mark_delete
        for _ in range(request.first - 1):
            # The mark-delete position may be in a ledger that is deleted.
            found = topic.log.first_after(before)
            before = cursor.find_unacknowledged_after(found) if cursor.is_acknowledged(found) else found
        size, start = 0, topic.log.first_after(before)
        while len(answer.entries) < request.entries:
            try:
                read = await topic.log.read(start, _READ_ENTRIES, _MAX_PEEKED_BYTES)
            except UnreadableEntry as error:
                read, start = None, error.position.next
            if topic.cursors.get(request.subscription) is not cursor:
                raise _not_found(str(topic.name), request.subscription)  # it was deleted while entries were read
            if read is None:
                continue
            for entry in read:
                start = Position(entry.position.ledger_id, entry.position.entry_id + 1)
                if cursor.is_acknowledged(entry.position) or len(answer.entries) == request.entries:
                    continue
                size += len(entry.stored)
                if answer.entries and size > _MAX_PEEKED_BYTES:
                    return answer
                done = cursor.get_acknowledged_messages(entry.position)
                answer.entries.add(
                    ledger_id=entry.position.ledger_id,
                    entry_id=entry.position.entry_id,
                    stored=entry.stored,
                    acknowledged=done.to_bytes((done.bit_length() + 7) // 8, "little"),
                )
            if not read:
                break
        return answer


class SubscriptionLists:
    """The handler at any broker that lists the durable subscriptions of a topic, from the owners of its partitions."""

    def __init__(self, catalog: Catalog, owner_rpc: OwnerRpc) -> None:
        self._catalog = catalog
        self._owner_rpc = owner_rpc

    async def subscriptions(self, request: pb.NamesRequest) -> pb.NamesAnswer:
        async def read(part: TopicName) -> Sequence[pb.DurableSubscription]:
            return await read_subscriptions(self._owner_rpc, part)

        parts = await self._catalog.expand_partitions(parse_topic_name(request.within))
        found = {one.subscription: None for subscriptions in await map_bounded(parts, read) for one in subscriptions}
        return cut_page(found, request)


async def read_subscriptions(owner_rpc: OwnerRpc, name: TopicName) -> Sequence[pb.DurableSubscription]:
    """Return the durable subscriptions of a topic or partition. A partition that does not exist yet is created."""
    request = pb.TopicRequest(topic=str(name))
    answer: pb.DurableSubscriptionsAnswer = await owner_rpc.call_topic_owner(name, "durable_subscriptions", request)
    return answer.subscriptions
