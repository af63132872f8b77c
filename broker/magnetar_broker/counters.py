"""What a broker counts of its work: plain numbers, raised once per batch of entries, and read by whoever shows them.

    BrokerCounters                        the process, whatever becomes of its topics
    TopicCounters                         one topic while it is loaded
    ├── Traffic                           of each producer
    └── Deliveries                        of its subscriptions, those included that are gone
        └── DeliveryCounters              of each subscription, and of each of its consumers

All of them only rise. A rate is what a total rose by, over a time that is not too short: `Traffic.sample` is called for
all of them now and then, so nothing that counts ever looks at a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from magnetar_wire.process.histogram import BYTES, SECONDS, Histogram

__all__ = ["BrokerCounters", "Deliveries", "DeliveryCounters", "TopicCounters", "Traffic"]

# Over less than that a rate says little.
_SHORTEST_S: Final = 1.0


class Traffic:
    """Messages that went one way."""

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
        # As of the last sample.
        self.messages_per_s = 0.0
        self.bytes_per_s = 0.0
        self._messages_then = 0
        self._bytes_then = 0
        # On the monotonic clock; below 0: never.
        self._sampled_at = -1.0

    def count(self, messages: int, entries: int, size_bytes: int) -> None:
        self.messages += messages
        self.entries += entries
        self.bytes += size_bytes

    def sample(self, now: float) -> None:
        """Makes the rates anew, unless that was just done."""
        if self._sampled_at >= 0:
            passed = now - self._sampled_at
            if passed < _SHORTEST_S:
                return
            self.messages_per_s = (self.messages - self._messages_then) / passed
            self.bytes_per_s = (self.bytes - self._bytes_then) / passed
        self._sampled_at = now
        self._messages_then = self.messages
        self._bytes_then = self.bytes


class TopicCounters:
    """Of one topic while it is loaded."""

    __slots__ = ("failed_entries", "received", "refused_entries")

    def __init__(self) -> None:
        # What is durable.
        self.received = Traffic()
        # Entries that were not stored: because of what they were, and because the log could not.
        self.refused_entries = 0
        self.failed_entries = 0


class DeliveryCounters:
    """Of one subscription, or of one consumer."""

    __slots__ = ("_of_topic", "acknowledged_entries", "delivered", "expired_entries", "redelivered_messages")

    def __init__(self, of_topic: Traffic | None = None) -> None:
        """`of_topic` counts the same deliveries: a subscription's are the topic's, too."""
        self._of_topic = of_topic
        # Whatever was sent to consumers, what they were sent before included.
        self.delivered = Traffic()
        self.redelivered_messages = 0
        self.acknowledged_entries = 0
        self.expired_entries = 0

    def deliver(self, messages: int, entries: int, size_bytes: int, redelivered_messages: int) -> None:
        delivered = self.delivered  # as `count` does: with lone messages each call is felt
        delivered.messages += messages
        delivered.entries += entries
        delivered.bytes += size_bytes
        self.redelivered_messages += redelivered_messages
        if (of_topic := self._of_topic) is not None:
            of_topic.messages += messages
            of_topic.entries += entries
            of_topic.bytes += size_bytes


class Deliveries:
    """Of one topic while it is loaded. What a durable subscription did is known until it is deleted, whether consumers
    are connected or not; what the topic delivered in all is known from those that are gone, too."""

    __slots__ = ("_by_name", "delivered")

    def __init__(self) -> None:
        self.delivered = Traffic()
        # Of durable subscriptions that something was done with: no more than there are cursors.
        self._by_name: dict[str, DeliveryCounters] = {}

    def of_durable(self, name: str) -> DeliveryCounters:
        """To be counted with."""
        if name not in self._by_name:
            self._by_name[name] = DeliveryCounters(self.delivered)
        return self._by_name[name]

    def of_transient(self) -> DeliveryCounters:
        return DeliveryCounters(self.delivered)

    def known_of(self, name: str) -> DeliveryCounters:
        """To be looked at: zeros where nothing was done."""
        return self._by_name.get(name) or DeliveryCounters()

    def forget(self, name: str) -> None:
        self._by_name.pop(name, None)

    def durable(self) -> Iterator[DeliveryCounters]:
        yield from self._by_name.values()


class BrokerCounters:
    """Since the process began."""

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
        # What is durable, and what was sent to consumers, of all topics there ever were.
        self.received = Traffic()
        self.delivered = Traffic()
        self.refused_entries = 0
        # From when an entry was taken until its receipt was in line to be sent: one observation for entries that share
        # both, with how many they are.
        self.publish_seconds = Histogram(SECONDS)
        self.entry_bytes = Histogram(BYTES)
        # Leases of topics' logs that were not renewed in time.
        self.leases_lapsed = 0
        # Leases on namespaces that this broker has removed, since they were not renewed in time.
        self.namespace_leases_lapsed = 0
        # Of topics that were opened.
        self.load_seconds = Histogram(SECONDS)
        self.loads_failed = 0
        self.unloads = 0
        # Entries of topics that were found lost on all bookies.
        self.lost_entries = 0
        # Of those, what another broker serves, and what nobody could be found for.
        self.lookups = 0
        self.lookups_elsewhere = 0
        self.lookups_failed = 0
        # Bundles that were taken, that were given up in peace, and whose loss was found out.
        self.bundle_claims = 0
        self.bundle_take_overs = 0
        self.bundle_unloads = 0
        self.bundles_lost = 0
        self.bundle_splits = 0
        # Of Pulsar's protocol; of those, for which there was no room.
        self.connections_opened = 0
        self.connections_refused = 0

    def count_lost_entry(self) -> None:
        self.lost_entries += 1

    def count_lapsed_namespace_leases(self, count: int) -> None:
        self.namespace_leases_lapsed += count
