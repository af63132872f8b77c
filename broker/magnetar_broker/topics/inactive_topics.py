"""Which topics are deleted because nobody uses them (`broker_delete_inactive_topics_enabled`, which the policy
`inactive_topics` replaces).

A topic is active while it has a producer, a consumer, a request of one, or a lease. By the mode it is also active while
it has a durable subscription, or one that has not acknowledged all messages. It is deleted when it has been inactive
for a time, unless its retention policy still retains its messages: for the time of retention, the topic stays as they
do. The time counts from when this broker opened the topic, if it was inactive before; if only this broker's visits have
opened it since (topic_visits.py), from the first of them.
"""

from __future__ import annotations

from typing import Final

from magnetar_broker.managed_ledger.ledger_lifetime_settings import create_retention_policy
from magnetar_broker.system_topics import is_system_topic
from magnetar_broker.topics.topic import Topic

__all__ = ["is_deletable", "record_activity"]

_CAUGHT_UP: Final = "delete_when_subscriptions_caught_up"


def record_activity(topic: Topic, now: float) -> None:
    """Called at intervals with the time of the monotonic clock."""
    if topic.in_use or topic.log.leases.any_active:
        topic.unused_since = topic.inactive_since = now
    elif topic.live_settings.current.broker_delete_inactive_topics_enabled and _has_active_subscription(topic):
        topic.inactive_since = now


def is_deletable(topic: Topic, now: float) -> bool:
    live = topic.live_settings
    settings = live.current
    if not settings.broker_delete_inactive_topics_enabled or not live.are_known or is_system_topic(topic.name):
        return False
    inactive_s = now - topic.inactive_since
    if inactive_s < settings.broker_delete_inactive_topics_max_inactive_duration_seconds:
        return False
    is_used = topic.in_use or topic.log.leases.any_active or _has_active_subscription(topic)
    return not is_used and not _is_retained(topic, inactive_s)


def _has_active_subscription(topic: Topic) -> bool:
    if topic.live_settings.current.broker_delete_inactive_topics_mode != _CAUGHT_UP:
        return bool(topic.cursors.names())
    # What a cursor has acknowledged that is not open is not known.
    return bool(topic.cursors.unopened_cursors()) or any(
        cursor.count_unacknowledged() for cursor in topic.cursors.durable_cursors()
    )


def _is_retained(topic: Topic, inactive_s: float) -> bool:
    policy = create_retention_policy(topic.live_settings.current)
    if policy is None or not policy.retains or topic.log.last <= topic.log.before_first:
        return False
    return policy.time_ms is None or inactive_s * 1000 < policy.time_ms
