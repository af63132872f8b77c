"""The table of policies of namespaces and topics: their fields, their paths in Pulsar's REST API, and their effect.

A row is a field of `Policies` (catalog.proto). The routes of the calls on policies are made from the rows
(policy_routes.py), and so are the client's guide, the command line and the brokers' warnings. For example `retention`
has `_POST` at namespaces: GET, POST and DELETE of /admin/v2/namespaces/{tenant}/{namespace}/retention.

A change names the policies that it sets and removes, and other policies stay unchanged. So two administrators who
change different policies at once don't undo each other's change.

Where Pulsar has no DELETE for a policy, it is removed over gRPC only.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from magnetar_protos.catalog_pb2 import Policies
from magnetar_wire.admin.json.parts import Field, Part
from magnetar_wire.admin.json.policies import (
    AUTH_MODES,
    AUTO_SUBSCRIPTION_CREATION,
    DELAYED_DELIVERY,
    DISPATCH_RATE,
    INACTIVE_TOPICS,
    PERSISTENCE,
    PUBLISH_RATE,
    QUOTA,
    QUOTA_BY_AGE,
    QUOTA_BY_SIZE,
    RETENTION,
    SCHEMA_AUTO_UPDATE,
    SCHEMA_COMPATIBILITY,
    SUBSCRIBE_RATE,
    SUBSCRIPTION_TYPES,
    AutoTopicCreationPart,
)

__all__ = ["POLICIES", "POLICY_OF", "Level", "Policy", "PolicyPath", "find_missing_effects"]


class Level(enum.Enum):
    NAMESPACE = "namespace"
    TOPIC = "topic"

    @property
    def base(self) -> str:
        """The path of a namespace or topic; the request's field has the level's name."""
        return "/admin/v2/namespaces/{namespace}" if self is Level.NAMESPACE else "/admin/v2/{topic}"


@dataclass(frozen=True, slots=True)
class PolicyPath:
    """How a policy is read, set and removed at one level. A verb that is empty does not exist there."""

    # The last segment of the path; empty: the policy's `name`.
    name: str = ""
    setter: str = "POST"
    remover: str = "DELETE"
    # What GET answers if the policy is not set; None: no body, with the status `unset_status`.
    unset: Any = None
    unset_status: int = 200
    set_status: int = 204
    # The status if the value is invalid.
    invalid_status: int = 412
    # Whether a setter without a value, in the body or as the parameter, removes it.
    removed_without_body: bool = False
    # The query's parameter with the value, if that is not the body.
    parameter: str = ""
    # Set by a request without a body, to this value.
    value: Any = None


@dataclass(frozen=True, slots=True)
class Policy:
    # The field of `Policies`.
    field: str
    # Pulsar's name, which is the last segment of its paths.
    name: str
    # How it is written in JSON.
    part: Part
    # What it does, as in help texts.
    help: str
    # None: there is no such policy at this level.
    namespace: PolicyPath | None = None
    topic: PolicyPath | None = None
    # What is missing until it has an effect at these levels, as the subject of "… is not supported yet". Empty: it has.
    namespace_lacks: str = ""
    # None: the same as at namespaces.
    topic_lacks: str | None = None

    def path(self, level: Level) -> PolicyPath | None:
        return self.namespace if level is Level.NAMESPACE else self.topic

    def effect(self, level: Level) -> str:
        """Return what is missing until it has an effect; empty: it has an effect."""
        if level is Level.NAMESPACE or self.topic_lacks is None:
            return self.namespace_lacks
        return self.topic_lacks


_POST: Final = PolicyPath()
_PUT: Final = PolicyPath(setter="PUT")
# For these Pulsar takes a request without a body as a removal.
_NULLABLE: Final = PolicyPath(removed_without_body=True)
# Without a body if it is not set, and another status.
_UNSET_204: Final = PolicyPath(unset_status=204)


def _limited(field: str, name: str, help: str, topic: PolicyPath | None, namespace: PolicyPath = _POST) -> Policy:
    """Return the row of a limit that is one number, which topics have under another name."""
    return Policy(field, name, Field(field), help, namespace, topic)


# fmt: off
POLICIES: Final = (
    Policy(
        "persistence", "persistence", Field("persistence", of=PERSISTENCE),
        "On how many bookies ledgers and entries are stored.",
        PolicyPath(invalid_status=400), PolicyPath(invalid_status=400),
    ),
    Policy(
        "auto_topic_creation", "autoTopicCreation", AutoTopicCreationPart(),
        "Whether topics are created on first use, and with how many partitions.",
        _NULLABLE,
    ),
    Policy(
        "auto_subscription_creation", "autoSubscriptionCreation",
        Field("auto_subscription_creation", of=AUTO_SUBSCRIPTION_CREATION),
        "Whether subscriptions are created on first use.",
        _NULLABLE, _POST,
    ),
    Policy(
        "retention", "retention", Field("retention", of=RETENTION),
        "How long acknowledged messages are retained. Replaces default_retention_without_subscription_minutes.",
        PolicyPath(invalid_status=400, removed_without_body=True), PolicyPath(invalid_status=400),
    ),
    Policy(
        "message_ttl_seconds", "messageTTL", Field("message_ttl_seconds"),
        "Age at which messages expire, in seconds; 0: they do not expire.",
        _POST, PolicyPath(parameter="messageTTL", removed_without_body=True),
    ),
    Policy(
        "subscription_expiration_minutes", "subscriptionExpirationTime", Field("subscription_expiration_minutes"),
        "Minutes without consumers after which a subscription is deleted; 0: never.",
        _POST, None,
    ),
    Policy(
        QUOTA_BY_SIZE, "backlogQuota", Field(QUOTA_BY_SIZE, of=QUOTA),
        "Limit of a subscription's backlog in bytes, and what happens above it.",
        _POST, _POST,
    ),
    Policy(
        QUOTA_BY_AGE, "backlogQuota", Field(QUOTA_BY_AGE, of=QUOTA),
        "Limit of the age of a subscription's oldest message, and what happens above it.",
        _POST, _POST,
    ),
    Policy(
        "deduplication", "deduplication", Field("deduplication"),
        "Whether messages that a producer sends again are stored once.",
        _POST, PolicyPath("deduplicationEnabled"),
    ),
    Policy(
        "deduplication_snapshot_entries", "deduplicationSnapshotInterval", Field("deduplication_snapshot_entries"),
        "Entries between two snapshots of the producers' sequence ids.",
        PolicyPath(remover="", removed_without_body=True), _POST,
    ),
    Policy(
        "compaction_threshold_bytes", "compactionThreshold", Field("compaction_threshold_bytes"),
        "Bytes that are not compacted at which a compaction begins; 0: none begins.",
        _PUT, _POST, "compaction",
    ),
    Policy(
        "delayed_delivery", "delayedDelivery", Field("delayed_delivery", of=DELAYED_DELIVERY),
        "Whether producers may delay the delivery of a message, and for how long.",
        _NULLABLE, _POST, "delayed delivery",
    ),
    Policy(
        "inactive_topics", "inactiveTopicPolicies", Field("inactive_topics", of=INACTIVE_TOPICS),
        "When topics that nobody uses are deleted.",
        _NULLABLE, _POST,
    ),
    Policy(
        "publish_rate", "publishRate", Field("publish_rate", of=PUBLISH_RATE),
        "Maximum rate of publishes to a topic.",
        _NULLABLE, _UNSET_204,
    ),
    Policy(
        "dispatch_rate", "dispatchRate", Field("dispatch_rate", of=DISPATCH_RATE),
        "Maximum rate of dispatches of a topic.",
        _NULLABLE, _POST,
    ),
    Policy(
        "subscription_dispatch_rate", "subscriptionDispatchRate",
        Field("subscription_dispatch_rate", of=DISPATCH_RATE),
        "Maximum rate of dispatches of each subscription.",
        _NULLABLE, _POST,
    ),
    Policy(
        "replicator_dispatch_rate", "replicatorDispatchRate", Field("replicator_dispatch_rate", of=DISPATCH_RATE),
        "Maximum rate of replication to another cluster.",
        _NULLABLE, _POST, "geo-replication",
    ),
    Policy(
        "subscribe_rate", "subscribeRate", Field("subscribe_rate", of=SUBSCRIBE_RATE),
        "Maximum rate of subscribe requests of a consumer.",
        _NULLABLE, _POST,
    ),
    _limited(
        "max_producers_per_topic", "maxProducersPerTopic",
        "Maximum number of producers of a topic; 0: no limit.", PolicyPath("maxProducers"),
    ),
    _limited(
        "max_consumers_per_topic", "maxConsumersPerTopic",
        "Maximum number of consumers of a topic; 0: no limit.", PolicyPath("maxConsumers"),
    ),
    _limited(
        "max_consumers_per_subscription", "maxConsumersPerSubscription",
        "Maximum number of consumers of a subscription; 0: no limit.", _UNSET_204,
    ),
    _limited(
        "max_unacked_messages_per_consumer", "maxUnackedMessagesPerConsumer",
        "Maximum number of messages that a consumer has not acknowledged; 0: no limit.",
        PolicyPath("maxUnackedMessagesOnConsumer"),
    ),
    _limited(
        "max_unacked_messages_per_subscription", "maxUnackedMessagesPerSubscription",
        "Maximum number of messages that a subscription's consumers have not acknowledged; 0: no limit.",
        PolicyPath("maxUnackedMessagesOnSubscription"),
    ),
    _limited(
        "max_subscriptions_per_topic", "maxSubscriptionsPerTopic",
        "Maximum number of subscriptions of a topic; 0: no limit.", _UNSET_204,
    ),
    _limited(
        "max_topics_per_namespace", "maxTopicsPerNamespace",
        "Maximum number of topics of the namespace; 0: no limit.", None, PolicyPath(unset=0),
    ),
    Policy(
        "max_message_size_bytes", "maxMessageSize", Field("max_message_size_bytes"),
        "Maximum size of a message in bytes; 0: as in the brokers' settings.",
        None, _UNSET_204,
    ),
    Policy(
        "schema_compatibility", "schemaCompatibilityStrategy",
        Field("schema_compatibility", names=SCHEMA_COMPATIBILITY),
        "How a new schema has to fit the earlier ones.",
        PolicyPath(setter="PUT", remover="", unset="UNDEFINED"), _PUT,
    ),
    Policy(
        "schema_auto_update", "schemaAutoUpdateCompatibilityStrategy",
        Field("schema_auto_update", names=SCHEMA_AUTO_UPDATE),
        "An older form of the compatibility of schemas.",
        PolicyPath(setter="PUT", remover="", unset_status=204),
    ),
    Policy(
        "allow_schema_auto_update", "isAllowAutoUpdateSchema", Field("allow_schema_auto_update"),
        "Whether producers and consumers may add a new version of a schema.",
        PolicyPath(remover="", unset=True),
    ),
    Policy(
        "schema_validation_enforced", "schemaValidationEnforced", Field("schema_validation_enforced"),
        "Whether producers without a schema are refused at topics that have one.",
        PolicyPath(remover="", unset=False), PolicyPath(remover="", unset=False),
    ),
    Policy(
        "encryption_required", "encryptionRequired", Field("encryption_required"),
        "Whether messages that are not encrypted are refused.",
        PolicyPath(remover="", unset=False), None, "requiring encryption",
    ),
    Policy(
        "subscription_auth_mode", "subscriptionAuthMode", Field("subscription_auth_mode", names=AUTH_MODES),
        "Whether a subscription's name begins with the role of its consumers.",
        PolicyPath(remover="", unset="None"), None, "authorization",
    ),
    Policy(
        "subscription_types_enabled", "subscriptionTypesEnabled",
        Field("subscription_types_enabled", of=Field("types", names=SUBSCRIPTION_TYPES)),
        "Types of subscriptions that consumers may use; none: all.",
        PolicyPath(unset=[]), PolicyPath(unset=[]),
    ),
    Policy(
        "dispatcher_pause_on_ack_state", "dispatcherPauseOnAckStatePersistent",
        Field("dispatcher_pause_on_ack_state"),
        "Whether dispatch waits while positions of acknowledgements can't be stored.",
        PolicyPath(value=True, unset=False), PolicyPath(value=True, unset=False),
        "pausing dispatch by the state of acknowledgements",
    ),
    Policy(
        "replication_clusters", "replication", Field("replication_clusters", of=Field("names")),
        "Clusters that have the messages: this cluster.",
        PolicyPath(remover="", set_status=200, invalid_status=403), _POST,
    ),
    Policy(
        "allowed_clusters", "allowedClusters", Field("allowed_clusters", of=Field("names")),
        "Clusters that the namespace may be replicated to: this cluster.",
        PolicyPath(remover="", unset=[], set_status=200, invalid_status=403),
    ),
    # Its paths are those of the calls on properties: a change of one property keeps the others.
    Policy(
        "properties", "properties", Field("properties", of=Field("values")),
        "Properties: names and values of the application.",
        PolicyPath(setter="", remover=""),
    ),
)
# fmt: on

POLICY_OF: Final[Mapping[str, Policy]] = {policy.field: policy for policy in POLICIES}


# Policies about what is stored.
_OF_STORED_MESSAGES: Final = frozenset(
    {
        "persistence",
        "retention",
        "message_ttl_seconds",
        QUOTA_BY_SIZE,
        QUOTA_BY_AGE,
        "deduplication",
        "deduplication_snapshot_entries",
    }
)


def find_missing_effects(policies: Policies, level: Level, *, is_persistent: bool = True) -> list[str]:
    """Return a warning for each of the policies that has no effect: not yet, or not with this value, or not on a topic
    that is not persistent."""
    missing = [
        (POLICY_OF[field.name].name, POLICY_OF[field.name].effect(level))
        for field, _ in policies.ListFields()
        if field.name in POLICY_OF and POLICY_OF[field.name].effect(level)
    ]
    warnings = [f"{name} is stored, and not yet in effect: {feature} is not supported yet" for name, feature in missing]
    if not is_persistent:
        unused = [field.name for field, _ in policies.ListFields() if field.name in _OF_STORED_MESSAGES]
        reason = "a non-persistent topic stores no messages"
        warnings += [f"{POLICY_OF[one].name} is stored, and not in effect: {reason}" for one in unused]
        return list(dict.fromkeys(warnings))
    size, age = policies.backlog_quota_size, policies.backlog_quota_age
    if size.limit_size_bytes < 0 < size.limit_time_seconds:
        warnings.append(f"{QUOTA_BY_SIZE} does not limit the age of messages: give limit_size_bytes, or {QUOTA_BY_AGE}")
    if age.limit_time_seconds <= 0 < age.limit_size_bytes:
        warnings.append(f"{QUOTA_BY_AGE} does not limit bytes: give limit_time_seconds, or {QUOTA_BY_SIZE}")
    return warnings
