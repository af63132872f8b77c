"""Why a subscription delivers nothing, or no more, in the order in which the reasons are the answer.

Each reason is found where its rule is: `Dispatcher.find_obstacle` asks the dispatch rule and the rates, a consumer its
own bounds. This module orders them, and adds what follows from the cursor and the log. All is from memory.
"""

from __future__ import annotations

from typing import Final

from magnetar_broker.counters import DeliveryCounters
from magnetar_broker.cursors.cursor import Cursor
from magnetar_broker.cursors.cursor_opener import UnopenedCursor
from magnetar_broker.managed_ledger.interface import Log
from magnetar_broker.topics.dispatch.base_consumer import BaseConsumer
from magnetar_broker.topics.progress_subscription import describe_owner
from magnetar_broker.topics.subscription import Subscription
from magnetar_broker.topics.subscription_changes import DELETION
from magnetar_wire import delivery_reasons
from magnetar_wire.delivery_reasons import DeliveryReason

__all__ = ["find_consumer_reasons", "find_cursor_reasons", "find_reasons", "find_unopened_reasons"]

_MAX_NAMED: Final = 3


def find_reasons(subscription: Subscription, log: Log, backlog: int) -> list[DeliveryReason]:
    """Return the reasons of a subscription that is loaded, at least one. `backlog`: its unacknowledged entries."""
    dispatcher = subscription.dispatcher
    found = []
    if change := subscription.current_change:
        found.append(_describe_change(change))
    if dispatcher is None:
        return found + find_cursor_reasons(subscription.cursor, subscription.counters, log, backlog)
    if not subscription.stores_messages:
        return found + _describe_unstored(subscription, dispatcher.find_obstacle())
    if not backlog:
        return found + _describe_end(subscription.cursor, subscription.counters, log)
    rule, obstacle = dispatcher.rule, dispatcher.find_obstacle()
    waiting = list(rule.find_waiting())
    is_read = rule.read_position > log.last
    if is_read and not rule.redelivery_entries and (obstacle is None or obstacle.code not in _MATTER_AT_THE_END):
        found.append(_describe_unacknowledged(subscription, backlog))
    if obstacle is not None:
        found.append(obstacle)
    if not found and not (is_read and waiting):
        found.append(delivery_reasons.DELIVERING())
    found += waiting
    if dispatcher.skipped_entries:
        found.append(delivery_reasons.ENTRIES_LOST(entries=dispatcher.skipped_entries))
    return found + _describe_counted(subscription.counters)


# What holds back even a subscription that has delivered everything: its consumers, which do not acknowledge, or a
# connection that is closed.
_MATTER_AT_THE_END: Final = frozenset(
    one.code
    for one in (
        delivery_reasons.MAX_UNACKED_CONSUMER,
        delivery_reasons.MAX_UNACKED_SUBSCRIPTION,
        delivery_reasons.CLOSING,
        delivery_reasons.TOPIC_CLOSING,
    )
)


def find_cursor_reasons(cursor: Cursor, counters: DeliveryCounters, log: Log, backlog: int) -> list[DeliveryReason]:
    """Return the reasons of a subscription without consumers."""
    if owner := describe_owner(cursor.properties):
        return [delivery_reasons.READER_PROGRESS(owner=owner)]
    found = [delivery_reasons.NO_CONSUMER()]
    return found + (_describe_counted(counters) if backlog else _describe_end(cursor, counters, log))


def find_unopened_reasons(unopened: UnopenedCursor) -> list[DeliveryReason]:
    """Return the reasons of a subscription whose cursor is not open."""
    kind = delivery_reasons.CURSOR_DAMAGED if unopened.is_damaged else delivery_reasons.CURSOR_OPENING
    return [kind(error=unopened.reason)]


def _describe_change(change: str) -> DeliveryReason:
    return delivery_reasons.DELETING() if change == DELETION else delivery_reasons.CHANGING(change=change)


def _describe_end(cursor: Cursor, counters: DeliveryCounters, log: Log) -> list[DeliveryReason]:
    """Describe why a subscription has nothing to deliver."""
    if log.is_terminated:
        first = delivery_reasons.END_OF_TOPIC()
    else:
        first = delivery_reasons.NO_BACKLOG(position=str(cursor.mark_delete))
    return [first, *_describe_counted(counters)]


def _describe_unstored(subscription: Subscription, obstacle: DeliveryReason | None) -> list[DeliveryReason]:
    """Describe what a subscription of a non-persistent topic waits for."""
    return [
        delivery_reasons.NON_PERSISTENT() if obstacle is None else obstacle,
        *_describe_counted(subscription.counters),
    ]


def _describe_counted(counters: DeliveryCounters) -> list[DeliveryReason]:
    found = []
    if counters.expired_entries:
        found.append(delivery_reasons.EXPIRED(entries=counters.expired_entries, at_ms=counters.last_expired_ms))
    if counters.dropped_messages:
        found.append(delivery_reasons.DROPPED(messages=counters.dropped_messages))
    if counters.mixed_batches:
        found.append(delivery_reasons.MIXED_BATCHES(batches=counters.mixed_batches))
    return found


def find_consumer_reasons(subscription: Subscription, backlog: int) -> dict[BaseConsumer, DeliveryReason]:
    """Return why single consumers get nothing. Those that are missing may get entries."""
    if (rule := subscription.rule) is None:
        return {}
    found = rule.find_consumer_shortages()
    if backlog and rule.read_position > subscription.log.last:
        for one in subscription.consumers:
            if one not in found and one.capacity.unacked_messages:
                found[one] = delivery_reasons.WAITING_FOR_ACKS(
                    delivered=_count_messages(one),
                    who=f"consumer {one.name}",
                    delivered_ms=one.counters.last_delivered_ms,
                    acknowledged_ms=one.counters.last_acknowledged_ms,
                )
    return found


def _describe_unacknowledged(subscription: Subscription, backlog: int) -> DeliveryReason:
    """Describe who has the entries of a subscription that has delivered all of them."""
    counters, rule = subscription.counters, subscription.rule
    assert rule is not None
    active = rule.active_consumer
    if active is not None:
        who = f"consumer {active.name}"
    else:
        holders = [one for one in subscription.consumers if one.capacity.unacked_messages]
        holders.sort(key=lambda one: -one.capacity.unacked_messages)
        named = [f"{one.name} ({_count_messages(one)})" for one in holders[:_MAX_NAMED]]
        more = len(holders) - len(named)
        who = ", ".join([*named, *([f"{more:,} more consumers"] if more else [])]) or "no consumer"
    return delivery_reasons.WAITING_FOR_ACKS(
        delivered="1 entry" if backlog == 1 else f"{backlog:,} entries",
        who=who,
        delivered_ms=counters.last_delivered_ms,
        acknowledged_ms=counters.last_acknowledged_ms,
    )


def _count_messages(consumer: BaseConsumer) -> str:
    count = consumer.capacity.unacked_messages
    return "1 message" if count == 1 else f"{count:,} messages"
