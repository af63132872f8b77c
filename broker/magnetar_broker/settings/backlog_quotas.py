"""Settings of backlog quotas. Names are Pulsar's."""

from __future__ import annotations

from typing import Literal, NamedTuple

from magnetar_wire.configuration import Configuration
from magnetar_wire.settings import MAX_COUNT, Subject, setting

__all__ = ["BacklogQuotaSettings", "Quota", "QuotaPolicy"]

QuotaPolicy = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]
_MAX_BYTES = 2**63 - 1


class Quota(NamedTuple):
    """How large, or how old, a topic's backlog may be, and what happens above that."""

    # Bytes, below 0: no limit; or seconds, 0 or below: no limit. As in Pulsar.
    limit: int
    policy: QuotaPolicy


class BacklogQuotaSettings(Configuration):
    backlog_quota_check_enabled: bool = setting(
        True,
        "Enforce backlog quotas: those of policies, and the defaults.",
        subject=Subject.RETENTION,
        named_by="Pulsar",
    )
    backlog_quota_check_interval_in_seconds: float = setting(
        5.0,
        "Interval, in seconds, at which the backlog of each topic is compared with its quotas. Pulsar's default: 60.",
        subject=Subject.RETENTION,
        gt=0,
        named_by="Pulsar",
    )
    backlog_quota_default_limit_bytes: int = setting(
        -1,
        "Bytes that the durable subscription of a topic that is furthest behind may have before "
        "backlog_quota_default_retention_policy acts. Below 0: no limit. The policy backlog_quota_size of a namespace "
        "or topic overrides it.",
        subject=Subject.RETENTION,
        ge=-1,
        le=_MAX_BYTES,
        named_by="Pulsar",
    )
    backlog_quota_default_limit_second: int = setting(
        -1,
        "Age in seconds that the oldest unacknowledged message of a topic may have before "
        "backlog_quota_default_retention_policy acts. 0 or below: no limit. The policy backlog_quota_age of a "
        "namespace or topic overrides it.",
        subject=Subject.RETENTION,
        unit="seconds",
        ge=-1,
        le=MAX_COUNT,
        named_by="Pulsar",
    )
    backlog_quota_default_retention_policy: QuotaPolicy = setting(
        "producer_request_hold",
        "What happens above a default quota. producer_request_hold: sends wait until the backlog has shrunk. "
        "producer_exception: sends fail. consumer_backlog_eviction: the oldest messages of the slowest subscriptions "
        "are skipped.",
        subject=Subject.RETENTION,
        named_by="Pulsar",
    )

    @property
    def size_quota(self) -> Quota:
        """The quota by size. A policy replaces it (catalog/policy_settings.py)."""
        return Quota(self.backlog_quota_default_limit_bytes, self.backlog_quota_default_retention_policy)

    @property
    def age_quota(self) -> Quota:
        """The quota by age. A policy replaces it (catalog/policy_settings.py)."""
        return Quota(self.backlog_quota_default_limit_second, self.backlog_quota_default_retention_policy)
