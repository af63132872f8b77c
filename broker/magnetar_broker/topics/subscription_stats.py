"""Statistics of subscriptions and their consumers, from memory only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from magnetar_broker.counters import DeliveryCounters
from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.cursors.cursor_opener import UnopenedCursor
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.position import Position
from magnetar_broker.topics.consumer import Consumer
from magnetar_broker.topics.subscription import Subscription
from magnetar_protos.broker_pb2 import SubscriptionType

__all__ = ["Backlog", "ConsumerStats", "SubscriptionStats", "cursor_stats", "subscription_stats", "unopened_stats"]


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    name: str
    address: str
    connected_since_ms: int
    priority_level: int
    # Whether it gets entries.
    active: bool
    permits: int
    # Shared: delivered to it and not acknowledged.
    unacked_messages: int
    epoch: int
    properties: Mapping[str, str]
    counters: DeliveryCounters
    # Why it gets nothing now; empty: there is nothing for it.
    blocked_by: str
    # The name and version of the client's library; empty: unknown.
    client_version: str
    # Shared: it gets nothing until it acknowledges messages.
    has_max_unacked: bool


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    name: str
    durable: bool
    # The type of its consumers; empty: it has none.
    type: str
    mark_delete: Position
    # All entries before it were read for the consumers. None: there are none.
    read_position: Position | None
    # Entries that are not acknowledged: a batch is one.
    backlog_entries: int
    # Shared: delivered and not acknowledged.
    unacked_messages: int
    # Entries that wait for redelivery.
    redelivery_entries: int
    # Why nothing is delivered though there is a backlog; empty: entries are delivered, or there is no backlog.
    blocked_by: str
    properties: Mapping[str, str]
    counters: DeliveryCounters
    # Runs of acknowledged entries after the mark-delete position.
    acknowledged_ranges: int = 0
    # Shared: no consumer gets more until messages are acknowledged.
    has_max_unacked: bool = False
    consumers: list[ConsumerStats] = field(default_factory=list)
    # Its cursor is not open: the numbers are those of its node, a lower bound of what it has acknowledged.
    unopened: bool = False
    # Its cursor can't be opened, since it is damaged: an administrator has to reset or delete it.
    damaged: bool = False


class Backlog(NamedTuple):
    messages: int
    # When a broker received the first of them, in ms since 1970; 0: there is none.
    since_ms: int


def cursor_stats(cursor: Cursor, counters: DeliveryCounters) -> SubscriptionStats:
    """Statistics of a subscription without consumers."""
    backlog = cursor.count_unacknowledged()
    return SubscriptionStats(
        name=cursor.name,
        durable=cursor.is_durable,
        type="",
        mark_delete=cursor.mark_delete,
        read_position=None,
        backlog_entries=backlog,
        unacked_messages=0,
        redelivery_entries=0,
        blocked_by="no consumer is connected" if backlog else "",
        properties=cursor.properties,
        counters=counters,
        acknowledged_ranges=cursor.count_ranges(),
    )


def unopened_stats(unopened: UnopenedCursor, log: Log, counters: DeliveryCounters) -> SubscriptionStats:
    return SubscriptionStats(
        name=unopened.name,
        durable=True,
        type="",
        mark_delete=unopened.mark_delete,
        read_position=None,
        backlog_entries=log.entries_between(unopened.mark_delete, log.last),
        unacked_messages=0,
        redelivery_entries=0,
        blocked_by=unopened.reason,
        properties=unopened.properties,
        counters=counters,
        unopened=True,
        damaged=unopened.is_damaged,
    )


def subscription_stats(subscription: Subscription, log: Log) -> SubscriptionStats:
    cursor, rule = subscription.cursor, subscription.rule
    backlog = cursor.count_unacknowledged()
    return SubscriptionStats(
        name=subscription.name,
        durable=subscription.durable,
        type="" if rule is None else SubscriptionType.Name(subscription.type),
        mark_delete=cursor.mark_delete,
        read_position=None if rule is None else rule.read_position,
        backlog_entries=backlog,
        unacked_messages=0 if rule is None else rule.unacked_messages,
        redelivery_entries=0 if rule is None else rule.redelivery_entries,
        blocked_by=_blocked_by(subscription, log) if backlog else "",
        properties=cursor.properties,
        counters=subscription.counters,
        acknowledged_ranges=cursor.count_ranges(),
        has_max_unacked=rule is not None and rule.has_max_unacked,
        consumers=[_consumer_stats(consumer) for consumer in subscription.consumers],
    )


def _blocked_by(subscription: Subscription, log: Log) -> str:
    dispatcher = subscription.dispatcher
    if dispatcher is None:
        return "no consumer is connected"
    if dispatcher.is_paused:
        return "the subscription is being moved, skipped or deleted"
    if dispatcher.read_error:
        return f"reading failed, and is retried: {dispatcher.read_error}"
    if shortage := dispatcher.rule.find_shortage():
        return shortage
    if reason := dispatcher.rates.describe_wait():
        return reason
    if dispatcher.is_reading:
        return "entries are being read"
    if not dispatcher.rule.redelivery_entries and dispatcher.rule.read_position > log.last:
        return "all entries were delivered, and some are not acknowledged"
    return ""


def _consumer_stats(consumer: Consumer) -> ConsumerStats:
    return ConsumerStats(
        name=consumer.name,
        address=consumer.sink.address,
        connected_since_ms=consumer.connected_since_ms,
        priority_level=consumer.priority_level,
        active=consumer.active,
        permits=consumer.capacity.permits,
        unacked_messages=consumer.capacity.unacked_messages,
        epoch=consumer.epoch,
        properties=consumer.properties,
        counters=consumer.counters,
        blocked_by=consumer.capacity.find_shortage() if consumer.active else "another consumer is active",
        client_version=consumer.client_version,
        has_max_unacked=consumer.capacity.has_max_unacked,
    )
