"""Settings of what expires: messages by age, subscriptions without consumers, topics that nobody uses."""

from __future__ import annotations

from typing import Literal

from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import MAX_COUNT, Subject, setting

__all__ = ["ExpirySettings"]


class ExpirySettings(Configuration):
    ttl_duration_default_in_seconds: int = setting(
        0,
        "Age, in seconds since a broker received them, at which messages expire in topics without a policy "
        "message_ttl_seconds: all durable subscriptions have acknowledged them then. 0: messages do not expire.",
        subject=Subject.RETENTION,
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
    )
    message_expiry_check_interval_in_minutes: float = setting(
        5.0,
        "Interval, in minutes, at which a topic is checked for messages that expire by their age. A changed policy is "
        "applied within seconds.",
        subject=Subject.RETENTION,
        gt=0,
        named_by="Pulsar",
    )
    subscription_expiration_time_minutes: float = setting(
        0.0,
        "Minutes without a consumer, and without an acknowledgement, after which a durable subscription is deleted, in "
        "namespaces without a policy subscription_expiration_minutes. 0: never.",
        subject=Subject.RETENTION,
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
    )
    subscription_expiry_check_interval_in_minutes: float = setting(
        5.0,
        "Interval, in minutes, at which a topic is checked for subscriptions that expire. A changed policy is applied "
        "within seconds.",
        subject=Subject.RETENTION,
        gt=0,
        named_by="Pulsar",
    )
    broker_delete_inactive_topics_enabled: bool = setting(
        False,
        "Delete a topic, with all its messages, when it has been inactive, as broker_delete_inactive_topics_mode "
        "defines it, for broker_delete_inactive_topics_max_inactive_duration_seconds. Messages that "
        "default_retention_without_subscription_minutes retains are deleted, too; a topic whose retention policy still "
        "retains messages is not. A policy inactive_topics can override this, and the next two settings. Pulsar's "
        "default: true.",
        subject=Subject.TOPICS,
        named_by="Pulsar",
        dynamic=True,
    )
    broker_delete_inactive_topics_mode: Literal[
        "delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"
    ] = setting(
        "delete_when_no_subscriptions",
        "When a topic without producers and consumers is inactive: if it has no subscription, or also if its "
        "subscriptions have acknowledged all messages.",
        subject=Subject.TOPICS,
        named_by="Pulsar",
        dynamic=True,
    )
    broker_delete_inactive_topics_max_inactive_duration_seconds: float = setting(
        60.0,
        "Seconds of inactivity after which broker_delete_inactive_topics_enabled deletes a topic.",
        subject=Subject.TOPICS,
        ge=0,
        named_by="Pulsar",
        dynamic=True,
    )
    broker_delete_inactive_partitioned_topic_metadata_enabled: bool = setting(
        False,
        "Delete a partitioned topic when the last of its partitions is deleted because it was inactive. Otherwise the "
        "number of its partitions stays, and they are created again when they are used.",
        subject=Subject.TOPICS,
        named_by="Pulsar",
        dynamic=True,
    )
