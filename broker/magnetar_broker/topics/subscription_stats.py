"""What can be seen of a subscription, at once and without reading anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from magnetar_broker.counters import DeliveryCounters
from magnetar_broker.managed_ledger.interface import Cursor, Log, Unopened
from magnetar_broker.managed_ledger.position import Position
from magnetar_broker.topics.consumer import Consumer
from magnetar_broker.topics.subscription import Subscription
from magnetar_protos.broker_pb2 import SubscriptionType

__all__ = ["ConsumerStats", "SubscriptionStats", "cursor_stats", "subscription_stats", "unopened_stats"]


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    name: str
    address: str
    connected_since_ms: int
    priority_level: int
    # It is one of those that are served.
    active: bool
    permits: int
    # Of Shared: delivered to it and not acknowledged.
    unacked_messages: int
    epoch: int
    properties: Mapping[str, str]
    counters: DeliveryCounters
    # Why it gets nothing now; empty: because there is nothing for it.
    blocked_by: str


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    name: str
    durable: bool
    # Of its consumers; empty: it has none.
    type: str
    mark_delete: Position
    # Everything before it was read for the consumers; None: there are none.
    read_position: Position | None
    # Entries that are not acknowledged: a batch is one.
    backlog_entries: int
    # Of Shared: delivered and not acknowledged.
    unacked_messages: int
    # How many entries wait to be delivered again.
    redelivery_entries: int
    # Why nothing is delivered though there is a backlog; empty: something is, or there is none.
    blocked_by: str
    properties: Mapping[str, str]
    counters: DeliveryCounters
    consumers: list[ConsumerStats] = field(default_factory=list)
    # Its cursor is not opened: the numbers are those of its node, a lower bound of what it has acknowledged.
    unopened: bool = False
    # And will not be, since it is damaged: an administrator has to reset or delete it.
    damaged: bool = False


def cursor_stats(cursor: Cursor, counters: DeliveryCounters) -> SubscriptionStats:
    """Of one without consumers."""
    backlog = cursor.open_entries()
    return SubscriptionStats(
        name=cursor.name,
        durable=cursor.durable,
        type="",
        mark_delete=cursor.mark_delete,
        read_position=None,
        backlog_entries=backlog,
        unacked_messages=0,
        redelivery_entries=0,
        blocked_by="no consumer is connected" if backlog else "",
        properties=cursor.properties,
        counters=counters,
    )


def unopened_stats(unopened: Unopened, log: Log, counters: DeliveryCounters) -> SubscriptionStats:
    return SubscriptionStats(
        name=unopened.name,
        durable=True,
        type="",
        mark_delete=unopened.place,
        read_position=None,
        backlog_entries=log.entries_between(unopened.place, log.last),
        unacked_messages=0,
        redelivery_entries=0,
        blocked_by=unopened.reason,
        properties=unopened.properties,
        counters=counters,
        unopened=True,
        damaged=unopened.damaged,
    )


def subscription_stats(subscription: Subscription, log: Log) -> SubscriptionStats:
    cursor, dispatcher = subscription.cursor, subscription.dispatcher
    backlog = cursor.open_entries()
    if dispatcher is None:
        blocked_by = "no consumer is connected" if backlog else ""
        read_position, redelivery, unacked = None, 0, 0
    else:
        dispatch = dispatcher.dispatch
        read_position, redelivery = dispatch.read_position, dispatch.redelivery_entries
        unacked = dispatch.unacked_messages
        blocked_by = _blocked_by(subscription, log) if backlog else ""
    return SubscriptionStats(
        name=subscription.name,
        durable=subscription.durable,
        type="" if dispatcher is None else SubscriptionType.Name(subscription.type),
        mark_delete=cursor.mark_delete,
        read_position=read_position,
        backlog_entries=backlog,
        unacked_messages=unacked,
        redelivery_entries=redelivery,
        blocked_by=blocked_by,
        properties=cursor.properties,
        counters=subscription.counters,
        consumers=[_consumer_stats(consumer) for consumer in subscription.consumers],
    )


def _blocked_by(subscription: Subscription, log: Log) -> str:
    dispatcher = subscription.dispatcher
    assert dispatcher is not None
    if dispatcher.paused:
        return "the subscription is being moved, skipped or deleted"
    if dispatcher.failed:
        return f"reading failed, and is retried: {dispatcher.failed}"
    if reason := dispatcher.dispatch.blocked_by():
        return reason
    if dispatcher.reading:
        return "entries are being read"
    if not dispatcher.dispatch.redelivery_entries and dispatcher.dispatch.read_position > log.last:
        return "all entries were delivered, and some are not acknowledged"
    return ""


def _consumer_stats(consumer: Consumer) -> ConsumerStats:
    state, subscription = consumer.state, consumer.subscription
    return ConsumerStats(
        name=state.name,
        address=consumer.sink.address,
        connected_since_ms=consumer.connected_since_ms,
        priority_level=state.priority_level,
        active=consumer.active,
        permits=state.permits,
        unacked_messages=state.held.total,
        epoch=state.epoch,
        properties=consumer.properties,
        counters=consumer.counters,
        blocked_by=_consumer_blocked_by(consumer, subscription),
    )


def _consumer_blocked_by(consumer: Consumer, subscription: Subscription) -> str:
    state, dispatch = consumer.state, subscription.dispatch
    if dispatch is None or not dispatch.is_active(state):
        return "another consumer is active"
    if state.permits <= 0:
        return "it has granted no permits: its receiver queue is full"
    most = dispatch.limits.max_unacked_per_consumer
    if 0 < most <= state.held.total:
        return f"it has {state.held.total} unacknowledged messages, and max_unacked_messages_per_consumer is {most}"
    return "" if consumer.sink.capacity_bytes() > 0 else "its connection can't keep up"
