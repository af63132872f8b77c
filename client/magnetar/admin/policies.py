"""The values of single policies. `NamespacePolicies` and `TopicPolicies` in models.py have one field for each policy.

The values of choices, such as `policy` and `schema_compatibility`, are texts, spelled as in Pulsar's REST API.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "AutoSubscriptionCreation",
    "AutoTopicCreation",
    "BacklogQuota",
    "DelayedDelivery",
    "DispatchRate",
    "InactiveTopics",
    "Persistence",
    "PublishRate",
    "Retention",
    "SubscribeRate",
]


@dataclass(frozen=True, slots=True)
class Persistence:
    """On how many bookies entries are stored: a ledger is striped over `ensemble_size` bookies, `write_quorum` of
    them get an entry, and `ack_quorum` must have stored it before a message is persisted."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    # How often per second the position of a subscription is stored; 0 or less: as in the brokers' settings.
    max_mark_delete_rate: float = 0.0


@dataclass(frozen=True, slots=True)
class AutoTopicCreation:
    """Whether topics are created on first use, and with how many partitions; 0: not partitioned."""

    allowed: bool
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class AutoSubscriptionCreation:
    allowed: bool


@dataclass(frozen=True, slots=True)
class Retention:
    """How long acknowledged messages are retained. -1: no limit; both 0: they are not retained."""

    time_minutes: int
    size_mb: int


@dataclass(frozen=True, slots=True)
class BacklogQuota:
    """A limit of a subscription's backlog; -1: no limit."""

    # Above it: producer_request_hold, producer_exception or consumer_backlog_eviction.
    policy: str
    # Of `backlog_quota_size`.
    limit_size_bytes: int = -1
    # Of `backlog_quota_age`.
    limit_time_seconds: int = -1


@dataclass(frozen=True, slots=True)
class DelayedDelivery:
    active: bool
    tick_time_ms: int = 1000
    # 0: no limit.
    max_delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class InactiveTopics:
    """When topics that nobody uses are deleted."""

    delete_while_inactive: bool
    # delete_when_no_subscriptions or delete_when_subscriptions_caught_up.
    delete_mode: str
    max_inactive_seconds: int


@dataclass(frozen=True, slots=True)
class PublishRate:
    """A maximum rate of publishes; -1 or 0: no limit."""

    messages_per_s: int = -1
    bytes_per_s: int = -1


@dataclass(frozen=True, slots=True)
class DispatchRate:
    """A maximum rate of dispatches, per period; -1 or 0: no limit."""

    messages: int = -1
    bytes: int = -1
    period_seconds: int = 1
    # Both are added to the rate of publishing.
    relative_to_publish_rate: bool = False


@dataclass(frozen=True, slots=True)
class SubscribeRate:
    """A maximum rate of subscribe requests of a consumer, per period; -1 or 0: no limit."""

    per_consumer: int
    period_seconds: int = 30
