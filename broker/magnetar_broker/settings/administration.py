"""Settings of the catalog of topics, of administration, of the health check and of metrics."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from magnetar_wire.bundles import MAX_BUNDLES
from magnetar_wire.configuration import Configuration
from magnetar_wire.limits import MAX_PARTITIONS, MAX_UNCOMPRESSED_BYTES
from magnetar_wire.settings import MAX_COUNT, Subject, check_order, setting

__all__ = ["CatalogSettings", "HealthSettings", "MetricsSettings"]


class CatalogSettings(Configuration):
    allow_auto_topic_creation: bool = setting(
        True,
        "Create topics on first use. A namespace's policies can override it.",
        subject=Subject.TOPICS,
        named_by="Pulsar",
        dynamic=True,
    )
    allow_auto_topic_creation_type: Literal["partitioned", "non-partitioned"] = setting(
        "non-partitioned",
        "Type of the topics that are created on first use: partitioned or non-partitioned. A namespace's policies "
        "can override it.",
        subject=Subject.TOPICS,
        named_by="Pulsar",
        dynamic=True,
    )
    default_num_partitions: int = setting(
        1,
        "Partitions of a partitioned topic that is created on first use. A namespace's policies can override it.",
        subject=Subject.TOPICS,
        unit="partitions",
        ge=1,
        le=MAX_PARTITIONS,
        named_by="Pulsar",
        dynamic=True,
    )
    max_num_partitions_per_partitioned_topic: int = setting(
        4096,
        "Maximum number of partitions of one topic. Pulsar's default: 0, no limit.",
        subject=Subject.TOPICS,
        unit="partitions",
        ge=1,
        le=MAX_PARTITIONS,
        named_by="Pulsar",
        dynamic=True,
    )
    max_topics_per_namespace: int = setting(
        0,
        "Maximum number of topics of one namespace, system topics not counted. 0: no limit.",
        subject=Subject.TOPICS,
        unit="topics",
        ge=0,
        le=MAX_COUNT,
        named_by="Pulsar",
        dynamic=True,
    )
    system_topic_enabled: bool = setting(
        True,
        "Create system topics where something needs them, such as topic-level policies.",
        subject=Subject.TOPICS,
        named_by="Pulsar",
    )
    topic_level_policies_enabled: bool = setting(
        True,
        "Accept policies of single topics, which override those of their namespace. They are stored in the "
        "namespace's system topic __change_events, so this needs system_topic_enabled, too.",
        subject=Subject.TOPICS,
        named_by="Pulsar",
    )
    max_leases_per_namespace: int = setting(
        1000,
        "Maximum number of leases of one namespace. A new topic in the namespace gets all of them, so the value is at "
        "most managed_ledger_max_leases_per_topic.",
        subject=Subject.RETENTION,
        unit="leases",
        ge=1,
        le=1000,
    )
    default_number_of_namespace_bundles: int = setting(
        4,
        "Bundles of a namespace that is created without a number of bundles.",
        subject=Subject.BUNDLES,
        unit="bundles",
        ge=1,
        le=MAX_BUNDLES,
        named_by="Pulsar",
        dynamic=True,
    )
    load_balancer_namespace_maximum_bundles: int = setting(
        128,
        "Maximum number of bundles of one namespace, after its creation and after splits.",
        subject=Subject.BUNDLES,
        unit="bundles",
        ge=1,
        le=MAX_BUNDLES,
        named_by="Pulsar",
        dynamic=True,
    )
    metadata_cache_ttl_seconds: float = setting(
        5.0,
        "Seconds for which a namespace's metadata is cached. Requests that create topics read it from the metadata "
        "store. 0: no caching.",
        subject=Subject.METADATA,
        ge=0,
        formerly="metadata_cache_ttl_s",
    )
    metadata_operation_timeout_seconds: float = setting(
        20.0,
        "Seconds for which a change of metadata waits while the metadata store is unreachable.",
        subject=Subject.METADATA,
        gt=0,
        formerly="metadata_operation_timeout_s",
    )
    admin_max_names: int = setting(
        1000,
        "Maximum number of names in one response to an admin call over gRPC. Clients request the rest with further "
        "calls. Over HTTP all names are in one response.",
        subject=Subject.ADMIN,
        unit="names",
        ge=1,
        le=2**32 - 1,
        dynamic=True,
    )
    admin_max_peeked_entries: int = setting(
        100,
        "Maximum number of entries in one request to peek at messages.",
        subject=Subject.ADMIN,
        unit="entries",
        ge=1,
        le=MAX_COUNT,
        dynamic=True,
    )
    subscription_backlog_scan_max_entries: int = setting(
        10_000,
        "Maximum number of entries that are read to analyze the backlog of one subscription. What is counted until "
        "then is answered.",
        subject=Subject.ADMIN,
        unit="entries",
        ge=1,
        named_by="Pulsar",
    )
    subscription_backlog_scan_max_time_ms: int = setting(
        20_000,
        "Maximum time, in ms, to analyze the backlog of one subscription. What is counted until then is answered. A "
        "longer time than admin_forward_timeout_seconds has no use. Pulsar's default: 120,000.",
        subject=Subject.ADMIN,
        ge=1,
        named_by="Pulsar",
    )
    admin_forward_timeout_seconds: float = setting(
        25.0,
        "Seconds for which a broker retries an admin call at the topic's owner while the owner changes, fails or "
        "does not answer.",
        subject=Subject.ADMIN,
        gt=0,
        formerly="admin_forward_timeout_s",
    )

    http_max_uncompressed_message_bytes: int = setting(
        16_777_216,
        "Maximum size, in bytes, of a stored message that an admin call over HTTP answers: a batch as a whole, "
        "uncompressed. Larger ones are read over gRPC.",
        subject=Subject.HTTP,
        ge=1,
        le=MAX_UNCOMPRESSED_BYTES,
    )
    http_max_pending_answer_bytes: int = setting(
        67_108_864,
        "Maximum size, in bytes, of all large HTTP responses together that are being sent. Requests above it are "
        "answered with 429. A single response may be larger.",
        subject=Subject.HTTP,
        ge=1,
    )

    @model_validator(mode="after")
    def _check_defaults(self) -> Self:
        check_order(self, "default_num_partitions", "max_num_partitions_per_partitioned_topic")
        check_order(self, "default_number_of_namespace_bundles", "load_balancer_namespace_maximum_bundles")
        return self


class HealthSettings(Configuration):
    health_check_timeout_seconds: float = setting(
        5.0,
        "Seconds that the health check's message may take from publish to read. Then the check has failed.",
        subject=Subject.HEALTH,
        gt=0,
        formerly="health_check_timeout_s",
        dynamic=True,
    )
    health_check_max_age_seconds: float = setting(
        1.0,
        "Seconds for which a health check's result is reused for further requests.",
        subject=Subject.HEALTH,
        ge=0,
        formerly="health_check_max_age_s",
        dynamic=True,
    )


class MetricsSettings(Configuration):
    expose_topic_level_metrics_in_prometheus: bool = setting(
        True,
        "Expose metrics of each topic and subscription. If false, they are summed by namespace.",
        subject=Subject.HTTP,
        named_by="Pulsar",
        dynamic=True,
    )
    max_topics_in_metrics: int = setting(
        1000,
        "Maximum number of topics with metrics of their own. Metrics of further topics are summed by namespace.",
        subject=Subject.HTTP,
        unit="topics",
        ge=0,
        le=MAX_COUNT,
        dynamic=True,
    )
    stats_update_frequency_in_secs: float = setting(
        10.0,
        "Interval, in seconds, over which rates are measured, for example messages per second. Pulsar's default: 60.",
        subject=Subject.HTTP,
        gt=0,
        named_by="Pulsar",
    )
