"""What each policy replaces and what happens to connected clients when it changes, for the guide (client/policies.md).

`EFFECTS` has a row for each row of `POLICIES`. The tests compare it with the brokers' settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["EFFECTS", "Effect"]


class Effect(NamedTuple):
    # The brokers' settings that the policy replaces; none: brokers have no such setting.
    settings: tuple[str, ...]
    # What happens to connected clients, within seconds after a change.
    live: str


_STAY: Final = "Those that are connected stay; further ones are refused."
_UNNOTICED: Final = "Clients notice nothing."
_NONE_YET: Final = "Nothing: the policy is only stored."
_SCHEMAS: Final = "Producers and consumers that are open go on; it applies to those that open later."

EFFECTS: Final[Mapping[str, Effect]] = {
    "persistence": Effect(
        (
            "managed_ledger_default_ensemble_size",
            "managed_ledger_default_write_quorum",
            "managed_ledger_default_ack_quorum",
            "managed_ledger_default_mark_delete_rate_limit",
        ),
        "Clients notice nothing: the next ledger has it.",
    ),
    "auto_topic_creation": Effect(
        ("allow_auto_topic_creation", "allow_auto_topic_creation_type", "default_num_partitions"),
        "Topics that exist stay; it applies to the next request for one that does not.",
    ),
    "auto_subscription_creation": Effect(
        ("allow_auto_subscription_creation",),
        "Consumers stay; it applies to the next request for a subscription that does not exist.",
    ),
    "retention": Effect(
        ("default_retention_time_in_minutes", "default_retention_size_in_mb"),
        "Clients notice nothing. Ledgers that are not retained any more are deleted.",
    ),
    "message_ttl_seconds": Effect(
        ("ttl_duration_default_in_seconds",),
        "Older messages count as acknowledged. Those that a client has received stay with it.",
    ),
    "subscription_expiration_minutes": Effect(
        ("subscription_expiration_time_minutes",), "Subscriptions with consumers stay."
    ),
    "backlog_quota_size": Effect(
        ("backlog_quota_default_limit_bytes", "backlog_quota_default_retention_policy"),
        "Above it producers are closed and wait or get an error, or the oldest messages count as acknowledged. Below "
        "it producers go on by themselves.",
    ),
    "backlog_quota_age": Effect(
        ("backlog_quota_default_limit_second", "backlog_quota_default_retention_policy"), "As for the quota by size."
    ),
    "deduplication": Effect(
        ("broker_deduplication_enabled",), "Producers go on; messages that they send from then on are checked."
    ),
    "deduplication_snapshot_entries": Effect(("broker_deduplication_entries_interval",), _UNNOTICED),
    "compaction_threshold_bytes": Effect((), _NONE_YET),
    "delayed_delivery": Effect((), _NONE_YET),
    "inactive_topics": Effect(
        (
            "broker_delete_inactive_topics_enabled",
            "broker_delete_inactive_topics_mode",
            "broker_delete_inactive_topics_max_inactive_duration_seconds",
        ),
        "Topics with producers or consumers stay.",
    ),
    "publish_rate": Effect(
        ("max_publish_rate_per_topic_in_messages", "max_publish_rate_per_topic_in_bytes"),
        "Producers are paused while the rate is reached; their messages are stored in order.",
    ),
    "dispatch_rate": Effect(
        ("dispatch_throttling_rate_per_topic_in_msg", "dispatch_throttling_rate_per_topic_in_byte"),
        "Consumers and readers get messages at the rate, all subscriptions together.",
    ),
    "subscription_dispatch_rate": Effect(
        ("dispatch_throttling_rate_per_subscription_in_msg", "dispatch_throttling_rate_per_subscription_in_byte"),
        "Consumers and readers get messages at the rate.",
    ),
    "replicator_dispatch_rate": Effect((), _NONE_YET),
    "subscribe_rate": Effect(
        ("subscribe_throttling_rate_per_consumer", "subscribe_rate_period_per_consumer_in_second"),
        "Consumers stay; one that subscribes too often is refused, and retries.",
    ),
    "max_producers_per_topic": Effect(("max_producers_per_topic",), _STAY),
    "max_consumers_per_topic": Effect(("max_consumers_per_topic",), _STAY),
    "max_consumers_per_subscription": Effect(("max_consumers_per_subscription",), _STAY),
    "max_unacked_messages_per_consumer": Effect(
        ("max_unacked_messages_per_consumer",), "Above it a consumer gets no more until it acknowledges some."
    ),
    "max_unacked_messages_per_subscription": Effect(
        ("max_unacked_messages_per_subscription",),
        "Above it a subscription delivers no more until some are acknowledged.",
    ),
    "max_subscriptions_per_topic": Effect(("max_subscriptions_per_topic",), "Those that exist stay."),
    "max_topics_per_namespace": Effect(("max_topics_per_namespace",), "Topics that exist stay."),
    "max_message_size_bytes": Effect(("max_message_size",), "Larger messages are refused from then on."),
    "schema_compatibility": Effect(("schema_compatibility_strategy",), _SCHEMAS),
    "schema_auto_update": Effect((), _SCHEMAS),
    "allow_schema_auto_update": Effect(("is_allow_auto_update_schema_enabled",), _SCHEMAS),
    "schema_validation_enforced": Effect(("is_schema_validation_enforced",), _SCHEMAS),
    "encryption_required": Effect((), _NONE_YET),
    "subscription_auth_mode": Effect((), _NONE_YET),
    "subscription_types_enabled": Effect(
        ("subscription_types_enabled",), "Consumers stay; a type that is not enabled is refused."
    ),
    "dispatcher_pause_on_ack_state": Effect((), _NONE_YET),
    "replication_clusters": Effect((), _UNNOTICED),
    "allowed_clusters": Effect((), _UNNOTICED),
    "properties": Effect((), _UNNOTICED),
}
