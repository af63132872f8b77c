"""Administration of a cluster: tenants, namespaces, topics, subscriptions, and what there is to see of them.

    from magnetar.admin import Admin

    with Admin("magnetar://localhost:6652") as admin:
        admin.namespaces.create("public/orders")
        admin.topics.create_partitioned("public/orders/placed", 4)
        print(admin.topics.stats("public/orders/placed"))

`AsyncAdmin` is the same for asyncio. What goes wrong is raised as in the rest of the SDK: `magnetar.exceptions`.
"""

from __future__ import annotations

from magnetar.admin._admin import Admin, AsyncAdmin
from magnetar.admin.models import (
    ActiveBroker,
    AutoSubscriptionCreation,
    AutoTopicCreation,
    BrokerInfo,
    BrokerLoad,
    Bundle,
    ConsumerStats,
    CursorStats,
    Health,
    InternalStats,
    LeaseStats,
    LedgerStats,
    NamespacePolicies,
    OwnedBundle,
    PartitionedTopic,
    PeekedMessage,
    Persistence,
    ProducerStats,
    SubscriptionStats,
    TenantSettings,
    TopicHome,
    TopicStats,
    Traffic,
)
from magnetar.admin.reading import LogPlace, NextMessage, Piece, PieceFragment, Plan

__all__ = [
    "ActiveBroker",
    "Admin",
    "AsyncAdmin",
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
    "LogPlace",
    "NamespacePolicies",
    "NextMessage",
    "OwnedBundle",
    "PartitionedTopic",
    "PeekedMessage",
    "Persistence",
    "Piece",
    "PieceFragment",
    "Plan",
    "ProducerStats",
    "SubscriptionStats",
    "TenantSettings",
    "TopicHome",
    "TopicStats",
    "Traffic",
]
