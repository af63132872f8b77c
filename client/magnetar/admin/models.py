"""Settings and statistics, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from magnetar.admin.policies import (
    AutoSubscriptionCreation,
    AutoTopicCreation,
    BacklogQuota,
    DelayedDelivery,
    DispatchRate,
    InactiveTopics,
    Persistence,
    PublishRate,
    Retention,
    SubscribeRate,
)
from magnetar.schema import SchemaInfo
from magnetar_wire.message_id import MessageId

__all__ = [
    "ActiveBroker",
    "BacklogAnalysis",
    "BrokerInfo",
    "BrokerLoad",
    "BrokerTopic",
    "Bundle",
    "BundleLoad",
    "Cluster",
    "ConsumerStats",
    "CursorStats",
    "DeliveryReason",
    "DrainingSlot",
    "Health",
    "InternalStats",
    "LeaseStats",
    "LedgerStats",
    "LostEntry",
    "NamespacePolicies",
    "OwnedBundle",
    "PartExplanation",
    "PartitionTermination",
    "PartitionedTopic",
    "PartitionedTopicStats",
    "PeekedMessage",
    "ProducerStats",
    "RegisteredBookie",
    "SchemaCheck",
    "SlotRange",
    "StoredSchemaVersion",
    "SubscriptionExplanation",
    "SubscriptionStats",
    "TenantSettings",
    "TopicHash",
    "TopicOwner",
    "TopicPolicies",
    "TopicSchema",
    "TopicStats",
    "Traffic",
]


@dataclass(frozen=True, slots=True)
class Cluster:
    """How a cluster is reached, as Pulsar's tools set it. Empty: it is not set."""

    service_url: str = ""
    service_url_tls: str = ""
    broker_service_url: str = ""
    broker_service_url_tls: str = ""
    proxy_service_url: str = ""
    proxy_protocol: str = ""
    authentication_plugin: str = ""
    authentication_parameters: str = field(default="", repr=False)
    peer_cluster_names: Sequence[str] = ()
    broker_client_tls_enabled: bool = False
    tls_allow_insecure_connection: bool = False
    broker_client_tls_enabled_with_key_store: bool = False
    listener_name: str = ""
    broker_client_tls_trust_store_type: str = ""
    broker_client_tls_trust_store: str = ""
    broker_client_tls_trust_store_password: str = field(default="", repr=False)
    broker_client_tls_key_store_type: str = ""
    broker_client_tls_key_store: str = ""
    broker_client_tls_key_store_password: str = field(default="", repr=False)
    broker_client_trust_certs_file_path: str = ""
    broker_client_certificate_file_path: str = ""
    broker_client_key_file_path: str = ""
    broker_client_ssl_factory_plugin: str = ""
    broker_client_ssl_factory_plugin_params: str = ""


