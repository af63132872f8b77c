"""Describe topics in the responses of admin calls.

Rates are those of the last sample (`Traffic.sample`), so reading them often does not change them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from magnetar_broker.admin.key_shared_stats import add_keys, describe_consumer_keys, describe_subscription_keys
from magnetar_broker.admin.partition_clients import add_rates, merge_consumers, merge_producers
from magnetar_broker.admin.reasons import describe_reason, merge_reasons
from magnetar_broker.counters import DeliveryCounters, Traffic
from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.errors import BrokerError
from magnetar_broker.managed_ledger.stored_sizes import count_bytes_after
from magnetar_broker.position import Position
from magnetar_broker.topics.backlog_quota_rules import QuotaKind
from magnetar_broker.topics.producer import Producer
from magnetar_broker.topics.subscription_stats import ConsumerStats, SubscriptionStats
from magnetar_broker.topics.topic import Topic
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode, ProducerAccessMode
from magnetar_protos.ledger_pb2 import EntryPosition
from magnetar_wire.topic_name import TopicName

__all__ = [
    "describe_loaded",
    "describe_log",
    "describe_subscription",
    "describe_topic",
    "drop_clients",
    "merge_partitions",
    "merge_stats",
    "reduce_partition",
]

# Items of each kind in one response, so that it fits into one message.
_MAX_SHOWN: Final = 5000
_MAX_RANGES: Final = 1000
_MAX_LOST_SHOWN: Final = 100
# Producers, and consumers, of each partition in one response.
_MAX_CLIENTS_OF_PARTITION: Final = 500
_SINGLE_ACTIVE: Final = ("EXCLUSIVE", "FAILOVER")
_LAST_TIMES: Final = (
    "last_flow_ms",
    "last_delivered_ms",
    "last_acknowledged_ms",
    "last_advanced_ms",
    "last_expired_ms",
)
# As Pulsar's clients and statistics have them.
_ACCESS_MODES: Final = {
    ProducerAccessMode.ACCESS_SHARED: "Shared",
    ProducerAccessMode.ACCESS_EXCLUSIVE: "Exclusive",
    ProducerAccessMode.ACCESS_WAIT_FOR_EXCLUSIVE: "WaitForExclusive",
    ProducerAccessMode.ACCESS_EXCLUSIVE_WITH_FENCING: "ExclusiveWithFencing",
}
# Numbers that only subscriptions of non-persistent topics have.
_OF_NON_PERSISTENT: Final = ("dropped_messages", "dropped_per_s")
# Numbers of a partitioned topic that are sums over its partitions.
_THROTTLED: Final = tuple(
    f"throttled_{unit}_by_{level}" for unit in ("messages", "bytes") for level in ("subscription", "topic", "broker")
)
_SUMMED: Final = (
    "refused_entries",
    "failed_entries",
    "storage_bytes",
    "stored_entries",
    "messages_ever",
    "pending_bytes",
    "lost_entries",
    "backlog_bytes",
    "chunks",
    "acknowledged_ranges",
    "publish_limited_times",
    "evictions_by_size",
    "evictions_by_age",
    "waiting_producers",
)


async def describe_topic(topic: Topic, request: pb.TopicStatsRequest, now_ms: int) -> pb.TopicStats:
    """Describe the topic, without the producers and consumers that the request excludes. Reads an entry for each
    subscription. Raises `BrokerError`."""
    stats = describe_loaded(topic, request)
    deleted: list[int] = []
    for index, shown in enumerate(stats.subscriptions):
        if not shown.backlog_messages:
            continue
        try:
            backlog = await topic.subscriptions.measure_backlog(shown.subscription)
        except BrokerError as error:
            if error.code != ErrorCode.SUBSCRIPTION_NOT_FOUND:
                raise
            deleted.append(index)
            continue
        shown.backlog_messages, shown.backlog_since_ms = backlog
        _note_oldest(stats, shown.subscription, shown.backlog_since_ms)
    for index in reversed(deleted):
        del stats.subscriptions[index]
    _set_oldest_age(stats, now_ms)
    return stats


def describe_loaded(topic: Topic, request: pb.TopicStatsRequest, *, explained: bool = True) -> pb.TopicStats:
    """Describe the topic by what is in memory. How many messages a backlog has is not known: its number of entries is
    the least. Nor is the age of the oldest message. `explained`: with the reasons why subscriptions deliver nothing."""
    log = topic.log.stats()
    stats = pb.TopicStats(
        topic=str(topic.name),
        incarnation=topic.log.incarnation,
        received=_rates(topic.counters.received),
        delivered=_rates(topic.subscriptions.deliveries.delivered),
        refused_entries=topic.counters.refused_entries,
        failed_entries=topic.counters.failed_entries,
        storage_bytes=log.stored_bytes,
        stored_entries=log.stored_entries,
        messages_ever=topic.log.next_index,
        pending_bytes=topic.log.pending_bytes,
        waiting_for=topic.waiting_for(),
        publish_limited_times=topic.publish_throttle.limited_times,
        deduplication_status=topic.deduplication.status,
        topic_epoch=topic.producers.topic_epoch,
        lost_entries=topic.log.lost_entries.count,
        lost=[
            pb.LostEntry(ledger_id=position.ledger_id, entry_id=position.entry_id, reason=reason)
            for position, reason in topic.log.lost_entries.list_known()[:_MAX_LOST_SHOWN]
        ],
        chunks=topic.counters.chunks,
        last_publish_ms=topic.log.last_time_ms,
        oldest_backlog_age_s=-1,
        backlog_quota_bytes=topic.quotas.get_quota(QuotaKind.SIZE).limit,
        backlog_quota_seconds=topic.quotas.get_quota(QuotaKind.AGE).limit,
        evictions_by_size=topic.quotas.evictions[QuotaKind.SIZE],
        evictions_by_age=topic.quotas.evictions[QuotaKind.AGE],
        waiting_producers=topic.producers.queued,
    )
    if not topic.name.is_persistent:
        stats.dropped_per_s = 0.0
    if not request.exclude_producers:
        stats.producers.extend(_producer(producer) for producer in topic.producers.connected()[:_MAX_SHOWN])
    left = _MAX_SHOWN
    for one in topic.subscriptions.stats():
        stats.acknowledged_ranges += one.acknowledged_ranges
        size = count_bytes_after(log.ledgers, one.mark_delete)
        if one.durable:
            stats.backlog_bytes = max(stats.backlog_bytes, size)
        if not left:
            continue
        consumers = () if request.exclude_consumers else one.consumers[:left]
        left -= len(consumers) or 1
        shown = describe_subscription(one, consumers, explained=explained)
        shown.backlog_bytes = size
        if one.durable and one.backlog_entries and not one.unopened:
            shown.backlog_messages = one.backlog_entries
        if not topic.name.is_persistent:
            _add_dropped(stats, shown, one.counters)
        stats.subscriptions.append(shown)
    return stats


def _add_dropped(stats: pb.TopicStats, shown: pb.SubscriptionStats, counters: DeliveryCounters) -> None:
    """Describe what only subscriptions of a non-persistent topic have."""
    shown.durable = False
    shown.dropped_messages, shown.dropped_per_s = counters.dropped_messages, counters.drop_rate.per_s
    stats.dropped_per_s += counters.drop_rate.per_s


def set_owner(stats: pb.TopicStats, owner: pb.BrokerAnswer) -> None:
    stats.owner_broker, stats.owner_http_address = owner.broker_id, owner.http_address


def _set_oldest_age(stats: pb.TopicStats, now_ms: int) -> None:
    since_ms = stats.oldest_backlog_ms
    stats.oldest_backlog_age_s = max(0, now_ms - since_ms) // 1000 if since_ms else -1


def _note_oldest(stats: pb.TopicStats, subscription: str, since_ms: int) -> None:
    if since_ms and (not stats.oldest_backlog_ms or since_ms < stats.oldest_backlog_ms):
        stats.oldest_backlog_ms, stats.oldest_backlog_subscription = since_ms, subscription


def drop_clients(answer: pb.TopicStatsAnswer) -> pb.TopicStatsAnswer:
    """Remove the producers and consumers of one partition, which the sums do not show: there may be very many."""
    answer.stats.ClearField("producers")
    for one in answer.stats.subscriptions:
        one.ClearField("consumers")
    return answer


def merge_stats(name: TopicName, answers: Sequence[pb.TopicStatsAnswer]) -> pb.TopicStatsAnswer:
    """Return the statistics of a partitioned topic: the sums over its partitions, without producers and consumers."""
    return pb.TopicStatsAnswer(stats=_sum(name, [answer.stats for answer in answers]))


def _sum(name: TopicName, parts: Sequence[pb.TopicStats]) -> pb.TopicStats:
    total = pb.TopicStats(
        topic=str(name),
        partitions=len(parts),
        oldest_backlog_age_s=-1,
        backlog_quota_bytes=max((part.backlog_quota_bytes for part in parts), default=-1),
        backlog_quota_seconds=max((part.backlog_quota_seconds for part in parts), default=-1),
    )
    total.received.SetInParent()
    total.delivered.SetInParent()
    subscriptions: dict[str, pb.SubscriptionStats] = {}
    reasons: dict[str, list[tuple[int, Sequence[pb.DeliveryReason]]]] = {}
    for part in parts:
        add_rates(total.received, part.received)
        add_rates(total.delivered, part.delivered)
        for name_of_number in _SUMMED:
            setattr(total, name_of_number, getattr(total, name_of_number) + getattr(part, name_of_number))
        if part.HasField("dropped_per_s"):
            total.dropped_per_s += part.dropped_per_s
        total.lost.extend(part.lost[: max(0, _MAX_LOST_SHOWN - len(total.lost))])
        total.last_publish_ms = max(total.last_publish_ms, part.last_publish_ms)
        _note_oldest(total, part.oldest_backlog_subscription, part.oldest_backlog_ms)
        total.oldest_backlog_age_s = max(total.oldest_backlog_age_s, part.oldest_backlog_age_s)
        if total.deduplication_status in ("", "Enabled"):  # it is, if it is in all partitions
            total.deduplication_status = part.deduplication_status
        total.waiting_for = total.waiting_for or (part.waiting_for and f"{part.topic}: {part.waiting_for}")
        total.not_in_effect.extend(text for text in part.not_in_effect if text not in total.not_in_effect)
        for one in part.subscriptions:
            known = subscriptions.setdefault(one.subscription, pb.SubscriptionStats(subscription=one.subscription))
            _add_subscription(known, one, part.topic)
            reasons.setdefault(one.subscription, []).append((TopicName.parse(part.topic).partition_index, one.reasons))
    for subscription, of_parts in reasons.items():
        subscriptions[subscription].reasons.extend(merge_reasons(of_parts))
    total.subscriptions.extend(subscriptions.values())
    return total


def reduce_partition(answer: pb.PartitionedStatsAnswer) -> pb.PartitionedStatsAnswer:
    """Reduce the statistics of one partition, with very many clients, to those that are shown or merged."""
    if answer.partitions:
        answer.ClearField("stats")
    stats = _get_partition(answer)
    left = _MAX_CLIENTS_OF_PARTITION
    del stats.producers[left:]
    for one in stats.subscriptions:
        del one.consumers[left:]
        left -= len(one.consumers)
    return answer


def _get_partition(answer: pb.PartitionedStatsAnswer) -> pb.TopicStats:
    """Return the statistics in the answer of one partition."""
    return answer.partitions[0] if answer.partitions else answer.stats


def merge_partitions(name: TopicName, answers: Sequence[pb.PartitionedStatsAnswer]) -> pb.PartitionedStatsAnswer:
    """Return the sums over the partitions, and the statistics of each, with a limited number of clients together."""
    parts = [_get_partition(answer) for answer in answers]
    total = pb.PartitionedStatsAnswer(stats=_sum(name, parts))
    total.stats.producers.extend(merge_producers(parts, _MAX_SHOWN))
    left = _MAX_SHOWN
    by_name: dict[str, list[pb.SubscriptionStats]] = {}
    for part in parts:
        for one in part.subscriptions:
            by_name.setdefault(one.subscription, []).append(one)
    for one in total.stats.subscriptions:
        one.consumers.extend(merge_consumers(by_name[one.subscription], left))
        left -= len(one.consumers)
    left = _MAX_SHOWN
    for answer in answers:
        for partition in answer.partitions:
            del partition.producers[max(0, left) :]
            left -= len(partition.producers) + len(partition.subscriptions)
            for one in partition.subscriptions:
                del one.consumers[max(0, left) :]
                left -= len(one.consumers)
            total.partitions.append(partition)
    return total


def describe_log(topic: Topic) -> pb.InternalStats:
    log = topic.log.stats()
    shown = log.ledgers[-_MAX_SHOWN:]
    current = log.ledgers[-1] if log.ledgers and not log.ledgers[-1].is_closed else None
    subscriptions = {one.name: one for one in topic.subscriptions.stats()}
    return pb.InternalStats(
        incarnation=topic.log.incarnation,
        state=log.state,
        last=_position(topic.log.last),
        ledgers=[
            pb.LedgerStats(
                ledger_id=ledger.ledger_id, entries=ledger.entries, bytes=ledger.length_bytes, closed=ledger.is_closed
            )
            for ledger in shown
        ],
        more_ledgers=len(log.ledgers) - len(shown),
        cursors=[
            _cursor(topic, cursor, subscriptions.get(cursor.name))
            for cursor in topic.cursors.durable_cursors()[:_MAX_SHOWN]
        ]
        + [
            pb.CursorStats(
                name=one.name,
                mark_delete=_position(one.mark_delete),
                saved_mark_delete=_position(one.mark_delete),
                ledger_id=-1,
            )
            for one in topic.cursors.unopened_cursors()[:_MAX_SHOWN]
        ],
        leases=[
            pb.LeaseStats(
                holder=lease.holder,
                from_ledger_id=lease.from_ledger_id,
                left_ms=int(left_s * 1000),
                lease_ms=lease.lease_ms,
                lease_id=lease.lease_id,
            )
            for lease, left_s in topic.log.leases.list_active()[:_MAX_SHOWN]
        ],
        lapsed_leases=topic.log.leases.lapsed,
        added_entries=topic.counters.received.entries,
        stored_entries=log.stored_entries,
        stored_bytes=log.stored_bytes,
        current_ledger_entries=current.entries if current is not None else 0,
        current_ledger_bytes=current.length_bytes if current is not None else 0,
        pending_entries=log.pending_appends,
    )


def _cursor(topic: Topic, cursor: Cursor, subscription: SubscriptionStats | None) -> pb.CursorStats:
    read = subscription.read_position if subscription is not None else None
    first = islice(cursor.acknowledged_ranges(), _MAX_RANGES)
    return pb.CursorStats(
        name=cursor.name,
        mark_delete=_position(cursor.mark_delete),
        saved_mark_delete=_position(cursor.saved_mark_delete),
        open_entries=cursor.count_unacknowledged(),
        entries_after_mark_delete=topic.log.entries_between(cursor.mark_delete, topic.log.last),
        acknowledged_ranges=cursor.count_ranges(),
        first_acknowledged=[f"({ledger_id}:{low - 1}..{ledger_id}:{high}]" for ledger_id, low, high in first],
        active=subscription is not None and bool(subscription.consumers),
        read_position=_position(read) if read is not None else None,
        ledger_id=cursor.ledger_id or -1,
        properties=cursor.properties,
    )


def _producer(producer: Producer) -> pb.ProducerStats:
    return pb.ProducerStats(
        producer_name=producer.producer_name,
        producer_id=producer.identity.producer_id,
        address=producer.identity.address,
        connected_since_ms=producer.connected_since_ms,
        received=_rates(producer.counters),
        properties=producer.identity.properties,
        client_version=producer.identity.client_version,
        partial=producer.identity.partial,
        chunks_per_s=producer.counters.chunk_rate.per_s,
        access_mode=_ACCESS_MODES[producer.identity.access_mode],
    )


def describe_subscription(
    one: SubscriptionStats, consumers: Sequence[ConsumerStats], *, explained: bool = True
) -> pb.SubscriptionStats:
    """Describe a subscription with these of its consumers. `explained`: with the reasons why it gets nothing."""
    active = [consumer.name for consumer in one.consumers if consumer.active] if one.type in _SINGLE_ACTIVE else []
    counters = one.counters
    shown = pb.SubscriptionStats(
        subscription=one.name,
        type=one.type,
        durable=one.durable,
        backlog_entries=one.backlog_entries,
        unacknowledged_messages=one.unacked_messages,
        to_be_redelivered=one.redelivery_entries,
        blocked_by=one.blocked_by,
        reasons=[describe_reason(reason) for reason in one.reasons] if explained else (),
        active_consumer=active[0] if active else "",
        delivered=_rates(counters.delivered),
        redelivered_messages=counters.redelivered_messages,
        acknowledged_entries=counters.acknowledged_entries,
        expired_entries=counters.expired_entries,
        mark_delete=_position(one.mark_delete),
        damaged=one.damaged,
        consumers=[_consumer(consumer, explained=explained) for consumer in consumers],
        properties=one.properties,
        blocked_on_unacknowledged=one.has_max_unacked,
        last_flow_ms=counters.last_flow_ms,
        last_delivered_ms=counters.last_delivered_ms,
        last_acknowledged_ms=counters.last_acknowledged_ms,
        last_advanced_ms=counters.last_advanced_ms,
        last_expired_ms=counters.last_expired_ms,
        redelivered_per_s=counters.redelivered_rate.per_s,
        acknowledged_per_s=counters.acknowledged_rate.per_s,
        expired_per_s=counters.expired_rate.per_s,
        acknowledged_ranges=one.acknowledged_ranges,
        chunks_per_s=counters.chunk_rate.per_s,
    )
    throttled = [*counters.throttled.messages, *counters.throttled.bytes]
    for name, number in zip(_THROTTLED, throttled, strict=True):
        setattr(shown, name, number)
    shown.mixed_batches = one.counters.mixed_batches
    if one.keys is not None:
        describe_subscription_keys(shown, one.keys)
    return shown


def _consumer(consumer: ConsumerStats, *, explained: bool) -> pb.ConsumerStats:
    shown = pb.ConsumerStats(
        consumer_name=consumer.name,
        address=consumer.address,
        connected_since_ms=consumer.connected_since_ms,
        priority_level=consumer.priority_level,
        permits=consumer.permits,
        unacknowledged_messages=consumer.unacked_messages,
        blocked_by="" if consumer.reason is None else consumer.reason.text,
        reason=None if consumer.reason is None or not explained else describe_reason(consumer.reason),
        delivered=_rates(consumer.counters.delivered),
        redelivered_messages=consumer.counters.redelivered_messages,
        acknowledged_entries=consumer.counters.acknowledged_entries,
        properties=consumer.properties,
        client_version=consumer.client_version,
        blocked_on_unacknowledged=consumer.has_max_unacked,
        last_flow_ms=consumer.counters.last_flow_ms,
        last_delivered_ms=consumer.counters.last_delivered_ms,
        last_acknowledged_ms=consumer.counters.last_acknowledged_ms,
        redelivered_per_s=consumer.counters.redelivered_rate.per_s,
        acknowledged_per_s=consumer.counters.acknowledged_rate.per_s,
        chunks_per_s=consumer.counters.chunk_rate.per_s,
    )
    if consumer.keys is not None:
        describe_consumer_keys(shown, consumer.keys)
    return shown


def _add_subscription(total: pb.SubscriptionStats, one: pb.SubscriptionStats, topic: str) -> None:
    for name in (
        "backlog_entries",
        "backlog_messages",
        "unacknowledged_messages",
        "to_be_redelivered",
        "redelivered_messages",
        "acknowledged_entries",
        "expired_entries",
        "backlog_bytes",
        "redelivered_per_s",
        "acknowledged_per_s",
        "expired_per_s",
        "acknowledged_ranges",
        "chunks_per_s",
        *_THROTTLED,
    ):
        setattr(total, name, getattr(total, name) + getattr(one, name))
    for name in _OF_NON_PERSISTENT:
        if one.HasField(name):
            setattr(total, name, getattr(total, name) + getattr(one, name))
    for name in _LAST_TIMES:
        setattr(total, name, max(getattr(total, name), getattr(one, name)))
    if one.backlog_since_ms:
        total.backlog_since_ms = min(total.backlog_since_ms or one.backlog_since_ms, one.backlog_since_ms)
    total.blocked_on_unacknowledged |= one.blocked_on_unacknowledged
    add_rates(total.delivered, one.delivered)
    add_keys(total, one)
    total.type = total.type or one.type
    total.durable = total.durable or one.durable
    total.damaged = total.damaged or one.damaged
    total.blocked_by = total.blocked_by or (one.blocked_by and f"{topic}: {one.blocked_by}")
    for key, value in one.properties.items():
        total.properties[key] = value


def _rates(traffic: Traffic) -> pb.Rates:
    return pb.Rates(
        messages=traffic.messages,
        entries=traffic.entries,
        bytes=traffic.bytes,
        messages_per_s=traffic.messages_per_s,
        bytes_per_s=traffic.bytes_per_s,
    )


def _position(position: Position) -> EntryPosition:
    return EntryPosition(ledger_id=position.ledger_id, entry_id=position.entry_id)
