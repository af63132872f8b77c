"""Statistics of subscriptions and their consumers, from memory only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from magnetar_broker.counters import DeliveryCounters
from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.cursors.cursor_opener import UnopenedCursor
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.position import Position
from magnetar_broker.topics.consumer import Consumer
from magnetar_broker.topics.dispatch.key_shared import KeySharedRule
from magnetar_broker.topics.dispatch.key_shared_stats import ConsumerKeys, SubscriptionKeys, describe_keys
from magnetar_broker.topics.subscription import Subscription
from magnetar_broker.topics.subscription_reasons import (
    find_consumer_reasons,
    find_cursor_reasons,
    find_reasons,
    find_unopened_reasons,
)
from magnetar_protos.broker_pb2 import SubscriptionType
from magnetar_wire.delivery_reasons import DELIVERING, DeliveryReason

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
    # Why it gets nothing now. None: there is nothing for it, or it gets entries.
    reason: DeliveryReason | None
    # The name and version of the client's library; empty: unknown.
    client_version: str
    # Shared: it gets nothing until it acknowledges messages.
    has_max_unacked: bool
    # Key_Shared only.
    keys: ConsumerKeys | None


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
    # Entries that wait for redelivery. Key_Shared: all that were read and wait for the consumers of their keys.
    redelivery_entries: int
    # Why nothing is delivered, or no more: the answer first, which may be that entries are delivered.
    reasons: Sequence[DeliveryReason]
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
    # Key_Shared only.
    keys: SubscriptionKeys | None = None

    @property
    def blocked_by(self) -> str:
        """Why nothing is delivered though there is a backlog; empty: entries are delivered, or there is no backlog."""
        return self.reasons[0].text if self.is_blocked else ""

    @property
    def is_blocked(self) -> bool:
        return (self.backlog_entries > 0 or self.unopened) and self.reasons[0].kind is not DELIVERING


class Backlog(NamedTuple):
    messages: int
    # When a broker received the first of them, in ms since 1970; 0: there is none.
    since_ms: int


def cursor_stats(cursor: Cursor, log: Log, counters: DeliveryCounters) -> SubscriptionStats:
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
        reasons=find_cursor_reasons(cursor, counters, log, backlog),
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
        reasons=find_unopened_reasons(unopened),
        properties=unopened.properties,
        counters=counters,
        unopened=True,
        damaged=unopened.is_damaged,
    )


def subscription_stats(subscription: Subscription, log: Log) -> SubscriptionStats:
    cursor, rule = subscription.cursor, subscription.rule
    backlog = cursor.count_unacknowledged()
    by_consumer = find_consumer_reasons(subscription, backlog)
    keys = describe_keys(rule) if isinstance(rule, KeySharedRule) else None
    return SubscriptionStats(
        name=subscription.name,
        durable=subscription.durable,
        type="" if rule is None else SubscriptionType.Name(subscription.type),
        mark_delete=cursor.mark_delete,
        read_position=None if rule is None else rule.read_position,
        backlog_entries=backlog,
        unacked_messages=0 if rule is None else rule.unacked_messages,
        redelivery_entries=0 if rule is None else rule.redelivery_entries,
        reasons=find_reasons(subscription, log, backlog),
        properties=cursor.properties,
        counters=subscription.counters,
        acknowledged_ranges=cursor.count_ranges(),
        has_max_unacked=rule is not None and rule.has_max_unacked,
        consumers=[
            _consumer_stats(consumer, by_consumer.get(consumer), None if keys is None else keys.consumers[consumer])
            for consumer in subscription.consumers
        ],
        keys=keys,
    )


def _consumer_stats(consumer: Consumer, reason: DeliveryReason | None, keys: ConsumerKeys | None) -> ConsumerStats:
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
        reason=reason,
        client_version=consumer.client_version,
        has_max_unacked=consumer.capacity.has_max_unacked,
        keys=keys,
    )
