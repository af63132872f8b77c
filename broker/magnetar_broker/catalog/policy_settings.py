"""Maps policies to the brokers' settings that they replace.

A policy that is not set replaces nothing: the broker's setting applies. applied_policies.py maps the opposite way: it
returns the brokers' settings as the policies of a topic that has none.
"""

from __future__ import annotations

from typing import Any, Final, cast

from magnetar_broker.settings.backlog_quotas import Quota, QuotaPolicy
from magnetar_broker.settings.delivery import SubscriptionTypeName
from magnetar_broker.settings.rates import DispatchRate, Rate, SubscribeRate
from magnetar_protos.broker_pb2 import SubscriptionType
from magnetar_protos.catalog_pb2 import BacklogPolicy, InactiveTopicDeleteMode, Policies
from magnetar_protos.catalog_pb2 import DispatchRate as DispatchRatePolicy

__all__ = ["settings_by_policies"]

# Policies that have the name and the meaning of the setting that they replace.
_SAME: Final = (
    "max_producers_per_topic",
    "max_consumers_per_topic",
    "max_consumers_per_subscription",
    "max_subscriptions_per_topic",
    "max_unacked_messages_per_consumer",
    "max_unacked_messages_per_subscription",
)
_TYPE_NAMES: Final[dict[int, SubscriptionTypeName]] = {
    SubscriptionType.EXCLUSIVE: "Exclusive",
    SubscriptionType.SHARED: "Shared",
    SubscriptionType.FAILOVER: "Failover",
    SubscriptionType.KEY_SHARED: "Key_Shared",
}
_QUOTA_POLICIES: Final = {number: cast(QuotaPolicy, name.lower()) for name, number in BacklogPolicy.items()}


def settings_by_policies(policies: Policies) -> dict[str, Any]:
    """Return the settings that these policies replace: values by name."""
    changed: dict[str, Any] = {}
    if policies.HasField("persistence"):
        changed["managed_ledger_default_ensemble_size"] = policies.persistence.ensemble_size
        changed["managed_ledger_default_write_quorum"] = policies.persistence.write_quorum
        changed["managed_ledger_default_ack_quorum"] = policies.persistence.ack_quorum
        if (rate := policies.persistence.max_mark_delete_rate) > 0:
            changed["managed_ledger_default_mark_delete_rate_limit"] = rate
    if policies.HasField("retention"):
        changed["default_retention_time_in_minutes"] = policies.retention.time_minutes
        changed["default_retention_size_in_mb"] = policies.retention.size_mb
        # A retention policy, even one that retains nothing, also replaces the default for topics without subscriptions.
        changed["default_retention_without_subscription_minutes"] = 0
        changed["default_retention_without_subscription_size_mb"] = -1
    if policies.HasField("message_ttl_seconds"):
        changed["ttl_duration_default_in_seconds"] = policies.message_ttl_seconds
    if policies.HasField("subscription_expiration_minutes"):
        changed["subscription_expiration_time_minutes"] = policies.subscription_expiration_minutes
    if policies.HasField("inactive_topics"):
        inactive = policies.inactive_topics
        changed["broker_delete_inactive_topics_enabled"] = inactive.delete_while_inactive
        changed["broker_delete_inactive_topics_mode"] = InactiveTopicDeleteMode.Name(inactive.delete_mode).lower()
        changed["broker_delete_inactive_topics_max_inactive_duration_seconds"] = inactive.max_inactive_seconds
    if policies.HasField("auto_subscription_creation"):
        changed["allow_auto_subscription_creation"] = policies.auto_subscription_creation.allowed
    for name in _SAME:
        if policies.HasField(name):
            changed[name] = getattr(policies, name)
    if policies.max_message_size_bytes:  # 0 counts as not set
        changed["max_topic_message_size"] = policies.max_message_size_bytes
    if policies.subscription_types_enabled.types:  # an empty list counts as not set
        changed["subscription_types_enabled"] = tuple(
            _TYPE_NAMES[one] for one in policies.subscription_types_enabled.types
        )
    if policies.HasField("backlog_quota_size"):
        quota = policies.backlog_quota_size
        changed["size_quota"] = Quota(quota.limit_size_bytes, _QUOTA_POLICIES[quota.policy])
    if policies.HasField("backlog_quota_age"):
        quota = policies.backlog_quota_age
        changed["age_quota"] = Quota(quota.limit_time_seconds, _QUOTA_POLICIES[quota.policy])
    if policies.HasField("publish_rate"):
        published = policies.publish_rate
        changed["topic_publish_rate"] = Rate(max(0, published.messages_per_s), max(0, published.bytes_per_s))
    if policies.HasField("dispatch_rate"):
        changed["topic_dispatch_rate"] = _dispatch_rate(policies.dispatch_rate)
    if policies.HasField("subscription_dispatch_rate"):
        changed["subscription_dispatch_rate"] = _dispatch_rate(policies.subscription_dispatch_rate)
    if policies.HasField("subscribe_rate"):
        subscribed = policies.subscribe_rate
        changed["subscribe_rate"] = SubscribeRate(max(0, subscribed.per_consumer), max(1, subscribed.period_seconds))
    if policies.HasField("deduplication"):
        changed["broker_deduplication_enabled"] = policies.deduplication
    if policies.deduplication_snapshot_entries > 0:
        changed["broker_deduplication_entries_interval"] = policies.deduplication_snapshot_entries
    return changed


def _dispatch_rate(rate: DispatchRatePolicy) -> DispatchRate:
    limit = Rate(max(0, rate.messages), max(0, rate.bytes), max(1, rate.period_seconds))
    return DispatchRate(limit, rate.relative_to_publish_rate)
