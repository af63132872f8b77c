"""How the values of policies are written in JSON, as in Pulsar's REST API.

Most are declared as an `Object`. Backlog quotas have two types, and the paths that set or remove one name the type in
their query: `QuotaType` and `RemovedQuota` read that, `OneQuota` the body.
"""

from __future__ import annotations

from typing import Any, Final

from magnetar_protos import catalog_pb2 as catalog
from magnetar_protos.broker_pb2 import SubscriptionType
from magnetar_wire.admin.json.parts import Field, Object, Part, Schema
from magnetar_wire.admin.json.values import InvalidJson, InvalidValue, format_value

__all__ = [
    "AUTH_MODES",
    "AUTO_SUBSCRIPTION_CREATION",
    "DELAYED_DELIVERY",
    "DISPATCH_RATE",
    "INACTIVE_TOPICS",
    "PERSISTENCE",
    "PUBLISH_RATE",
    "QUOTA",
    "QUOTA_BY_AGE",
    "QUOTA_BY_SIZE",
    "QUOTA_MAP",
    "RETENTION",
    "SCHEMA_AUTO_UPDATE",
    "SCHEMA_COMPATIBILITY",
    "SUBSCRIBE_RATE",
    "SUBSCRIPTION_TYPES",
    "AutoTopicCreationPart",
    "OneQuota",
    "QuotaType",
    "RemovedQuota",
]

_CREATION_SWITCH: Final = Object({"allowAutoTopicCreation": "allowed"}, required="allowAutoTopicCreation")


class AutoTopicCreationPart(Part):
    """Pulsar's AutoTopicCreationOverride."""

    fields = frozenset(["auto_topic_creation"])

    def to_json(self, message: Any) -> Any:
        if not message.HasField("auto_topic_creation"):
            return None
        value = message.auto_topic_creation
        shown: dict[str, Any] = {"allowAutoTopicCreation": value.allowed}
        if value.partitions:
            return shown | {"topicType": "partitioned", "defaultNumPartitions": value.partitions}
        return shown | {"topicType": "non-partitioned"} if value.allowed else shown

    def fill(self, message: Any, value: Any, where: str) -> None:
        made = catalog.AutoTopicCreation()
        _CREATION_SWITCH.fill(made, value, where)
        kind = value.get("topicType")
        count = value.get("defaultNumPartitions")
        if kind not in ("partitioned", "non-partitioned", None) or (kind is None and made.allowed):
            raise InvalidValue(f"{where}.topicType: {format_value(kind)} is neither partitioned nor non-partitioned")
        if count is not None and (isinstance(count, bool) or not isinstance(count, int)):
            raise InvalidJson(f"{where}.defaultNumPartitions: {format_value(count)} is not a whole number")
        if kind == "partitioned":
            if count is None or not 1 <= count < 2**31:
                raise InvalidValue(f"{where}.defaultNumPartitions is {count}: a partitioned topic has at least 1")
            made.partitions = count
        elif count:
            raise InvalidValue(f"{where}.defaultNumPartitions is {count}: only partitioned topics have partitions")
        message.auto_topic_creation.CopyFrom(made)

    def carries(self, message: Any) -> bool:
        return bool(message.auto_topic_creation.partitions < 2**31)

    def schema(self, descriptor: Any) -> Schema:
        return {
            "type": "object",
            "properties": {
                "allowAutoTopicCreation": {"type": "boolean"},
                "topicType": {"type": "string", "enum": ["partitioned", "non-partitioned"]},
                "defaultNumPartitions": {"type": "integer", "minimum": 1},
            },
            "required": ["allowAutoTopicCreation"],
        }


class BacklogQuotaPart(Part):
    """Pulsar's BacklogQuota. Older clients write `limit` instead of `limitSize`. Of both, the last one counts."""

    fields = frozenset(["limit_size_bytes", "limit_time_seconds", "policy"])
    _part = Object(
        {"limit": "limit_size_bytes", "limitSize": "limit_size_bytes", "limitTime": "limit_time_seconds"}
        | {"policy": Field("policy")},
        required="policy",
    )

    def to_json(self, message: Any) -> Any:
        return self._part.to_json(message)

    def fill(self, message: Any, value: Any, where: str) -> None:
        if isinstance(value, dict) and (sizes := [one for one in value if one in ("limit", "limitSize")]):
            value = value | dict.fromkeys(sizes, value[sizes[-1]])
        self._part.fill(message, value, where)

    def schema(self, descriptor: Any) -> Schema:
        return self._part.schema(descriptor)


QUOTA_BY_SIZE, QUOTA_BY_AGE = "backlog_quota_size", "backlog_quota_age"
_QUOTA_TYPES: Final = {"destination_storage": QUOTA_BY_SIZE, "message_age": QUOTA_BY_AGE}
QUOTA: Final = BacklogQuotaPart()
QUOTA_MAP: Final = Object({kind: Field(name, of=QUOTA) for kind, name in _QUOTA_TYPES.items()})


def _read_quota_type(value: Any, where: str) -> str:
    if value not in _QUOTA_TYPES:
        raise InvalidJson(f"{where}: {format_value(value)} is none of {', '.join(_QUOTA_TYPES)}")
    return _QUOTA_TYPES[value]


def _has_one(policies: Any) -> bool:
    return bool(policies.HasField(QUOTA_BY_SIZE)) is not bool(policies.HasField(QUOTA_BY_AGE))