@dataclass(frozen=True, slots=True)
class TenantSettings:
    admin_roles: Sequence[str] = ()
    # Empty: all clusters.
    allowed_clusters: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class NamespacePolicies:
    """The policies of a namespace. None: as in the brokers' settings."""

    persistence: Persistence | None = None
    auto_topic_creation: AutoTopicCreation | None = None
    auto_subscription_creation: AutoSubscriptionCreation | None = None
    retention: Retention | None = None
    message_ttl_seconds: int | None = None
    subscription_expiration_minutes: int | None = None
    backlog_quota_size: BacklogQuota | None = None
    backlog_quota_age: BacklogQuota | None = None
    deduplication: bool | None = None
    deduplication_snapshot_entries: int | None = None
    compaction_threshold_bytes: int | None = None
    delayed_delivery: DelayedDelivery | None = None
    inactive_topics: InactiveTopics | None = None
    publish_rate: PublishRate | None = None
    dispatch_rate: DispatchRate | None = None
    subscription_dispatch_rate: DispatchRate | None = None
    replicator_dispatch_rate: DispatchRate | None = None
    subscribe_rate: SubscribeRate | None = None
    max_producers_per_topic: int | None = None
    max_consumers_per_topic: int | None = None
    max_consumers_per_subscription: int | None = None
    max_unacked_messages_per_consumer: int | None = None
    max_unacked_messages_per_subscription: int | None = None
    max_subscriptions_per_topic: int | None = None
    max_topics_per_namespace: int | None = None
    # UNDEFINED, ALWAYS_COMPATIBLE, BACKWARD, FORWARD, FULL, BACKWARD_TRANSITIVE …
    schema_compatibility: str | None = None
    # AutoUpdateDisabled, Backward, Forward, Full, AlwaysCompatible …
    schema_auto_update: str | None = None
    allow_schema_auto_update: bool | None = None
    schema_validation_enforced: bool | None = None
    encryption_required: bool | None = None
    # None or Prefix, as texts.
    subscription_auth_mode: str | None = None
    # Exclusive, Shared, Failover, Key_Shared; empty: all.
    subscription_types_enabled: Sequence[str] | None = None
    dispatcher_pause_on_ack_state: bool | None = None
    properties: Mapping[str, str] | None = None
    replication_clusters: Sequence[str] | None = None
    allowed_clusters: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class TopicPolicies:
    """The policies of a topic. None: as in its namespace."""

    persistence: Persistence | None = None
    auto_subscription_creation: AutoSubscriptionCreation | None = None
    retention: Retention | None = None
    message_ttl_seconds: int | None = None
    backlog_quota_size: BacklogQuota | None = None
    backlog_quota_age: BacklogQuota | None = None
    deduplication: bool | None = None
    deduplication_snapshot_entries: int | None = None
    compaction_threshold_bytes: int | None = None
    delayed_delivery: DelayedDelivery | None = None
    inactive_topics: InactiveTopics | None = None
    publish_rate: PublishRate | None = None
    dispatch_rate: DispatchRate | None = None
    subscription_dispatch_rate: DispatchRate | None = None
    replicator_dispatch_rate: DispatchRate | None = None
    subscribe_rate: SubscribeRate | None = None
    max_producers_per_topic: int | None = None
    max_consumers_per_topic: int | None = None
    max_consumers_per_subscription: int | None = None
    max_unacked_messages_per_consumer: int | None = None
    max_unacked_messages_per_subscription: int | None = None
    max_subscriptions_per_topic: int | None = None
    max_message_size_bytes: int | None = None
    schema_compatibility: str | None = None
    schema_validation_enforced: bool | None = None
    subscription_types_enabled: Sequence[str] | None = None
    dispatcher_pause_on_ack_state: bool | None = None
    replication_clusters: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class PartitionedTopic:
    partitions: int
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Traffic in one direction since the topic was loaded, and its recent rates."""

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
    # The name and version of the client's library; empty: unknown.
    client_version: str = ""
    # Its library can open a producer on some of the partitions of a topic only.
    partial: bool = False
    # Chunks of large messages.
    chunks_per_s: float = 0.0
    # Shared, Exclusive, WaitForExclusive or ExclusiveWithFencing.
    access_mode: str = ""


@dataclass(frozen=True, slots=True)
class DeliveryReason:
    """Why a subscription or a consumer gets nothing, or no more. delivery_reasons.md lists all codes."""

    code: str
    # What holds deliveries back now, and what to do.
    text: str
    action: str
    # The numbers and names in the text; those that end in `_ms` are times in ms since 1970.
    facts: Mapping[str, str] = field(default_factory=dict)
    # Nothing is wrong: the subscription works as it should.
    normal: bool = False
    # Of a partitioned topic: the partitions that have this reason. The text, action and facts are of the first of them.
    partitions: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class SlotRange:
    """Slots of keys of a Key_Shared subscription, both ends included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class DrainingSlot:
    """A slot of keys that has another consumer now, which waits until the old one has acknowledged."""

    slot: int
    # Entries that the old consumer has not acknowledged.
    entries: int
    # How often a delivery to the new consumer had to wait.
    blocked: int


