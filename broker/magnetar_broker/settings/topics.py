"""Settings of topics and publishing. Names are Pulsar's where it has the setting."""

from __future__ import annotations

from magnetar_broker.settings.backlog_quotas import BacklogQuotaSettings
from magnetar_broker.settings.rates import PublishRateSettings
from magnetar_wire.limits import MAX_MESSAGE_BYTES
from magnetar_wire.settings import MAX_COUNT, Subject, setting

__all__ = ["TopicSettings"]


class TopicSettings(BacklogQuotaSettings, PublishRateSettings):
    enable_persistent_topics: bool = setting(
        True,
        "Serve persistent topics. False: requests for them are refused, except those for system topics.",
        subject=Subject.TOPICS,
        named_by="Pulsar",
    )
    enable_non_persistent_topics: bool = setting(
        True,
        "Serve non-persistent topics, whose messages are not stored. False: requests for them are refused.",
        subject=Subject.TOPICS,
        named_by="Pulsar",
    )
    max_message_size: int = setting(
        MAX_MESSAGE_BYTES,
        "Maximum size, in bytes, of the payload of one entry, as it is stored: a batch as a whole, after compression.",
        subject=Subject.PUBLISHING,
        unit="bytes",
        ge=1,
        le=MAX_MESSAGE_BYTES,
        named_by="Pulsar",
    )
    max_concurrent_topic_load_request: int = setting(
        100,
        "Maximum number of topics that are opened at a time. Others wait. Pulsar's default: 5000.",
        subject=Subject.TOPICS,
        unit="topics",
        ge=1,
        named_by="Pulsar",
    )
    topic_load_timeout_seconds: float = setting(
        60.0,
        "Seconds that opening one topic may take. Then it has failed, and clients retry.",
        subject=Subject.TOPICS,
        gt=0,
        named_by="Pulsar",
    )
    slow_topic_load_seconds: float = setting(
        10.0,
        "Seconds after which opening a topic counts as slow; less than topic_load_timeout_seconds. While other topics "
        "wait to be opened, slow topics, and topics whose last opening failed, use at most half of "
        "max_concurrent_topic_load_request.",
        subject=Subject.TOPICS,
        gt=0,
    )
    max_producers_per_topic: int = setting(
        0,
        "Maximum number of producers of one topic. 0: no limit.",
        subject=Subject.PUBLISHING,
        unit="producers",
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
        dynamic=True,
    )
    max_waiting_producers_per_topic: int = setting(
        1_000,
        "Maximum number of producers of one topic that wait until they have it to themselves (WaitForExclusive). "
        "Further ones are refused. 0: no limit.",
        subject=Subject.PUBLISHING,
        unit="producers",
        ge=0,
        le=MAX_COUNT,
        dynamic=True,
    )
    broker_deduplication_enabled: bool = setting(
        False,
        "Whether each message of a producer's name is stored once, however often it is sent, unless a policy of the "
        "namespace or topic decides that.",
        subject=Subject.PUBLISHING,
        named_by="Pulsar",
    )
    broker_deduplication_max_number_of_producers: int = setting(
        10_000,
        "Maximum number of names without a producer whose sequence ids deduplication remembers for one topic, also in "
        "its snapshots. The ids of the names that were used last are remembered.",
        subject=Subject.PUBLISHING,
        unit="names",
        ge=1,
        le=MAX_COUNT,
        named_by="Pulsar",
    )
    broker_deduplication_entries_interval: int = setting(
        1_000,
        "Number of entries of a topic after which deduplication stores a snapshot of the sequence ids; as many entries "
        "as the snapshot has names, if these are more. It is also stored after 16 MiB of entries, or after 16 KiB for "
        "each name of the snapshot, if that is more. About as many entries are read when the topic is opened after a "
        "crash, before producers can publish.",
        subject=Subject.PUBLISHING,
        unit="entries",
        ge=1,
        le=MAX_COUNT,
        named_by="Pulsar",
    )
    broker_deduplication_snapshot_interval_seconds: int = setting(
        120,
        "Seconds after which deduplication stores a snapshot of the sequence ids, if entries were stored since the "
        "last one. Until then the entries are retained. 0: whenever "
        "broker_deduplication_snapshot_frequency_in_seconds have passed.",
        subject=Subject.PUBLISHING,
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
    )
    broker_deduplication_snapshot_frequency_in_seconds: int = setting(
        120,
        "Seconds between two checks whether a topic's deduplication is due to store a snapshot, or to forget unused "
        "names of producers. 0: neither is done at intervals of time.",
        subject=Subject.PUBLISHING,
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
    )
    broker_deduplication_producer_inactivity_timeout_minutes: int = setting(
        360,
        "Minutes without a producer of a name after which deduplication forgets the name's sequence ids. A message "
        "that is resent later is stored again. 0: they are not forgotten.",
        subject=Subject.PUBLISHING,
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
    )
    max_same_address_producers_per_topic: int = setting(
        0,
        "Maximum number of producers of one topic from the same host. 0: no limit.",
        subject=Subject.PUBLISHING,
        unit="producers",
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
    )
    max_producers_per_stream: int = setting(
        10_000,
        "Maximum number of producers on one stream, or one connection of Pulsar's protocol. Further ones are refused.",
        subject=Subject.PUBLISHING,
        unit="producers",
        ge=1,
    )
    max_waiting_producers_per_stream: int = setting(
        1_000,
        "Maximum number of producers on one stream, or one connection of Pulsar's protocol, that wait until they have "
        "their topics to themselves (WaitForExclusive). Further ones are refused.",
        subject=Subject.PUBLISHING,
        unit="producers",
        ge=1,
    )
    max_parts_per_produce_request: int = setting(
        20_000,
        "Maximum number of parts of one request on a produce stream: opened producers, closed producers and runs of "
        "entries, counted together. A request with more parts ends the stream.",
        subject=Subject.PUBLISHING,
        unit="parts",
        ge=1,
    )
    max_pending_publish_bytes_per_topic: int = setting(
        32 * 1024 * 1024,
        "Maximum memory, in bytes, of one topic's entries that are received and not stored yet. Each entry counts as "
        "its payload plus 512 bytes. At this bound the topic pauses its producers. A broker refuses to start unless "
        "managed_ledger_max_pending_bytes exceeds this bound by the size of one frame of entries and of the metadata "
        "that the broker adds; the error names the minimum.",
        subject=Subject.PUBLISHING,
        ge=1,
    )
    max_pending_publish_bytes_per_connection: int = setting(
        64 * 1024 * 1024,
        "Maximum memory, in bytes, of the entries of one stream or connection that are received and not stored yet. "
        "Each entry counts as its payload plus 512 bytes. At this bound the broker stops reading the stream or "
        "connection. A producer on a stream is paused earlier, when it has used its share of the bound. The share of "
        "a single producer is half of the bound.",
        subject=Subject.PUBLISHING,
        ge=1,
    )
    max_message_publish_buffer_size_in_mb: int = setting(
        256,
        "Maximum memory, in MiB, of all entries that the broker has received and not stored yet. Each entry counts as "
        "its payload plus 512 bytes. At this bound the broker stops reading all producers' streams and connections. "
        "Pulsar's default: half of its direct memory.",
        subject=Subject.PUBLISHING,
        ge=1,
        named_by="Pulsar",
    )
    max_waiting_publish_answers: int = setting(
        20_000,
        "Maximum number of results of publishes that wait for the client to read them. Above it the broker stops "
        "reading the client's stream.",
        subject=Subject.PUBLISHING,
        unit="results",
        ge=1,
    )
    topic_housekeeping_interval_seconds: float = setting(
        1.0,
        "Approximate interval, in seconds, at which a topic's ledgers are rolled over and trimmed.",
        subject=Subject.TOPICS,
        gt=0,
        formerly="topic_housekeeping_interval_s",
    )
    unload_idle_topics_after_seconds: float = setting(
        0.0,
        "Seconds without a connected client after which a topic is unloaded; it is loaded again when it is used. "
        "0: never.",
        subject=Subject.TOPICS,
        ge=0,
        formerly="unload_idle_topics_after_s",
        dynamic=True,
    )
    topic_visit_interval_minutes: float = setting(
        60.0,
        "Interval, in minutes, at which a broker opens each topic of its bundles that is not loaded, for a moment: to "
        "delete what has expired and is not retained, in topics that no client uses. 0: never.",
        subject=Subject.TOPICS,
        ge=0,
        dynamic=True,
    )
    topic_close_timeout_seconds: float = setting(
        10.0,
        "Seconds that closing a topic waits for operations in flight. Then it closes the topic without them, and the "
        "next opening recovers the topic.",
        subject=Subject.TOPICS,
        gt=0,
        formerly="topic_close_timeout_s",
    )

    @property
    def max_topic_message_size(self) -> int:
        """The maximum size of the payload of one entry that is no chunk. A topic's policy replaces it
        (catalog/policy_settings.py)."""
        return self.max_message_size
