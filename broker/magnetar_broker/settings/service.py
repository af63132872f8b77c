"""All settings of a broker, together, and the checks that they fit each other."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from magnetar_bookie.settings.ledger_client import LedgerClientSettings
from magnetar_broker.settings.administration import CatalogSettings, HealthSettings, MetricsSettings
from magnetar_broker.settings.bounds import check_lag_bound, check_load_seconds, check_topic_bound
from magnetar_broker.settings.delivery import ConsumeSettings, SubscriptionSettings
from magnetar_broker.settings.expiry import ExpirySettings
from magnetar_broker.settings.listeners import (
    BrokerGrpcSettings,
    LookupSettings,
    PulsarAddressSettings,
    PulsarListenerSettings,
)
from magnetar_broker.settings.managed_ledgers import CursorSettings, ManagedLedgerSettings
from magnetar_broker.settings.ownership import OwnershipSettings
from magnetar_broker.settings.schemas import SchemaSettings
from magnetar_broker.settings.topics import TopicSettings
from magnetar_metadata.settings import MetadataRetrySettings
from magnetar_wire.process.settings import AdvertisedAddressSettings, HttpSettings, LogSettings, ShutdownSettings
from magnetar_wire.settings import Subject, check_order, setting

__all__ = ["BrokerServiceSettings", "ServingSettings"]


class BrokerServiceSettings(
    TopicSettings,
    ExpirySettings,
    SchemaSettings,
    ManagedLedgerSettings,
    CursorSettings,
    SubscriptionSettings,
    ConsumeSettings,
    LookupSettings,
    PulsarListenerSettings,
    CatalogSettings,
    HealthSettings,
    OwnershipSettings,
    MetricsSettings,
    MetadataRetrySettings,
):
    cluster_name: str = setting(
        "standalone",
        "Name of the cluster, in metrics and in tenants' allowed clusters.",
        subject=Subject.ADDRESSES,
        min_length=1,
        named_by="Pulsar",
    )
    broker_shutdown_timeout_seconds: float = setting(
        20.0,
        "Seconds that a graceful shutdown waits until all topics are closed.",
        subject=Subject.SHUTDOWN,
        gt=0,
        formerly="broker_shutdown_timeout_s",
    )


class ServingSettings(
    BrokerServiceSettings,
    LedgerClientSettings,
    BrokerGrpcSettings,
    AdvertisedAddressSettings,
    PulsarAddressSettings,
    HttpSettings,
    ShutdownSettings,
    LogSettings,
):
    """The settings that `magnetar broker` and `magnetar standalone` have in common."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        check_lag_bound(self.max_bookie_lag_bytes, self.max_message_publish_buffer_size_in_mb)
        check_topic_bound(self.max_pending_publish_bytes_per_topic, self.managed_ledger_max_pending_bytes)
        check_order(
            self,
            "max_leases_per_namespace",
            "managed_ledger_max_leases_per_topic",
            "a new topic gets all leases of its namespace",
        )
        check_load_seconds(self.slow_topic_load_seconds, self.topic_load_timeout_seconds)
        return self