@dataclass(frozen=True, slots=True)
class ConsumerStats:
    consumer_name: str
    consumer_id: int
    address: str
    connected_since_ms: int
    priority_level: int
    permits: int
    unacknowledged_messages: int
    # Why nothing is delivered to it; empty: nothing blocks it, or there is nothing to deliver.
    blocked_by: str
    delivered: Traffic
    redelivered_messages: int
    acknowledged_entries: int
    properties: Mapping[str, str]
    # The name and version of the client's library; empty: unknown.
    client_version: str = ""
    # It gets nothing until it acknowledges messages.
    blocked_on_unacknowledged: bool = False
    # When it granted permits, when messages were sent to it, and when it acknowledged some, in ms since 1970; 0: never.
    last_flow_ms: int = 0
    last_delivered_ms: int = 0
    last_acknowledged_ms: int = 0
    redelivered_per_s: float = 0.0
    # Messages of Shared subscriptions, entries of others.
    acknowledged_per_s: float = 0.0
    # Chunks of large messages.
    chunks_per_s: float = 0.0
    # Why it gets nothing, or no more. None: nothing holds it back, or it is unknown.
    reason: DeliveryReason | None = None
    # Key_Shared: the slots of keys that the consumer has, at most 1,000 ranges.
    key_ranges: Sequence[SlotRange] = ()
    # As in SubscriptionStats; and the slots, at most 100.
    draining_slots: int = 0
    draining_entries: int = 0
    drained_slots: int = 0
    draining: Sequence[DrainingSlot] = ()


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    subscription: str
    # The type of its consumers; empty: it has none.
    type: str
    durable: bool
    backlog_entries: int
    # At most as many messages are not acknowledged. The number is exact unless whole batches are acknowledged behind a
    # message that is not: each counts as one acknowledged message. In the statistics of all topics of a broker, the
    # number of entries.
    backlog_messages: int
    unacknowledged_messages: int
    # Entries that wait to be redelivered. Key_Shared: all that were read and wait for the consumers of their keys.
    to_be_redelivered: int
    # Why nothing is delivered; empty: nothing blocks it, or there is nothing to deliver.
    blocked_by: str
    # With the type Failover: the consumer that gets messages.
    active_consumer: str
    delivered: Traffic
    redelivered_messages: int
    acknowledged_entries: int
    expired_entries: int
    consumers: Sequence[ConsumerStats]
    properties: Mapping[str, str]
    # Its cursor can't be read any more, and `blocked_by` names the reason. Nothing is delivered until it is reset or
    # deleted.
    damaged: bool
    # Bytes that are stored after the last position up to which everything is acknowledged; below 0: unknown.
    backlog_bytes: int = -1
    # When a broker received the first of its `backlog_messages`, in ms since 1970; 0: it has none, or it is unknown.
    backlog_since_ms: int = 0
    # Its consumers get nothing, since they have too many unacknowledged messages together.
    blocked_on_unacknowledged: bool = False
    # In ms since 1970; 0: not since the topic was loaded. When a consumer granted permits, when messages were sent to a
    # consumer, when one acknowledged, when the position up to which everything is acknowledged advanced, and when
    # messages were expired.
    last_flow_ms: int = 0
    last_delivered_ms: int = 0
    last_acknowledged_ms: int = 0
    last_advanced_ms: int = 0
    last_expired_ms: int = 0
    redelivered_per_s: float = 0.0
    # Messages of Shared subscriptions, entries of others.
    acknowledged_per_s: float = 0.0
    # Chunks of large messages.
    chunks_per_s: float = 0.0
    expired_per_s: float = 0.0
    # The parts of the log that are acknowledged after a message that is not.
    acknowledged_ranges: int = 0
    # How often a dispatch waited because the rate of the subscription, of its topic or of the broker was reached, in
    # messages or in bytes.
    throttled_messages_by_subscription: int = 0
    throttled_bytes_by_subscription: int = 0
    throttled_messages_by_topic: int = 0
    throttled_bytes_by_topic: int = 0
    throttled_messages_by_broker: int = 0
    throttled_bytes_by_broker: int = 0
    # Of a non-persistent topic: messages that no consumer could take.
    dropped_messages: int = 0
    dropped_per_s: float = 0.0
    # Why nothing is delivered, or no more: the answer first. Empty: unknown, as in the statistics of all topics of a
    # broker.
    reasons: Sequence[DeliveryReason] = ()
    # Key_Shared: AUTO_SPLIT or STICKY; empty: it is of another type, or no consumer is connected.
    key_shared_mode: str = ""
    allow_out_of_order_delivery: bool = False
    # The slots of keys that have another consumer now and wait until the old one has acknowledged their entries, with
    # the number of these entries; and how many slots have waited before. Those of the connected consumers together.
    draining_slots: int = 0
    draining_entries: int = 0
    drained_slots: int = 0
    # Batches with messages of several keys, each delivered by the key of its first message, that were read since the
    # topic was loaded. One that is read again counts again. Only the first 100 messages of a batch are compared.
    mixed_batches: int = 0


