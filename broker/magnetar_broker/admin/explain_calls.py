"""Explain why a subscription delivers nothing: also if its topic can't be loaded, or no broker serves it.

    SubscriptionExplanations    at any broker: asks the owner of the topic, or of each partition, and joins the answers
    ExplainCalls                at the owner: finds the reasons of the subscription, with those of its topic
    StoredSubscriptions         what is known without an owner

If there is no answer from an owner, the backlog follows from the metadata store: what the cursor's node does not have
as acknowledged, of the closed ledgers that the topic's node lists. That is the least that waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from magnetar_bookie.errors import LedgerError
from magnetar_bookie.ledger.ledger_client import LedgerClient
from magnetar_broker.admin.map_bounded import map_bounded
from magnetar_broker.admin.names import parse_topic_name
from magnetar_broker.admin.owner_rpc import OwnerRpc
from magnetar_broker.admin.reasons import describe_reason, merge_reasons
from magnetar_broker.admin.topic_router import TopicRoute, routed, take_only
from magnetar_broker.admin.topic_stats import describe_subscription
from magnetar_broker.catalog.catalog import Catalog
from magnetar_broker.cursors.subscription_limits import check_subscription_name
from magnetar_broker.errors import BrokerError
from magnetar_broker.position import Position
from magnetar_broker.topics.subscription_stats import SubscriptionStats
from magnetar_broker.topics.topic import Topic
from magnetar_broker.topics.topics import Topics
from magnetar_metadata.errors import MetadataError
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.ledger_pb2 import EntryPosition
from magnetar_wire import delivery_reasons
from magnetar_wire.delivery_reasons import DeliveryReason
from magnetar_wire.topic_name import TopicName

__all__ = ["ExplainCalls", "StoredSubscriptions", "SubscriptionExplanations"]

# How long the owner tries to load the topic, and how long any broker waits for the owner: the caller waits less than
# ten seconds.
LOAD_S: Final = 2.0
_OWNER_S: Final = 5.0
_MAX_CONSUMERS: Final = 500
# Errors about what the request names.
_NOT_FOUND: Final = (
    ErrorCode.TOPIC_NOT_FOUND,
    ErrorCode.SUBSCRIPTION_NOT_FOUND,
    ErrorCode.NOT_FOUND,
    ErrorCode.INVALID_ARGUMENT,
)


class ExplainCalls:
    """The handler at the owner of a topic or partition."""

    def __init__(
        self, topics: Topics, stored: StoredSubscriptions, describe_broker: Callable[[], pb.BrokerAnswer]
    ) -> None:
        self._topics = topics
        self._stored = stored
        self._describe_broker = describe_broker

    @routed(TopicRoute(non_persistent=True, loads=False, merge=take_only))
    async def explain_part(self, name: TopicName, request: pb.ExplainRequest) -> pb.SubscriptionExplanationAnswer:
        broker = self._describe_broker().broker_id
        topic = self._topics.get_loaded(name)
        is_loaded = topic is not None
        if topic is None:
            try:
                async with asyncio.timeout(LOAD_S):
                    topic = await self._topics.get(name, create=name.is_partition)
            except (BrokerError, TimeoutError) as error:
                if isinstance(error, BrokerError) and error.code in _NOT_FOUND:
                    raise
                text = str(error) or f"it is being loaded for more than {LOAD_S:g} s"
                reason = delivery_reasons.TOPIC_NOT_LOADED(broker=broker, error=text)
                return _answer(await self._stored.explain(name, request.subscription, reason, broker))
        return _answer(_explain_loaded(topic, request.subscription, broker, is_loaded=is_loaded))


class SubscriptionExplanations:
    """The handler at any broker."""

    def __init__(self, catalog: Catalog, stored: StoredSubscriptions, owner_rpc: OwnerRpc) -> None:
        self._catalog = catalog
        self._stored = stored
        self._owner_rpc = owner_rpc

    async def explain_subscription(self, request: pb.ExplainRequest) -> pb.SubscriptionExplanationAnswer:
        check_subscription_name(request.subscription)
        name = parse_topic_name(request.topic)
        parts = await self._catalog.expand_partitions(name)
        missing: list[BrokerError] = []

        async def explain(part: TopicName) -> Sequence[pb.PartExplanation]:
            try:
                return await self._explain_part(part, request.subscription)
            except BrokerError as error:
                if error.code != ErrorCode.SUBSCRIPTION_NOT_FOUND:
                    raise
                missing.append(error)
                return ()

        found = [one for some in await map_bounded(parts, explain) for one in some]
        if not found:
            raise missing[0].again()
        reasons: Sequence[pb.DeliveryReason] = found[0].reasons
        if parts != [name]:
            numbers = (TopicName.parse(one.topic).partition_index for one in found)
            reasons = merge_reasons(zip(numbers, (one.reasons for one in found), strict=True))
        return pb.SubscriptionExplanationAnswer(
            explanation=pb.SubscriptionExplanation(
                topic=str(name), subscription=request.subscription, reasons=reasons, parts=found
            )
        )

    async def _explain_part(self, part: TopicName, subscription: str) -> Sequence[pb.PartExplanation]:
        request = pb.ExplainRequest(topic=str(part), subscription=subscription)
        try:
            async with asyncio.timeout(_OWNER_S):
                answer: pb.SubscriptionExplanationAnswer = await self._owner_rpc.call_topic_owner(
                    part, "explain_part", request
                )
            return answer.explanation.parts
        except (BrokerError, TimeoutError) as error:
            if isinstance(error, BrokerError) and error.code in _NOT_FOUND:
                raise
            text = str(error) or f"its owner did not answer for {_OWNER_S:g} s"
            return [await self._stored.explain(part, subscription, delivery_reasons.NO_OWNER(error=text), "")]


def _answer(part: pb.PartExplanation) -> pb.SubscriptionExplanationAnswer:
    return pb.SubscriptionExplanationAnswer(explanation=pb.SubscriptionExplanation(parts=[part]))


def _explain_loaded(topic: Topic, subscription: str, broker: str, *, is_loaded: bool) -> pb.PartExplanation:
    """Explain a subscription of a topic that this broker serves. A durable one comes before a reader of that name."""
    found = [one for one in topic.subscriptions.stats() if one.name == subscription]
    if not found:
        raise _create_not_found(topic, subscription)
    stats = next((one for one in found if one.durable), found[0])
    reasons = [describe_reason(one) for one in (*_find_closing(topic), *stats.reasons, *_find_notes(topic, stats))]
    shown = describe_subscription(stats, stats.consumers[:_MAX_CONSUMERS])
    shown.ClearField("reasons")
    shown.durable = stats.durable and topic.name.is_persistent
    if not topic.name.is_persistent:
        shown.dropped_messages = stats.counters.dropped_messages
    last = topic.log.last
    return pb.PartExplanation(
        topic=str(topic.name),
        owner_broker=broker,
        loaded=is_loaded,
        reasons=reasons,
        stats=shown,
        last=EntryPosition(ledger_id=last.ledger_id, entry_id=last.entry_id),
        last_publish_ms=topic.log.last_time_ms,
    )


def _create_not_found(topic: Topic, subscription: str) -> BrokerError:
    refusal = topic.refusals.find(subscription)
    why = f"; a consumer was refused: {refusal.error}" if refusal is not None else ""
    names = ", ".join(topic.subscriptions.names[:10]) or "none"
    return BrokerError(
        ErrorCode.SUBSCRIPTION_NOT_FOUND,
        f"{topic.name} has no subscription {subscription!r:.300}{why}. It has: {names}",
    )


def _find_closing(topic: Topic) -> Iterator[DeliveryReason]:
    if topic.ended is not None:
        yield delivery_reasons.TOPIC_CLOSING(error=str(topic.ended))


def _find_notes(topic: Topic, stats: SubscriptionStats) -> Iterator[DeliveryReason]:
    """Yield what the topic knows about the subscription's deliveries."""
    if (refusal := topic.refusals.find(stats.name)) is not None:
        yield delivery_reasons.CONSUMER_REFUSED(
            times=refusal.times,
            at_ms=refusal.at_ms,
            consumer=refusal.consumer or "without a name",
            address=refusal.address,
            error=refusal.error,
        )
    if not stats.backlog_entries and (cause := topic.waiting_for()):
        yield delivery_reasons.PUBLISHING_WAITS(cause=cause)
    if times := sum(topic.quotas.evictions.values()):
        yield delivery_reasons.EVICTED(times=times)
    if not topic.live_settings.are_known:
        yield delivery_reasons.POLICIES_UNKNOWN()


