"""All of a namespace in JSON: Pulsar's `Policies` with the bundles, in the request that creates it and in answers.

What Pulsar always shows has a default here, which is written if the policy is not set, and not read from an answer: so
a policy that is not set is the same over HTTP as over gRPC. Rates are written by the name of the cluster.
"""

from __future__ import annotations

from typing import Any, Final

from magnetar_wire.admin.json.parts import Field, Part, Schema
from magnetar_wire.admin.json.policies import QUOTA_MAP
from magnetar_wire.admin.json.values import InvalidJson, UnsupportedValue, format_value
from magnetar_wire.admin.policies import POLICY_OF

__all__ = ["BUNDLES_DATA", "NamespaceJson"]

# The names of policies in JSON.
_NAMES: Final = {
    "replication_clusters": "replication_clusters",
    "allowed_clusters": "allowed_clusters",
    "persistence": "persistence",
    "deduplication": "deduplicationEnabled",
    "auto_topic_creation": "autoTopicCreationOverride",
    "auto_subscription_creation": "autoSubscriptionCreationOverride",
    "message_ttl_seconds": "message_ttl_in_seconds",
    "subscription_expiration_minutes": "subscription_expiration_time_minutes",
    "retention": "retention_policies",
    "encryption_required": "encryption_required",
    "delayed_delivery": "delayed_delivery_policies",
    "inactive_topics": "inactive_topic_policies",
    "subscription_auth_mode": "subscription_auth_mode",
    "max_producers_per_topic": "max_producers_per_topic",
    "max_consumers_per_topic": "max_consumers_per_topic",
    "max_consumers_per_subscription": "max_consumers_per_subscription",
    "max_unacked_messages_per_consumer": "max_unacked_messages_per_consumer",
    "max_unacked_messages_per_subscription": "max_unacked_messages_per_subscription",
    "max_subscriptions_per_topic": "max_subscriptions_per_topic",
    "max_topics_per_namespace": "max_topics_per_namespace",
    "compaction_threshold_bytes": "compaction_threshold",
    "schema_auto_update": "schema_auto_update_compatibility_strategy",
    "schema_compatibility": "schema_compatibility_strategy",
    "allow_schema_auto_update": "is_allow_auto_update_schema",
    "schema_validation_enforced": "schema_validation_enforced",
    "deduplication_snapshot_entries": "deduplicationSnapshotIntervalSeconds",
    "subscription_types_enabled": "subscription_types_enabled",
    "properties": "properties",
    "dispatcher_pause_on_ack_state": "dispatcherPauseOnAckStatePersistentEnabled",
}
_BY_CLUSTER: Final = {
    "dispatch_rate": "topicDispatchRate",
    "subscription_dispatch_rate": "subscriptionDispatchRate",
    "replicator_dispatch_rate": "replicatorDispatchRate",
    "subscribe_rate": "clusterSubscribeRate",
    "publish_rate": "publishMaxMessageRate",
}
# Pulsar shows the same as topicDispatchRate.
_OLD_DISPATCH_RATE: Final = "clusterDispatchRate"
_QUOTAS: Final = "backlog_quota_map"
_CARRIED: Final = frozenset({*_NAMES, "backlog_quota_size", "backlog_quota_age"})
_DEFAULTS: Final[dict[str, Any]] = {
    "allowed_clusters": [],
    _QUOTAS: {},
    "encryption_required": False,
    "subscription_auth_mode": "None",
    "schema_compatibility_strategy": "UNDEFINED",
    "is_allow_auto_update_schema": True,
    "schema_validation_enforced": False,
    "subscription_types_enabled": [],
    "properties": {},
}
_NO_PERMISSIONS: Final[dict[str, Any]] = {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}}
# What Pulsar shows, and a namespace can't have yet: its value, and what is missing for another one.
_CONSTANTS: Final[dict[str, tuple[Any, str]]] = {
    "auth_policies": (_NO_PERMISSIONS, "authorization"),
    "latency_stats_sample_rate": ({}, "sampling latencies"),
    "deleted": (False, "creating a deleted namespace"),
    "offload_threshold": (-1, "offload"),
    "offload_threshold_in_seconds": (-1, "offload"),
    "migrated": (False, "migration of clusters"),
}
_ABSENT: Final = {
    "offload_policies": "offload",
    "offload_deletion_lag_ms": "offload",
    "entryFilters": "filtering entries",
    "resource_group_name": "limiting resources by groups",
    "antiAffinityGroup": "anti-affinity",
}