@dataclass(frozen=True, slots=True)
class PartExplanation:
    """Why a subscription of one topic, or of one partition, delivers nothing, or no more."""

    topic: str
    # Empty: no broker was found that serves it.
    owner_broker: str
    # Whether its owner had loaded it before the call.
    loaded: bool
    reasons: Sequence[DeliveryReason]
    # If the topic can't be loaded: only the least backlog that is known. None: not even that.
    stats: SubscriptionStats | None
    # The last message that was persisted; None: unknown.
    last: MessageId | None
    last_publish_ms: int


@dataclass(frozen=True, slots=True)
class SubscriptionExplanation:
    """Why a subscription delivers nothing, or no more, and what to do about it."""

    topic: str
    subscription: str
    # The answer first. Of a partitioned topic: of all partitions.
    reasons: Sequence[DeliveryReason]
    # The topic, or each of its partitions.
    parts: Sequence[PartExplanation]


@dataclass(frozen=True, slots=True)
class LostEntry:
    ledger_id: int
    entry_id: int
    # What each bookie answered.
    reason: str


@dataclass(frozen=True, slots=True)
class TopicStats:
    """Statistics of a topic since it was loaded; of a partitioned topic the sums over its partitions."""

    topic: str
    # Empty for a partitioned topic: each partition has its own.
    incarnation: str
    partitions: int
    received: Traffic
    delivered: Traffic
    refused_entries: int
    failed_entries: int
    storage_bytes: int
    stored_entries: int
    # The number of messages ever published.
    messages_ever: int
    # Bytes of entries that are published and not stored yet.
    pending_bytes: int
    # Why publishing waits; empty: it doesn't.
    waiting_for: str
    producers: Sequence[ProducerStats]
    subscriptions: Sequence[SubscriptionStats]
    # The id of its owner; empty for a partitioned topic, whose owners `lookup_partitioned` returns.
    owner_broker: str
    # The number of entries found lost on all bookies since the topic was loaded; and some of them.
    lost_entries: int
    lost: Sequence[LostEntry]
    # When a broker received the last message, in ms since 1970; 0: there is none.
    last_publish_ms: int = 0
    # Bytes that the durable subscription that is furthest behind has not acknowledged; below 0: unknown.
    backlog_bytes: int = -1
    # Published chunks of large messages.
    chunks: int = 0
    # The durable subscription with the oldest message that is not acknowledged, and when a broker received that, in ms
    # since 1970. Empty and 0: there is no backlog.
    oldest_backlog_subscription: str = ""
    oldest_backlog_ms: int = 0
    acknowledged_ranges: int = 0
    # The topic's backlog quotas; below 0: none. And how often messages were evicted because one was reached.
    backlog_quota_bytes: int = -1
    backlog_quota_seconds: int = -1
    evictions_by_size: int = 0
    evictions_by_age: int = 0
    # Producers that wait until no other one is connected.
    waiting_producers: int = 0
    # Enabled, Disabled, Recovering (producers wait until it is known what is stored), or Removing.
    deduplication_status: str = "Disabled"
    # The topic epoch, by which brokers recognize producers that have lost the topic to an exclusive one. None: it never
    # had an exclusive producer, or it is partitioned.
    topic_epoch: int | None = None
    # How often a producer waited because a publish rate was reached.
    publish_limited_times: int = 0
    # A text for each policy that is stored for the topic or its namespace, and not yet in effect.
    not_in_effect: Sequence[str] = ()
    # Of a non-persistent topic: messages that its subscriptions have dropped, since no consumer could take them.
    dropped_per_s: float = 0.0

    def subscription(self, name: str) -> SubscriptionStats:
        """Raises KeyError."""
        for one in self.subscriptions:
            if one.subscription == name:
                return one
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class PartitionTermination:
    """A partition that was terminated, and its last message; an entry id of -1: its ledger has none."""

    partition: int
    last: MessageId


