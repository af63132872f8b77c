"""All that can be set about a broker."""

from __future__ import annotations

from pydantic import Field

from magnetar_broker.admin.health_options import HealthOptions
from magnetar_broker.admin.options import CatalogOptions
from magnetar_broker.http.options import MetricsOptions
from magnetar_broker.managed_ledger.cursor_options import CursorOptions
from magnetar_broker.managed_ledger.options import ManagedLedgerOptions
from magnetar_broker.ownership.options import OwnershipOptions
from magnetar_broker.server.grpc.consume_options import ConsumeOptions
from magnetar_broker.server.grpc.lookup_options import FindingOptions
from magnetar_broker.server.pulsar.options import PulsarOptions
from magnetar_broker.topic.options import TopicOptions
from magnetar_broker.topic.subscription_options import SubscriptionOptions

__all__ = ["BrokerOptions"]


class BrokerOptions(
    TopicOptions,
    ManagedLedgerOptions,
    CursorOptions,
    SubscriptionOptions,
    ConsumeOptions,
    FindingOptions,
    PulsarOptions,
    CatalogOptions,
    HealthOptions,
    OwnershipOptions,
    MetricsOptions,
):
    # Name of the cluster, in metrics and in tenants' allowed clusters.
    cluster_name: str = Field(default="standalone", min_length=1)
    # Seconds between two attempts to reach the metadata store.
    metadata_retry_s: float = Field(default=1.0, gt=0)
    # Seconds that a graceful shutdown waits until all topics are closed.
    broker_shutdown_timeout_s: float = Field(default=20.0, gt=0)
