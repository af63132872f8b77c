"""The table of policies, and the routes that are made from it."""

from __future__ import annotations

from typing import Any, Final

import pytest

from magnetar_protos.catalog_pb2 import BacklogQuota, Policies, Retention
from magnetar_wire.admin.json.parts import Field
from magnetar_wire.admin.json.values import InvalidJson
from magnetar_wire.admin.policies import POLICIES, POLICY_OF, Level, find_missing_effects

# A value of each policy, as in Pulsar's JSON.
VALUES: Final[dict[str, Any]] = {
    "persistence": {
        "bookkeeperEnsemble": 3,
        "bookkeeperWriteQuorum": 3,
        "bookkeeperAckQuorum": 2,
        "managedLedgerMaxMarkDeleteRate": 2.5,
    },
    "auto_topic_creation": {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
    "auto_subscription_creation": {"allowAutoSubscriptionCreation": False},
    "retention": {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1},
    "message_ttl_seconds": 60,
    "subscription_expiration_minutes": 10,
    "backlog_quota_size": {"limit": 99, "limitSize": 99, "limitTime": -1, "policy": "producer_exception"},
    "backlog_quota_age": {"limit": -1, "limitSize": -1, "limitTime": 9, "policy": "consumer_backlog_eviction"},
    "deduplication": True,
    "deduplication_snapshot_entries": 1000,
    "compaction_threshold_bytes": 100_000_000_000,
    "delayed_delivery": {"tickTime": 1000, "active": True, "maxDeliveryDelayInMillis": 5000},
    "inactive_topics": {
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 60,
        "deleteWhileInactive": True,
    },
    "publish_rate": {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": 1000},
    **{
        field: {
            "dispatchThrottlingRateInMsg": 10,
            "dispatchThrottlingRateInByte": 1000,
            "relativeToPublishRate": False,
            "ratePeriodInSecond": 2,
        }
        for field in ("dispatch_rate", "subscription_dispatch_rate", "replicator_dispatch_rate")
    },
    "subscribe_rate": {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 30},
    "schema_compatibility": "FULL_TRANSITIVE",
    "schema_auto_update": "Backward",
    "subscription_auth_mode": "Prefix",
    "subscription_types_enabled": ["Shared", "Key_Shared"],
    "replication_clusters": ["standalone"],
    "allowed_clusters": ["standalone"],
    "properties": {"team": "storage"},
} | {
    policy.field: True if Policies.DESCRIPTOR.fields_by_name[policy.field].cpp_type == 7 else 7
    for policy in POLICIES
    if policy.part.__class__ is Field and Policies.DESCRIPTOR.fields_by_name[policy.field].message_type is None
    if Policies.DESCRIPTOR.fields_by_name[policy.field].enum_type is None
}


def read(field: str) -> Policies:
    """Return policies with the value of this one."""
    made = Policies()
    POLICY_OF[field].part.fill(made, VALUES[field], "the value")
    return made


def test_every_field_of_policies_has_a_row() -> None:
    assert set(POLICY_OF) == set(Policies.DESCRIPTOR.fields_by_name)
    assert all(field.has_presence for field in Policies.DESCRIPTOR.fields)


@pytest.mark.parametrize("field", VALUES)
def test_a_policy_is_the_same_in_json_and_in_a_message(field: str) -> None:
    made = read(field)
    assert made.HasField(field)
    assert POLICY_OF[field].part.to_json(made) == VALUES[field]
    with pytest.raises(InvalidJson):
        POLICY_OF[field].part.fill(Policies(), 3.5, "the value")


def test_policies_of_stored_messages_have_no_effect_on_a_non_persistent_topic() -> None:
    """TOP-5: its administrator is warned."""
    policies = Policies(retention=Retention(), message_ttl_seconds=5, max_producers_per_topic=5)
    assert find_missing_effects(policies, Level.TOPIC) == []
    reason = "is stored, and not in effect: a non-persistent topic stores no messages"
    assert find_missing_effects(policies, Level.TOPIC, is_persistent=False) == [
        f"retention {reason}",
        f"messageTTL {reason}",
    ]


def test_a_quota_with_the_limit_of_the_other_type_is_reported() -> None:
    """TOP-4"""
    policies = Policies(
        backlog_quota_size=BacklogQuota(limit_size_bytes=-1, limit_time_seconds=5),
        backlog_quota_age=BacklogQuota(limit_size_bytes=5, limit_time_seconds=-1),
    )
    by_size, by_age = find_missing_effects(policies, Level.NAMESPACE)
    assert "give limit_size_bytes" in by_size
    assert "give limit_time_seconds" in by_age
    both = BacklogQuota(limit_size_bytes=5, limit_time_seconds=5)
    fitting = Policies(backlog_quota_size=both, backlog_quota_age=both)
    lifted = Policies(backlog_quota_size=BacklogQuota(limit_size_bytes=-1, limit_time_seconds=-1))
    assert find_missing_effects(fitting, Level.TOPIC) == find_missing_effects(lifted, Level.TOPIC) == []
