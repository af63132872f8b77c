"""Rules about the policies of namespaces and topics: which values are valid, and how a change is applied.

Values are checked also for policies that have no effect yet, so that what is stored is valid when they get one. What is
stored already is not checked again when another policy changes: a setting may have been lowered since.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from magnetar_broker.errors import BrokerError
from magnetar_protos.broker_pb2 import ErrorCode
from magnetar_protos.catalog_pb2 import BacklogQuota, Policies, Retention
from magnetar_wire.admin.policies import POLICY_OF, Level

__all__ = ["PolicyLimits", "change_policies", "check_policies", "find_unmet_policies", "select_policies"]

_MAX_ENSEMBLE: Final = 100
# Of all policies of a namespace or topic: they are in a node of the metadata store, with other things.
_MAX_BYTES: Final = 262_144


@dataclass(frozen=True, slots=True)
class PolicyLimits:
    """What the policies of a cluster have to fit."""

    max_partitions: int
    max_message_bytes: int
    cluster: str


def check_policies(policies: Policies, limits: PolicyLimits, level: Level = Level.NAMESPACE) -> None:
    """Raise `BrokerError` for invalid policies."""
    for field, value in policies.ListFields():
        policy = POLICY_OF[field.name]
        if policy.path(level) is None:
            raise _invalid(f"{policy.name} is no policy of a {level.value}")
        try:
            _check_enums(policy.name, policies, field)
            check = _CHECKS.get(field.name)
            if check is not None:
                check(policy.name, value, limits)
            elif field.message_type is None:
                name = policy.name if policy.name == field.name else f"{field.name} ({policy.name})"
                _check_not_negative(name, int(value))
        except BrokerError as error:
            error.about = field.name
            raise
    _check_together(policies)
    if policies.ByteSize() > _MAX_BYTES:
        raise _invalid(f"the policies have {policies.ByteSize():,} bytes: use at most {_MAX_BYTES:,}")


def change_policies(
    policies: Policies, new: Policies, removed: Iterable[str], limits: PolicyLimits, level: Level = Level.NAMESPACE
) -> None:
    """Set the policies in `new`, remove those in `removed`, and leave the others as they are. Raises `BrokerError`."""
    check_policies(new, limits, level)
    for name in removed:
        policy = POLICY_OF.get(name)
        if policy is None or policy.path(level) is None:
            raise _invalid(f"{name!r:.100} can't be removed: a {level.value} has no such policy")
        if new.HasField(name):
            raise _invalid(f"{name} is both set and removed")
        policies.ClearField(name)
    for field, _ in new.ListFields():
        policies.ClearField(field.name)
    policies.MergeFrom(new)
    _check_together(policies)
    if policies.ByteSize() > _MAX_BYTES:
        raise _invalid(f"the policies have {policies.ByteSize():,} bytes: use at most {_MAX_BYTES:,}")


def select_policies(policies: Policies, only: Sequence[str], cluster: str) -> Policies:
    """Return the policies of these fields; none: all of them. If `only` names
    `replication_clusters`, and they are not set, they are the brokers' own cluster."""
    selected = Policies()
    selected.CopyFrom(policies)
    for field, _ in policies.ListFields():
        if only and field.name not in only:
            selected.ClearField(field.name)
    if "replication_clusters" in only and not selected.HasField("replication_clusters"):
        selected.replication_clusters.names.append(cluster)
    return selected


def _check_persistence(name: str, value: Any, limits: PolicyLimits) -> None:
    ensemble, write, ack = value.ensemble_size, value.write_quorum, value.ack_quorum
    if not _MAX_ENSEMBLE >= ensemble >= write >= ack >= 1:
        raise _invalid(
            f"persistence: an ensemble of {ensemble}, a write quorum of {write} and an ack quorum of {ack} are "
            f"invalid: use {_MAX_ENSEMBLE} >= ensemble >= write quorum >= ack quorum >= 1"
        )
    rate = value.max_mark_delete_rate
    if not math.isfinite(rate):
        raise _invalid(f"persistence: {rate} is no rate of stored positions per second: use a number")


def _check_auto_topic_creation(name: str, value: Any, limits: PolicyLimits) -> None:
    if value.partitions > limits.max_partitions:
        raise _invalid(
            f"auto_topic_creation: {value.partitions:,} partitions are above the limit of {limits.max_partitions:,} "
            "(max_num_partitions_per_partitioned_topic)"
        )


def _check_retention(name: str, value: Retention, limits: PolicyLimits) -> None:
    time, size = value.time_minutes, value.size_mb
    if time < -1 or size < -1:
        raise _invalid(f"retention: {time} minutes and {size} MB: use 0 or more, or -1 for no limit")
    if (time == 0) is not (size == 0):
        raise _invalid(
            f"retention: {time} minutes and {size} MB: nothing is retained if one of them is 0, so use -1 for no "
            "limit, or 0 for both"
        )


def _check_quota(name: str, value: BacklogQuota, limits: PolicyLimits) -> None:
    if value.limit_size_bytes < -1 or value.limit_time_seconds < -1:
        raise _invalid(
            f"{name}: {value.limit_size_bytes:,} bytes and {value.limit_time_seconds:,} seconds: use 0 or more, or -1 "
            "for no limit"
        )