class BundlesData(Part):
    """Pulsar's BundlesData: the boundaries of the bundles, and their number."""

    fields = frozenset(["boundaries", "bundles"])

    def to_json(self, message: Any) -> Any:
        if message.boundaries:
            return {"boundaries": list(message.boundaries), "numBundles": len(message.boundaries) - 1}
        count = getattr(message, "bundles", 0)
        return {"numBundles": count} if count else None

    def fill(self, message: Any, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise InvalidJson(f"{where}: {format_value(value)} is not an object")
        if value.get("boundaries") or "bundles" not in message.DESCRIPTOR.fields_by_name:
            Field("boundaries").fill(message, value.get("boundaries") or [], f"{where}.boundaries")
            return
        count = value.get("numBundles")
        # Tools of Pulsar write a number below 1 for the brokers' default.
        is_default = isinstance(count, int) and not isinstance(count, bool) and count <= 0
        if count is not None and not is_default:
            Field("bundles").fill(message, count, f"{where}.numBundles")

    def schema(self, descriptor: Any) -> Schema:
        boundaries = {"type": "array", "items": {"type": "string"}}
        return {"type": "object", "properties": {"boundaries": boundaries, "numBundles": {"type": "integer"}}}


BUNDLES_DATA: Final = BundlesData()


class NamespaceJson(Part):
    """A namespace: of a request its policies and bundles, of an answer also the cluster that rates belong to."""

    fields = frozenset(["policies", "boundaries", "bundles", "cluster"])

    def to_json(self, message: Any) -> Any:
        policies, cluster = message.policies, getattr(message, "cluster", "")
        shown: dict[str, Any] = {}
        for field, name in _NAMES.items():
            value = POLICY_OF[field].part.to_json(policies)
            if value is not None:
                shown[name] = value
        if quotas := QUOTA_MAP.to_json(policies):
            shown[_QUOTAS] = quotas
        if bundles := BUNDLES_DATA.to_json(message):
            shown["bundles"] = bundles
        if not cluster:
            # Policies that are all absent are not the same as no policies.
            is_empty = message.HasField("policies") and not shown.keys() - {"bundles"}
            return (shown | {"deleted": False} if is_empty else shown) or None
        for field, name in _BY_CLUSTER.items():
            value = POLICY_OF[field].part.to_json(policies)
            shown[name] = {} if value is None else {cluster: value}
        shown[_OLD_DISPATCH_RATE] = shown["topicDispatchRate"]
        defaults = _DEFAULTS | {"replication_clusters": [cluster]}
        return defaults | shown | {name: value for name, (value, _) in _CONSTANTS.items()}

    def fill(self, message: Any, value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise InvalidJson(f"{where}: {format_value(value)} is not an object")
        is_answer = "cluster" in message.DESCRIPTOR.fields_by_name
        if not is_answer:
            _refuse_unsupported(value, where)
            if not value.get("bundles") and {"numBundles", "boundaries"} & set(value):
                BUNDLES_DATA.fill(message, value, where)
        if value.get("bundles") is not None:
            BUNDLES_DATA.fill(message, value["bundles"], f"{where}.bundles")
        if set(value) - {"bundles", "numBundles", "boundaries"}:
            message.policies.SetInParent()
        for field, name in _NAMES.items():
            one = value.get(name)
            if one is None or (is_answer and _is_default(field, name, one)):
                continue
            # A request without clusters is for the brokers' own.
            if field != "replication_clusters" or one != []:
                POLICY_OF[field].part.fill(message.policies, one, f"{where}.{name}")
        if value.get(_QUOTAS) is not None:
            QUOTA_MAP.fill(message.policies, value[_QUOTAS], f"{where}.{_QUOTAS}")
        if not value.get("topicDispatchRate"):
            _read_rate(message, "dispatch_rate", value.get(_OLD_DISPATCH_RATE), f"{where}.{_OLD_DISPATCH_RATE}")
        for field, name in _BY_CLUSTER.items():
            _read_rate(message, field, value.get(name), f"{where}.{name}")

    def schema(self, descriptor: Any) -> Schema:
        policies = descriptor.fields_by_name["policies"].message_type
        made = {name: POLICY_OF[field].part.schema(policies) for field, name in _NAMES.items()}
        for field, name in _BY_CLUSTER.items():
            made[name] = {"type": "object", "additionalProperties": POLICY_OF[field].part.schema(policies)}
        made[_QUOTAS] = QUOTA_MAP.schema(policies)
        return {"type": "object", "properties": made | {"bundles": BUNDLES_DATA.schema(descriptor)}}

    def carries(self, message: Any) -> bool:
        """A request does not know the name of the cluster."""
        if message.boundaries and message.bundles:
            return False
        given = {field.name for field, _ in message.policies.ListFields()}
        return given <= _CARRIED and all(POLICY_OF[field].part.carries(message.policies) for field in given)


def _is_default(field: str, name: str, value: Any) -> bool:
    """Whether an answer may have the value because the policy is not set."""
    is_own = field == "replication_clusters" and isinstance(value, list) and len(value) == 1
    return is_own or (name in _DEFAULTS and value == _DEFAULTS[name])


def _read_rate(message: Any, field: str, value: Any, where: str) -> None:
    if not value:
        return
    if not isinstance(value, dict):
        raise InvalidJson(f"{where}: {format_value(value)} is not an object")
    if len(value) > 1:
        raise UnsupportedValue(f"{where}: there are {len(value)} clusters: geo-replication is not supported yet")
    ((cluster, rate),) = value.items()
    if rate is not None:
        POLICY_OF[field].part.fill(message.policies, rate, f"{where}.{cluster}")


def _refuse_unsupported(value: dict[str, Any], where: str) -> None:
    """Raise `UnsupportedValue` for what a namespace would not do."""
    for name, (constant, missing) in _CONSTANTS.items():
        one = value.get(name)
        if one is not None and one != constant and (not isinstance(one, dict) or any(one.values())):
            raise UnsupportedValue(f"{where}.{name}: {missing} is not supported yet")
    for name, missing in _ABSENT.items():
        if value.get(name) is not None:
            raise UnsupportedValue(f"{where}.{name}: {missing} is not supported yet")
