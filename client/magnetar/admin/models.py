"""What an administrator sets and sees, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from magnetar_wire.message_id import MessageId

__all__ = [
    "ActiveBroker",
    "AutoSubscriptionCreation",
    "AutoTopicCreation",
    "BrokerInfo",
    "BrokerLoad",
    "Bundle",
    "ConsumerStats",
    "CursorStats",
    "Health",
    "InternalStats",
    "LeaseStats",
    "LedgerStats",
    "LostEntry",
    "NamespacePolicies",
    "OwnedBundle",
    "PartitionedTopic",
    "PeekedMessage",
    "Persistence",
    "ProducerStats",
    "SubscriptionStats",
    "TenantSettings",
    "TopicHome",
    "TopicStats",
    "Traffic",
]


@dataclass(frozen=True, slots=True)
class TenantSettings:
    admin_roles: Sequence[str] = ()
    # None: all clusters.
    allowed_clusters: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Persistence:
    """How entries are stored: on `write_quorum` of `ensemble_size` bookies, and on `ack_quorum` before they count."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int


@dataclass(frozen=True, slots=True)
class AutoTopicCreation:
    """Whether topics are made on first use, and with how many partitions; 0: with none."""

    allowed: bool
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class AutoSubscriptionCreation:
    allowed: bool


@dataclass(frozen=True, slots=True)
class NamespacePolicies:
    """What holds in a namespace. None: what the brokers' options say."""

    persistence: Persistence | None = None
    auto_topic_creation: AutoTopicCreation | None = None
    auto_subscription_creation: AutoSubscriptionCreation | None = None


@dataclass(frozen=True, slots=True)
class PartitionedTopic:
    partitions: int
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What went one way since the topic was loaded, and how fast it went lately."""

    messages: int
    entries: int
    bytes: int
    messages_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class ProducerStats:
    producer_name: str
    producer_id: int
    address: str
    connected_since_ms: int
    received: Traffic
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    consumer_name: str
    consumer_id: int
    address: str
    connected_since_ms: int
    priority_level: int
    permits: int
    unacknowledged_messages: int
    # Why it gets nothing; empty: nothing keeps it, or there is nothing for it.
    blocked_by: str
    delivered: Traffic
    redelivered_messages: int
    acknowledged_entries: int
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    subscription: str
    # Of its consumers; empty: it has none.
    type: str
    durable: bool
    backlog_entries: int
    # From the oldest message that is not acknowledged on, acknowledged ones among them.
    backlog_messages: int
    unacknowledged_messages: int
    # Entries that wait to be delivered again.
    to_be_redelivered: int
    # Why nothing is delivered; empty: something is, or there is nothing.
    blocked_by: str
    # Of Failover: who is served.
    active_consumer: str
    delivered: Traffic
    redelivered_messages: int
    acknowledged_entries: int
    expired_entries: int
    consumers: Sequence[ConsumerStats]
    properties: Mapping[str, str]
    # Its cursor can't be read any more, `blocked_by` says why: it delivers nothing until it is reset or deleted.
    damaged: bool


@dataclass(frozen=True, slots=True)
class LostEntry:
    ledger_id: int
    entry_id: int
    # What each bookie answered.
    reason: str


@dataclass(frozen=True, slots=True)
class TopicStats:
    """Of a topic since it was loaded; of a partitioned one the sums over its partitions."""

    topic: str
    # Empty for a partitioned one: each partition has its own.
    incarnation: str
    partitions: int
    received: Traffic
    delivered: Traffic
    refused_entries: int
    failed_entries: int
    storage_bytes: int
    stored_entries: int
    # How many messages the topic has ever taken.
    messages_ever: int
    # Memory of entries that are published and not stored yet.
    pending_bytes: int
    # Why publishing waits; empty: it does not.
    waiting_for: str
    producers: Sequence[ProducerStats]
    subscriptions: Sequence[SubscriptionStats]
    # The id of the broker that serves it; empty for a partitioned one: `lookup_partitioned` tells those.
    owner_broker: str
    # Entries that no bookie has any more, as far as they were met since the topic was loaded; and some of them.
    lost_entries: int
    lost: Sequence[LostEntry]

    def subscription(self, name: str) -> SubscriptionStats:
        """Raises KeyError."""
        for one in self.subscriptions:
            if one.subscription == name:
                return one
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class LedgerStats:
    ledger_id: int
    entries: int
    bytes: int
    closed: bool


@dataclass(frozen=True, slots=True)
class CursorStats:
    name: str
    # Everything up to there is acknowledged; and what of that is durable.
    mark_delete: MessageId
    saved_mark_delete: MessageId
    open_entries: int


@dataclass(frozen=True, slots=True)
class LeaseStats:
    """A reader that reads ledgers past the broker: from this one on none is deleted until its lease is over."""

    holder: str
    from_ledger_id: int
    # Unless it is renewed.
    left_ms: int
    lease_ms: int
    # As `admin.reading.end_lease` takes it, where its reader can't any more.
    lease_id: bytes


@dataclass(frozen=True, slots=True)
class InternalStats:
    """How a topic is stored."""

    incarnation: str
    state: str
    last: MessageId
    # The newest, oldest first; and how many there are before them.
    ledgers: Sequence[LedgerStats]
    more_ledgers: int
    cursors: Sequence[CursorStats]
    # Why what all have acknowledged may be there still.
    leases: Sequence[LeaseStats]
    # Leases that were not renewed in time, since the topic was loaded.
    lapsed_leases: int = 0


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """One that was looked at, and is still there."""

    message_id: MessageId
    # None: the message has no value.
    payload: bytes | None
    key: str | bytes | None
    properties: Mapping[str, str]
    producer_name: str
    publish_time_ms: int
    event_time_ms: int


@dataclass(frozen=True, slots=True)
class TopicHome:
    """Who serves a topic."""

    topic: str
    broker_id: str
    address: str
    bundle: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """A part of a namespace's topics, which one broker serves."""

    # As in 0x00000000_0x40000000.
    bundle: str
    # Empty, both: nobody has it.
    broker_id: str
    address: str


@dataclass(frozen=True, slots=True)
class OwnedBundle:
    namespace: str
    bundle: str
    # That are loaded.
    topics: int


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """As a broker said of itself, at `time_ms`."""

    time_ms: int
    # Of one core: 1.0 is all that a broker can use.
    cpu: float
    # How late it was at most with what was due.
    loop_lag_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float
    bundles: int
    topics: int


@dataclass(frozen=True, slots=True)
class ActiveBroker:
    """A broker that takes topics."""

    broker_id: str
    # By their names, the internal one first.
    listeners: Mapping[str, str]
    # The same for clients of Pulsar's protocol.
    pulsar_listeners: Mapping[str, str]
    http_address: str
    version: str
    started_ms: int
    load: BrokerLoad


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    broker_id: str
    version: str
    address: str
    # For clients of Pulsar's protocol; empty: they can't reach it.
    pulsar_address: str
    cluster: str
    started_ms: int
    loaded_topics: int


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a message can go through this broker now, and if not, why."""

    healthy: bool
    reasons: Sequence[str]
