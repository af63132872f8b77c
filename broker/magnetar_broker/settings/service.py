"""All that can be set about a broker."""

from __future__ import annotations

from pydantic import Field

from magnetar_broker.settings.administration import CatalogSettings
from magnetar_broker.settings.consume import ConsumeSettings
from magnetar_broker.settings.cursors import CursorSettings
from magnetar_broker.settings.delivery import SubscriptionSettings
from magnetar_broker.settings.finding import LookupSettings
from magnetar_broker.settings.health import HealthSettings
from magnetar_broker.settings.listeners import PulsarListenerSettings
from magnetar_broker.settings.managed_ledgers import ManagedLedgerSettings
from magnetar_broker.settings.metrics import MetricsSettings
from magnetar_broker.settings.ownership import OwnershipSettings
from magnetar_broker.settings.topics import TopicSettings

__all__ = ["BrokerServiceSettings"]


class BrokerServiceSettings(
    TopicSettings,
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
):
    # Name of the cluster, in metrics and in tenants' allowed clusters.
    cluster_name: str = Field(default="standalone", min_length=1)
    # Seconds between two attempts to reach the metadata store.
    metadata_retry_s: float = Field(default=1.0, gt=0)
    # Seconds that a graceful shutdown waits until all topics are closed.
    broker_shutdown_timeout_s: float = Field(default=20.0, gt=0)
