"""The metrics of topics and subscriptions: each has its own series up to a limit, the others are summed by namespace.

Names and labels are those of Pulsar if it has the metric, so that its dashboards and alerts work. The sums have an
empty label `topic`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client.core import Metric

from magnetar_broker.counters import ThrottleCounts
from magnetar_broker.topics.backlog_quota_rules import QuotaKind
from magnetar_broker.topics.topic import Topic
from magnetar_wire.process.metric_families import MetricFamilies

__all__ = ["TopicMetrics", "Totals"]

_FAMILIES: Final = MetricFamilies("pulsar_")
# Topics that are read before other tasks run.
_TOPICS_PER_TURN: Final = 50
_LABELS: Final = ("cluster", "namespace", "topic")

# Each with its name, its description, and whether it is a counter.
_TOPIC_METRICS: Final = (
    ("producers_count", "Connected producers.", False),
    ("subscriptions_count", "Subscriptions.", False),
    ("consumers_count", "Connected consumers.", False),
    ("rate_in", "Messages published per second.", False),
    ("throughput_in", "Bytes published per second.", False),
    ("rate_out", "Messages delivered per second.", False),
    ("throughput_out", "Bytes delivered per second.", False),
    ("in_messages_total", "Messages published.", True),
    ("in_bytes_total", "Bytes published.", True),
    ("out_messages_total", "Messages delivered.", True),
    ("out_bytes_total", "Bytes delivered.", True),
    ("storage_size", "Bytes in the topic's ledgers.", False),
    ("storage_entries", "Entries in the topic's ledgers.", False),
    ("storage_backlog_size", "Bytes that the subscription furthest behind has not acknowledged.", False),
    ("storage_backlog_quota_limit", "The backlog quota in bytes; below 0: none.", False),
    ("storage_backlog_quota_limit_time", "The backlog quota in seconds; below 0: none.", False),
    ("storage_backlog_age_seconds", "Age of the oldest message of the backlog; -1: unknown, without a quota.", False),
    ("msg_backlog", "Entries that subscriptions have not acknowledged.", False),
    ("publish_refused_entries_total", "Published entries refused: invalid, too large or unsupported.", True),
    ("publish_failed_entries_total", "Entries accepted, but not stored; clients resend them.", True),
    ("publish_duplicate_entries_total", "Published entries not stored, because they were stored before.", True),
    ("lost_entries", "Entries found lost on all bookies since the topic was loaded (lower bound).", False),
    ("pending_publish_bytes", "Memory of published entries that are not stored yet, in bytes.", False),
    ("publish_waiting", "1: publishes wait; the topic's stats show the reason.", False),
    ("publish_rate_limit_times", "How often a producer waited because a publish rate was reached.", True),
)
_SUBSCRIPTION_METRICS: Final = (
    ("subscription_back_log", "Entries that are not acknowledged.", False),
    ("subscription_unacked_messages", "Messages delivered and not acknowledged.", False),
    ("subscription_redelivery_entries", "Entries waiting for redelivery, or for the consumers of their keys.", False),
    ("subscription_consumers_count", "Connected consumers.", False),
    ("subscription_blocked", "1: entries of the backlog can't be delivered; the topic's stats show the reason.", False),
    ("subscription_damaged", "1: the cursor is damaged: reset or delete the subscription.", False),
    ("subscription_msg_rate_out", "Messages delivered per second.", False),
    ("subscription_msg_throughput_out", "Bytes delivered per second.", False),
    ("subscription_redelivered_messages", "Messages redelivered.", False),
    ("subscription_acked_entries", "Entries acknowledged.", False),
    ("subscription_msg_rate_expired", "Entries expired per second.", False),
    ("subscription_total_msg_expired", "Entries expired since the topic was loaded.", False),
    ("subscription_last_expire_timestamp", "When entries expired last, in ms since 1970; 0: never.", False),
    ("subscription_msg_drop_rate", "Messages of a non-persistent topic dropped per second.", False),
    ("subscription_dropped_messages", "Messages of a non-persistent topic that no consumer could take.", False),
)


@dataclass(slots=True)
class Totals:
    """Sums over all topics."""

    topics: int = 0
    producers: int = 0
    subscriptions: int = 0
    consumers: int = 0
    storage_bytes: int = 0
    backlog_entries: int = 0
    waiting: int = 0
    blocked: int = 0
    damaged: int = 0


@dataclass(slots=True)
class TopicMetrics:
    cluster: str
    # The maximum number of topics with series of their own.
    max_topics: int
    totals: Totals = field(default_factory=Totals)
    _by_topic: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    _by_subscription: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    _throttled: dict[tuple[str, str, str], ThrottleCounts] = field(default_factory=dict)
    # By namespace, topic and kind of the quota.
    _evictions: dict[tuple[str, str, str], int] = field(default_factory=dict)

    async def gather(self, topics: Sequence[Topic]) -> None:
        for number, topic in enumerate(topics, 1):
            self._read(topic)
            if number % _TOPICS_PER_TURN == 0:
                await asyncio.sleep(0)

    def list_families(self) -> list[Metric]:
        """Return what was gathered. Reads no topic, so it may run in a thread."""
        labels = list(_LABELS)
        families = [_family(*one, labels) for one in _TOPIC_METRICS]
        for (namespace, topic), values in self._by_topic.items():
            for family, value in zip(families, values, strict=True):
                family.add_metric([self.cluster, namespace, topic], value)
        subscription_families = [_family(*one, [*labels, "subscription"]) for one in _SUBSCRIPTION_METRICS]
        for (namespace, topic, subscription), values in self._by_subscription.items():
            for family, value in zip(subscription_families, values, strict=True):
                family.add_metric([self.cluster, namespace, topic, subscription], value)
        evictions = _family(
            "storage_backlog_quota_exceeded_evictions_total",
            "Evictions of messages because a backlog quota was reached.",
            True,
            [*labels, "quota_type"],
        )
        for (namespace, topic, kind), count in self._evictions.items():
            evictions.add_metric([self.cluster, namespace, topic, kind], count)
        return [*families, *subscription_families, evictions, *self._list_throttled(labels)]

    def _list_throttled(self, labels: Sequence[str]) -> list[Metric]:
        """Return how often dispatches waited for a rate."""
        families = [
            _family(
                f"subscription_dispatch_throttled_{unit}_events",
                f"How often a dispatch waited because a rate was reached, in {unit}.",
                True,
                [*labels, "subscription", "reason"],
            )
            for unit in ("msg", "bytes")
        ]
        for (namespace, topic, subscription), counts in self._throttled.items():
            for family, by_level in zip(families, (counts.messages, counts.bytes), strict=True):
                for level, count in zip(("subscription", "topic", "broker"), by_level, strict=True):
                    family.add_metric([self.cluster, namespace, topic, subscription, level], count)
        return families

    def _read(self, topic: Topic) -> None:
        totals = self.totals
        totals.topics += 1
        own = totals.topics <= self.max_topics
        namespace, name = str(topic.name.namespace_name), str(topic.name) if own else ""
        subscriptions, log, received = topic.subscriptions.stats(), topic.log.stats(), topic.counters.received
        sent = topic.subscriptions.deliveries.delivered
        consumers = backlog = 0
        for one in subscriptions:
            delivered = one.counters.delivered
            consumers += len(one.consumers)
            backlog += one.backlog_entries
            totals.blocked += one.is_blocked
            totals.damaged += one.damaged
            if own:
                if any(one.counters.throttled.messages) or any(one.counters.throttled.bytes):
                    self._throttled[namespace, name, one.name] = one.counters.throttled
                self._by_subscription[namespace, name, one.name] = [
                    one.backlog_entries,
                    one.unacked_messages,
                    one.redelivery_entries,
                    len(one.consumers),
                    one.is_blocked,
                    one.damaged,
                    delivered.messages_per_s,
                    delivered.bytes_per_s,
                    one.counters.redelivered_messages,
                    one.counters.acknowledged_entries,
                    one.counters.expired_rate.per_s,
                    one.counters.expired_entries,
                    one.counters.last_expired_ms,
                    one.counters.drop_rate.per_s,
                    one.counters.dropped_messages,
                ]
        values: list[float] = [
            len(topic.producers.connected()),
            len(subscriptions),
            consumers,
            received.messages_per_s,
            received.bytes_per_s,
            sent.messages_per_s,
            sent.bytes_per_s,
            received.messages,
            received.bytes,
            sent.messages,
            sent.bytes,
            log.stored_bytes,
            log.stored_entries,
            topic.quotas.count_backlog_bytes(),
            topic.quotas.get_quota(QuotaKind.SIZE).limit,
            topic.quotas.get_quota(QuotaKind.AGE).limit,
            topic.quotas.known_age_s(),
            backlog,
            topic.counters.refused_entries,
            topic.counters.failed_entries,
            topic.counters.duplicate_entries,
            topic.log.lost_entries.count,
            topic.log.pending_bytes,
            bool(topic.waiting_for()),
            topic.publish_throttle.limited_times,
        ]
        totals.producers += len(topic.producers.connected())
        totals.subscriptions += len(subscriptions)
        totals.consumers += consumers
        totals.storage_bytes += log.stored_bytes
        totals.backlog_entries += backlog
        totals.waiting += bool(topic.waiting_for())
        for kind, count in topic.quotas.evictions.items():
            key = namespace, name, kind.value
            self._evictions[key] = self._evictions.get(key, 0) + count
        known = self._by_topic.get((namespace, name))
        if known is not None:
            values = [one + other for one, other in zip(known, values, strict=True)]
        self._by_topic[namespace, name] = values


def _family(name: str, text: str, is_counter: bool, labels: list[str]) -> Any:
    return (_FAMILIES.counter if is_counter else _FAMILIES.gauge)(name, text, labels=labels)
