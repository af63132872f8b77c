"""The counters of a broker: plain numbers, updated once per batch of entries, and read by metrics and stats.

    BrokerCounters                        of the process, also for topics that are unloaded
    TopicCounters                         of a topic while it is loaded
    ├── ProducerTraffic                   of each producer
    └── Deliveries                        of its subscriptions, including deleted ones
        └── DeliveryCounters              of each subscription, and of each of its consumers

Counters only grow. `Traffic.sample`, called at intervals, computes rates from them, so counting reads no clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from magnetar_wire.process.histogram import BYTES, SECONDS, Histogram

__all__ = [
    "BrokerCounters",
    "Deliveries",
    "DeliveryCounters",
    "ProducerTraffic",
    "Rate",
    "ThrottleCounts",
    "TopicCounters",
    "Traffic",
]

# Minimum time over which a rate is computed.
_MIN_INTERVAL_S: Final = 1.0


class Traffic:
    """Messages in one direction."""

    __slots__ = (
        "_bytes_then",
        "_messages_then",
        "_sampled_at",
        "bytes",
        "bytes_per_s",
        "entries",
        "messages",
        "messages_per_s",
    )

    def __init__(self) -> None:
        self.messages = 0
        self.entries = 0
        self.bytes = 0
        # At the last sample.
        self.messages_per_s = 0.0
        self.bytes_per_s = 0.0
        self._messages_then = 0
        self._bytes_then = 0
        # Time of the last sample on the monotonic clock; below 0: never.
        self._sampled_at = -1.0

    def count(self, messages: int, entries: int, size_bytes: int) -> None:
        self.messages += messages
        self.entries += entries
        self.bytes += size_bytes

    def sample(self, now: float) -> None:
        """Compute the rates, unless that was done a moment ago."""
        if self._sampled_at >= 0:
            passed = now - self._sampled_at
            if passed < _MIN_INTERVAL_S:
                return
            self.messages_per_s = (self.messages - self._messages_then) / passed
            self.bytes_per_s = (self.bytes - self._bytes_then) / passed
        self._sampled_at = now
        self._messages_then = self.messages
        self._bytes_then = self.bytes


class Rate:
    """The growth of one counter per second, over the last sampling interval."""

    __slots__ = ("_sampled_at", "_then", "per_s")

    def __init__(self) -> None:
        self.per_s = 0.0
        self._then = 0
        self._sampled_at = -1.0

    def sample(self, now: float, count: int) -> None:
        """Compute the rate of a counter that is `count` now, unless that was done a moment ago."""
        if self._sampled_at >= 0:
            passed = now - self._sampled_at
            if passed < _MIN_INTERVAL_S:
                return
            self.per_s = (count - self._then) / passed
        self._sampled_at, self._then = now, count


class ProducerTraffic(Traffic):
    """Messages of one producer, and chunks of large ones among them."""

    __slots__ = ("chunk_rate", "chunks")

    def __init__(self) -> None:
        super().__init__()
        self.chunks = 0
        self.chunk_rate = Rate()

    def sample(self, now: float) -> None:
        super().sample(now)
        self.chunk_rate.sample(now, self.chunks)


class TopicCounters:
    """Published entries of one topic while it is loaded."""

    __slots__ = ("chunks", "duplicate_entries", "failed_entries", "received", "refused_entries")

    def __init__(self) -> None:
        # Persisted messages.
        self.received = Traffic()
        # Entries that were refused because they were invalid, and entries that the log could not store.
        self.refused_entries = 0
        self.failed_entries = 0
        # Entries that were stored before, and not again.
        self.duplicate_entries = 0
        # Accepted chunks of large messages.
        self.chunks = 0


class ThrottleCounts:
    """How often a dispatch waited for a rate."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        # For the rates of the subscription, the topic and the broker, in messages and in bytes.
        self.messages = [0, 0, 0]
        self.bytes = [0, 0, 0]

    def count(self, level: int, *, by_messages: bool) -> None:
        (self.messages if by_messages else self.bytes)[level] += 1