@dataclass(frozen=True, slots=True)
class PartitionedTopicStats:
    """Statistics of a partitioned topic."""

    # The sums over its partitions. Producers and consumers of one name are merged; producers of libraries that have a
    # name of their own on each partition are merged by their order, and have no name.
    stats: TopicStats
    # In their order. Empty without `per_partition`.
    partitions: Sequence[TopicStats]


@dataclass(frozen=True, slots=True)
class BacklogAnalysis:
    """What a subscription has not acknowledged, counted by reading it."""

    entries: int
    messages: int
    # The broker stopped at its limit of entries or time, so there may be more.
    aborted: bool
    # Entries that can't be read.
    lost_entries: int


@dataclass(frozen=True, slots=True)
class LedgerStats:
    ledger_id: int
    entries: int
    bytes: int
    closed: bool


@dataclass(frozen=True, slots=True)
class CursorStats:
    name: str
    # Everything up to this position is acknowledged; and the position that is stored.
    mark_delete: MessageId
    saved_mark_delete: MessageId
    open_entries: int
    # Entries after the mark-delete position, acknowledged or not.
    entries_after_mark_delete: int = 0
    # Runs of acknowledged entries after it: how many there are, and the first of them.
    acknowledged_ranges: int = 0
    first_acknowledged: Sequence[str] = ()
    # Has consumers.
    active: bool = False
    # The ledger in which it was saved last; -1: none.
    ledger_id: int = -1
    properties: Mapping[str, str] = field(default_factory=dict)
    # All entries before it were read for the consumers; None: there are none.
    read_position: MessageId | None = None


@dataclass(frozen=True, slots=True)
class LeaseStats:
    """A lease of a reader that reads from the bookies: ledgers from this one on are retained until it ends."""

    holder: str
    from_ledger_id: int
    # Unless it is renewed.
    left_ms: int
    lease_ms: int
    # For `admin.reading.end_lease`, if its reader has ended without it.
    lease_id: bytes


