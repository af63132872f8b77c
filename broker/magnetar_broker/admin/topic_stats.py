"""Describe topics in the responses of admin calls.

Rates are those of the last sample (`Traffic.sample`), so reading them often does not change them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from magnetar_broker.counters import Traffic
from magnetar_broker.errors import BrokerError
from magnetar_broker.position import Position
from magnetar_broker.topics.producer import Producer
from magnetar_broker.topics.subscription_stats import ConsumerStats, SubscriptionStats
from magnetar_broker.topics.topic import Topic
from magnetar_protos import admin_pb2 as pb
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.ledger_pb2 import EntryPosition
from magnetar_wire.topic_name import TopicName

__all__ = ["describe_log", "describe_topic", "drop_clients", "merge_stats"]

# Items of each kind in one response, so that it fits into one message.
_MAX_SHOWN: Final = 5000
_MAX_LOST_SHOWN: Final = 100
# Numbers of a partitioned topic that are sums over its partitions.
_SUMMED: Final = (
    "refused_entries",
    "failed_entries",
    "storage_bytes",
    "stored_entries",
    "messages_ever",
    "pending_bytes",
    "lost_entries",
)


async def describe_topic(topic: Topic) -> pb.TopicStats:
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
        waiting_for=log.waiting_for,
        lost_entries=topic.log.lost_entries.count,
        lost=[
            pb.LostEntry(ledger_id=position.ledger_id, entry_id=position.entry_id, reason=reason)
            for position, reason in topic.log.lost_entries.list_known()[:_MAX_LOST_SHOWN]
        ],
        producers=[_producer(producer) for producer in topic.producers()[:_MAX_SHOWN]],
    )
    left = _MAX_SHOWN
    for one in topic.subscriptions.stats():
        if not left:
            continue
        consumers = one.consumers[:left]
        left -= len(consumers) or 1
        shown = _subscription(one, consumers)
        if one.durable and one.backlog_entries and not one.unopened:
            try:
                shown.backlog_messages = await topic.subscriptions.backlog_messages(one.name)
            except BrokerError as error:
                if error.code != ErrorCode.SUBSCRIPTION_NOT_FOUND:
                    raise
                continue  # it was deleted in the meantime
        stats.subscriptions.append(shown)
    return stats


def drop_clients(answer: pb.TopicStatsAnswer) -> pb.TopicStatsAnswer:
    """Remove the producers and consumers of one partition, which the sums do not show: there may be very many."""
    answer.stats.ClearField("producers")
    for one in answer.stats.subscriptions:
        one.ClearField("consumers")
    return answer


def merge_stats(name: TopicName, answers: Sequence[pb.TopicStatsAnswer]) -> pb.TopicStatsAnswer:
    """Return the statistics of a partitioned topic: the sums over its partitions, without producers and consumers."""
    parts = [answer.stats for answer in answers]
    total = pb.TopicStats(topic=str(name), partitions=len(parts))
    total.received.SetInParent()
    total.delivered.SetInParent()
    subscriptions: dict[str, pb.SubscriptionStats] = {}
    for part in parts:
        _add(total.received, part.received)
        _add(total.delivered, part.delivered)
        for name_of_number in _SUMMED:
            setattr(total, name_of_number, getattr(total, name_of_number) + getattr(part, name_of_number))
        total.lost.extend(part.lost[: max(0, _MAX_LOST_SHOWN - len(total.lost))])
        total.waiting_for = total.waiting_for or (part.waiting_for and f"{part.topic}: {part.waiting_for}")
        for one in part.subscriptions:
            known = subscriptions.setdefault(one.subscription, pb.SubscriptionStats(subscription=one.subscription))
            _add_subscription(known, one, part.topic)
    total.subscriptions.extend(subscriptions.values())
    return pb.TopicStatsAnswer(stats=total)


def describe_log(topic: Topic) -> pb.InternalStats:
    log = topic.log.stats()
    shown = log.ledgers[-_MAX_SHOWN:]
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
            pb.CursorStats(
                name=cursor.name,
                mark_delete=_position(cursor.mark_delete),
                saved_mark_delete=_position(cursor.saved_mark_delete),
                open_entries=cursor.count_unacknowledged(),
            )
            for cursor in topic.cursors.durable_cursors()[:_MAX_SHOWN]
        ]
        + [
            pb.CursorStats(
                name=one.name, mark_delete=_position(one.mark_delete), saved_mark_delete=_position(one.mark_delete)
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
    )


def _producer(producer: Producer) -> pb.ProducerStats:
    return pb.ProducerStats(
        producer_name=producer.producer_name,
        producer_id=producer.identity.producer_id,
        address=producer.identity.address,
        connected_since_ms=producer.connected_since_ms,
        received=_rates(producer.counters),
        properties=producer.identity.properties,
    )


def _subscription(one: SubscriptionStats, consumers: Sequence[ConsumerStats]) -> pb.SubscriptionStats:
    active = [consumer.name for consumer in one.consumers if consumer.active] if one.type == "FAILOVER" else []
    return pb.SubscriptionStats(
        subscription=one.name,
        type=one.type,
        durable=one.durable,
        backlog_entries=one.backlog_entries,
        unacknowledged_messages=one.unacked_messages,
        to_be_redelivered=one.redelivery_entries,
        blocked_by=one.blocked_by,
        active_consumer=active[0] if active else "",
        delivered=_rates(one.counters.delivered),
        redelivered_messages=one.counters.redelivered_messages,
        acknowledged_entries=one.counters.acknowledged_entries,
        expired_entries=one.counters.expired_entries,
        mark_delete=_position(one.mark_delete),
        damaged=one.damaged,
        consumers=[_consumer(consumer) for consumer in consumers],
        properties=one.properties,
    )


def _consumer(consumer: ConsumerStats) -> pb.ConsumerStats:
    return pb.ConsumerStats(
        consumer_name=consumer.name,
        address=consumer.address,
        connected_since_ms=consumer.connected_since_ms,
        priority_level=consumer.priority_level,
        permits=consumer.permits,
        unacknowledged_messages=consumer.unacked_messages,
        blocked_by=consumer.blocked_by,
        delivered=_rates(consumer.counters.delivered),
        redelivered_messages=consumer.counters.redelivered_messages,
        acknowledged_entries=consumer.counters.acknowledged_entries,
        properties=consumer.properties,
    )


def _add_subscription(total: pb.SubscriptionStats, one: pb.SubscriptionStats, topic: str) -> None:
    for name in (
        "backlog_entries",
        "backlog_messages",
        "unacknowledged_messages",
        "to_be_redelivered",
        "redelivered_messages",
        "acknowledged_entries",
        "expired_entries",
    ):
        setattr(total, name, getattr(total, name) + getattr(one, name))
    _add(total.delivered, one.delivered)
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


def _add(total: pb.Rates, one: pb.Rates) -> None:
    total.messages += one.messages
    total.entries += one.entries
    total.bytes += one.bytes
    total.messages_per_s += one.messages_per_s
    total.bytes_per_s += one.bytes_per_s


def _position(position: Position) -> EntryPosition:
    return EntryPosition(ledger_id=position.ledger_id, entry_id=position.entry_id)