class QuotaType(Part):
    """The query's parameter with the type of the quota in the body."""

    fields = frozenset([QUOTA_BY_SIZE, QUOTA_BY_AGE])

    def to_json(self, message: Any) -> Any:
        return next((kind for kind, name in _QUOTA_TYPES.items() if message.HasField(name)), None)

    def fill(self, message: Any, value: Any, where: str) -> None:
        getattr(message, _read_quota_type(value, where)).SetInParent()

    def schema(self, descriptor: Any) -> Schema:
        return {"type": "string", "enum": list(_QUOTA_TYPES)}

    def carries(self, message: Any) -> bool:
        return _has_one(message)


class OneQuota(Part):
    """The body: the quota whose type `QuotaType` has read."""

    fields = frozenset([QUOTA_BY_SIZE, QUOTA_BY_AGE])

    def to_json(self, message: Any) -> Any:
        return next(
            (QUOTA.to_json(getattr(message, one)) for one in (QUOTA_BY_SIZE, QUOTA_BY_AGE) if message.HasField(one)),
            None,
        )

    def fill(self, message: Any, value: Any, where: str) -> None:
        QUOTA.fill(
            message.backlog_quota_age if message.HasField(QUOTA_BY_AGE) else message.backlog_quota_size, value, where
        )

    def schema(self, descriptor: Any) -> Schema:
        return QUOTA.schema(descriptor.fields_by_name[QUOTA_BY_SIZE].message_type)

    def carries(self, message: Any) -> bool:
        return _has_one(message)


class RemovedQuota(Part):
    """The query's parameter with the type of the quota that is removed."""

    fields = frozenset(["remove"])

    def to_json(self, message: Any) -> Any:
        return next((kind for kind, name in _QUOTA_TYPES.items() if list(message.remove) == [name]), None)

    def fill(self, message: Any, value: Any, where: str) -> None:
        message.remove.append(_read_quota_type(value, where))

    def schema(self, descriptor: Any) -> Schema:
        return {"type": "string", "enum": list(_QUOTA_TYPES)}

    def carries(self, message: Any) -> bool:
        return self.to_json(message) is not None


AUTO_SUBSCRIPTION_CREATION: Final = Object({"allowAutoSubscriptionCreation": "allowed"})
RETENTION: Final = Object({"retentionTimeInMinutes": "time_minutes", "retentionSizeInMB": "size_mb"})
PERSISTENCE: Final = Object(
    {
        "bookkeeperEnsemble": "ensemble_size",
        "bookkeeperWriteQuorum": "write_quorum",
        "bookkeeperAckQuorum": "ack_quorum",
        "managedLedgerMaxMarkDeleteRate": "max_mark_delete_rate",
    }
)
DISPATCH_RATE: Final = Object(
    {
        "dispatchThrottlingRateInMsg": "messages",
        "dispatchThrottlingRateInByte": "bytes",
        "relativeToPublishRate": "relative_to_publish_rate",
        "ratePeriodInSecond": "period_seconds",
    },
)
# What is missing in these two has Pulsar's defaults. In its other policies it is 0.
PUBLISH_RATE: Final = Object(
    {"publishThrottlingRateInMsg": "messages_per_s", "publishThrottlingRateInByte": "bytes_per_s"},
    defaults={"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": -1},
)
SUBSCRIBE_RATE: Final = Object(
    {"subscribeThrottlingRatePerConsumer": "per_consumer", "ratePeriodInSecond": "period_seconds"},
    defaults={"subscribeThrottlingRatePerConsumer": -1, "ratePeriodInSecond": 30},
)
DELAYED_DELIVERY: Final = Object(
    {"tickTime": "tick_time_ms", "active": "active", "maxDeliveryDelayInMillis": "max_delay_ms"},
)
INACTIVE_TOPICS: Final = Object(
    {
        "inactiveTopicDeleteMode": Field("delete_mode"),
        "maxInactiveDurationSeconds": "max_inactive_seconds",
        "deleteWhileInactive": "delete_while_inactive",
    }
)
SCHEMA_COMPATIBILITY: Final = {one.name: one.number for one in catalog.SchemaCompatibility.DESCRIPTOR.values}
SCHEMA_AUTO_UPDATE: Final = {
    "AutoUpdateDisabled": catalog.SchemaAutoUpdate.AUTO_UPDATE_DISABLED,
    "Backward": catalog.SchemaAutoUpdate.AUTO_UPDATE_BACKWARD,
    "Forward": catalog.SchemaAutoUpdate.AUTO_UPDATE_FORWARD,
    "Full": catalog.SchemaAutoUpdate.AUTO_UPDATE_FULL,
    "AlwaysCompatible": catalog.SchemaAutoUpdate.AUTO_UPDATE_ALWAYS_COMPATIBLE,
    "BackwardTransitive": catalog.SchemaAutoUpdate.AUTO_UPDATE_BACKWARD_TRANSITIVE,
    "ForwardTransitive": catalog.SchemaAutoUpdate.AUTO_UPDATE_FORWARD_TRANSITIVE,
    "FullTransitive": catalog.SchemaAutoUpdate.AUTO_UPDATE_FULL_TRANSITIVE,
}
AUTH_MODES: Final = {
    "None": catalog.SubscriptionAuthMode.AUTH_MODE_NONE,
    "Prefix": catalog.SubscriptionAuthMode.AUTH_MODE_PREFIX,
}
SUBSCRIPTION_TYPES: Final = {
    "Exclusive": SubscriptionType.EXCLUSIVE,
    "Shared": SubscriptionType.SHARED,
    "Failover": SubscriptionType.FAILOVER,
    "Key_Shared": SubscriptionType.KEY_SHARED,
}