@dataclass(frozen=True, slots=True)
class InternalStats:
    """How a topic is stored."""

    incarnation: str
    state: str
    last: MessageId
    # The newest ledgers, oldest first; and the number of older ones.
    ledgers: Sequence[LedgerStats]
    more_ledgers: int
    cursors: Sequence[CursorStats]
    # Why acknowledged messages may still be stored.
    leases: Sequence[LeaseStats]
    # Leases that were not renewed in time, since the topic was loaded.
    lapsed_leases: int = 0
    # Entries persisted since the topic was loaded.
    added_entries: int = 0
    # Of all ledgers that are not being deleted.
    stored_entries: int = 0
    stored_bytes: int = 0
    # Of the current ledger; 0: there is none.
    current_ledger_entries: int = 0
    current_ledger_bytes: int = 0
    # Entries that are being added.
    pending_entries: int = 0
    # With the definitions of the topic's schema; of a partition, those of its topic.
    schema_ledgers: Sequence[LedgerStats] = ()


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message that `peek` returned, and that is not acknowledged."""

    message_id: MessageId
    # None: the message has no value.
    payload: bytes | None
    key: str | bytes | None
    properties: Mapping[str, str]
    producer_name: str
    publish_time_ms: int
    event_time_ms: int


@dataclass(frozen=True, slots=True)
class TopicOwner:
    """The owner of a topic."""

    topic: str
    broker_id: str
    address: str
    bundle: str
    # Of `lookup_addresses` only: the address for clients of Pulsar's protocol, and the HTTP address. Empty: none.
    pulsar_address: str = ""
    http_address: str = ""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A range of hashes of a namespace's topics, which one broker owns."""

    # As in 0x00000000_0x40000000.
    bundle: str
    # Both empty: it has no owner.
    broker_id: str
    address: str


@dataclass(frozen=True, slots=True)
class TopicHash:
    topic: str
    hash: int


@dataclass(frozen=True, slots=True)
class OwnedBundle:
    namespace: str
    bundle: str
    # The number of loaded topics.
    topics: int


@dataclass(frozen=True, slots=True)
class BrokerTopic:
    """A topic that is loaded at a broker."""

    namespace: str
    bundle: str
    stats: TopicStats


@dataclass(frozen=True, slots=True)
class BundleLoad:
    """The sums over the loaded topics of a bundle."""

    namespace: str
    bundle: str
    topics: int
    producers: int
    consumers: int
    subscriptions: int
    messages_in_per_s: float
    bytes_in_per_s: float
    messages_out_per_s: float
    bytes_out_per_s: float
    backlog_entries: int
    storage_bytes: int


@dataclass(frozen=True, slots=True)
class RegisteredBookie:
    bookie_id: str
    # The address that clients use; None: unknown, as on brokers of Pulsar.
    address: str | None
    # It accepts new entries; None: unknown.
    writable: bool | None


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """A broker's load as it reported it, at `time_ms`."""

    time_ms: int
    # As a part of one core: 1.0 is the maximum.
    cpu: float
    # The longest delay of its event loop.
    loop_lag_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float
    bundles: int
    topics: int


@dataclass(frozen=True, slots=True)
class ActiveBroker:
    """A broker that serves topics. Over HTTP its address is known, which is its id there, and nothing else."""

    broker_id: str
    # Addresses by the listeners' names, the internal one first. Empty: unknown.
    listeners: Mapping[str, str]
    # Addresses for clients of Pulsar's protocol.
    pulsar_listeners: Mapping[str, str]
    http_address: str
    # None: unknown.
    version: str | None
    started_ms: int | None
    load: BrokerLoad | None


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker that answers. None: unknown, over HTTP."""

    broker_id: str | None
    version: str
    address: str | None
    # The address for clients of Pulsar's protocol; empty: they can't reach it.
    pulsar_address: str | None
    cluster: str
    started_ms: int | None
    loaded_topics: int | None


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a message can be published and read at a broker now, and if not, why."""

    healthy: bool
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """A version of a topic's schema."""

    version: int
    # Over HTTP, its name is empty.
    schema: SchemaInfo
    # When it was stored, in ms since 1970.
    created_ms: int


@dataclass(frozen=True, slots=True)
class SchemaCheck:
    """Whether a schema may become a topic's next version."""

    is_compatible: bool
    # Why not: the field and the rule.
    reason: str
    # The strategy by which it was checked, e.g. "FULL".
    strategy: str


@dataclass(frozen=True, slots=True)
class StoredSchemaVersion:
    """Where the definition of a version is stored."""

    version: int
    # None: the version marks the deletion of those before it.
    ledger_id: int | None
    # When it was stored, in ms since 1970; None: it is unknown, over HTTP.
    created_ms: int | None
