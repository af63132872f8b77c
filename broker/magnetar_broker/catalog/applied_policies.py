"""Finds the policies that apply to a topic: its own, else its namespace's, else the brokers' settings."""

from __future__ import annotations

import math

from magnetar_broker.settings import rates as settings_rates
from magnetar_broker.settings.service import BrokerServiceSettings
from magnetar_protos.catalog_pb2 import (
    AutoSubscriptionCreation,
    BacklogQuota,
    Clusters,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    Persistence,
    Policies,
    PublishRate,
    Retention,
    SchemaCompatibility,
    SubscribeRate,
    SubscriptionTypes,
)
from magnetar_wire.admin.policies import POLICY_OF, Level

__all__ = ["default_policies", "override_policies", "remove_namespace_policies"]


def override_policies(policies: Policies, *others: Policies) -> Policies:
    """Merge policies. A policy of a later argument replaces the same policy of an earlier one."""
    result, compatibility = Policies(), SchemaCompatibility.UNDEFINED
    for one in (policies, *others):
        for field, _ in one.ListFields():
            result.ClearField(field.name)
        result.MergeFrom(one)
        if one.schema_compatibility:
            compatibility = one.schema_compatibility
    if compatibility:  # UNDEFINED counts as not set
        result.schema_compatibility = compatibility
    return result


def remove_namespace_policies(policies: Policies) -> None:
    """Remove the policies that only namespaces have."""
    for field, _ in policies.ListFields():
        if POLICY_OF[field.name].path(Level.TOPIC) is None:
            policies.ClearField(field.name)


def default_policies(settings: BrokerServiceSettings) -> Policies:
    """Return the policies of a topic that has none in a namespace that has none, from the brokers' settings. Policies
    without effect have the values with which Pulsar's brokers disable them."""
    no_rate = DispatchRate(period_seconds=1)
    quota = BacklogQuota(
        limit_size_bytes=settings.backlog_quota_default_limit_bytes,
        limit_time_seconds=settings.backlog_quota_default_limit_second,
        policy=settings.backlog_quota_default_retention_policy.upper(),
    )
    return Policies(
        persistence=Persistence(
            ensemble_size=settings.managed_ledger_default_ensemble_size,
            write_quorum=settings.managed_ledger_default_write_quorum,
            ack_quorum=settings.managed_ledger_default_ack_quorum,
            max_mark_delete_rate=settings.managed_ledger_default_mark_delete_rate_limit,
        ),
        auto_subscription_creation=AutoSubscriptionCreation(allowed=settings.allow_auto_subscription_creation),
        retention=Retention(
            time_minutes=math.ceil(settings.default_retention_time_in_minutes),
            size_mb=settings.default_retention_size_in_mb,
        ),
        message_ttl_seconds=settings.ttl_duration_default_in_seconds,
        backlog_quota_size=quota,
        backlog_quota_age=quota,
        deduplication=settings.broker_deduplication_enabled,
        deduplication_snapshot_entries=settings.broker_deduplication_entries_interval,
        compaction_threshold_bytes=0,
        delayed_delivery=DelayedDelivery(tick_time_ms=1000),
        inactive_topics=InactiveTopics(
            delete_while_inactive=settings.broker_delete_inactive_topics_enabled,
            delete_mode=settings.broker_delete_inactive_topics_mode.upper(),
            max_inactive_seconds=int(settings.broker_delete_inactive_topics_max_inactive_duration_seconds),
        ),
        publish_rate=_find_publish_rate(settings),
        dispatch_rate=_dispatch_rate(settings.topic_dispatch_rate),
        subscription_dispatch_rate=_dispatch_rate(settings.subscription_dispatch_rate),
        replicator_dispatch_rate=no_rate,
        subscribe_rate=SubscribeRate(
            per_consumer=settings.subscribe_rate.per_consumer,
            period_seconds=int(settings.subscribe_rate.period_seconds),
        ),
        max_producers_per_topic=settings.max_producers_per_topic,
        max_consumers_per_topic=settings.max_consumers_per_topic,
        max_consumers_per_subscription=settings.max_consumers_per_subscription,
        max_unacked_messages_per_consumer=settings.max_unacked_messages_per_consumer,
        max_unacked_messages_per_subscription=settings.max_unacked_messages_per_subscription,
        max_subscriptions_per_topic=settings.max_subscriptions_per_topic,
        max_message_size_bytes=settings.max_message_size,
        schema_compatibility=settings.default_schema_compatibility,
        schema_validation_enforced=settings.is_schema_validation_enforced,
        subscription_types_enabled=SubscriptionTypes(
            types=[name.upper() for name in settings.subscription_types_enabled]
        ),
        dispatcher_pause_on_ack_state=False,
        replication_clusters=Clusters(names=[settings.cluster_name]),
    )


def _find_publish_rate(settings: BrokerServiceSettings) -> PublishRate | None:
    """Return the maximum publish rate of the brokers' settings. None: no limit."""
    messages, size_bytes = settings.max_publish_rate_per_topic_in_messages, settings.max_publish_rate_per_topic_in_bytes
    return PublishRate(messages_per_s=messages, bytes_per_s=size_bytes) if messages or size_bytes else None


def _dispatch_rate(rate: settings_rates.DispatchRate) -> DispatchRate:
    return DispatchRate(
        messages=int(rate.limit.messages),
        bytes=int(rate.limit.bytes),
        period_seconds=int(rate.limit.period_seconds),
        relative_to_publish_rate=rate.is_relative,
    )