class StoredSubscriptions:
    """What the metadata store has of subscriptions of topics that are not served now."""

    def __init__(self, catalog: Catalog, ledgers: LedgerClient) -> None:
        self._catalog = catalog
        self._ledgers = ledgers.ledgers

    async def explain(
        self, name: TopicName, subscription: str, reason: DeliveryReason, broker: str
    ) -> pb.PartExplanation:
        """Explain a subscription by this reason, with its backlog. Raises `BrokerError` if it does not exist, or the
        metadata store does not answer."""
        part = pb.PartExplanation(topic=str(name), owner_broker=broker, reasons=[describe_reason(reason)])
        log = await self._catalog.find_topic_node(name) if name.is_persistent else None
        if log is None:
            return part
        cursor = await self._catalog.find_cursor_node(name, subscription)
        if cursor is None:
            raise BrokerError(ErrorCode.SUBSCRIPTION_NOT_FOUND, f"{name} has no subscription {subscription!r:.300}")
        at = Position(cursor.mark_delete.ledger_id, cursor.mark_delete.entry_id)
        backlog = 0
        for ledger in log.ledgers:
            if ledger.ledger_id >= at.ledger_id:
                entries = ledger.entries if ledger.closed else await self._count_entries(ledger.ledger_id)
                backlog += max(0, entries - at.entry_id - 1) if ledger.ledger_id == at.ledger_id else entries
        part.stats.CopyFrom(
            pb.SubscriptionStats(
                subscription=subscription,
                durable=True,
                backlog_entries=backlog,
                backlog_bytes=-1,
                mark_delete=EntryPosition(ledger_id=at.ledger_id, entry_id=at.entry_id),
                properties=cursor.properties,
            )
        )
        part.last_publish_ms = log.last_time_ms
        return part

    async def _count_entries(self, ledger_id: int) -> int:
        """Return the entries of the last ledger, whose node in the topic's list has no number. 0: it is unknown."""
        try:
            metadata = await self._ledgers.read_metadata(ledger_id)
        except (LedgerError, MetadataError):
            return 0
        return metadata.last_entry_id + 1 if metadata.is_closed else 0