def _check_delayed_delivery(name: str, value: Any, limits: PolicyLimits) -> None:
    if value.tick_time_ms < 0 or value.max_delay_ms < 0:
        raise _invalid(f"{name}: {value.tick_time_ms} ms and {value.max_delay_ms} ms: use 0 or more")


def _check_inactive_topics(name: str, value: Any, limits: PolicyLimits) -> None:
    if value.max_inactive_seconds < 0:
        raise _invalid(f"{name}: topics can't be deleted after {value.max_inactive_seconds} seconds: use 0 or more")


def _check_rate(name: str, value: Any, limits: PolicyLimits) -> None:
    for field, number in value.ListFields():
        if field.name == "period_seconds":
            if number < 0:
                raise _invalid(f"{name}: a period of {number} seconds: use 0 or more")
        elif number < -1:
            raise _invalid(f"{name}: {field.name} = {number:,}: use 1 or more, or -1 or 0 for no limit")


def _check_message_size(name: str, value: int, limits: PolicyLimits) -> None:
    if not 0 <= value <= limits.max_message_bytes:
        raise _invalid(f"{name}: {value:,} bytes: use 0 … {limits.max_message_bytes:,}, the brokers' max_message_size")


def _check_replication(name: str, value: Any, limits: PolicyLimits) -> None:
    if not value.names or "global" in value.names:
        text = f"{name}: {', '.join(value.names)[:100] or 'no cluster'}: name {limits.cluster}, the brokers' own"
        raise BrokerError(ErrorCode.NOT_ALLOWED, text)
    _check_clusters(name, value, limits)


def _check_clusters(name: str, value: Any, limits: PolicyLimits) -> None:
    for cluster in value.names:
        if cluster != limits.cluster:
            raise _invalid(
                f"{name}: {cluster!r:.100} is not {limits.cluster}, the brokers' own cluster: geo-replication is not "
                "supported yet"
            )


def _check_not_negative(name: str, value: int) -> None:
    if value < 0:
        raise _invalid(f"{name}: {value:,} is below 0: use 0 or more")


def _check_enums(name: str, owner: Message, field: Any) -> None:
    """Raise `BrokerError` if an enumeration has a number that this broker does not know."""
    value = getattr(owner, field.name)
    if field.message_type is not None and not field.is_repeated:
        for inner, _ in value.ListFields():
            _check_enums(name, value, inner)
    elif field.enum_type is not None:
        for number in value if field.is_repeated else [value]:
            if number not in field.enum_type.values_by_number:
                raise _invalid(f"{name}: {field.name} = {number} is unknown")


def _check_together(policies: Policies) -> None:
    """Raise `BrokerError` if messages would leave the retention before a backlog quota is exceeded."""
    size, seconds = policies.backlog_quota_size.limit_size_bytes, policies.backlog_quota_age.limit_time_seconds
    retained = policies.retention.size_mb
    if policies.HasField("backlog_quota_size") and 0 < retained * 1024 * 1024 <= size:
        raise _conflict(f"a backlog quota of {size:,} bytes", f"{retained:,} MB")
    retained = policies.retention.time_minutes
    if policies.HasField("backlog_quota_age") and 0 < retained * 60 <= seconds:
        raise _conflict(f"a backlog quota of {seconds:,} seconds", f"{retained:,} minutes")


def _conflict(quota: str, retention: str) -> BrokerError:
    return BrokerError(
        ErrorCode.NOT_ALLOWED,
        f"{quota} is not below the retention of {retention}: raise the retention, or lower the quota",
    )


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_ARGUMENT, text)


_CHECKS: Final[Mapping[str, Callable[[str, Any, PolicyLimits], None]]] = {
    "persistence": _check_persistence,
    "auto_topic_creation": _check_auto_topic_creation,
    "retention": _check_retention,
    "backlog_quota_size": _check_quota,
    "backlog_quota_age": _check_quota,
    "delayed_delivery": _check_delayed_delivery,
    "inactive_topics": _check_inactive_topics,
    "publish_rate": _check_rate,
    "dispatch_rate": _check_rate,
    "subscription_dispatch_rate": _check_rate,
    "replicator_dispatch_rate": _check_rate,
    "subscribe_rate": _check_rate,
    "max_message_size_bytes": _check_message_size,
    "replication_clusters": _check_replication,
    "allowed_clusters": _check_clusters,
}


def find_unmet_policies(namespace: str, policies: Policies, writable: int, registered: int) -> list[str]:
    """Return warnings about policies that the bookies can't meet now: `writable` of those `registered` take ledgers."""
    if not policies.HasField("persistence"):
        return []
    persistence = policies.persistence
    available = f"{writable} of {registered} registered bookies accept a new ledger"
    if writable < persistence.ack_quorum:
        return [
            f"namespace {namespace}: its persistence policy can't be met now: {available}, and the ack quorum "
            f"needs {persistence.ack_quorum} (the ensemble {persistence.ensemble_size}). Messages to its "
            "topics are not stored until more bookies are registered or the policy is changed"
        ]
    if writable < persistence.ensemble_size:
        return [
            f"namespace {namespace}: its persistence policy can't be met in full now: {available}, and the "
            f"ensemble needs {persistence.ensemble_size} (the write quorum {persistence.write_quorum}). New "
            f"ledgers are created on {writable} bookies until more are registered or the policy is changed"
        ]
    return []