class DeliveryCounters:
    """Deliveries to one consumer, or to all consumers of a subscription, and what they did last.

    Times are in ms since 1970; 0: never. They are those of requests and of batches of deliveries.
    """

    __slots__ = (
        "_of_topic",
        "acknowledged",
        "acknowledged_entries",
        "acknowledged_rate",
        "chunk_rate",
        "chunks",
        "delivered",
        "drop_rate",
        "dropped_messages",
        "expired_entries",
        "expired_rate",
        "last_acknowledged_ms",
        "last_advanced_ms",
        "last_delivered_ms",
        "last_expired_ms",
        "last_flow_ms",
        "mixed_batches",
        "redelivered_messages",
        "redelivered_rate",
        "throttled",
    )

    def __init__(self, of_topic: Traffic | None = None) -> None:
        """`of_topic` counts the same deliveries for the topic."""
        self._of_topic = of_topic
        # Messages sent to consumers, including redelivered ones.
        self.delivered = Traffic()
        self.redelivered_messages = 0
        # Of a non-persistent topic: messages that no consumer could take.
        self.dropped_messages = 0
        # Of a Key_Shared subscription: batches that were read and have messages of several keys.
        self.mixed_batches = 0
        self.acknowledged_entries = 0
        self.expired_entries = 0
        # Of a Shared subscription messages, of others entries.
        self.acknowledged = 0
        self.last_flow_ms = 0
        self.last_delivered_ms = 0
        self.last_acknowledged_ms = 0
        # When the mark-delete position advanced, and when entries were expired.
        self.last_advanced_ms = 0
        self.last_expired_ms = 0
        self.throttled = ThrottleCounts()
        # Delivered chunks of large messages.
        self.chunks = 0
        self.chunk_rate = Rate()
        self.redelivered_rate = Rate()
        self.drop_rate = Rate()
        self.acknowledged_rate = Rate()
        self.expired_rate = Rate()

    def sample(self, now: float) -> None:
        self.delivered.sample(now)
        self.redelivered_rate.sample(now, self.redelivered_messages)
        self.drop_rate.sample(now, self.dropped_messages)
        self.acknowledged_rate.sample(now, self.acknowledged)
        self.expired_rate.sample(now, self.expired_entries)
        self.chunk_rate.sample(now, self.chunks)

    def count_mixed_batch(self) -> None:
        self.mixed_batches += 1

    def drop(self, messages: int) -> None:
        """Count messages that no consumer could take."""
        self.dropped_messages += messages

    def deliver(self, messages: int, entries: int, size_bytes: int, redelivered_messages: int, now_ms: int) -> None:
        self.last_delivered_ms = now_ms
        delivered = self.delivered  # like `count`, inlined: it is called for each message if they are not batched
        delivered.messages += messages
        delivered.entries += entries
        delivered.bytes += size_bytes
        self.redelivered_messages += redelivered_messages
        if (of_topic := self._of_topic) is not None:
            of_topic.messages += messages
            of_topic.entries += entries
            of_topic.bytes += size_bytes


class Deliveries:
    """Deliveries of one topic while it is loaded.

    A durable subscription's counters are held until it is deleted, also while it has no consumers. The topic's total
    includes deleted subscriptions.
    """

    __slots__ = ("_by_name", "delivered")

    def __init__(self) -> None:
        self.delivered = Traffic()
        # Of durable subscriptions that were used.
        self._by_name: dict[str, DeliveryCounters] = {}

    def of_durable(self, name: str) -> DeliveryCounters:
        """Return the counters of a durable subscription, to count with."""
        if name not in self._by_name:
            self._by_name[name] = DeliveryCounters(self.delivered)
        return self._by_name[name]

    def of_transient(self) -> DeliveryCounters:
        return DeliveryCounters(self.delivered)

    def known_of(self, name: str) -> DeliveryCounters:
        """Return the counters of a durable subscription, to read: zeros if it was not used."""
        return self._by_name.get(name) or DeliveryCounters()

    def forget(self, name: str) -> None:
        self._by_name.pop(name, None)

    def durable(self) -> Iterator[DeliveryCounters]:
        yield from self._by_name.values()


class BrokerCounters:
    """Counters since the start of the process."""

    __slots__ = (
        "bundle_claims",
        "bundle_splits",
        "bundle_take_overs",
        "bundle_unloads",
        "bundles_lost",
        "connections_opened",
        "connections_refused",
        "delivered",
        "entry_bytes",
        "leases_lapsed",
        "load_seconds",
        "loads_failed",
        "lookups",
        "lookups_elsewhere",
        "lookups_failed",
        "lost_entries",
        "namespace_leases_lapsed",
        "publish_seconds",
        "received",
        "refused_entries",
        "unloads",
    )

    def __init__(self) -> None:
        # Persisted messages, and messages sent to consumers, of all topics.
        self.received = Traffic()
        self.delivered = Traffic()
        self.refused_entries = 0
        # Time from accepting an entry until its result is queued. Entries that share both times are counted together.
        self.publish_seconds = Histogram(SECONDS)
        self.entry_bytes = Histogram(BYTES)
        # Leases of topics that were not renewed in time.
        self.leases_lapsed = 0
        # Leases of namespaces that this broker removed because they were not renewed in time.
        self.namespace_leases_lapsed = 0
        # Loads of topics.
        self.load_seconds = Histogram(SECONDS)
        self.loads_failed = 0
        self.unloads = 0
        # Entries that were found lost on all bookies.
        self.lost_entries = 0
        # Lookups; those answered with another broker, and those that found no owner.
        self.lookups = 0
        self.lookups_elsewhere = 0
        self.lookups_failed = 0
        # Bundles that were claimed, taken over from a dead owner, unloaded gracefully, and lost.
        self.bundle_claims = 0
        self.bundle_take_overs = 0
        self.bundle_unloads = 0
        self.bundles_lost = 0
        self.bundle_splits = 0
        # Connections of Pulsar's protocol that were accepted, and those refused because of a limit.
        self.connections_opened = 0
        self.connections_refused = 0

    def count_lost_entry(self) -> None:
        self.lost_entries += 1

    def count_lapsed_namespace_leases(self, count: int) -> None:
        self.namespace_leases_lapsed += count
